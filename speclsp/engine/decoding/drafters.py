"""Where guesses come from: a suggestion that was not taken, n-grams of what is in sight, the draft model.

A drafter is anything with `propose`. A wrong guess costs time and never text. `pick` is how a drafter that has logits
must choose from them (same constraint, same noise as the target), so that its guesses agree with the target's choices.
"""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from speclsp.engine.model.kv_cache import CachedModel, Cancelled

CATCH_UP_TOKENS = 4  # up to so many missing tokens go through a draft model in one pass with the newest

Pick = Callable[[Tensor, Sequence[int]], tuple[int, Tensor | None]]
"""(logits [vocab], tokens drafted so far) -> (token, q [vocab] when rejection sampling will need it)."""


class Guess(NamedTuple):
    """Guesses for the next tokens; none is plain decoding."""

    tokens: list[int]
    strength: int = 0  # how many tokens before the guess matched; what acceptance is learned by
    q: Tensor | None = None  # [len(tokens), vocab] a draft model drew from
    settled: tuple[int, int] | None = None  # verified too: how many hold, the token after them (pair.py)
    logprobs: tuple[float, ...] = ()  # where settled: accept.logprobs of those that hold and the token after them


class Drafter(Protocol):
    """Guesses what follows."""

    source: str  # "reuse" | "ngram" | "model"
    free: bool  # whether asking costs nothing to speak of

    def propose(self, ids: Sequence[int], k: int, pick: Pick) -> Guess:
        """Up to `k` guesses after `ids`."""
        ...


class ReuseDrafter:
    """Guesses that a suggestion made earlier, and typed into or past, still goes on as it did.

    Args:
        previous: the earlier suggestion's tokens, from where this completion starts.
        start: where the completion starts in `ids`.
    """

    source = "reuse"
    free = True
    SEAM_TOKENS = 3  # after the two texts parted, the last 1 to 3 tokens find the place again

    def __init__(self, previous: Sequence[int], start: int) -> None:
        self.previous, self.start = list(previous), start

    def propose(self, ids: Sequence[int], k: int, pick: Pick) -> Guess:
        done = list(ids[self.start :])
        if self.previous[: len(done)] == done:
            return Guess(self.previous[len(done) : len(done) + k], strength=8)
        for n in range(min(self.SEAM_TOKENS, len(done)), 0, -1):
            at = find_last(self.previous, done[-n:])
            if at >= 0:
                return Guess(self.previous[at + n : at + n + k], strength=n)
        return Guess([])


class NGramDrafter:
    """Guesses that what followed the last few tokens before, here or elsewhere in sight, follows them again.

    The longest match wins, the newest among equals (prompt lookup: ENGINE.md A, 2.4 tokens per round on code).

    Args:
        elsewhere: tokens of text that is not in the prompt, such as the rest of the buffer.
    """

    source = "ngram"
    free = True
    LONGEST = 8

    def __init__(self, elsewhere: Sequence[int] = ()) -> None:
        self.elsewhere = list(elsewhere)

    def propose(self, ids: Sequence[int], k: int, pick: Pick) -> Guess:
        text = [*self.elsewhere, *ids]
        packed = array("i", text).tobytes()
        for n in range(min(self.LONGEST, len(ids)), 0, -1):
            at = find_last_packed(packed, array("i", text[-n:]).tobytes(), before=len(text) - n)
            if at >= 0:
                return Guess(text[at + n : at + n + k], strength=n)
        return Guess([])


class ModelDrafter:
    """The small model of the same family, one token a step.

    It stops early, before a position where its most likely token has a probability below `p_min`. That looks at the
    distribution and not at what was drawn from it, so rejection sampling stays exact.
    """

    source = "model"
    free = False

    def __init__(
        self,
        decoder: CachedModel,
        stop: frozenset[int] = frozenset(),
        p_min: float = 0.4,
        cancel: threading.Event | None = None,
    ) -> None:
        self.decoder, self.stop, self.p_min, self.cancel = decoder, stop, p_min, cancel
        self.seat = decoder.seat()

    def missing(self, ids: Sequence[int]) -> int:
        """How many of `ids` its cache would have to catch up with."""
        return len(ids) - self.seat.shared(ids)

    def first(self, ids: Sequence[int]) -> Tensor:
        """The logits after `ids`, [vocab]. The one or two tokens that the last round added go in with the newest.

        Raises:
            Cancelled: while much was caught up with.
        """
        self.catch_up(ids, CATCH_UP_TOKENS - 1)
        return self.decoder.forward(ids[len(self.decoder.ids) :])[-1]

    def catch_up(self, ids: Sequence[int], leave: int) -> None:
        """Hold a prefix of `ids[:-1]` that lacks at most `leave` of them; all of it when that takes steps.

        Raises:
            Cancelled: the cache holds the steps that were done.
        """
        known = ids[:-1]
        self.seat.take(known)
        if len(known) - len(self.decoder.ids) > leave:
            while len(self.decoder.ids) < len(known):
                self.decoder.step(known, self.cancel)

    def propose(self, ids: Sequence[int], k: int, pick: Pick) -> Guess:
        if k <= 0:
            return Guess([])
        try:
            logits = self.first(ids)
        except Cancelled:  # the loop sees it too, after this round
            return Guess([])
        drafted: list[int] = []
        rows: list[Tensor] = []
        while True:
            if drafted and self.p_min and float(logits.max() - logits.logsumexp(dim=-1)) < math.log(self.p_min):
                break
            last, q = pick(logits, drafted)
            drafted.append(last)
            if q is not None:
                rows.append(q)
            if last in self.stop or len(drafted) == k:
                break
            logits = self.decoder.forward([last])[-1]
        return Guess(drafted, q=torch.stack(rows) if rows else None)


def find_last(text: Sequence[int], key: Sequence[int]) -> int:
    """Where `key` last starts in `text`; -1 when it does not."""
    return find_last_packed(array("i", text).tobytes(), array("i", key).tobytes(), before=len(text))


def find_last_packed(text: bytes, key: bytes, before: int) -> int:
    """The same over packed 4-byte ids, among starts smaller than `before`: a byte search, at C speed."""
    end = before * 4 + len(key) - 4  # the last byte a match may end at
    while (at := text.rfind(key, 0, max(end, 0))) >= 0:
        if at % 4 == 0:
            return at // 4
        end = at + len(key) - 1
    return -1
