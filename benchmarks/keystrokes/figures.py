"""Figures of replayed typing: times at the editor for each key, and the work of server and engine.

    at the editor    times of answers, pauses that end with a suggestion, cancelled and overtaken requests
    in the server    outcomes of requests and where their time went, from the traces in its log
    in the engine    rounds, stale work and prompt tokens, from the growth of its /metrics

A percentile of times counts a missing answer as infinitely late; a percentile that is infinite is written as None.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from benchmarks.keystrokes.replay_editor import Press

PAUSES_MS = (250, 500, 1000)
LONG_PAUSE_MS = 1000
PROMPT_TOKENS = ("prompt_tokens_total", "cached_tokens_total")
BROKEN = ("engine_lost", "failed", "loading")  # outcomes that a sound server does not have

Trace = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Typed:
    """One recording as it went."""

    language: str
    presses: list[Press]
    counts: dict[str, float]  # growth of the engine's counters
    edit_requests: Sequence[tuple[int, float]] = ()  # for next edits: (number of the request, time in s)


def quantile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least `share` of them do not exceed; None when that one is endless, or none is.

    To three decimals: a key typed along takes 2 ms, and a tenth of that is what a change may cost.
    """
    ordered = sorted(values)
    value = ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.inf
    return round(value, 3) if math.isfinite(value) else None


def spread(values: Iterable[float]) -> dict[str, float | int | None]:
    """Count, median and 95th percentile."""
    numbers = list(values)
    return {"count": len(numbers), "p50_ms": quantile(numbers, 0.5), "p95_ms": quantile(numbers, 0.95)}


def of_model(press: Press, traced: Mapping[int, Trace]) -> bool:
    """True if a suggestion was on screen that the model generated, or continued, for this very request."""
    trace = traced.get(press.number)
    return trace is not None and press.on_screen and not trace["reused"]


def followed(presses: Sequence[Press], traced: Mapping[int, Trace]) -> list[tuple[float, int]]:
    """Of each suggestion that the model made and that was seen: its confidence, and the keys that typed it along."""
    pairs_of = []
    for at, press in enumerate(presses):
        trace = traced.get(press.number)
        if trace is None or trace["confidence"] is None or not of_model(press, traced):
            continue
        keys = 0
        for later in presses[at + 1 :]:
            if not later.along or later.uri != press.uri:
                break
            keys += 1
            if of_model(later, traced):  # from here on that one is typed along
                break
        pairs_of.append((float(trace["confidence"]), keys))
    return pairs_of


def bucket_quantile(counts: Mapping[str, float], name: str, share: float) -> float | None:
    """The bound of the histogram's bucket that holds the quantile; None for an empty one, or above the last bound."""
    prefix = f'speclsp_{name}_bucket{{le="'
    buckets = {key[len(prefix) : -2]: count for key, count in counts.items() if key.startswith(prefix)}
    total = buckets.pop("+Inf", 0)
    bounds = sorted((float(bound), count) for bound, count in buckets.items())
    return next((bound for bound, count in bounds if total and count >= share * total), None)


def part(some: float, of: float) -> float | None:
    """`some` / `of` to four digits; None when there is nothing to divide by."""
    return round(some / of, 4) if of else None


def total(counts: Mapping[str, float], name: str) -> float:
    """A counter's growth over all its labels."""
    return sum(count for key, count in counts.items() if key.partition("{")[0] == f"speclsp_{name}")


def pauses(presses: Sequence[Press], at_least_ms: float, below_ms: float = math.inf) -> dict[str, float | int | None]:
    """Of the pauses of that length: how many, at how many's end a suggestion or an answer of any kind was there."""
    those = [press for press in presses if at_least_ms <= press.next_ms < below_ms]
    return {
        "count": len(those),
        "with_suggestion": part(sum(press.on_screen for press in those), len(those)),
        "answered": part(sum(press.fresh for press in those), len(those)),
    }


def editors_side(presses: Sequence[Press], traced: Mapping[int, Trace]) -> dict[str, Any]:
    """Figures at the editor. `traced`: the server's trace of each request, where it has one."""
    shown = [press for press in presses if press.on_screen]
    along = [press for press in presses if press.along]
    modelled = [press for press in shown if of_model(press, traced) and traced[press.number]["first_ms"]]
    long_ones = [press for press in presses if press.next_ms >= LONG_PAUSE_MS]
    bounds, characters = [*PAUSES_MS, math.inf], alone(presses)
    return {
        "keys": len(presses),
        "seconds": round(sum(min(press.next_ms, 10_000) for press in presses) / 1000, 1),
        "suggestion": spread(press.answer_ms for press in shown),
        "suggestion_from_model": spread(press.answer_ms for press in modelled),
        "answer_in_long_pause": spread(press.answer_ms if press.fresh else math.inf for press in long_ones),
        "pauses": pauses(presses, PAUSES_MS[0]),
        "pauses_by_ms": {f"{low}-{high:g}": pauses(presses, low, high) for low, high in pairwise(bounds)},
        "typing_through": spread(press.answer_ms if press.fresh else math.inf for press in along),
        "cancel_to_reply": spread((press.heard_s - press.cancelled_s) * 1000 for press in presses if cancelled(press)),
        "prefilled_by_a_character": {
            "count": len(characters),
            "p50": quantile(characters, 0.5),
            "p95": quantile(characters, 0.95),
        },
        "keys_overtaken": part(sum(not press.fresh for press in presses), len(presses)),
        "accepted": sum(press.accepted > 0 for press in presses),
        "accepted_characters": sum(press.accepted for press in presses),
        "unanswered": sum(math.isinf(press.heard_s) for press in presses),
        "misfits": sum(press.fresh and not press.fits for press in presses),
        "errors": dict(Counter(str(press.error) for press in presses if press.error and not cancelled(press))),
        "late_keys_p99_ms": quantile([press.late_ms for press in presses], 0.99),
    }


