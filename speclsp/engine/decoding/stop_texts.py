"""Stop texts: a completion ends before the first of them, and text that may still become one is withheld.

The log-probabilities of tokens are withheld with their text, so that both always end at the same character.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from speclsp.engine.api import TokenLogprobs
from speclsp.engine.decoding.generate import PositionLogprobs
from speclsp.engine.decoding.vocabulary import TextStream
from speclsp.plain_text import first_stop, longest_stop_start


class AddedText(NamedTuple):
    """The text that one round's tokens made certain."""

    text: str
    tokens: int  # of the round that are used: all, or those up to a stop text
    accepted_chars: int  # certain or withheld characters that end with the last accepted guess
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

    def add(self, tokens: Sequence[int], accepted: int, stop: str) -> AddedText:
        """Add a round's tokens, of which the first `accepted` were guesses; `stop`: why it was the last, or ""."""
        withheld_chars, fresh, accepted_chars, at, used = len(self.withheld), "", 0, None, 0
        ends = [0]
        for token in tokens:  # one by one: a stop text ends plain and speculative decoding at the same token
            fresh += self.stream.push(token)
            ends.append(len(fresh))
            used += 1
            if used == min(accepted, len(tokens)):
                accepted_chars = withheld_chars + len(fresh)
            if (at := first_stop(self.withheld + fresh, self.stops)) is not None:
                break
        stop = stop if at is None else "word"
        pending = self.withheld + fresh
        keep = 0 if stop else longest_stop_start(pending, self.stops)
        text = pending[: len(pending) - keep if at is None else at]
        self.withheld = pending[len(text) :]
        return AddedText(text, used, accepted_chars, ends, stop)


class LikelyTokens:
    """The log-probabilities of a completion's tokens, each reported once the text that it completed is certain.

    Args:
        stream: a new one, for the texts of tokens.
    """

    def __init__(self, stream: TextStream) -> None:
        self.stream = stream
        self.withheld: list[TokenLogprobs] = []
        self.chars = 0  # of the text before the first withheld token

    def add(
        self, tokens: Sequence[int], positions: Sequence[PositionLogprobs], certain_chars: int, stop: str
    ) -> tuple[TokenLogprobs, ...]:
        """Add a round's tokens; the log-probabilities that can be reported now.

        `certain_chars`: of the completion's text so far. `stop`: as AddedText has it. A text that ends at a stop text
        may cut its last token; the tokens after that are not reported.
        """
        for token, position in zip(tokens, positions, strict=False):
            top = tuple((other, self.stream.alternative(other), logprob) for other, logprob in position.top)
            text = self.stream.push(token)
            self.withheld.append(TokenLogprobs(token=token, text=text, logprob=position.logprob, top=top))
        ready: list[TokenLogprobs] = []
        while self.withheld:
            text = self.withheld[0].text
            left_chars = certain_chars - self.chars
            if len(text) > left_chars and not (stop and left_chars):
                break
            ready.append(replace(self.withheld.pop(0), text=text[:left_chars]))
            self.chars += len(ready[-1].text)
        return tuple(ready)
