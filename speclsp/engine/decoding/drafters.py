"""Sources of draft tokens: a text that is likely repeated, n-grams of the text, a draft model.

A drafter is anything with `propose`. A wrong guess costs time and never changes the text. The policy knows a drafter by
its source, its `Prior` and the time of its guesses alone. `pick` tells a drafter that has logits how to choose from
them: with the target's constraint and noise, so that guesses agree with its choices.
"""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from speclsp.engine.decoding.accept import log_sum_exp
from speclsp.engine.model.bfloat16 import Floats
from speclsp.engine.model.draws import Doubles
from speclsp.engine.model.kv_cache import CachedModel, Cancelled, on_host
from speclsp.errors import InvalidLogits

CATCH_UP_TOKENS = 4  # maximum number of missing tokens in one draft pass with the newest token

Pick = Callable[[Floats, Sequence[int]], "tuple[int, Doubles | None]"]
"""(logits [vocab], tokens drafted so far) -> (token, q [vocab] when rejection sampling will need it)."""


class Guess(NamedTuple):
    """Guesses for the next tokens; an empty guess means plain decoding."""

    tokens: list[int]
    strength: int = 0  # number of tokens before the guess that matched; acceptance is learned per strength
    q: Sequence[Doubles] | None = None  # for each token the distribution [vocab] that a draft model drew it from
    verified: tuple[int, int] | None = None  # already verified: tokens accepted, the next token (fused_round.py)
    logprobs: tuple[float, ...] = ()  # if verified: accept.logprobs of the accepted tokens and the next one


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """Expectations of a drafter's guesses before any was verified."""

    alphas: Mapping[int, float]  # acceptance by strength; ascending
    margin: float = 1.0  # its draft must be estimated to be that much faster than the best other one
    least_alpha: float = 0.0  # below this acceptance it loses time, even where the estimate says otherwise
    ends_as_wanted: bool = False  # its guesses end where the completion is expected to end


NO_PRIOR = Prior(alphas={0: 0.6})


class Drafter(Protocol):
    """Guesses the next tokens."""

    source: str  # its name in results and metrics: "reuse" | "ngram" | "model"
    is_free: bool  # True if `propose` takes negligible time
    prior: Prior

    def missing(self, ids: Sequence[int]) -> float:
        """The number of `ids` that it computes before its first guess."""
        ...

    def propose(self, ids: Sequence[int], k: int, pick: Pick) -> Guess:
        """Up to `k` guesses after `ids`."""
        ...


class FreeDrafter:
    """A drafter that looks tokens up."""

    is_free = True
    prior = NO_PRIOR

    def missing(self, ids: Sequence[int]) -> float:
        """Nothing is computed."""
        return 0


class ReuseDrafter(FreeDrafter):
    """Guesses that the completion repeats a text: an earlier suggestion, or the lines that an edit model rewrites.

    A pointer stands in the text behind the last token that the completion repeated. After a token that differs, the
    longest match of the last tokens in the text moves the pointer. Without a match, the token is taken for one that
    replaces the text's. Call `propose` with longer and longer texts of one completion.

    Args:
        previous: the text's tokens, from where this completion starts.
        start: where the completion starts in `ids`.
    """

    source = "reuse"
    prior = Prior(  # a guess, before any measurement of a tuned model: the first difference costs at most one guess
        alphas={0: 0.5, 1: 0.55, 2: 0.7, 3: 0.8, 5: 0.88, 8: 0.93, 16: 0.97, 32: 0.98, 64: 0.99}, ends_as_wanted=True
    )
    WHOLE_TOKENS = 64  # strength before any difference: all of the text is a likely continuation
    MATCH_TOKENS = 16  # the longest match that is looked for
    SURE_TOKENS = 3  # a match of that length is not taken back: the next ones are not before it
    BACK_TOKENS = 4  # a match may begin that far before the last sure one

    def __init__(self, previous: Sequence[int], start: int) -> None:
        self.previous, self.start = list(previous), start
        self.followed = 0  # tokens of the completion that have moved the pointer
        self.at = self.sure = 0  # positions in the text: the pointer, and the pointer after the last sure match
        self.strength = self.WHOLE_TOKENS

    def propose(self, ids: Sequence[int], k: int, pick: Pick) -> Guess:
        for end in range(self.start + self.followed, len(ids)):
            self.follow(ids[max(self.start, end + 1 - self.MATCH_TOKENS) : end + 1])
        self.followed = len(ids) - self.start
        return Guess(self.previous[self.at : self.at + k], self.strength)

    def follow(self, last: Sequence[int]) -> None:
        """Move the pointer for the newest token of the completion, the last one of `last`."""
        if self.at < len(self.previous) and self.previous[self.at] == last[-1]:
            self.at, self.strength = self.at + 1, self.strength + 1
        else:
            at, matched = self.longest_match(last)
            self.at, self.strength = (at, matched) if matched else (self.at + 1, 0)
        if self.strength >= self.SURE_TOKENS:
            self.sure = self.at

    def longest_match(self, last: Sequence[int]) -> tuple[int, int]:
        """(the position behind the longest match of the end of `last`, its length); the first among equals."""
        best_at, best = 0, 0
        for at in range(max(0, self.sure - self.BACK_TOKENS), len(self.previous)):
            matched = 0
            while matched < min(len(last), at + 1) and self.previous[at - matched] == last[-1 - matched]:
                matched += 1
            if matched > best:
                best_at, best = at + 1, matched
        return best_at, best


