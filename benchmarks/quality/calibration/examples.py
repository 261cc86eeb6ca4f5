"""Examples for calibration: suggestions whose answer is known, from the rows of `quality`, and replayed typing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from speclsp.errors import InputError
from speclsp.lsp.completion.confidence import (
    TokenProb,
    lines,
    token_spans,
)

if TYPE_CHECKING:
    pass


class Place(NamedTuple):
    """Position of the cursor in its line."""

    blank: bool = True  # nothing but blanks before it
    word: bool = False  # right behind a letter, digit or underscore
    amid: bool = False  # text right of it

    @staticmethod
    def of(before: str, after: str) -> Place:
        """From the text of the line on either side of the cursor."""
        return Place(not before.strip(), before[-1:].isalnum() or before[-1:] == "_", bool(after.strip()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A suggestion whose answer is known."""

    package: str
    language: str
    thoughts: tuple[TokenProb, ...]  # of the first line's tokens
    place: Place
    right: bool
    saved: int = 0  # characters that accepting word by word gives
    later: tuple[tuple[TokenProb, ...], ...] = ()  # of each further line's
    later_right: tuple[bool, ...] = ()  # whether all up to this one is right


@dataclass(frozen=True, slots=True)
class Read:
    """The examples of a run."""

    examples: list[Example]  # shown, with probabilities
    tasks: int  # all of them, those with nothing to show too
    exact: int  # of all


@dataclass(frozen=True, slots=True)
class Typing:
    """Suggestions of replayed typing in which none was hidden, and the keys that typed them along."""

    weights: Mapping[str, float]  # that made their confidences
    followed: list[tuple[float, int]]  # confidence, and the keys that typed it along

    @staticmethod
    def read(file: Path) -> Typing | None:
        """Of a run of `python -m benchmarks keystrokes`; None where there is none, or no confidence in it."""
        try:
            confidence = json.loads(file.read_text(encoding="utf-8"))["confidence"]
        except (FileNotFoundError, KeyError):
            return None
        return confidence and Typing(confidence["weights"], [(p, keys) for p, keys in confidence["followed"]])


def read(file: Path) -> Read:
    """The rows that `python -m benchmarks quality` left of a variant. Raises InputError."""
    try:
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    except OSError:
        raise InputError(
            f"{file} is not there: run `python -m benchmarks quality` for that pair and set first."
        ) from None
    examples = [parsed for row in rows if row["judged"]["shown"] and (parsed := example(row)) is not None]
    return Read(examples, len(rows), sum(bool(row["judged"]["exact"]) for row in rows))


def example(row: Mapping[str, Any]) -> Example | None:
    """A row that was shown; None where nothing is known of its tokens."""
    pieces = list(zip(row["characters"], row["logprobs"], strict=True))
    spans = list(lines(row["said"], token_spans(pieces)))
    if not spans or not spans[0].tokens:
        return None
    meant, suggested = row["written"].split("\n"), row["text"].rstrip().split("\n")
    first = next((at for at, line in enumerate(suggested) if line.strip()), 0)
    same = [suggested[: at + 1] == meant[: at + 1] for at in range(first + 1, len(suggested)) if suggested[at].strip()]
    later = [line.tokens for line in spans[1 : len(same) + 1]]
    return Example(
        package=row["package"],
        language=row["language"],
        thoughts=spans[0].tokens,
        place=Place.of(row["line"], row["rest"]),
        right=bool(row["judged"]["exact"]),
        saved=row["judged"]["saved"],
        later=tuple(later),
        later_right=tuple(same[: len(later)]),
    )
