"""Counts of a replay, and the rates in a summary."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Counts = TypeVar("Counts", bound="DataclassInstance")


@dataclass(slots=True)
class Count:
    """Counts and times of one language in one part of the packages."""

    packages: set[str] = field(default_factory=set)
    states: int = 0
    shown: int = 0
    right: int = 0
    exact: int = 0
    quiet_states: int = 0
    quiet: int = 0
    half_typed: int = 0  # states in which the next difference is begun
    half_typed_shown: int = 0
    half_typed_right: int = 0
    undoing: int = 0  # shown edits that undo the user's newest one
    by_kind: Counter[str] = field(default_factory=Counter)
    right_by_kind: Counter[str] = field(default_factory=Counter)
    ms: list[float] = field(default_factory=list)

    @staticmethod
    def sum(counts: Iterable[Count]) -> Count:
        """All counts together."""
        return summed(Count(), counts)

    def figures(self) -> dict[str, object]:
        """The rates, for the summary."""
        times = sorted(self.ms) or [0.0]
        return {
            "packages": len(self.packages),
            "states": self.states,
            "shown": self.shown,
            "right": self.right,
            "exact": self.exact,
            "shown_rate": rate(self.shown, self.states),
            "precision": rate(self.right, self.shown),
            "exact_rate": rate(self.exact, self.states),
            "quiet_states": self.quiet_states,
            "quiet_rate": rate(self.quiet, self.quiet_states),
            "half_typed": [self.half_typed, self.half_typed_shown, self.half_typed_right],
            "reversal_rate": rate(self.undoing, self.shown + self.half_typed_shown),
            "by_kind": {kind: [self.right_by_kind[kind], count] for kind, count in sorted(self.by_kind.items())},
            "ms": {
                "median": round(statistics.median(times), 2),
                "p99": round(times[int(len(times) * 0.99)], 2),
                "most": round(times[-1], 2),
            },
        }


def summed(total: Counts, counts: Iterable[Counts]) -> Counts:
    """`total` with all counts added: numbers, counters and lists by +, sets by their union."""
    for count in counts:
        for item in fields(total):
            so_far, more = getattr(total, item.name), getattr(count, item.name)
            setattr(total, item.name, so_far | more if isinstance(so_far, set) else so_far + more)
    return total


def rate(part: int, whole: int) -> float | None:
    """A rate with three digits; None for a part of nothing."""
    return round(part / whole, 3) if whole else None
