"""Speculative decoding for one sequence: draft gamma tokens, verify them in one pass, keep what agrees.

    draft    a small model, an n-gram, or the last suggestion guesses x1 … xγ
    verify   last x1 … xγ ─► target, one pass ─► γ+1 predictions
    accept   keep x1 … xn while they hold; prediction n+1 comes free

A round yields 1 to γ+1 tokens, those the target alone would have chosen, bit for bit: the decoder's rows do not depend
on each other (decoder.py), and the last prompt token goes through a round like any other, so that prefill decides
nothing. A plain step is a round with an empty guess. Between rounds, and between the steps of prefill, the engine looks
at `cancel`: a new keystroke waits one round at most, and what is cached stays good for it.

There too it hands over, and other completions may run on the same models: this one goes on from its own slot of the
cache, or has its text computed again if the room was needed, the prompt by prefill and what rounds added by a round's
passes. Either way the tokens are the same; on a GPU, where prefill's passes round otherwise than a round's, given that
as much of the prompt had been cached.

Tokens are Python ints, logits are [T, vocab]; the batch is always one sequence and has no dimension here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from speclsp.engine.decoding.accept import Sampler, logprobs
from speclsp.engine.decoding.drafters import Drafter, Guess, Pick
from speclsp.engine.model.kv_cache import CachedModel, CacheSlot, Cancelled


class Constraint(Protocol):
    """What may come next, as far as it is limited."""

    def allowed(self, emitted: Sequence[int]) -> Tensor | None:
        """The ids that may follow the tokens emitted so far; None when any may, now and from here on."""
        ...


class Policy(Protocol):
    """Who guesses in the next round, and how much; learns from what came of it."""

    def guess(self, drafters: Sequence[Drafter], ids: Sequence[int], room: int, pick: Pick) -> tuple[str, Guess]:
        """The next round's source and guess, at most `room` tokens; ("", nothing) is a plain step."""
        ...

    def learn(self, source: str, strength: int, drafted: int, accepted: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Where a completion ends. Each is checked between rounds, never inside one."""

    max_tokens: int = 64
    stop_tokens: frozenset[int] = frozenset()
    banned_tokens: tuple[int, ...] = ()  # never chosen (`ignore_eos`)
    deadline_ms: float = 0.0  # from `started_s`; 0: none
    started_s: float = field(default_factory=perf_counter)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one round gave. `tokens` are the accepted guesses, then the target's own; a stop token is left out."""

    tokens: list[int]
    source: str
    drafted: int
    accepted: int
    ms: float
    stop: str = ""  # "eos" | "limit" | "deadline" | "cancelled"; "" means there is more
    likely: tuple[BranchPoint, ...] = ()  # one for each of `tokens`, if asked for
    logprobs: tuple[float, ...] = ()  # the same, among the tokens that could come


PAUSE = Round(tokens=[], source="", drafted=0, accepted=0, ms=0.0)  # between two steps of prefill


class BranchPoint(NamedTuple):
    """What the target thought of one place: natural logarithms of probabilities at temperature 1."""

    logprob: float  # of the token that was chosen
    top: tuple[tuple[int, float], ...]  # the likeliest tokens, best first


@dataclass(slots=True, kw_only=True)
class Prefill:
    """What preparing the cache for a prompt took."""

    cached_tokens: int = 0  # found at first; what is computed again later was not
    computed_tokens: int = 0  # of the prompt, each time; fewer than the rest when it was cancelled
    ms: float = 0.0


def generate(
    target: CachedModel,
    drafters: Sequence[Drafter],
    policy: Policy,
    prompt: Sequence[int],
    limits: Limits,
    sampler: Sampler,
    cancel: threading.Event,
    constraint: Constraint | None = None,
    prefill: Prefill | None = None,
    likely: int | None = None,
    with_logprobs: bool = False,
    careful: bool = False,
) -> Iterator[Round]:
    """Yield each round's tokens and counts, and PAUSE between steps of prefill. Close it, or set `cancel`, to stop.

    Args:
        prompt: at least one token; prompt and completion together must fit the target's cache.
        constraint: limits the first tokens (token healing); guesses are held to it as well.
        prefill: filled in with what the cache spared and what the rest took.
        likely: with each token its log-probability, and so many of the likeliest; no guess may come settled then.
        with_logprobs: with each token its log-probability among those that could come, of which banned ones are none.
        careful: leave what the cache holds of other texts alone, as far as there is room beside it.
    """
    ids, start = list(prompt), len(prompt)
    prefill = prefill or Prefill()
    seat = target.seat(careful)  # left when this ends, however it does
    began_s = perf_counter()
    prefill.cached_tokens = seat.take(ids[:-1])
    prefill.ms = (perf_counter() - began_s) * 1e3

    def pick(logits: Tensor, drafted: Sequence[int]) -> tuple[int, Tensor | None]:
        emitted = [*ids[start:], *drafted]
        return sampler.draft(limit(logits[None], [emitted], limits, constraint)[0], len(ids) + len(drafted))

    while True:
        room = min(limits.max_tokens - (len(ids) - start), target.context_tokens - len(ids)) - 1
        if not seat.taken or len(target.ids) < len(ids) - 1:  # at first, and after others needed the room
            try:
                yield from prefill_until_ready(target, seat, ids, start, cancel, prefill, to_the_end=room < 0)
            except Cancelled:
                yield stopped("cancelled")
                return
        if room < 0:
            yield stopped("limit")
            return
        began_s = perf_counter()
        held = len(target.ids)
        pending = ids[held:]  # the newest token; in the first round the last step of prefill before it
        source, guess = policy.guess(drafters, ids, room, pick)  # x1 … xγ, from any source; none is fine
        x = guess.tokens
        places: tuple[BranchPoint, ...] = ()
        sure: tuple[float, ...] = ()
        if guess.settled is not None:  # one device holds both models, and did the whole round
            n, token = guess.settled
            sure = guess.logprobs if with_logprobs else ()
        else:
            pass_s = perf_counter()
            try:
                logits = target.ride([*pending, *x], len(x) + 1, cancel)  # one large pass, [γ+1, vocab]
            except Cancelled:
                yield stopped("cancelled")
                return
            riding_s = (perf_counter() - pass_s) * (len(pending) - 1) / (len(pending) + len(x))
            prefill.ms += riding_s * 1e3
            began_s += riding_s  # the prompt's share of the pass is not the round's
            emitted = [[*ids[start:], *x[:i]] for i in range(len(x) + 1)] if constraint else []
            raw = logits if likely is None else logits.clone()  # `limit` works in place
            logits = limit(logits, emitted, limits, constraint)
            n, token = sampler.accept(x, logits, len(ids), guess.q)
            target.rewind(len(ids) + n)  # forget the rejected tail; the new token is not in the cache yet
            if with_logprobs:
                sure = logprobs(logits, [*x[:n], token])
            if likely is not None:
                places = tuple(place(row, chosen, likely) for row, chosen in zip(raw, [*x[:n], token], strict=False))
        prefill.computed_tokens += max(0, start - held)
        policy.learn(source, guess.strength, len(x), n)

        new = [*x[:n], token]
        eos = next((i for i, t in enumerate(new) if t in limits.stop_tokens), None)
        kept = new if eos is None else new[:eos]
        ids += kept
        ms = (perf_counter() - began_s) * 1e3
        stop = "eos" if eos is not None else "limit" if len(ids) - start >= limits.max_tokens else ""
        stop = stop or unwanted(limits, cancel)
        yield Round(
            tokens=kept,
            source=source,
            drafted=len(x),
            accepted=min(n, len(kept)),
            ms=ms,
            stop=stop,
            likely=places[: len(kept)],
            logprobs=sure[: len(kept)],
        )
        if stop:
            return
        if stop := unwanted(limits, cancel):  # others had their turn meanwhile
            yield stopped(stop)
            return


def prefill_until_ready(
    target: CachedModel,
    seat: CacheSlot,
    ids: Sequence[int],
    prompt_tokens: int,
    cancel: threading.Event,
    prefill: Prefill,
    to_the_end: bool,
) -> Iterator[Round]:
    """Make the cache hold `ids` but for the newest, or but for what the next pass takes along; pause between steps.

    Where others have needed the room there are no more pauses before the next round: two that took it from each other
    at every pause would never come to one.

    Raises:
        Cancelled: the cache holds the steps that were done.
    """
    leave = 0 if to_the_end else min(target.ride_tokens, target.step_tokens)
    aim = len(ids) - 1 if target.ride_tokens else prompt_tokens - 1  # without, what rounds added goes through a round
    crowded = False
    while True:
        began_s = perf_counter()
        if not seat.taken:
            crowded = crowded or seat.lost
            seat.take(ids[:-1])
        held = len(target.ids)
        if held + leave < aim:
            target.step(ids[:aim], cancel)
            prefill.computed_tokens += max(0, min(len(target.ids), prompt_tokens) - held)
        prefill.ms += (perf_counter() - began_s) * 1e3
        if len(target.ids) + leave >= aim:
            return
        if not crowded:
            yield PAUSE


def unwanted(limits: Limits, cancel: threading.Event) -> str:
    """Why there should be no further round, if so: "cancelled" | "deadline"."""
    if cancel.is_set():
        return "cancelled"
    late = limits.deadline_ms and (perf_counter() - limits.started_s) * 1e3 >= limits.deadline_ms
    return "deadline" if late else ""


def stopped(why: str) -> Round:
    """An end without a round."""
    return Round(tokens=[], source="", drafted=0, accepted=0, ms=0.0, stop=why)


@torch.inference_mode()
def place(logits: Tensor, chosen: int, top: int) -> BranchPoint:
    """From the target's own logits [vocab], before anything is banned or spelled or drawn.

    One row at a time: so it is the same, bit for bit, whatever pass the row came in.
    """
    logprobs = logits.log_softmax(dim=-1)
    best = logprobs.topk(min(top, len(logprobs)))
    return BranchPoint(float(logprobs[chosen]), tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True)))


@torch.inference_mode()
def limit(logits: Tensor, emitted: Sequence[Sequence[int]], limits: Limits, constraint: Constraint | None) -> Tensor:
    """Logits [T, vocab] with what may not come set to -inf; row i follows the tokens `emitted[i]`."""
    if constraint is not None:
        for row, before in enumerate(emitted):
            allowed = constraint.allowed(before)
            if allowed is None:
                break  # what is spelled stays spelled: later rows are free too
            held = logits[row, allowed]
            logits[row] = float("-inf")
            logits[row, allowed] = held
    if limits.banned_tokens:
        logits[:, list(limits.banned_tokens)] = float("-inf")
    return logits
