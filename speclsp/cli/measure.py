"""Measurement of drafters: acceptance by depth, tokens per round beside τ's prediction, and speed-up by decoding mode.

A round with γ guesses *judges* them one after the other until the first that fails: n accepted guesses are n + 1
judged ones, or n when all held. α is accepted ÷ judged; were every guess accepted with that probability, whatever its
depth, a round would yield  τ = (1 - α^(γ+1)) / (1 - α)  tokens. Where the measured number differs, acceptance depends
on depth.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
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
    from speclsp.engine.decoding.policy import tau  # and NumPy with it

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


# ── the same request decoded in several ways ──

MODEL_GAMMA = 3  # guesses a round of the draft model alone: the best for 0.5B -> 1.5B on a CPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Runs of both kinds, in the order they were made."""

    plain: tuple[Result, ...]
    speculative: tuple[Result, ...]
    model: tuple[Result, ...] = ()  # the draft model alone guessing, where the model has one

    @property
    def identical(self) -> bool:
        """True when every run gave the same token ids and the same text."""
        runs = [*self.plain, *self.speculative, *self.model]
        return all(run.tokens == runs[0].tokens and run.text == runs[0].text for run in runs)


def complete_once(completer: Completer, request: Request) -> Result:
    """Run one completion from start to end, without timing it."""
    return run(completer, request).result


def same(run: Run, other: Run) -> bool:
    """Token for token, and the text."""
    return run.result.tokens == other.result.tokens and run.result.text == other.result.text


def compare(
    completer: Completer,
    request: Request,
    repeats: int,
    tokens: int,
    progress: Callable[[float, str], None] = lambda fraction, what: None,
) -> Comparison:
    """`repeats` runs of `request` in each way, each of at most `tokens` tokens from a cold prompt.

    Where the model has a draft there is a third way: the draft alone guesses, MODEL_GAMMA tokens a round. So its own
    acceptance is measured even where n-grams, which cost nothing, leave it no work.
    """
    cold = replace(request, cache_prompt=False, max_tokens=tokens, deadline_ms=0, previous="", gamma=None)
    ways = {"plain": replace(cold, speculate=False), "speculative": cold}
    if completer.draft:
        ways["model"] = replace(cold, sources=("model",), gamma=MODEL_GAMMA)
    results: dict[str, list[Result]] = {name: [] for name in ways}
    for turn in range(repeats):
        for name in ways if turn % 2 == 0 else reversed(ways):
            done = sum(map(len, results.values()))
            progress(done / (len(ways) * repeats), "measuring")
            session = f"compare-{turn}-{name}"  # so that nothing is remembered from one run to the next
            results[name].append(complete_once(completer, replace(ways[name], session=session)))
    progress(1.0, "measuring")
    return Comparison(**{name: tuple(runs) for name, runs in results.items()})


def median(runs: tuple[Result, ...], measure: Callable[[Result], float]) -> float:
    """The middle value of one measure over `runs`."""
    return statistics.median(measure(result) for result in runs)


def facts(comparison: Comparison) -> dict[str, object]:
    """The comparison as numbers: medians in milliseconds, counts of one run of each way."""
    plain, fast = comparison.plain, comparison.speculative
    of_plain = way_facts(plain, plain)
    plain_names = ("rounds", "ttft_ms", "decode_ms", "ms_per_token", "total_ms")
    model = comparison.model
    return {
        "identical": comparison.identical,
        "prompt_tokens": fast[0].prompt_tokens,
        "new_tokens": len(fast[0].tokens),
        "by_source": fast[0].by_source,
        **way_facts(fast, plain),
        **{f"plain_{name}": of_plain[name] for name in plain_names},
        "repeats": len(fast),
        "model_draft": {"gamma": MODEL_GAMMA} | way_facts(model, plain) if model else None,
    }


def way_facts(runs: tuple[Result, ...], plain: tuple[Result, ...]) -> dict[str, object]:
    """One way of decoding as numbers, and its speed-up over the `plain` one."""
    first, tokens = runs[0], len(runs[0].tokens)
    decode_ms, total_ms = median(runs, decoding_ms), median(runs, whole_ms)
    return {
        "rounds": first.rounds,
        "drafted_tokens": first.drafted,
        "accepted_tokens": first.accepted,
        "rejected_tokens": first.drafted - first.accepted,
        "acceptance_rate": ratio(first.accepted, first.drafted),
        "tokens_per_round": ratio(tokens, first.rounds),
        "ttft_ms": round(median(runs, lambda result: result.ttft_ms), 1),
        "decode_ms": round(decode_ms, 1),
        "total_ms": round(total_ms, 1),
        "ms_per_token": round(decode_ms / max(tokens, 1), 2),
        "speed_up": ratio(median(plain, decoding_ms), decode_ms),
        "total_speed_up": ratio(median(plain, whole_ms), total_ms),
    }


def decoding_ms(result: Result) -> float:
    """All rounds, without the prompt."""
    return result.decode_ms


def whole_ms(result: Result) -> float:
    """Prompt and rounds."""
    return result.prompt_ms + result.decode_ms


def ratio(part: float, whole: float) -> float:
    """`part` / `whole` to three digits; 0 when there is nothing to divide by."""
    return round(part / whole, 3) if whole else 0.0
