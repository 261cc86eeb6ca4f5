"""Figures of policies: a ratio of counts over all bodies each, with paired bootstrap intervals over the bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.keystrokes.economy.bodies import Body
from benchmarks.keystrokes.economy.replay import Counts
from benchmarks.quality.scoring import bootstrap

FIGURES: Mapping[str, tuple[str, str]] = {  # (sum of counts, over the sum of others)
    "keys_saved": ("saved", "keys"),
    "first_line_right": ("first_line_right", "shown"),
    "wrong_per_key": ("wrong", "keys"),
    "characters_that_stay": ("stay", "characters"),
    "shown_at_pauses": ("pauses_shown", "pauses"),
    "right_at_pauses": ("pauses_right", "pauses_shown"),
    "hidden_at_pauses": ("pauses_hidden", "pauses"),
}
COMPARED = ("keys_saved", "wrong_per_key", "first_line_right")


def column(typed: Sequence[Counts], name: str) -> list[float]:
    """A count of each body."""
    if name == "saved":
        return [counts.keys - counts.pressed for counts in typed]
    return [getattr(counts, name) for counts in typed]


def columns(typed: Sequence[Counts], figure: str) -> tuple[list[float], list[float]]:
    """The counts of a figure, and those that divide them, of each body."""
    above, below = FIGURES[figure]
    return column(typed, above), column(typed, below)


def ratio(typed: Sequence[Counts], figure: str) -> float:
    """A figure without its interval."""
    above, below = columns(typed, figure)
    return sum(above) / max(1.0, sum(below))


def of_policy(typed: Sequence[Counts], base: Sequence[Counts] | None = None) -> dict[str, Any]:
    """All figures of a policy, and the differences from `base`."""
    drawn = bootstrap.draws(len(typed))
    result: dict[str, Any] = {"shown": int(sum(column(typed, "shown")))}
    for name in FIGURES:
        counts = columns(typed, name)
        interval = bootstrap.figure(counts, drawn)
        result[name] = interval.json() if interval is not None else None
        if base is not None and name in COMPARED:
            change = bootstrap.difference(counts, columns(base, name), drawn)
            result[f"{name}_change"] = change.json() if change is not None else None
    return result


def by_language(bodies: Sequence[Body], typed: Sequence[Counts]) -> dict[str, Any]:
    """The figures of each language's bodies."""
    groups = sorted({body.group for body in bodies})
    members = {
        group: [counts for body, counts in zip(bodies, typed, strict=True) if body.group == group] for group in groups
    }
    return {group: {"bodies": len(own), **of_policy(own)} for group, own in members.items()}
