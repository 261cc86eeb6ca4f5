"""Stop texts: a completion ends before the first of them, and text that may still become one is withheld."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from speclsp.engine.decoding.vocabulary import TextStream
from speclsp.plain_text import first_stop, longest_stop_start


class AddedText(NamedTuple):
    """The text that one round's tokens made certain."""

    text: str
    tokens: int  # of the round that are used: all, or those up to a stop text
    ends: list[int]  # 0, and after each used token the number of characters decoded in this round
    stop: str  # the round's own stop reason, or "word"


class StopTexts:
    """Turns a completion's tokens into text that is certain, and ends it at the first stop text.

    Args:
        stream: decodes tokens to text.
        stops: the stop texts; empty ones are ignored.
    """

    def __init__(self, stream: TextStream, stops: tuple[str, ...]) -> None:
        self.stream, self.stops = stream, stops
        self.withheld = ""  # may still turn out to be the start of a stop text

    def add(self, tokens: Sequence[int], stop: str) -> AddedText:
        """Add a round's tokens; `stop`: why it was the last, or ""."""
        fresh, at, used = "", None, 0
        ends = [0]
        for token in tokens:  # one by one: a stop text ends plain and speculative decoding at the same token
            fresh += self.stream.push(token)
            ends.append(len(fresh))
            used += 1
            if (at := first_stop(self.withheld + fresh, self.stops)) is not None:
                break
        stop = stop if at is None else "word"
        pending = self.withheld + fresh
        keep = 0 if stop else longest_stop_start(pending, self.stops)
        text = pending[: len(pending) - keep if at is None else at]
        self.withheld = pending[len(text) :]
        return AddedText(text, used, ends, stop)
