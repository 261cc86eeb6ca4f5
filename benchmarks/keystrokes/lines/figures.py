"""Figures of typed lines: prompt tokens from the cache, and times, for each kind of key.

    to the answer   from just before didChange is written to any answer; none before the next key counts as endless
    to a suggestion the same, over answers with a suggestion
    cached share    mean over the requests with a known prompt; an answer from the answer cache or an adopted stream: 1
    mostly new      requests that computed over half of their prompt

The engine reports a prompt with its first round. If a later key has adopted the stream by then, the report counts for
the key that began the stream. If a key has ended it before, the prompt is unknown, and in no share of those above. The
long prompts are the unknown ones: read the cached share together with `known_prompts`.

A pause is a key that no other key follows within PAUSE_MS. There, the suggestion counts as right if its first line is.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from statistics import fmean
from typing import Any

from benchmarks.keystrokes.economy.clock import PAUSE_MS
from benchmarks.keystrokes.economy.person import right_lines
from benchmarks.keystrokes.lines.schedule import KINDS
from benchmarks.keystrokes.replay_editor import Press
from speclsp.plain_text import digest

PERCENTILES = (50, 90, 95)
TRACED = (
    "line", "outcome", "total_ms", "prompt_tokens", "cached_tokens", "reused", "adopted", "prepared", "confidence",
)  # fmt: skip
BINS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.01)  # of confidence


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRow:
    """One key and the request after it. Without a trace of it, the fields from `line` on have their defaults."""

    body: str
    language: str
    kind: str
    answer_ms: float | None  # None: no answer before the next key
    late_ms: float  # of the key, behind its schedule
    shown: bool
    right: bool = False  # the first line of what is shown
    wait_ms: float = 0.0  # until the next key
    line: int = -1
    outcome: str = ""
    total_ms: float = 0.0  # in the server
    prompt_tokens: int = 0
    cached_tokens: int = 0
    reused: bool = False
    adopted: bool = False
    prepared: bool = False
    confidence: float | None = None  # in the first line; None: not computed for this request

    @classmethod
    def of(cls, press: Press, body: str, trace: Mapping[str, Any], meant: str = "") -> KeyRow:
        """`trace`: the server's of this request; {} if it has none. `meant`: the text that follows the key."""
        return cls(
            body=body,
            language=press.language,
            kind=press.kind,
            answer_ms=round(press.answer_ms, 1) if press.fresh else None,
            late_ms=round(press.late_ms, 1),
            shown=press.on_screen,
            right=press.on_screen and bool(right_lines(press.suggestion, meant)),
            wait_ms=round(press.next_ms, 1),
            **{name: trace[name] for name in TRACED if name in trace},
        )

    @property
    def cached(self) -> float | None:
        """Share of the prompt that was not computed for this request; None if the engine has not reported it."""
        if self.reused:
            return 1.0
        if not self.prompt_tokens:
            return None
        return 1.0 if self.adopted else self.cached_tokens / self.prompt_tokens


def with_adopted_prompts(rows: Sequence[KeyRow]) -> list[KeyRow]:
    """The rows, with the prompts that the engine reported after a later key had adopted the stream."""
    result = []
    for at, row in enumerate(rows):
        if not (row.reused or row.adopted or row.prompt_tokens):
            adopters = takewhile(lambda later: later.adopted, rows[at + 1 :])
            reported = next((later for later in adopters if later.prompt_tokens), None)
            if reported is not None:
                row = replace(row, prompt_tokens=reported.prompt_tokens, cached_tokens=reported.cached_tokens)
        result.append(row)
    return result


def by_request(presses: Iterable[Press], traces: Iterable[Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """The server's trace of each request. Requests of one document version end in the order they were sent."""
    waiting: dict[tuple[str, int], deque[int]] = defaultdict(deque)
    for press in presses:
        waiting[digest(press.uri), press.version].append(press.number)
    trace_of = {}
    for trace in traces:
        numbers = waiting.get((trace["document"], trace["version"]))
        if numbers:
            trace_of[numbers.popleft()] = trace
    return trace_of


def quantile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least `share` of them do not exceed; None when that one is endless, or none is.

    To three decimals: a key typed along takes 2 ms, and a tenth of that is what a change may cost.
    """
    ordered = sorted(values)
    value = ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.inf
    return round(value, 3) if math.isfinite(value) else None


def part(some: float, of: float) -> float | None:
    """`some` / `of` to four digits; None when there is nothing to divide by."""
    return round(some / of, 4) if of else None


def percentiles(values: Sequence[float]) -> dict[str, float | None]:
    """p50, p90 and p95; None where that value is endless."""
    return {f"p{share}_ms": quantile(values, share / 100) for share in PERCENTILES}


def of_kind(rows: Sequence[KeyRow]) -> dict[str, Any]:
    """The figures of some keys."""
    shares = [row.cached for row in rows if row.cached is not None]
    mostly_new = [row for row in rows if row.cached is not None and row.cached < 0.5]
    return {
        "count": len(rows),
        "in_time": part(sum(row.answer_ms is not None for row in rows), len(rows)),
        "with_suggestion": part(sum(row.shown for row in rows), len(rows)),
        "from_answer_cache_or_adopted": part(sum(row.reused or row.adopted for row in rows), len(rows)),
        "prepared": part(sum(row.prepared for row in rows), len(rows)),
        "known_prompts": part(len(shares), len(rows)),
        "cached_share": round(fmean(shares), 4) if shares else None,
        "mostly_new": part(len(mostly_new), len(shares)),
        "to_answer": percentiles([math.inf if row.answer_ms is None else row.answer_ms for row in rows]),
        "to_suggestion": percentiles([row.answer_ms for row in rows if row.shown and row.answer_ms is not None]),
    }


def of_pauses(rows: Sequence[KeyRow]) -> dict[str, Any]:
    """Suggestions at pauses: shown and right, in all and by the confidence of their first line.

    A suggestion that is typed along has the confidence that it had when it appeared.
    """
    sure: float | None = None
    by_bin = {f"{low:g} to {min(high, 1.0):g}": [0, 0] for low, high in pairwise(BINS)}
    pauses = shown = right = 0
    for row in rows:
        sure = row.confidence if row.confidence is not None or not row.reused else sure
        if row.wait_ms < PAUSE_MS:
            continue
        pauses, shown, right = pauses + 1, shown + row.shown, right + row.right
        if row.shown and sure is not None:
            counts = list(by_bin.values())[bisect_right(BINS, sure) - 1]
            counts[0] += 1
            counts[1] += row.right
    return {"pauses": pauses, "shown": shown, "right": right, "shown_and_right_by_confidence": by_bin}


def of_condition(rows: Sequence[KeyRow], typing_s: float, processor_s: float) -> dict[str, Any]:
    """The figures of one condition. `processor_s`: of the server and its engine while the bodies were typed."""
    return {
        "keys": len(rows),
        "typing_s": round(typing_s, 1),
        "processor_s_per_minute": round(processor_s / typing_s * 60, 2),
        "late_keys_p99_ms": quantile([row.late_ms for row in rows], 0.99),
        "kinds": {kind: of_kind([row for row in rows if row.kind == kind]) for kind in KINDS},
        "at_pauses": of_pauses(rows),
    }
