"""Speculative decoding for one sequence: draft γ tokens, verify them in one pass, keep the accepted prefix.

    draft    a small model, an n-gram, or the last suggestion guesses x1 … xγ
    verify   last x1 … xγ ─► target, one pass ─► γ+1 predictions
    accept   keep x1 … xn, the longest accepted prefix; prediction n+1 is free

A round yields 1 to γ+1 tokens: those that the target alone would have chosen, bit for bit. Two facts make that so. The
decoder's rows do not depend on each other (decoder.py). The last prompt token goes through a round like any other, so
prefill decides nothing. A plain step is a round with an empty guess. Between rounds, and between the steps of prefill,
the engine checks `cancel`: a new keystroke waits one round at most, and the cached tokens stay valid for it.

At the same points other completions may run on the same models. A completion continues from its own cache slot. If the
slot was evicted, the text is computed again: the prompt by prefill, the rounds' tokens by a round's passes. Either way
the tokens are the same. On a GPU, prefill passes round differently from a round's pass, so there the tokens are the
same only if as much of the prompt was cached.

Tokens are Python ints, logits are [T, vocab]; the batch is always one sequence and has no dimension here.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from speclsp.engine.decoding.accept import Sampler, agree, logprobs
from speclsp.engine.decoding.drafters import Drafter, Guess, Pick
from speclsp.engine.model.bfloat16 import Floats
from speclsp.engine.model.draws import Doubles
from speclsp.engine.model.kv_cache import CachedModel, CacheSlot, Cancelled
from speclsp.errors import InvalidLogits

if TYPE_CHECKING:
    from speclsp.engine.model.kv_cache import Logits

Rows = TypeVar("Rows", bound="Logits")  # an array or a tensor, and a function returns what it got


class Constraint(Protocol):
    """A limit on the tokens that may come next."""

    def allowed(self, emitted: Sequence[int]) -> NDArray[np.int64] | None:
        """The ids that may follow the tokens emitted so far; None when any may, now and from here on."""
        ...


class Policy(Protocol):
    """Chooses the next round's drafter and draft length, and learns from the outcome."""

    def guess(self, drafters: Sequence[Drafter], ids: Sequence[int], room: int, pick: Pick) -> tuple[str, Guess]:
        """The next round's source and guess, at most `room` tokens; ("", empty guess) is a plain step."""
        ...

    def learn(self, source: str, strength: int, drafted: int, accepted: int, verify_ms: float = 0.0) -> None:
        """Learn from a round. `verify_ms`: the time of its pass; 0 if the guess came verified."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on one completion. Length and time are checked between rounds, never inside one."""

    max_tokens: int = 64
    stop_tokens: frozenset[int] = frozenset()
    banned_tokens: tuple[int, ...] = ()  # never chosen (`ignore_eos`)
    constraint: Constraint | None = None  # on the first tokens (token healing); guesses must satisfy it as well
    deadline_ms: float = 0.0  # from `started_s`; 0: none
    started_s: float = field(default_factory=perf_counter)
    low_priority: bool = False  # keep other texts cached, as far as there is room beside them


@dataclass(slots=True, kw_only=True)
class PrefillStats:
    """Cost of preparing the cache for a prompt."""

    cached_tokens: int = 0  # cached at the start; tokens that are computed again later do not count
    computed_tokens: int = 0  # prompt tokens computed, repeats included; fewer than the rest if cancelled
    ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Observer:
    """Reports wanted beside the tokens. None of them changes a token."""

    prefill: PrefillStats = field(default_factory=PrefillStats)  # filled in by `generate`
    logprobs: bool = False  # of each token, among the tokens that could come: banned ones do not count


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The result of one round. `tokens` are the accepted guesses, then the target's own; no stop token is included."""

    tokens: list[int]
    source: str
    drafted: int
    accepted: int
    ms: float
    stop: str = ""  # "eos" | "limit" | "deadline" | "cancelled"; "" means the completion continues
    logprobs: tuple[float, ...] = ()  # one for each of `tokens`, for `Observer.logprobs`


PAUSE = Round(tokens=[], source="", drafted=0, accepted=0, ms=0.0)  # between two steps of prefill


