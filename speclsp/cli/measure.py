"""Measurement of a request decoded in several ways: plain, speculative, and with the draft model's guesses alone."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from speclsp.engine.api import Completer, Request, Result

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
