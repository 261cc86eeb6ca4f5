"""Where a completion might as well have gone on otherwise: the tokens that the target took for nearly as likely.

    completion   self.items  .append  (item)
    branches     -           .extend 0.31
                 self.rows 0.12

Whoever asked begins a further completion with the tokens up to a branch and the branch's own (`Request.begin`). All
before it is cached by then, so it costs one token of prefill, and what follows is the target's own choice again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import torch
from torch import Tensor

from speclsp.engine.api import Branch
from speclsp.engine.decoding.accept import Sampler, Sampling
from speclsp.engine.decoding.vocabulary import Vocabulary

LEAST = 0.02  # of the probability at a place: what is less likely is not told of


class Branching(Sampler):
    """A Sampler that remembers what else the target would have said, `most` tokens at each place."""

    def __init__(self, sampling: Sampling, most: int) -> None:
        super().__init__(sampling)
        self.most = most
        self.places: list[tuple[float, list[tuple[int, float]]]] = []  # p of the token that came, and of the likeliest

    def accept(self, drafted: Sequence[int], logits: Tensor, position: int, q: Tensor | None = None) -> tuple[int, int]:
        n, token = super().accept(drafted, logits, position, q)
        self.places += [self.place(logits[row], chosen) for row, chosen in enumerate((*drafted[:n], token))]
        return n, token

    @torch.inference_mode()
    def place(self, logits: Tensor, chosen: int) -> tuple[float, list[tuple[int, float]]]:
        """From logits [vocab] at temperature 1, in which what may not come is -inf already."""
        p = logits.softmax(dim=-1)
        best = p.topk(min(self.most + 1, len(p)))
        likely = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return float(p[chosen]), [(token, p_token) for token, p_token in likely if token != chosen][: self.most]


class Branches:
    """What a Branching remembers as Branches, in step with the tokens of a completion.

    Args:
        begin: the tokens it was told to begin with.
        heal: bytes that the first tokens spell, which are not part of the completion's text.
        never: tokens that no text goes on with.
    """

    def __init__(
        self, sampler: Branching, vocabulary: Vocabulary, begin: Sequence[int], heal: bytes, never: Collection[int]
    ) -> None:
        self.sampler, self.vocabulary, self.never = sampler, vocabulary, never
        self.begin_tokens, self.heal_bytes = len(begin), len(heal)
        self.said = b""
        self.at = 0
        self.p = 1.0  # of all that was said after `begin`

    def step(self, tokens: Sequence[int], ended: bool = False) -> tuple[Branch, ...]:
        """The branches at the places of `tokens`, the next ones of the completion; `ended`: and of the end after them.

        No branch only respells what was typed.
        """
        found: list[Branch] = []
        for token in tokens:
            if self.at >= self.begin_tokens:
                found += self.here()
                self.p *= self.sampler.places[self.at - self.begin_tokens][0]
            self.said += self.vocabulary.bytes[token]
            self.at += 1
        return (*found, *(self.here() if ended else ()))

    def here(self) -> Iterator[Branch]:
        """The branches at the place that comes next."""
        chars = len(self.said[self.heal_bytes :].decode(errors="ignore"))
        start = max(self.heal_bytes, len(self.said))
        for token, p in self.sampler.places[self.at - self.begin_tokens][1]:
            text = (self.said + self.vocabulary.bytes[token])[start:].decode(errors="ignore")
            if text and p >= LEAST and token not in self.never:
                yield Branch(at=self.at, chars=chars, token=token, text=text, p=self.p * p)
