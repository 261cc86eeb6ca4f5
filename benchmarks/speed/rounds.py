"""Measurement of drafters: acceptance by depth, tokens per round beside τ's prediction.

A round with γ guesses *judges* them one after the other until the first that fails: n accepted guesses are n + 1
judged ones, or n when all held. α is accepted ÷ judged; were every guess accepted with that probability, whatever its
depth, a round would yield  τ = (1 - α^(γ+1)) / (1 - α)  tokens. Where the measured number differs, acceptance depends
on depth.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter

from speclsp.engine.api import Completer, Piece, Request, Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One completion from start to end, with its rounds."""

    result: Result
    total_ms: float  # as its caller waited: prompt building, prefill, rounds
    rounds: tuple[Piece, ...]

    def decode_ms(self, tokens: int) -> float:
        """The time of the rounds that produced the first `tokens`."""
        decoded_tokens, ms = 0, 0.0
        for piece in self.rounds:
            if decoded_tokens >= tokens:
                break
            ms += piece.ms
            decoded_tokens += len(piece.tokens)
        return ms


def tau(alpha: float, gamma: int) -> float:
    """Expected tokens of a round with γ guesses, each accepted with probability α: (1 - α^(γ+1)) / (1 - α)."""
    return float(gamma + 1) if alpha >= 1.0 else (1.0 - alpha ** (gamma + 1)) / (1.0 - alpha)


def run(completer: Completer, request: Request) -> Run:
    """Run one completion and record its rounds."""
    began_s = perf_counter()
    completion = completer.complete(request, threading.Event())
    rounds = tuple(completion)
    return Run(result=completion.result, total_ms=(perf_counter() - began_s) * 1e3, rounds=rounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """Counts over the rounds of one way of drafting."""

    rounds: int
    drafted: int
    judged: int
    accepted: int
    tokens: int
    by_depth: tuple[tuple[int, int], ...]  # for the 1st, 2nd, ... guess of a round: (judged, accepted)
    predicted: float  # tokens a round, by τ with the one α and each round's own γ

    @property
    def alpha(self) -> float:
        """The share of judged guesses that were accepted; 0 when none was judged."""
        return self.accepted / self.judged if self.judged else 0.0

    @property
    def tokens_per_round(self) -> float:
        return self.tokens / self.rounds if self.rounds else 0.0


def drafting(rounds: Iterable[Piece], source: str | None = None) -> Drafting:
    """Counts over `rounds`; with a source, over those that it guessed in."""
    chosen = [piece for piece in rounds if piece.tokens and (source is None or piece.source == source)]
    judged = sum(judged_in(piece) for piece in chosen)
    accepted = sum(piece.accepted for piece in chosen)
    alpha = accepted / judged if judged else 0.0
    deepest = max((piece.drafted for piece in chosen), default=0)
    by_depth = tuple(
        (sum(judged_in(piece) > depth for piece in chosen), sum(piece.accepted > depth for piece in chosen))
        for depth in range(deepest)
    )
    return Drafting(
        rounds=len(chosen),
        drafted=sum(piece.drafted for piece in chosen),
        judged=judged,
        accepted=accepted,
        tokens=sum(len(piece.tokens) for piece in chosen),
        by_depth=by_depth,
        predicted=statistics.fmean(tau(alpha, piece.drafted) for piece in chosen) if chosen else 0.0,
    )


def judged_in(piece: Piece) -> int:
    """The number of guesses of a round that were verified: the accepted ones, and the first rejected one."""
    return min(piece.accepted + 1, piece.drafted)


def quantile(values: Sequence[float], share: float) -> float:
    """The value that `share` of `values` do not exceed, by linear interpolation; 0 for none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def spread(values: Sequence[float]) -> dict[str, float]:
    """p50 and p95, in milliseconds to a tenth."""
    return {"p50": round(quantile(values, 0.5), 1), "p95": round(quantile(values, 0.95), 1)}


def same(run: Run, other: Run) -> bool:
    """Token for token, and the text."""
    return run.result.tokens == other.result.tokens and run.result.text == other.result.text