def cancelled(press: Press) -> bool:
    return math.isfinite(press.cancelled_s)


def engines_side(keys: int, counts: Mapping[str, float]) -> dict[str, Any]:
    """The engine's counts, per key."""
    rounds, stale_ms = total(counts, "rounds_total"), total(counts, "stale_work_ms_sum")
    round_ms = total(counts, "predicted_ms_sum") / rounds if rounds else 0.0
    prompt_tokens, cached_tokens = (total(counts, name) for name in PROMPT_TOKENS)
    requests = total(counts, "requests_total")
    means = {
        name.removeprefix("speclsp_").removesuffix("_sum"): round(ms / counts[name[:-4] + "_count"], 1)
        for name, ms in counts.items()
        if name.endswith("_ms_sum") and "_histogram_" not in name and counts.get(name[:-4] + "_count")
    }
    return {
        "requests": round(requests),
        "stale_work_ms_per_key": part(stale_ms, keys),
        "stale_rounds_per_key": part(stale_ms / round_ms, keys) if round_ms else None,
        "cancel_to_stop_p99_ms": bucket_quantile(counts, "stale_work_histogram_ms", 0.99),
        "cancelled": round(total(counts, "stale_work_ms_count")),
        "prefilled_tokens_per_key": part(total(counts, "prefilled_tokens_total"), keys),
        "prefilled_tokens_per_request": part(total(counts, "prefilled_tokens_total"), requests),
        "cached_share": part(cached_tokens, prompt_tokens),
        "round_ms": round(round_ms, 1),
        "tokens_per_round": part(total(counts, "predicted_tokens_total"), rounds),
        "mean_ms": means,
    }


def alone(presses: Sequence[Press]) -> list[float]:
    """Prompt tokens that each typed character brought, where the engine was at rest before it and after its answer."""
    new_tokens = []
    for before, press in pairwise(presses):
        then, now = before.counted, press.counted
        if press.kind == "char" and before.uri == press.uri and then is not None and now is not None:
            grown = {name: total(now, name) - total(then, name) for name in ("requests_total", *PROMPT_TOKENS)}
            if grown["requests_total"] == 1:
                new_tokens.append(grown[PROMPT_TOKENS[0]] - grown[PROMPT_TOKENS[1]])
    return new_tokens


def servers_side(traces: Sequence[Trace]) -> dict[str, Any]:
    """Outcomes of requests, the share answered without the model, and where the time of the others went."""
    shown = [trace for trace in traces if trace["outcome"] == "shown" and not trace["reused"] and trace["first_ms"]]
    where = {
        "parse": mean(trace["parse_ms"] for trace in shown),
        "context": mean(trace["context_ms"] for trace in shown),
        "queue_prefill_first_round": mean(
            trace["first_ms"] - trace["parse_ms"] - trace["context_ms"] for trace in shown
        ),
        "further_rounds": mean(trace["total_ms"] - trace["first_ms"] for trace in shown),
    }
    return {
        "requests": len(traces),
        "without_model": part(sum(bool(trace["reused"]) for trace in traces), len(traces)),
        "adopted": part(sum(bool(trace.get("adopted")) for trace in traces), len(traces)),
        "outcomes": dict(Counter(str(trace["outcome"]) for trace in traces).most_common()),
        "shown_from_model": len(shown),
        "mean_ms_of_shown_from_model": where,
    }


def mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return round(sum(numbers) / len(numbers), 1) if numbers else 0.0


def by_request(presses: Iterable[Press], traces: Iterable[Trace]) -> dict[int, Trace]:
    """The server's trace of each request. Requests of one document version end in the order they were sent."""
    from speclsp.plain_text import digest

    waiting: dict[tuple[str, int], deque[int]] = defaultdict(deque)
    for press in presses:
        waiting[digest(press.uri), press.version].append(press.number)
    trace_of = {}
    for trace in traces:
        numbers = waiting.get((trace["document"], trace["version"]))
        if numbers:
            trace_of[numbers.popleft()] = trace
    return trace_of


