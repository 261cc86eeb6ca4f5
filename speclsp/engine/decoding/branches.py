"""Branches: positions where another token was nearly as likely as the one that was chosen.

    completion   self.items  .append  (item)
    branches     -           .extend 0.31
                 self.rows 0.12

A client requests a further completion that begins with the tokens up to a branch and the branch's own token
(`Request.begin`). The tokens before it are cached by then, so it costs one token of prefill. The tokens that follow
are the target's own choice again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from speclsp.engine.api import Branch
from speclsp.engine.decoding.accept import Sampler, Sampling, likeliest, log_sum_exp
from speclsp.engine.decoding.vocabulary import Vocabulary
from speclsp.engine.model.bfloat16 import Floats
from speclsp.engine.model.draws import Doubles
from speclsp.engine.model.kv_cache import on_host

if TYPE_CHECKING:
    from speclsp.engine.model.kv_cache import Logits

MIN_PROBABILITY = 0.02  # a less likely token is not reported


class RecordingSampler(Sampler):
    """A Sampler that records, at each position, the `most` likeliest tokens that were not chosen."""

    needs_logits = True

    def __init__(self, sampling: Sampling, most: int) -> None:
        super().__init__(sampling)
        self.most = most
        # by position: the probability of the chosen token; (token, probability) of the likeliest others
        self.positions: list[tuple[float, list[tuple[int, float]]]] = []

    def accept(
        self, drafted: Sequence[int], logits: Logits, position: int, q: Sequence[Doubles] | None = None
    ) -> tuple[int, int]:
        n, token = super().accept(drafted, logits, position, q)
        chosen = (*drafted[:n], token)
        self.positions += [self.likeliest(on_host(logits[row]), token) for row, token in enumerate(chosen)]
        return n, token

    def likeliest(self, logits: Floats, chosen: int) -> tuple[float, list[tuple[int, float]]]:
        """From logits [vocab] at temperature 1, with -inf for tokens that may not come."""
        total = log_sum_exp(logits)
        p = {token: math.exp(float(logits[token]) - total) for token in (chosen, *likeliest(logits, self.most + 1))}
        return p[chosen], [(token, p_token) for token, p_token in p.items() if token != chosen][: self.most]


class BranchReporter:
    """Turns a RecordingSampler's records into Branches, in step with the tokens of a completion.

    Args:
        begin: the request's `begin`: no branches are reported within it.
        heal: bytes that the first tokens spell, which are not part of the completion's text.
        never: tokens that no text continues with.
    """

    def __init__(
        self,
        sampler: RecordingSampler,
        vocabulary: Vocabulary,
        begin: Sequence[int],
        heal: bytes,
        never: Collection[int],
    ) -> None:
        self.sampler, self.vocabulary, self.never = sampler, vocabulary, never
        self.begin_tokens, self.heal_bytes = len(begin), len(heal)
        self.text = b""  # of all tokens so far
        self.at = 0
        self.p = 1.0  # of all tokens after `begin`

    def step(self, tokens: Sequence[int], ended: bool = False) -> tuple[Branch, ...]:
        """The branches at the positions of `tokens`, the next of the completion; `ended`: and at the end after them.

        A branch that only respells typed text is left out.
        """
        branches: list[Branch] = []
        for token in tokens:
            if self.at >= self.begin_tokens:
                branches += self.at_next_position()
                self.p *= self.sampler.positions[self.at - self.begin_tokens][0]
            self.text += self.vocabulary.bytes[token]
            self.at += 1
        return (*branches, *(self.at_next_position() if ended else ()))

    def at_next_position(self) -> Iterator[Branch]:
        """The branches at the position after the tokens so far."""
        chars = len(self.text[self.heal_bytes :].decode(errors="ignore"))
        start = max(self.heal_bytes, len(self.text))
        for token, p in self.sampler.positions[self.at - self.begin_tokens][1]:
            text = (self.text + self.vocabulary.bytes[token])[start:].decode(errors="ignore")
            if text and p >= MIN_PROBABILITY and token not in self.never:
                yield Branch(at=self.at, chars=chars, token=token, text=text, p=self.p * p)