class NGramDrafter(FreeDrafter):
    """Guesses that the last few tokens are followed by the same text as at their last occurrence.

    The longest match wins, the newest among equals (prompt lookup, as in arXiv 2304.04487).

    Args:
        elsewhere: tokens of text that is not in the prompt, such as the rest of the buffer.
    """

    source = "ngram"
    prior = Prior(  # of the 0.5B: up to 8 on 72 FIM tasks with 2880 tokens
        alphas={1: 0.37, 2: 0.47, 3: 0.6, 4: 0.72, 5: 0.8, 6: 0.85, 8: 0.92, 12: 0.93, 16: 0.97, 32: 0.98}
    )
    LENGTHS = (32, 24, 16, 12, *range(8, 0, -1))  # of a match, the longest first

    def __init__(self, elsewhere: Sequence[int] = ()) -> None:
        self.elsewhere = list(elsewhere)

    def propose(self, ids: Sequence[int], k: int, pick: Pick) -> Guess:
        text = [*self.elsewhere, *ids]
        packed = array("i", text).tobytes()
        for n in (length for length in self.LENGTHS if length <= len(ids)):
            at = find_last_packed(packed, array("i", text[-n:]).tobytes(), before=len(text) - n)
            if at >= 0:
                return Guess(text[at + n : at + n + k], strength=n)
        return Guess([])


class ModelDrafter:
    """The draft model, a small model of the target's family. It computes one token per step.

    It stops before a position where its most likely token has a probability below `p_min`. This test reads the
    distribution and not the token drawn from it, so rejection sampling stays exact.
    """

    source = "model"
    is_free = False
    # its estimate is the less certain one; the margin covers that its guesses may go on too long
    prior = Prior(alphas={0: 0.8}, margin=1.15, least_alpha=0.55, ends_as_wanted=True)

    def __init__(
        self,
        decoder: CachedModel,
        stop: frozenset[int] = frozenset(),
        p_min: float = 0.4,
        cancel: threading.Event | None = None,
    ) -> None:
        self.decoder, self.stop, self.p_min, self.cancel = decoder, stop, p_min, cancel
        self.cache_slot = decoder.reserve()

    def missing(self, ids: Sequence[int]) -> float:
        """The number of `ids` that are not in its cache, beyond those that a draft pass takes with the newest."""
        return max(0, len(ids) - self.cache_slot.shared_prefix(ids) - CATCH_UP_TOKENS)

    def forward(self, tokens: Sequence[int]) -> Floats:
        """The logits after `tokens`."""
        return on_host(self.decoder.forward(tokens)[-1])

    def catch_up(self, ids: Sequence[int]) -> None:
        """Hold `ids[:-1]`, or lack at most the few tokens that go in with the newest.

        Raises:
            Cancelled: the cache holds the completed steps.
        """
        known = ids[:-1]
        self.cache_slot.acquire(known)
        if len(known) - len(self.decoder.ids) >= CATCH_UP_TOKENS:
            while len(self.decoder.ids) < len(known):
                self.decoder.step(known, self.cancel)

    def propose(self, ids: Sequence[int], k: int, pick: Pick) -> Guess:
        if k <= 0:
            return Guess([])
        try:
            self.catch_up(ids)
        except Cancelled:  # `generate` sees the cancellation too, after this round
            return Guess([])
        logits = self.forward(ids[len(self.decoder.ids) :])
        drafted: list[int] = []
        rows: list[Doubles] = []
        while True:
            if drafted and self.p_min and confidence(logits) < self.p_min:
                break
            try:
                last, q = pick(logits, drafted)
            except InvalidLogits:  # a draft model without an answer costs time, never the completion
                break
            drafted.append(last)
            if q is not None:
                rows.append(q)
            if last in self.stop or len(drafted) == k:
                break
            logits = self.forward([last])
        return Guess(drafted, q=rows or None)


def confidence(logits: Floats) -> float:
    """The probability of the most likely token."""
    return math.exp(float(logits.max()) - log_sum_exp(logits))


def find_last_packed(text: bytes, key: bytes, before: int) -> int:
    """The start of the last occurrence of `key` in packed 4-byte ids, among starts smaller than `before`; else -1.

    A byte search, at C speed.
    """
    end = before * 4 + len(key) - 4  # the last byte a match may end at
    while (at := text.rfind(key, 0, max(end, 0))) >= 0:
        if at % 4 == 0:
            return at // 4
        end = at + len(key) - 1
    return -1
