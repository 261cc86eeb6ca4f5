"""Measurement of a request decoded in two ways: plain, one token a step, and speculative."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

from speclsp.engine.api import Completer, Request, Result


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
) -> dict[str, list[Result]]:
    """{"plain" and "speculative": `repeats` runs}, in turn, each of at most `tokens` tokens from a cold prompt."""
    cold = replace(request, cache_prompt=False, max_tokens=tokens, deadline_ms=0, previous="", gamma=None)
    ways = {"plain": replace(cold, speculate=False), "speculative": cold}
    results: dict[str, list[Result]] = {name: [] for name in ways}
    for turn in range(repeats):
        progress(turn / repeats, "measuring")
        for name in ways if turn % 2 == 0 else reversed(ways):
            session = f"compare-{turn}-{name}"  # so that nothing is remembered from one run to the next
            results[name].append(complete_once(completer, replace(ways[name], session=session)))
    progress(1.0, "measuring")
    return results


def facts(results: dict[str, list[Result]]) -> dict[str, object]:
    """The comparison as numbers: medians in milliseconds, counts of one run of each way."""
    runs = [run for way in results.values() for run in way]
    ways = {name: way_facts(way) for name, way in results.items()}
    plain, fast = ways["plain"], ways["speculative"]
    return {
        "identical": all(run.tokens == runs[0].tokens and run.text == runs[0].text for run in runs),
        "prompt_tokens": runs[0].prompt_tokens,
        "new_tokens": len(runs[0].tokens),
        "repeats": len(results["plain"]),
        "by_source": results["speculative"][0].by_source,
        **ways,
        "decode_speed_up": ratio(plain["decode_ms"], fast["decode_ms"]),
        "total_speed_up": ratio(plain["total_ms"], fast["total_ms"]),
    }


def way_facts(runs: Sequence[Result]) -> dict[str, float]:
    """One way of decoding as numbers."""
    first, tokens = runs[0], len(runs[0].tokens)
    decode_ms = median(run.decode_ms for run in runs)
    return {
        "rounds": first.rounds,
        "tokens_per_round": ratio(tokens, first.rounds),
        "drafted_tokens": first.drafted,
        "accepted_tokens": first.accepted,
        "ttft_ms": round(median(run.ttft_ms for run in runs), 1),
        "decode_ms": round(decode_ms, 1),
        "ms_per_token": round(decode_ms / max(tokens, 1), 2),
        "total_ms": round(median(run.prompt_ms + run.decode_ms for run in runs), 1),
    }


def ratio(part: float, whole: float) -> float:
    """`part` / `whole` to three digits; 0 when there is nothing to divide by."""
    return round(part / whole, 3) if whole else 0.0
