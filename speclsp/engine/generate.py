"""Speculative decoding for one sequence: draft gamma tokens, verify them in one pass, keep what agrees.

    draft    a small model, an n-gram, or the last suggestion guesses x1 … xγ
    verify   last x1 … xγ ─► target, one pass ─► γ+1 predictions
    accept   keep x1 … xn while they hold; prediction n+1 comes free

A round yields 1 to γ+1 tokens, those the target alone would have chosen, bit for bit: the decoder's rows do not depend
on each other (decoder.py), and the last prompt token goes through a round like any other, so that prefill decides
nothing. A plain step is a round with an empty guess. Between rounds, and between the steps of prefill, the engine looks
at `cancel`: a new keystroke waits one round at most, and what is cached stays good for it.

Tokens are Python ints, logits are [T, vocab]; the batch is always one sequence and has no dimension here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Protocol

import torch
from torch import Tensor

from speclsp.engine.accept import Sampler
from speclsp.engine.draft import Drafter, Guess, Pick
from speclsp.engine.slots import CachedModel, Cancelled


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


@dataclass(slots=True, kw_only=True)
class Prefill:
    """What preparing the cache for a prompt took."""

    cached_tokens: int = 0
    computed_tokens: int = 0  # of the prompt; fewer than the rest when it was cancelled
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
) -> Iterator[Round]:
    """Yield each round's tokens and counts. Close the iterator, or set `cancel`, to stop.

    Args:
        prompt: at least one token; prompt and completion together must fit the target's cache.
        constraint: limits the first tokens (token healing); guesses are held to it as well.
        prefill: filled in with what the cache spared and what the rest took.
    """
    ids, start = list(prompt), len(prompt)
    began_s = perf_counter()
    prefill = prefill or Prefill()
    try:
        (target.prepare if limits.max_tokens else target.catch_up)(ids[:-1], cancel)  # 0: only read ahead
        stopped = False
    except Cancelled:
        stopped = True
    prefill.cached_tokens, prefill.ms = target.cached_tokens, (perf_counter() - began_s) * 1e3
    prefill.computed_tokens = len(target.ids if stopped else ids) - prefill.cached_tokens
    if stopped:
        yield Round(tokens=[], source="", drafted=0, accepted=0, ms=0.0, stop="cancelled")
        return

    def pick(logits: Tensor, drafted: Sequence[int]) -> tuple[int, Tensor | None]:
        emitted = [*ids[start:], *drafted]
        return sampler.draft(limit(logits[None], [emitted], limits, constraint)[0], len(ids) + len(drafted))

    while True:
        began_s = perf_counter()
        room = min(limits.max_tokens - (len(ids) - start), target.context_tokens - len(ids)) - 1
        if room < 0:
            yield Round(tokens=[], source="", drafted=0, accepted=0, ms=0.0, stop="limit")
            return
        pending = ids[len(target.ids) :]  # the newest token; in the first round the last step of prefill before it
        source, guess = policy.guess(drafters, ids, room, pick)  # x1 … xγ, from any source; none is fine
        x = guess.tokens
        if guess.settled is not None:  # one device holds both models, and did the whole round
            n, token = guess.settled
        else:
            pass_s = perf_counter()
            try:
                logits = target.ride([*pending, *x], len(x) + 1, cancel)  # one large pass, [γ+1, vocab]
            except Cancelled:
                prefill.computed_tokens -= len(pending) - 1
                yield Round(tokens=[], source="", drafted=0, accepted=0, ms=0.0, stop="cancelled")
                return
            riding_s = (perf_counter() - pass_s) * (len(pending) - 1) / (len(pending) + len(x))
            prefill.ms += riding_s * 1e3
            began_s += riding_s  # the prompt's share of the pass is not the round's
            emitted = [[*ids[start:], *x[:i]] for i in range(len(x) + 1)] if constraint else []
            n, token = sampler.accept(x, limit(logits, emitted, limits, constraint), len(ids), guess.q)
            target.rewind(len(ids) + n)  # forget the rejected tail; the new token is not in the cache yet
        policy.learn(source, guess.strength, len(x), n)

        new = [*x[:n], token]
        eos = next((i for i, t in enumerate(new) if t in limits.stop_tokens), None)
        kept = new if eos is None else new[:eos]
        ids += kept
        ms = (perf_counter() - began_s) * 1e3
        stop = "eos" if eos is not None else "limit" if len(ids) - start >= limits.max_tokens else ""
        if not stop and cancel.is_set():
            stop = "cancelled"
        if not stop and limits.deadline_ms and (perf_counter() - limits.started_s) * 1e3 >= limits.deadline_ms:
            stop = "deadline"
        yield Round(tokens=kept, source=source, drafted=len(x), accepted=min(n, len(kept)), ms=ms, stop=stop)
        if stop:
            return


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
