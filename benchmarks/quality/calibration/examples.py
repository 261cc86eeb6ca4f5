"""Examples for calibration: lines of recorded candidates, and whether each was the line that the author wrote.

The recordings are those of `python -m benchmarks economy`. A candidate that a key agrees with is there again at the
next position, so it weighs less there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.keystrokes.economy.person import Keyboard, right_lines
from benchmarks.keystrokes.economy.policies import line_list
from benchmarks.keystrokes.economy.recording import Recording
from speclsp.lsp.completion.confidence import total_logprob

AGAIN = 0.2  # weight of a candidate at each position after its first


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A line whose answer is known."""

    package: str
    language: str
    total: float  # log-probability of the line
    right: bool
    weight: float = 1.0


def examples(recordings: Sequence[Recording]) -> tuple[list[Example], list[Example]]:
    """(first lines, further lines whose lines above are all right)."""
    first: list[Example] = []
    later: list[Example] = []
    for recording in recordings:
        for number, example in of_body(recording):
            (later if number else first).append(example)
    return first, later


def of_body(recording: Recording) -> Iterator[tuple[int, Example]]:
    """(number of the line in its candidate, example) for each judged line of a body."""
    body, keyboard = recording.body, Keyboard.of(recording.body.text)
    for row, offset in zip(recording.rows, keyboard.ends, strict=True):
        if not row["lines"]:
            continue
        text, meant = row.get("generated", row["text"]), body.text[offset:]
        right = len(right_lines(text, meant))
        for number, line in enumerate(line_list(row)):
            if line.logprobs:
                yield (
                    number,
                    Example(
                        package=body.package,
                        language=body.group,
                        total=total_logprob(line.logprobs),
                        right=number < right,
                        weight=AGAIN if row["typed"] else 1.0,
                    ),
                )
            if number >= right:
                break