def side_by_side(typed: Sequence[Typed], traces: Sequence[Trace]) -> dict[str, Any]:
    """All figures of some recordings together."""
    presses = [press for run in typed for press in run.presses]
    counts: Counter[str] = Counter()
    for run in typed:
        counts.update(run.counts)
    traced = by_request(presses, traces)
    return {
        **editors_side(presses, traced),
        "server": servers_side([traced[press.number] for press in presses if press.number in traced]),
        "engine": engines_side(len(presses), counts),
    }


def faults(figures: Mapping[str, Any]) -> list[str]:
    """Faults that a sound server does not have; figures of a run with faults say nothing about speed."""
    failed = sum(figures["server"]["outcomes"].get(reason, 0) for reason in BROKEN)
    return [
        sentence
        for wrong, sentence in (
            (failed, f"{failed} requests failed in the server or the engine, whose log says why"),
            (figures["unanswered"], f"{figures['unanswered']} requests were not answered"),
            (figures["stray_answers"], f"{figures['stray_answers']} answers came to no request, or a second time"),
            (figures["misfits"], f"{figures['misfits']} fresh answers did not fit the text at the cursor"),
            (figures["errors"], f"errors to requests nobody had cancelled, by code: {figures['errors']}"),
            (figures["messages_shown"], f"shown to the user: {figures['messages_shown']}"),
        )
        if wrong
    ]


# ── the table that `python -m benchmarks keystrokes` prints, whose rows the report takes ──────────────────────

AIM_SUGGESTION_MS, AIM_STALE_ROUNDS, AIM_ALONG_MS = 300, 1.0, 20  # the 0.5B target on 2 CPU cores


def print_table(model: str, figures: Mapping[str, Any]) -> None:
    """All languages together and each by itself, the aims beside."""
    columns = {"all": figures, **figures["languages"]}
    print(f"{model}: {figures['keys']} keys, {figures['recorded_minutes']} min of synthetic typing, in real time")
    print(f"{'':36}" + "".join(f"{name[:10]:>11}" for name in columns) + "   aim (0.5B, CPU)")
    for label, path, form, aim in ROWS:
        cells = "".join(f"{cell(of, path, form):>11}" for of in columns.values())
        print(f"{label:36}{cells}{'   ' + aim if aim else ''}")
    where, engine = figures["server"]["mean_ms_of_shown_from_model"], figures["engine"]["mean_ms"]
    parts = ", ".join(f"{name.replace('_', ' ')} {ms:g}" for name, ms in where.items())
    print(f"a suggestion the model made, mean ms: {parts}")
    print("in the engine, mean ms: " + ", ".join(f"{name.removesuffix('_ms')} {ms:g}" for name, ms in engine.items()))
    print("how requests ended: " + ", ".join(f"{name} {n}" for name, n in figures["server"]["outcomes"].items()))


ROWS = (
    ("key to suggestion, p50", "suggestion.p50_ms", "ms", f"<= {AIM_SUGGESTION_MS} ms"),
    ("                   p95", "suggestion.p95_ms", "ms", ""),
    ("  of these from the model, p50", "suggestion_from_model.p50_ms", "ms", f"<= {AIM_SUGGESTION_MS} ms"),
    ("                           p95", "suggestion_from_model.p95_ms", "ms", ""),
    ("answer in a pause of 1 s, p50", "answer_in_long_pause.p50_ms", "ms", ""),
    ("                          p95", "answer_in_long_pause.p95_ms", "ms", ""),
    ("pauses >= 250 ms", "pauses.count", "n", ""),
    ("  that end with a suggestion", "pauses.with_suggestion", "%", ""),
    ("  that end with an answer", "pauses.answered", "%", ""),
    ("typing through, answers", "typing_through.count", "n", ""),
    ("                p95", "typing_through.p95_ms", "ms", f"<= {AIM_ALONG_MS} ms"),
    ("answered without the model", "server.without_model", "%", ""),
    ("from an older request's stream", "server.adopted", "%", ""),
    ("stale work a key", "engine.stale_work_ms_per_key", "ms", ""),
    ("                in rounds", "engine.stale_rounds_per_key", "x", f"<= {AIM_STALE_ROUNDS:g} round"),
    ("cancel to stop, p99 below", "engine.cancel_to_stop_p99_ms", "ms", ""),
    ("prompt tokens a typed character, p50", "prefilled_by_a_character.p50", "n", "<= 3"),
    ("prompt tokens prefilled a key", "engine.prefilled_tokens_per_key", "x", ""),
    ("prompt tokens found in the cache", "engine.cached_share", "%", ""),
    ("mean round", "engine.round_ms", "ms", ""),
    ("suggestions accepted", "accepted", "n", ""),
    ("answers that did not fit", "misfits", "n", "0"),
)


def cell(figures: Any, path: str, form: str) -> str:
    """One figure as the table shows it."""
    within = figures
    for name in path.split("."):
        within, figures = figures, figures[name]
    if figures is None:
        return "never" if path.endswith("_ms") and within.get("count") else "-"
    ms = f"{figures:.{1 if figures >= 10 else 2}f} ms"
    return {"ms": ms, "%": f"{figures:.0%}", "n": f"{figures}", "x": f"{figures:.2f}"}[form]
