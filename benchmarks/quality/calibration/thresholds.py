"""Thresholds of `completion.eagerness`: the confidence below which a suggestion is hidden, by what hiding loses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass

from benchmarks.quality.calibration.examples import Example

WRONG = 0.2  # cost of reading a wrong suggestion, where a right one is worth 1
MOST_LOST = 0.01  # of the right suggestions, that "medium" may hide
MOST_SAVED_LOST = 0.02  # the same share of the characters saved by accepting word by word
MOST_TYPED_LOST = 0.05  # the same of the keys that type a suggestion along
PRECISION_OF_LOW = 0.5  # "low" shows suggestions that are right more often than not
ROUNDED = 0.00005  # rounding error of a trace's confidence


def at_threshold(sure: Sequence[float], right: Sequence[bool], least: float, tasks: int) -> dict[str, float | None]:
    """Figures of the suggestions at or above a threshold; None where there is nothing to divide by."""
    shown = [hit for p, hit in zip(sure, right, strict=True) if p >= least]
    hits, every = sum(shown), sum(right)
    return {
        "least": round(least, 3),
        "shown": round(len(shown) / tasks, 4),
        "shown_of_suggested": round(len(shown) / len(sure), 4),
        "precision": round(hits / len(shown), 4) if shown else None,
        "right_kept": round(hits / every, 4) if every else None,
        "worth": round((hits - WRONG * (len(shown) - hits)) / tasks, 4),
    }


def saved_kept(examples: Sequence[Example], sure: Sequence[float], least: float) -> float | None:
    """Share of the saved characters that the shown suggestions keep."""
    every = sum(example.saved for example in examples)
    return (
        round(sum(sample.saved for sample, p in zip(examples, sure, strict=True) if p >= least) / every, 4)
        if every
        else None
    )


def thresholds(
    sure: Sequence[float],
    right: Sequence[bool],
    saved: Sequence[int],
    followed: Sequence[tuple[float, int]] = (),
) -> dict[str, float]:
    """For "medium", the most that hides nothing worth showing, few right ones, little of what others would save and,
    of suggestions in replayed typing (confidence, keys that typed it along), little that is typed along; for "low",
    what is right often enough."""
    most = [WRONG / (1 + WRONG)]
    for of, share in (([float(hit) for hit in right], MOST_LOST), ([float(value) for value in saved], MOST_SAVED_LOST)):
        most.append(bar(sure, of, share))
    confidences = [value - ROUNDED for value, _ in followed]  # as it was at the least
    most.append(bar(confidences, [float(keys) for _, keys in followed], MOST_TYPED_LOST))
    medium = max(0, math.floor(min(most) * 1000)) / 1000
    grid = [step / 100 for step in range(1, 100)]
    low = next((at for at in grid if at > medium and precision(sure, right, at) >= PRECISION_OF_LOW), 0.99)
    return {"low": low, "medium": medium, "high": 0.0}


def bar(sure: Sequence[float], worth: Sequence[float], share: float) -> float:
    """The highest threshold that hides at most `share` of the total worth."""
    lost = 0.0
    for p, value in sorted(zip(sure, worth, strict=True)):
        lost += value
        if lost > share * sum(worth):
            return p
    return 1.0


def precision(sure: Sequence[float], right: Sequence[bool], least: float) -> float:
    """Share of the shown suggestions that are right."""
    shown = [hit for p, hit in zip(sure, right, strict=True) if p >= least]
    return sum(shown) / len(shown) if shown else 1.0
