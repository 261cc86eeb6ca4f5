"""Policies that show or hide the candidates of a recording: the product's, and the product's before it had a value.

A policy is asked where no suggestion stands. It returns the number of characters of the candidate that are shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.keystrokes.economy.recording import Recording
from benchmarks.keystrokes.economy.replay import Policy, Row
from benchmarks.quality.calibration.features import right_share
from speclsp.lsp.completion.confidence import (
    Cost,
    Curve,
    Line,
    LineValue,
    TokenProb,
    best_lines,
    line_values,
    log_odds,
    sigmoid,
    sure_lines,
)

SHARE_WEIGHTS = {"intercept": -0.995, "share": 1.03}  # of the confidence before, from the right share alone
MIN_SHARE = 0.001
Judged = Mapping[int, list[LineValue]]  # by position: the values of the candidate's first lines


def line_list(row: Row) -> list[Line]:
    """The lines of a candidate."""
    return [
        Line(end, tuple((characters, logprob) for characters, logprob in tokens)) for end, tokens, _ in row["lines"]
    ]


def judge(recording: Recording, curve: Curve) -> dict[int, list[LineValue]]:
    """The values of all candidates of a body."""
    return {
        position: line_values(line_list(row), 0, curve) for position, row in enumerate(recording.rows) if row["lines"]
    }


def characters_of(row: Row, lines: int) -> int:
    """The characters of a candidate that its first lines have. All of it, where they are no suggestion of their own."""
    if lines == 0:
        return 0
    shown = row["lines"][lines - 1][2] if lines < len(row["lines"]) else len(row["text"])
    return shown if shown > 0 else len(row["text"])


def by_value(judged: Judged, cost: Cost) -> Policy:
    """The first lines with the highest value."""

    def policy(rows: Sequence[Row], position: int) -> int:
        values, row = judged.get(position), rows[position]
        return len(row["text"]) if values is None else characters_of(row, best_lines(values, cost))

    return policy


def by_confidence(judged: Judged, least: float) -> Policy:
    """The first lines that are sure enough: `completion.min_confidence`."""

    def policy(rows: Sequence[Row], position: int) -> int:
        values, row = judged.get(position), rows[position]
        return len(row["text"]) if values is None else characters_of(row, sure_lines(values, least))

    return policy


def by_share(least: float) -> Policy:
    """The product before: each line by the share of it that is right, and all lines up to the first unsure one.

    The token that was typed in part counted as certain.
    """

    def policy(rows: Sequence[Row], position: int) -> int:
        row = rows[position]
        for number, line in enumerate(line_list(row)):
            tokens = line.tokens[1:] if number == 0 and row.get("in_token") else line.tokens
            if tokens and share_confidence(tokens) < least:
                return characters_of(row, number)
        return len(row["text"])

    return policy


def share_confidence(tokens: Sequence[TokenProb]) -> float:
    """The confidence in a line by the expected share of it that is right from its start on."""
    odds = log_odds(min(1.0 - MIN_SHARE, max(MIN_SHARE, right_share(tokens))))
    return sigmoid(SHARE_WEIGHTS["intercept"] + SHARE_WEIGHTS["share"] * odds)