def generate(
    target: CachedModel,
    drafters: Sequence[Drafter],
    policy: Policy,
    prompt: Sequence[int],
    limits: Limits,
    sampler: Sampler,
    cancel: threading.Event,
    observer: Observer | None = None,
) -> Iterator[Round]:
    """Yield each round's tokens and counts, and PAUSE between steps of prefill. Close it, or set `cancel`, to stop.

    Args:
        prompt: at least one token; prompt and completion together must fit the target's cache.
    """
    ids, start = list(prompt), len(prompt)
    observer = observer or Observer()
    prefill = observer.prefill
    cache_slot = target.reserve(limits.low_priority)  # released when this generator ends, for any reason
    began_s = perf_counter()
    prefill.cached_tokens = cache_slot.acquire(cacheable(target, ids, start))
    prefill.ms = (perf_counter() - began_s) * 1e3

    def pick(logits: Floats, drafted: Sequence[int]) -> tuple[int, Doubles | None]:
        emitted = [*ids[start:], *drafted]
        return sampler.draft(limit(logits[None], [emitted], limits)[0], len(ids) + len(drafted))

    while True:
        room = min(limits.max_tokens - (len(ids) - start), target.context_tokens - len(ids)) - 1
        if not cache_slot.owned or len(target.ids) < len(ids) - 1:  # at first, and after an eviction
            try:
                yield from prefill_until_ready(target, cache_slot, ids, start, cancel, prefill, to_the_end=room < 0)
            except Cancelled:
                yield stopped("cancelled")
                return
        if room < 0:
            yield stopped("limit")
            return
        began_s, cached = perf_counter(), len(target.ids)
        source, guess = policy.guess(drafters, ids, room, pick)  # x1 … xγ, from any source; may be empty
        pass_s = perf_counter()
        try:
            outcome = verify(target, ids, start, cached, guess, limits, sampler, cancel, observer)
        except Cancelled:
            yield stopped("cancelled")
            return
        prefill.ms += outcome.tail_s * 1e3
        prefill.computed_tokens += max(0, start - cached)
        verify_ms = 0.0 if guess.verified else (perf_counter() - pass_s - outcome.tail_s) * 1e3
        policy.learn(source, guess.strength, len(guess.tokens), outcome.n, verify_ms)
        began_s += outcome.tail_s  # the prompt's share of the pass does not count for the round
        done = round_of(source, guess, outcome, limits, len(ids) - start, cancel, began_s)
        ids += done.tokens
        yield done
        if done.stop:
            return
        if stop := interruption(limits, cancel):  # other completions ran in the meantime
            yield stopped(stop)
            return


class Verified(NamedTuple):
    """The outcome of one verification pass."""

    n: int  # accepted guesses x1 … xn
    token: int  # the target's own next token
    logprobs: tuple[float, ...]
    tail_s: float  # the share of the pass that computed the prompt's last tokens


def verify(
    target: CachedModel,
    ids: list[int],
    start: int,
    cached: int,
    guess: Guess,
    limits: Limits,
    sampler: Sampler,
    cancel: threading.Event,
    observer: Observer,
) -> Verified:
    """Run the target over the guess and accept its longest valid prefix; then rewind the rejected tail.

    ids: prompt and completion so far; `start` is the prompt's length, `cached` the number of tokens that the target's
    cache had before the guess. Raises Cancelled.
    """
    x = guess.tokens
    if guess.verified is not None:  # one device holds both models, and did the whole round
        n, token = guess.verified
        return Verified(n, token, guess.logprobs if observer.logprobs else (), 0.0)
    pending = ids[cached:]  # the newest token; in the first round also the last step of prefill before it
    pass_s = perf_counter()
    if limits.constraint is None and not sampler.needs_logits:
        chosen = target.choose([*pending, *x], len(x) + 1, sampler.sampling.draw, limits.banned_tokens)
        if chosen is not None:
            tail_s = (perf_counter() - pass_s) * (len(pending) - 1) / (len(pending) + len(x))
            return verified(x, chosen, len(ids), tail_s, target, observer)
    logits = target.forward_with_tail([*pending, *x], len(x) + 1, cancel)  # one large pass, [γ+1, vocab]
    tail_s = (perf_counter() - pass_s) * (len(pending) - 1) / (len(pending) + len(x))
    emitted = [[*ids[start:], *x[:i]] for i in range(len(x) + 1)] if limits.constraint else []
    logits = limit(logits, emitted, limits)
    n, token = sampler.accept(x, logits, len(ids), guess.q)
    target.rewind(len(ids) + n)  # forget the rejected tail; the new token is not in the cache yet
    return Verified(n, token, logprobs(logits, [*x[:n], token]) if observer.logprobs else (), tail_s)


