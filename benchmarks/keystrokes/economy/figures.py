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
HEADS = (
    "saved of 100", "shown", "right line %", "wrong/100", "stay %", "pauses shown %", "right %", "right, hidden %"
)  # fmt: skip


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


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Policies as lines of text."""
    width = max(26, *(len(name) + 1 for name in rows))
    lines = ["policy".ljust(width) + "".join(head.rjust(17) for head in HEADS)]
    for name, row in rows.items():
        values = [
            percent(row["keys_saved"], spanned=True),
            str(row["shown"]),
            percent(row["first_line_right"]),
            percent(row["wrong_per_key"], spanned=True),
            percent(row["characters_that_stay"]),
            percent(row["shown_at_pauses"]),
            percent(row["right_at_pauses"]),
            percent(row["hidden_at_pauses"]),
        ]
        lines.append(name.ljust(width) + "".join(value.rjust(17) for value in values))
    return "\n".join(lines)


def percent(figure: Mapping[str, float] | None, *, spanned: bool = False) -> str:
    """A share in percent, with its interval where `spanned`."""
    if figure is None:
        return "-"
    value, low, high = (100 * figure[name] for name in ("value", "low", "high"))
    return f"{value:.1f} [{low:.1f},{high:.1f}]" if spanned else f"{value:.1f}"
