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


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Runs of both kinds, in the order they were made."""

    plain: tuple[Result, ...]
    speculative: tuple[Result, ...]

    @property
    def identical(self) -> bool:
        """Whether every run of either kind gave the same token ids and the same text."""
        runs = [*self.plain, *self.speculative]
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
    """`repeats` plain and as many speculative runs of `request`, each of at most `tokens` tokens from a cold prompt."""
    cold = replace(request, cache_prompt=False, max_tokens=tokens, deadline_ms=0, previous="", gamma=None)
    made: dict[bool, list[Result]] = {False: [], True: []}
    for turn in range(repeats):
        for speculate in (False, True) if turn % 2 == 0 else (True, False):
            done = sum(map(len, made.values()))
            progress(done / (2 * repeats), "measuring")
            session = f"compare-{turn}-{speculate}"  # so that nothing is remembered from one run to the next
            made[speculate].append(run(completer, replace(cold, speculate=speculate, session=session)))
    progress(1.0, "measuring")
    return Comparison(plain=tuple(made[False]), speculative=tuple(made[True]))


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
