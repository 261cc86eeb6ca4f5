"""Does speculation change the text, and what does it save? One hole, decoded plainly and speculatively, in turn.

The comparison is fair by construction: one loaded engine, warmed up on another hole; every run computes its prompt
anew (nothing of it is cached) and makes the same number of tokens; plain and speculative runs alternate, so that a
machine that slows down slows both; the middle of each kind is what counts.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from speclsp.engine.seam import Completer, Request, Result

MODEL_GAMMA = 3  # guesses a round of the draft model alone: the best for 0.5B -> 1.5B on a CPU (ENGINE.md A)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Runs of both kinds, in the order they were made."""

    plain: tuple[Result, ...]
    speculative: tuple[Result, ...]
    model: tuple[Result, ...] = ()  # the draft model alone guessing, where the pair has one

    @property
    def identical(self) -> bool:
        """Whether every run of either kind gave the same token ids and the same text."""
        runs = [*self.plain, *self.speculative, *self.model]
        return all(run.tokens == runs[0].tokens and run.text == runs[0].text for run in runs)


def run(completer: Completer, request: Request) -> Result:
    """One completion from start to end."""
    completion = completer.complete(request, threading.Event())
    for _ in completion:
        pass
    return completion.result


def compare(
    completer: Completer,
    request: Request,
    repeats: int,
    tokens: int,
    progress: Callable[[float, str], None] = lambda fraction, what: None,
) -> Comparison:
    """`repeats` runs of `request` in each way, each of at most `tokens` tokens from a cold prompt.

    Where the pair has a draft model there is a third way: that model alone guesses, MODEL_GAMMA tokens a round, so that
    its own acceptance is seen even where n-grams, which cost nothing, leave it no work.
    """
    cold = replace(request, cache_prompt=False, max_tokens=tokens, deadline_ms=0, previous="", gamma=None)
    ways = {"plain": replace(cold, speculate=False), "speculative": cold}
    if completer.draft:
        ways["model"] = replace(cold, sources=("model",), gamma=MODEL_GAMMA)
    made: dict[str, list[Result]] = {name: [] for name in ways}
    for turn in range(repeats):
        for name in ways if turn % 2 == 0 else reversed(ways):
            done = sum(map(len, made.values()))
            progress(done / (len(ways) * repeats), "measuring")
            session = f"compare-{turn}-{name}"  # so that nothing is remembered from one run to the next
            made[name].append(run(completer, replace(ways[name], session=session)))
    progress(1.0, "measuring")
    return Comparison(**{name: tuple(results) for name, results in made.items()})


def median(runs: tuple[Result, ...], measure: Callable[[Result], float]) -> float:
    """The middle value of one measure over `runs`."""
    return statistics.median(measure(result) for result in runs)


def facts(comparison: Comparison) -> dict[str, object]:
    """The comparison as numbers: medians in milliseconds, counts of one speculative run."""
    plain, fast = comparison.plain, comparison.speculative
    one = fast[0]
    tokens = len(one.tokens)
    decode_ms, plain_decode_ms = median(fast, decoding_ms), median(plain, decoding_ms)
    total_ms, plain_total_ms = median(fast, whole_ms), median(plain, whole_ms)
    return {
        "identical": comparison.identical,
        "prompt_tokens": one.prompt_tokens,
        "new_tokens": tokens,
        "rounds": one.rounds,
        "plain_rounds": plain[0].rounds,
        "drafted_tokens": one.drafted,
        "accepted_tokens": one.accepted,
        "rejected_tokens": one.drafted - one.accepted,
        "acceptance_rate": ratio(one.accepted, one.drafted),
        "tokens_per_round": ratio(tokens, one.rounds),
        "by_source": one.by_source,
        "ttft_ms": round(median(fast, lambda result: result.ttft_ms), 1),
        "plain_ttft_ms": round(median(plain, lambda result: result.ttft_ms), 1),
        "decode_ms": round(decode_ms, 1),
        "plain_decode_ms": round(plain_decode_ms, 1),
        "ms_per_token": round(decode_ms / max(tokens, 1), 2),
        "plain_ms_per_token": round(plain_decode_ms / max(len(plain[0].tokens), 1), 2),
        "total_ms": round(total_ms, 1),
        "plain_total_ms": round(plain_total_ms, 1),
        "speed_up": ratio(plain_decode_ms, decode_ms),
        "total_speed_up": ratio(plain_total_ms, total_ms),
        "repeats": len(fast),
        "model_draft": model_facts(comparison) if comparison.model else None,
    }


def model_facts(comparison: Comparison) -> dict[str, object]:
    """The draft model alone, as numbers."""
    one = comparison.model[0]
    decode_ms = median(comparison.model, decoding_ms)
    return {
        "gamma": MODEL_GAMMA,
        "rounds": one.rounds,
        "drafted_tokens": one.drafted,
        "accepted_tokens": one.accepted,
        "rejected_tokens": one.drafted - one.accepted,
        "acceptance_rate": ratio(one.accepted, one.drafted),
        "tokens_per_round": ratio(len(one.tokens), one.rounds),
        "ttft_ms": round(median(comparison.model, lambda result: result.ttft_ms), 1),
        "decode_ms": round(decode_ms, 1),
        "total_ms": round(median(comparison.model, whole_ms), 1),
        "ms_per_token": round(decode_ms / max(len(one.tokens), 1), 2),
        "speed_up": ratio(median(comparison.plain, decoding_ms), decode_ms),
        "total_speed_up": ratio(median(comparison.plain, whole_ms), median(comparison.model, whole_ms)),
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
