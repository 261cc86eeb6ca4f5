"""Fit of the confidence curve: logistic regression on the log-probability of lines, judged on other packages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from benchmarks.quality.calibration.examples import Example
from speclsp.lsp.completion.confidence import sigmoid

RIDGE = 1.0  # against large weights: as if that much had been seen beside


def fit(examples: Sequence[Example]) -> dict[str, float]:
    """The weights that make these examples likeliest (logistic regression)."""
    import numpy as np

    answers = np.array([example.right for example in examples], dtype=float)
    weight = np.array([example.weight for example in examples])
    x = np.array([[1.0, example.total] for example in examples])
    ridge = RIDGE * np.diag([0.0, 1.0])
    weights = np.zeros(2)
    for _ in range(50):
        p = 1 / (1 + np.exp(-np.clip(x @ weights, -30, 30)))
        slope = x.T @ (weight * (answers - p)) - ridge @ weights
        hessian = (x.T * (weight * p * (1 - p) + 1e-9)) @ x + ridge + 1e-9 * np.eye(2)
        step = np.linalg.solve(hessian, slope)
        weights += step
        if np.abs(step).max() < 1e-8:
            break
    return {"intercept": round(float(weights[0]), 2), "total": round(float(weights[1]), 2)}


def weighed(example: Example, weights: Mapping[str, float]) -> float:
    """The confidence in an example."""
    return sigmoid(weights["intercept"] + weights["total"] * example.total)


def halves(packages: Sequence[str]) -> dict[str, int]:
    """The half, 0 or 1, of each package."""
    return {package: number % 2 for number, package in enumerate(sorted(set(packages)))}


def crossed(examples: Sequence[Example]) -> list[float]:
    """Each example's confidence, by weights from packages that are not its own."""
    half = halves([example.package for example in examples])
    tables = [fit([example for example in examples if half[example.package] != fold]) for fold in (0, 1)]
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
