"""Fit of the confidence curve: logistic regression over the features of lines, judged on packages it was not fit to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from benchmarks.quality.calibration.examples import Example
from benchmarks.quality.calibration.features import FEATURES, NEVER_NEGATIVE
from speclsp.lsp.completion.confidence import sigmoid

RIDGE = 1.0  # against large weights: as if that much had been seen beside
USED = ("total",)  # by the product, for the first line and for later ones
PLACE = ("opens", "inside_word", "line_start", "argument", "operator", "comment", "string", "next_line")
HISTORY = ("contradicted", "agreed", "same_end", "repeats")
TRIED: Mapping[str, tuple[str, ...]] = {  # sets of features of the first line, compared on packages outside the fit
    "used": USED,
    "share": ("share",),
    "worst": ("worst",),
    "total and worst": ("total", "worst"),
    "total and length": ("total", "length", "depth"),
    "total and place": ("total", *PLACE),
    "total and history": ("total", *HISTORY),
    "all": tuple(FEATURES),
}


def fit(examples: Sequence[Example], names: Sequence[str] = USED) -> dict[str, float]:
    """The weights that make these examples likeliest (logistic regression).

    A weight of NEVER_NEGATIVE that would be negative is left out.
    """
    import numpy as np

    columns = ["intercept", *names]
    answers = np.array([example.right for example in examples], dtype=float)
    weight = np.array([example.weight for example in examples])
    while True:
        x = np.array([[example.features.get(name, 1.0) for name in columns] for example in examples])
        ridge = RIDGE * np.diag([0.0, *[1.0] * (len(columns) - 1)])
        weights = np.zeros(len(columns))
        for _ in range(50):
            p = 1 / (1 + np.exp(-np.clip(x @ weights, -30, 30)))
            slope = x.T @ (weight * (answers - p)) - ridge @ weights
            hessian = (x.T * (weight * p * (1 - p) + 1e-9)) @ x + ridge + 1e-9 * np.eye(len(columns))
            step = np.linalg.solve(hessian, slope)
            weights += step
            if np.abs(step).max() < 1e-8:
                break
        weight_of = dict(zip(columns, map(float, weights), strict=True))
        wrong = [name for name in NEVER_NEGATIVE if weight_of.get(name, 0.0) < 0]
        if not wrong:
            return {name: round(value, 2) for name, value in weight_of.items()}
        columns.remove(min(wrong, key=lambda name: weight_of[name]))


def weighed(example: Example, table: Mapping[str, float]) -> float:
    """The confidence in an example."""
    return sigmoid(sum(weight * example.features.get(name, 1.0) for name, weight in table.items()))


def halves(packages: Sequence[str]) -> dict[str, int]:
    """The half, 0 or 1, of each package."""
    return {package: number % 2 for number, package in enumerate(sorted(set(packages)))}


def crossed(examples: Sequence[Example], names: Sequence[str] = USED) -> list[float]:
    """Each example's confidence, by weights from packages that are not its own."""
    half = halves([example.package for example in examples])
    tables = [fit([example for example in examples if half[example.package] != fold], names) for fold in (0, 1)]
    return [weighed(example, tables[half[example.package]]) for example in examples]


def quality(sure: Sequence[float], right: Sequence[bool]) -> dict[str, float]:
    """Quality of confidences: log loss and Brier's score (less is better), and the area under the ROC curve."""
    n = len(sure)
    loss = -sum(math.log(max(1e-9, p if hit else 1 - p)) for p, hit in zip(sure, right, strict=True)) / n
    brier = sum((p - hit) ** 2 for p, hit in zip(sure, right, strict=True)) / n
    order = sorted(range(n), key=lambda at: sure[at])
    hits, below = sum(right), 0.0
    wrong_below = 0
    for at in order:
        below += wrong_below if right[at] else 0
        wrong_below += not right[at]
    area = below / (hits * (n - hits)) if 0 < hits < n else math.nan
    return {"log_loss": round(loss, 4), "brier": round(brier, 4), "area": round(area, 4)}


def reliability(sure: Sequence[float], right: Sequence[bool], bins: int = 10) -> list[dict[str, float]]:
    """Reliability bins of equal size: predicted and observed probability."""
    order = sorted(range(len(sure)), key=lambda at: sure[at])
    bins_of = []
    for number in range(bins):
        own = order[len(order) * number // bins : len(order) * (number + 1) // bins]
        if own:
            predicted, true = sum(sure[at] for at in own) / len(own), sum(right[at] for at in own) / len(own)
            bins_of.append({"said": round(predicted, 3), "true": round(true, 3), "examples": len(own)})
    return bins_of
