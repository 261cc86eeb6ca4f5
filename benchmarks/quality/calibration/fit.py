"""Fit of the confidence curve: logistic regression over token probabilities, judged on packages it was not fit to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from speclsp.lsp.completion.confidence import (
    MIN_LOGPROB,
    TokenProb,
    share_log_odds,
    sigmoid,
)

if TYPE_CHECKING:
    pass

from benchmarks.quality.calibration.examples import Example, Place

RIDGE = 1.0  # against large weights: as if that much had been seen beside
GROWS = ("share", "total", "worst", "first")  # weights that are not negative: the surer the model, the surer the gate
TRIED: Mapping[str, tuple[str, ...]] = {  # which of them are worth their place
    "mean": ("mean",),
    "share": ("share",),
    "total": ("total",),
    "worst": ("worst",),
    "probabilities": ("total", "worst", "first", "length"),
    "place": ("total", "worst", "blank", "word", "amid"),
    "all": ("share", "total", "worst", "first", "length", "blank", "word", "amid"),
    "share and total": ("share", "total"),
    "used": ("share",),
}
USED = TRIED["used"]


def features(tokens: Sequence[TokenProb], place: Place) -> dict[str, float]:
    """All features that a fit may weigh, of a line with at least one token. The product uses "share" alone."""
    logprobs = [min(0.0, max(MIN_LOGPROB, logprob)) for _, logprob in tokens]
    return {
        "intercept": 1.0,
        "share": share_log_odds(tokens),
        "total": sum(logprobs),
        "mean": sum(logprobs) / len(logprobs),
        "worst": min(logprobs),
        "first": logprobs[0],
        "length": math.log(len(logprobs)),
        "blank": float(place.blank),
        "word": float(place.word),
        "amid": float(place.amid),
    }


def fit(examples: Sequence[Example], names: Sequence[str] = USED) -> dict[str, float]:
    """The weights that make these examples likeliest (logistic regression); one that would be negative is left out."""
    import numpy as np

    columns = ["intercept", *names]
    answers = np.array([example.right for example in examples], dtype=float)
    rows = [features(example.thoughts, example.place) for example in examples]
    while True:
        x = np.array([[row[name] for name in columns] for row in rows])
        ridge = RIDGE * np.diag([0.0, *[1.0] * (len(columns) - 1)])
        weights = np.zeros(len(columns))
        for _ in range(50):
            p = 1 / (1 + np.exp(-np.clip(x @ weights, -30, 30)))
            slope = x.T @ (answers - p) - ridge @ weights
            step = np.linalg.solve((x.T * (p * (1 - p) + 1e-9)) @ x + ridge + 1e-9 * np.eye(len(columns)), slope)
            weights += step
            if np.abs(step).max() < 1e-8:
                break
        weight_of = dict(zip(columns, map(float, weights), strict=True))
        wrong = [name for name in GROWS if weight_of.get(name, 0.0) < 0]
        if not wrong:
            return {name: round(weight, 3) for name, weight in weight_of.items()}
        columns.remove(min(wrong, key=lambda name: weight_of[name]))


def weighed(one: Example, table: Mapping[str, float]) -> float:
    """The confidence in an example."""
    own = features(one.thoughts, one.place)
    return sigmoid(sum(weight * own[name] for name, weight in table.items()))


def crossed(examples: Sequence[Example], names: Sequence[str] = USED) -> list[float]:
    """Each example's confidence, by weights from packages that are not its own."""
    packages = sorted({example.package for example in examples})
    half = {package: number % 2 for number, package in enumerate(packages)}
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
