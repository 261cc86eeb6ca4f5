"""Logistic regression of the gate of next edits, and the edits that a gate would show in recorded states.

Each package has at most PACKAGE_WEIGHT in a fit, so one that changed all its files does not decide. `above` is fitted
beside the features and left out of the gate: the replay goes from top to bottom, so places above are never right there.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.editor.edit_replay.replay_states import HALF_TYPED, STATE
from speclsp.lsp.next_edit import edit_likelihood as gate

RIDGE = 3.0  # against large weights, of features in units of their standard deviation
PACKAGE_WEIGHT = 30.0  # examples
FOLDS = 10
ABOVE, INTERCEPT = "above", "intercept"

Row = Mapping[str, Any]
Weights = Mapping[str, float]  # with INTERCEPT
Judge = Callable[[str, Mapping[str, float]], float]  # the probability of a candidate of a package


def fold_of(package: str) -> int:
    """The fold of a package in the cross-validation."""
    return int(hashlib.sha256(package.encode()).hexdigest()[:8], 16) % FOLDS


def examples(rows: Iterable[Row]) -> list[tuple[str, Mapping[str, float], bool]]:
    """(package, features, right) of each candidate that is not proven."""
    return [
        (row["package"], {**candidate["features"], ABOVE: float(candidate["above"])}, candidate["right"])
        for row in rows
        for candidate in row["candidates"]
        if not candidate["proven"]
    ]


def fit(chosen: Sequence[tuple[str, Mapping[str, float], bool]]) -> dict[str, float]:
    """The weights that make the examples likeliest. One whose sign is not that of gate.SIGNS is 0."""
    import numpy as np

    names = [*gate.FEATURES, ABOVE]
    table = np.array([[features.get(name, 0.0) for name in names] for _, features, _ in chosen])
    right = np.array([answer for *_, answer in chosen], dtype=float)
    number = Counter(package for package, *_ in chosen)
    weight = np.array([min(1.0, PACKAGE_WEIGHT / number[package]) for package, *_ in chosen])
    scale = table.std(axis=0)
    scale[scale == 0] = 1.0
    scale[: len(gate.KINDS)] = 1.0
    used = list(range(len(names)))
    while True:
        x = np.hstack([np.ones((len(table), 1)), table[:, used] / scale[used]])
        ridge = RIDGE * np.diag([1e-6, *[1.0] * len(used)])
        solution = np.zeros(len(used) + 1)
        for _ in range(60):
            p = 1 / (1 + np.exp(-np.clip(x @ solution, -30, 30)))
            hessian = (x.T * (weight * p * (1 - p))) @ x + ridge
            step = np.linalg.solve(hessian, x.T @ (weight * (right - p)) - ridge @ solution)
            solution += step
            if np.abs(step).max() < 1e-9:
                break
        values = {names[at]: float(value) for at, value in zip(used, solution[1:] / scale[used], strict=True)}
        wrong = [name for name, sign in gate.SIGNS.items() if values.get(name, 0.0) * sign < 0]
        if not wrong:
            zeros = dict.fromkeys(names, 0.0)
            return {INTERCEPT: round(float(solution[0]), 3)} | {k: round(v, 3) for k, v in (zeros | values).items()}
        used.remove(names.index(max(wrong, key=lambda name: abs(values[name]) * scale[names.index(name)])))


def by_weights(weights: Weights) -> Judge:
    """The probability by one table of weights."""
    log_odds = {name: weight for name, weight in weights.items() if name not in (INTERCEPT, ABOVE) and weight}

    def judge(package: str, features: Mapping[str, float]) -> float:
        total = weights[INTERCEPT] + sum(weight * features.get(name, 0.0) for name, weight in log_odds.items())
        return gate.sigmoid(total)

    return judge


def crossed(rows: Sequence[Row]) -> Judge:
    """The probability by weights from the other folds' packages."""
    chosen = examples(rows)
    judges = [by_weights(fit([row for row in chosen if fold_of(row[0]) != fold])) for fold in range(FOLDS)]
    return lambda package, features: judges[fold_of(package)](package, features)


@dataclass(slots=True)
class Shown:
    """Edits that a gate shows."""

    shown: Counter[str] = field(default_factory=Counter)  # by kind of state
    right: Counter[str] = field(default_factory=Counter)
    by_kind: Counter[str] = field(default_factory=Counter)  # of STATE
    right_by_kind: Counter[str] = field(default_factory=Counter)

    @property
    def precision(self) -> float:
        return self.right[STATE] / self.shown[STATE] if self.shown[STATE] else 0.0

    def precision_of(self, kind: str) -> float:
        return self.right_by_kind[kind] / (self.by_kind[kind] or 1)

    def figures(self) -> dict[str, object]:
        """For the result file."""
        return {
            "shown": self.shown[STATE],
            "right": self.right[STATE],
            "precision": round(self.precision, 3),
            "half_typed": [self.shown[HALF_TYPED], self.right[HALF_TYPED]],
            "by_kind": {kind: [self.right_by_kind[kind], number] for kind, number in sorted(self.by_kind.items())},
        }


def show(rows: Iterable[Row], judge: Judge, thresholds: Mapping[str, float]) -> Shown:
    """Show the first likely edit of each state: one that was not taken is not shown again.

    `thresholds`: of each kind. The rows have the chains of the gate that recorded them. Proven edits, and chains that
    go on, are always shown.
    """
    result, at, shown_before = Shown(), ("", ""), dict[tuple[object, ...], int]()
    for row in rows:
        if at != (row["package"], row["path"]):
            at, shown_before = (row["package"], row["path"]), {}
        kind = row["kind"]
        for candidate in row["candidates"]:
            change, features = tuple(candidate["change"]), candidate["features"]
            is_known = candidate["proven"] or gate.goes_on(features)
            is_likely = is_known or judge(row["package"], features) >= thresholds[change[0]]
            if not is_likely or shown_before.get(change) == candidate["times"]:
                continue
            result.shown[kind] += 1
            result.right[kind] += candidate["right"]
            if kind == STATE:
                name = "proven" if candidate["proven"] else change[0]
                result.by_kind[name] += 1
                result.right_by_kind[name] += candidate["right"]
                if not candidate["right"]:
                    shown_before[change] = candidate["times"]
            break
    return result