def verified(
    x: list[int],
    chosen: Sequence[tuple[int, float]],
    position: int,
    tail_s: float,
    target: CachedModel,
    observer: Observer,
) -> Verified:
    """The outcome of a pass that chose its tokens itself, the first one for `position`; rewinds the rejected tail.

    Raises:
        InvalidLogits: no token can be chosen in a row up to the one that follows the accepted tokens.
    """
    n, token = agree(x, [token for token, _ in chosen])
    for row, (_, logprob) in enumerate(chosen[: n + 1]):
        if not math.isfinite(logprob):
            raise InvalidLogits(position + row, logprob)
    target.rewind(position + n)
    own = tuple(logprob for _, logprob in chosen[: n + 1])
    return Verified(n, token, own if observer.logprobs else (), tail_s)


def round_of(
    source: str,
    guess: Guess,
    outcome: Verified,
    limits: Limits,
    emitted_tokens: int,
    cancel: threading.Event,
    began_s: float,
) -> Round:
    """The round's tokens up to a stop token, and whether the completion ends here."""
    new = [*guess.tokens[: outcome.n], outcome.token]
    eos = next((i for i, t in enumerate(new) if t in limits.stop_tokens), None)
    kept = new if eos is None else new[:eos]
    stop = "eos" if eos is not None else "limit" if emitted_tokens + len(kept) >= limits.max_tokens else ""
    return Round(
        tokens=kept,
        source=source,
        drafted=len(guess.tokens),
        accepted=min(outcome.n, len(kept)),
        ms=(perf_counter() - began_s) * 1e3,
        stop=stop or interruption(limits, cancel),
        logprobs=outcome.logprobs[: len(kept)],
    )


def prefill_until_ready(
    target: CachedModel,
    cache_slot: CacheSlot,
    ids: Sequence[int],
    prompt_tokens: int,
    cancel: threading.Event,
    prefill: PrefillStats,
    to_the_end: bool,
) -> Iterator[Round]:
    """Make the cache hold `ids` except the newest token and the tail that the next pass takes; PAUSE between steps.

    After an eviction there are no more pauses before the next round. Otherwise two completions could evict each other
    at every pause, and neither would reach a round.

    Raises:
        Cancelled: the cache holds the completed steps.
    """
    tail = 0 if to_the_end else min(target.tail_tokens, target.step_tokens)
    end = len(cacheable(target, ids, prompt_tokens))
    evicted = False
    while True:
        began_s = perf_counter()
        if not cache_slot.owned:
            evicted = evicted or cache_slot.evicted
            cache_slot.acquire(ids[:-1] if len(ids) > prompt_tokens else cacheable(target, ids, prompt_tokens))
        cached = len(target.ids)
        if cached + tail < end:
            target.step(ids[:end], cancel)
            prefill.computed_tokens += max(0, min(len(target.ids), prompt_tokens) - cached)
        prefill.ms += (perf_counter() - began_s) * 1e3
        if len(target.ids) + tail >= end:
            return
        if not evicted:
            yield PAUSE


def cacheable(target: CachedModel, ids: Sequence[int], prompt_tokens: int) -> Sequence[int]:
    """The part of `ids` that may come from prefill or an earlier text.

    If prefill rounds otherwise than rounds, they compute the end of the prompt and all tokens after it themselves.
    """
    end = len(ids) - 1 if target.prefill_is_exact else prompt_tokens - target.first_pass_tokens
    return ids[: max(0, end)]


def interruption(limits: Limits, cancel: threading.Event) -> str:
    """The reason to make no further round: "cancelled" | "deadline"; "" when there is none."""
    if cancel.is_set():
        return "cancelled"
    late = limits.deadline_ms and (perf_counter() - limits.started_s) * 1e3 >= limits.deadline_ms
    return "deadline" if late else ""


def stopped(reason: str) -> Round:
    """The end of a completion without a round."""
    return Round(tokens=[], source="", drafted=0, accepted=0, ms=0.0, stop=reason)


def limit(logits: Rows, emitted: Sequence[Sequence[int]], limits: Limits) -> Rows:
    """Logits [T, vocab] with -inf for tokens that may not come; row i follows the tokens `emitted[i]`. In place."""
    rows: Any = logits  # arrays and tensors are indexed alike
    if limits.constraint is not None:
        for row, before in enumerate(emitted):
            allowed = limits.constraint.allowed(before)
            if allowed is None:
                break  # a satisfied constraint stays satisfied: later rows are free too
            kept = rows[row, allowed]
            rows[row] = float("-inf")
            rows[row, allowed] = kept
    if limits.banned_tokens:
        rows[:, list(limits.banned_tokens)] = float("-inf")
    return logits
