"""Policies that show or hide the candidates of a recording: the product's at any level.

A policy is asked where no suggestion stands. It returns the number of characters of the candidate that are shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.keystrokes.economy.recording import Recording
from benchmarks.keystrokes.economy.replay import Policy, Row
from speclsp.lsp.completion.confidence import Bar, Curve, Line, LineValue, line_values, lines_to_show

Judged = Mapping[int, list[LineValue]]  # by position: the values of the candidate's first lines


def line_list(row: Row) -> list[Line]:
    """The lines of a candidate."""
    return [Line(end, tuple(logprobs)) for end, logprobs, _ in row["lines"]]


def judge(recording: Recording, curve: Curve) -> dict[int, list[LineValue]]:
    """The values of all candidates of a body."""
    return {
        position: line_values(line_list(row), 0, curve) for position, row in enumerate(recording.rows) if row["lines"]
    }


def characters_of(row: Row, lines: int) -> int:
    """The characters of a candidate that its first lines have: of so many, or of the fewest more that are valid."""
    if lines == 0:
        return 0
    return next((shown for _, _, shown in row["lines"][lines - 1 : -1] if shown > 0), len(row["text"]))


def by_value(judged: Judged, bar: Bar) -> Policy:
    """The first lines with the highest value, as the product shows them."""

    def policy(rows: Sequence[Row], position: int) -> int:
        values, row = judged.get(position), rows[position]
        return len(row["text"]) if values is None else characters_of(row, lines_to_show(values, bar.at(row["text"])))

    return policy
