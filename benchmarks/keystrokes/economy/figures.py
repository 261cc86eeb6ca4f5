"""Figures of policies: a ratio of counts over all bodies each, with paired bootstrap intervals over the bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.keystrokes.economy.bodies import Body
from benchmarks.keystrokes.economy.replay import Counts
from benchmarks.quality.scoring import bootstrap

FIGURES: Mapping[str, tuple[str, str]] = {  # (sum of counts, over the sum of others)
    "keys_saved": ("saved", "keys"),
    "shown_per_key": ("shown", "keys"),
    "first_line_right": ("first_line_right", "shown"),
    "wrong_per_key": ("wrong", "keys"),
    "wrong_with_rests_per_key": ("wrong_or_rest", "keys"),
    "wrong_but_used": ("wrong_but_used", "wrong"),
    "characters_that_stay": ("stay", "characters"),
    "right_at_pauses": ("pauses_right", "pauses_shown"),
    "shown_at_pauses": ("pauses_shown", "pauses"),
}
COMPARED = ("keys_saved", "wrong_per_key", "wrong_with_rests_per_key", "first_line_right")
Typed = tuple[Counts, Counts]  # of one body: with a person who accepts, and with one who only looks


def column(typed: Sequence[Typed], name: str) -> list[float]:
    """A count of each body. Pauses are those of the person who only looks."""
    if name.startswith("pauses"):
        return [getattr(looked, name) for _, looked in typed]
    if name == "saved":
        return [counts.keys - counts.pressed for counts, _ in typed]
    if name == "wrong_or_rest":
        return [counts.wrong + counts.rests for counts, _ in typed]
    return [getattr(counts, name) for counts, _ in typed]


def of_policy(typed: Sequence[Typed], base: Sequence[Typed] | None = None) -> dict[str, Any]:
    """All figures of a policy, and the differences from `base`."""
    drawn = bootstrap.draws(len(typed))
    result: dict[str, Any] = {"shown": int(sum(column(typed, "shown")))}
    for name, (above, below) in FIGURES.items():
        counts = column(typed, above), column(typed, below)
        interval = bootstrap.figure(counts, drawn)
        result[name] = interval.json() if interval is not None else None
        if base is not None and name in COMPARED:
            change = bootstrap.difference(counts, (column(base, above), column(base, below)), drawn)
            result[f"{name}_change"] = change.json() if change is not None else None
    return result


def by_language(bodies: Sequence[Body], typed: Sequence[Typed]) -> dict[str, Any]:
    """The figures of each language's bodies."""
    groups = sorted({body.group for body in bodies})
    members = {
        group: [counts for body, counts in zip(bodies, typed, strict=True) if body.group == group] for group in groups
    }
    return {group: {"bodies": len(own), **of_policy(own)} for group, own in members.items()}


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Policies as lines of text."""
    heads = ("saved of 100", "shown", "right line %", "wrong/100", "with rests", "stay %", "pauses right %", "shown %")
    width = max(26, *(len(name) + 1 for name in rows))
    lines = ["policy".ljust(width) + "".join(head.rjust(16) for head in heads)]
    for name, row in rows.items():
        values = [
            percent(row["keys_saved"], spanned=True),
            str(row["shown"]),
            percent(row["first_line_right"]),
            percent(row["wrong_per_key"], spanned=True),
            percent(row["wrong_with_rests_per_key"]),
            percent(row["characters_that_stay"]),
            percent(row["right_at_pauses"]),
            percent(row["shown_at_pauses"]),
        ]
        lines.append(name.ljust(width) + "".join(value.rjust(16) for value in values))
    return "\n".join(lines)


def changes_table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The differences of policies from the one that they are compared with, as lines of text."""
    names = [f"{name}_change" for name in COMPARED]
    lines = ["change of".ljust(46) + "".join(name.rjust(26) for name in COMPARED)]
    for policy, row in rows.items():
        lines.append(policy.ljust(46) + "".join(percent(row[name], spanned=True).rjust(26) for name in names))
    return "\n".join(lines)


def percent(figure: Mapping[str, float] | None, *, spanned: bool = False) -> str:
    """A share in percent, with its interval where `spanned`."""
    if figure is None:
        return "-"
    value, low, high = (100 * figure[name] for name in ("value", "low", "high"))
    return f"{value:.1f} [{low:.1f},{high:.1f}]" if spanned else f"{value:.1f}"
