"""Recorded typing replayed against the real language server: what a person at the keys would see, and what it costs.

    speclsp bench keystrokes --pair qwen2.5-coder-0.5b-instruct [--quick | --minutes N | --all] [--workspace DIR]

    key to suggestion   from just before didChange is written to the answer with a suggestion, where no key came between
    in a pause          the same for any answer, over pauses of 1 s and more; none by then counts as endless
    fresh at the end    of pauses of 250 ms and more, those at whose end a suggestion for this very text is on screen
    typing through      the answers to keys that the suggestion on screen said would come
    stale work          the engine's time on requests after nobody wanted them, per key; in rounds: over the mean round
    cancel to stop      the same, each by itself
    re-prefilled        prompt tokens not found in the KV cache: by a character typed while the engine was at rest, and
                        per key over everything (jumps, other files and requests overtaken while they read included)

The first six are timed at the editor's end, the others come from the engine's /metrics and the server's trace. The
recordings and how they were made: benchmarks/keystrokes/README.md. Writes benchmarks/results/keystrokes-<pair>.json;
with --workspace, which types only the files that lie in that folder, indexed before, keystrokes-workspace-<pair>.json;
with --set completion.eagerness=high, from which `speclsp bench calibration` takes what typing along loses by a gate,
keystrokes-high-<pair>.json.
"""

from __future__ import annotations

import argparse
import gc
import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks import pairs, results_file
from benchmarks.keystrokes.recording import Recording
from benchmarks.keystrokes.replay_editor import Press, Server, replay, serving
from speclsp.cli import complete, terminal
from speclsp.config import Config, changes
from speclsp.errors import EngineError, InputError
from speclsp.lsp.completion.confidence import CURVES
from speclsp.lsp.index.reader import IndexReader
from speclsp.weights import store

RECORDINGS = Path("benchmarks/keystrokes")  # from the checkout's root, where benchmarks are run
ROOT = "file:///replay"
USUAL_MINUTES, QUICK_MINUTES = 6.0, 1.0
PAUSES_MS = (250, 500, 1000)
LONG_PAUSE_MS = 1000
INDEXED_S, LOOK_AGAIN_S = 120.0, 0.1  # for a workspace
AIM_SUGGESTION_MS, AIM_STALE_ROUNDS, AIM_ALONG_MS = 300, 1.0, 20  # the 0.5B target on 2 CPU cores
PROMPT_TOKENS = ("prompt_tokens_total", "cached_tokens_total")
BROKEN = ("engine_lost", "failed", "loading")  # outcomes that a sound server does not have

Trace = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Typed:
    """One recording as it went."""

    language: str
    presses: list[Press]
    counts: dict[str, float]  # what the engine counted meanwhile


# ── statistics ───────────────────────────────────────────────────────────────────────────────────────────────


def quantile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least `share` of them do not exceed; None when that one is endless, or none is.

    To three decimals: a key typed along takes 2 ms, and a tenth of that is what a change may cost.
    """
    ordered = sorted(values)
    found = ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.inf
    return round(found, 3) if math.isfinite(found) else None


def spread(values: Iterable[float]) -> dict[str, float | int | None]:
    """How many, and what half and 95 in 100 of them do not exceed."""
    made = list(values)
    return {"count": len(made), "p50_ms": quantile(made, 0.5), "p95_ms": quantile(made, 0.95)}


def of_model(press: Press, traced: Mapping[int, Trace]) -> bool:
    """Whether a suggestion was seen that the model made, or went on with, for this very request."""
    told = traced.get(press.number)
    return told is not None and press.on_screen and not told["reused"]


def followed(presses: Sequence[Press], traced: Mapping[int, Trace]) -> list[tuple[float, int]]:
    """Of each suggestion that the model made and that was seen: its confidence, and the keys that typed it along."""
    made = []
    for at, press in enumerate(presses):
        told = traced.get(press.number)
        if told is None or told["confidence"] is None or not of_model(press, traced):
            continue
        keys = 0
        for one in presses[at + 1 :]:
            if not one.along or one.uri != press.uri:
                break
            keys += 1
            if of_model(one, traced):  # from here on that one is typed along
                break
        made.append((float(told["confidence"]), keys))
    return made


def bucket_quantile(counts: Mapping[str, float], name: str, share: float) -> float | None:
    """The bound of the histogram's bucket that holds the quantile; None for an empty one, or above the last bound."""
    prefix = f'speclsp_{name}_bucket{{le="'
    found = {key[len(prefix) : -2]: count for key, count in counts.items() if key.startswith(prefix)}
    total = found.pop("+Inf", 0)
    bounds = sorted((float(bound), count) for bound, count in found.items())
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
    """What was seen at the keys. `traced`: the server's trace of each request, where it has one."""
    seen = [press for press in presses if press.on_screen]
    along = [press for press in presses if press.along]
    modelled = [press for press in seen if of_model(press, traced) and traced[press.number]["first_ms"]]
    long_ones = [press for press in presses if press.next_ms >= LONG_PAUSE_MS]
    bounds, characters = [*PAUSES_MS, math.inf], alone(presses)
    return {
        "keys": len(presses),
        "seconds": round(sum(min(press.next_ms, 10_000) for press in presses) / 1000, 1),
        "suggestion": spread(press.answer_ms for press in seen),
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
    """What the engine counted, per key."""
    rounds, stale_ms = total(counts, "rounds_total"), total(counts, "stale_work_ms_sum")
    round_ms = total(counts, "predicted_ms_sum") / rounds if rounds else 0.0
    prompt_tokens, cached_tokens = (total(counts, name) for name in PROMPT_TOKENS)
    asked = total(counts, "requests_total")
    means = {
        name.removeprefix("speclsp_").removesuffix("_sum"): round(ms / counts[name[:-4] + "_count"], 1)
        for name, ms in counts.items()
        if name.endswith("_ms_sum") and "_histogram_" not in name and counts.get(name[:-4] + "_count")
    }
    return {
        "requests": round(asked),
        "stale_work_ms_per_key": part(stale_ms, keys),
        "stale_rounds_per_key": part(stale_ms / round_ms, keys) if round_ms else None,
        "cancel_to_stop_p99_ms": bucket_quantile(counts, "stale_work_histogram_ms", 0.99),
        "cancelled": round(total(counts, "stale_work_ms_count")),
        "prefilled_tokens_per_key": part(total(counts, "prefilled_tokens_total"), keys),
        "prefilled_tokens_per_request": part(total(counts, "prefilled_tokens_total"), asked),
        "cached_share": part(cached_tokens, prompt_tokens),
        "round_ms": round(round_ms, 1),
        "tokens_per_round": part(total(counts, "predicted_tokens_total"), rounds),
        "mean_ms": means,
    }


def alone(presses: Sequence[Press]) -> list[float]:
    """Prompt tokens that each typed character brought, where the engine was at rest before it and after its answer."""
    made = []
    for before, press in pairwise(presses):
        then, now = before.counted, press.counted
        if press.kind == "char" and before.uri == press.uri and then is not None and now is not None:
            grown = {name: total(now, name) - total(then, name) for name in ("requests_total", *PROMPT_TOKENS)}
            if grown["requests_total"] == 1:
                made.append(grown[PROMPT_TOKENS[0]] - grown[PROMPT_TOKENS[1]])
    return made


def servers_side(traces: Sequence[Trace]) -> dict[str, Any]:
    """How requests ended, how many took no model, and where the time of those that did went."""
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
    made = list(values)
    return round(sum(made) / len(made), 1) if made else 0.0


def by_request(presses: Iterable[Press], traces: Iterable[Trace]) -> dict[int, Trace]:
    """The server's trace of each request: those of one version of a document end in the order they were asked."""
    from speclsp.lsp.completion.trace import digest

    waiting: dict[tuple[str, int], deque[int]] = defaultdict(deque)
    for press in presses:
        waiting[digest(press.uri), press.version].append(press.number)
    found = {}
    for trace in traces:
        numbers = waiting.get((trace["document"], trace["version"]))
        if numbers:
            found[numbers.popleft()] = trace
    return found


def side_by_side(typed: Sequence[Typed], traces: Sequence[Trace]) -> dict[str, Any]:
    """All figures of some recordings together."""
    presses = [press for one in typed for press in one.presses]
    counts: Counter[str] = Counter()
    for one in typed:
        counts.update(one.counts)
    traced = by_request(presses, traces)
    return {
        **editors_side(presses, traced),
        "server": servers_side([traced[press.number] for press in presses if press.number in traced]),
        "engine": engines_side(len(presses), counts),
    }


# ── the run ──────────────────────────────────────────────────────────────────────────────────────────────────


def recordings(directory: Path = RECORDINGS) -> dict[str, list[Recording]]:
    """All of them by language. Raises InputError outside of a checkout."""
    found: dict[str, list[Recording]] = defaultdict(list)
    for file in sorted(directory.glob("*.jsonl")):
        made = Recording.read(file)
        found[made.language].append(made)
    if not found:
        raise InputError(f"no recordings in {directory}: run benchmarks from the root of a checkout.")
    return dict(found)


def chosen(everything: Mapping[str, Sequence[Recording]], minutes: float) -> list[tuple[Recording, float]]:
    """The first `minutes` of keys, the same for each language: recordings, and how many ms of each."""
    made = []
    for of_one in everything.values():
        left_ms = minutes * 60_000 / len(everything)
        for recording in of_one:
            if left_ms > 0:
                made.append((recording, min(left_ms, recording.duration_ms)))
                left_ms -= recording.duration_ms
    return made


def lying_in(workspace: Path, everything: Mapping[str, Sequence[Recording]]) -> dict[str, list[Recording]]:
    """Those whose file is in a folder. Raises InputError when none is."""
    found = {
        name: [made for made in of_one if (workspace / made.path).is_file()] for name, of_one in everything.items()
    }
    found = {name: of_one for name, of_one in found.items() if of_one}
    if not found:
        paths = ", ".join(made.path for of_one in everything.values() for made in of_one)
        raise InputError(f"--workspace {workspace}: none of the recordings' files is in it: {paths}.")
    return found


def uri_of(recording: Recording, workspace: Path | None = None) -> str:
    if workspace is not None:
        return (workspace / recording.path).as_uri()
    return f"{ROOT}/{recording.language}/{recording.path}"


def wait_for_index(server: Server, workspace: Path) -> None:
    """Until the server's indexer has looked at all of the folder. Raises EngineError."""
    until_s = perf_counter() + INDEXED_S
    with closing(IndexReader(str(workspace))) as index:
        while not index.told("built"):
            if perf_counter() > until_s:
                raise EngineError(f"{workspace} was not indexed within {INDEXED_S:g} s.")
            server.wait(lambda: False, LOOK_AGAIN_S)


def type_all(
    server: Server, plan: Sequence[tuple[Recording, float]], bar: terminal.ProgressLine, workspace: Path | None
) -> list[Typed]:
    """Replay one after the other, the other files of the same language open beside it."""
    made, whole_ms, done_ms = [], sum(limit_ms for _, limit_ms in plan), 0.0
    warm_up(server, plan[0][0], f"{ROOT if workspace is None else workspace.as_uri()}/warm-up")
    if workspace is not None:
        bar.step(0.0, f"indexing {workspace.name}")
        wait_for_index(server, workspace)
    for recording, limit_ms in plan:
        beside = [other for other, _ in plan if other.language == recording.language and other is not recording]
        for other in beside:
            server.open(uri_of(other, workspace), other.language, other.start)
        before = server.metrics()
        bar.step(done_ms / whole_ms, f"{recording.language}: {recording.path}")
        presses = replay(server, recording, uri_of(recording, workspace), limit_ms)
        after = server.metrics()
        grown = {name: value - before.get(name, 0.0) for name, value in after.items() if "quantile=" not in name}
        made.append(Typed(recording.language, presses, grown))
        for other in beside:
            server.close(uri_of(other, workspace))
        done_ms += limit_ms
    bar.step(1.0, "done")
    return made


def warm_up(server: Server, recording: Recording, uri: str = f"{ROOT}/warm-up") -> None:
    """One completion that does not count, in a file of its own: the first one ever takes longer."""
    server.open(uri, recording.language, recording.start)
    number = server.number()
    params = {"textDocument": {"uri": uri}, "position": {"line": 0, "character": 0}, "context": {"triggerKind": 1}}
    server.send({"id": number, "method": "textDocument/inlineCompletion", "params": params})
    server.answered(number, 30)
    server.close(uri)


def bench(settings: Config, minutes: float, workspace: Path | None = None) -> bool:
    """Replay against one pair, print the table, write the JSON; whether nothing was wrong with the answers."""
    everything = recordings()
    plan = chosen(everything if workspace is None else lying_in(workspace, everything), minutes)
    with terminal.progress() as bar:
        pair = settings.pair
        if pair != "echo":
            card, _ = store.auto(settings)
            complete.fetch(settings, card, bar)
            pair = card.name
        bar.step(0.0, f"loading {pair}")
        with serving(settings) as server:
            server.begin(ROOT if workspace is None else workspace.as_uri())
            gc.freeze()  # walking what the imports made would delay keys
            typed = type_all(server, plan, bar, workspace)
            server.end()
            traces = server.traces()
    together = side_by_side(typed, traces)
    languages = list(dict.fromkeys(one.language for one in typed))
    presses = [press for one in typed for press in one.presses]
    curve, eagerness = CURVES.get(pair), settings.completion.eagerness
    each = {name: side_by_side([one for one in typed if one.language == name], traces) for name in languages}
    figures = {
        "pair": pair,
        "settings": changes(settings),
        "workspace": workspace.name if workspace is not None else None,
        "recordings": [{"path": made.path, "origin": made.origin, "seed": made.seed} for made, _ in plan],
        "recorded_minutes": round(sum(limit_ms for _, limit_ms in plan) / 60_000, 2),
        "stray_answers": server.stray,
        "messages_shown": server.messages,
        **together,
        "languages": each,
        "confidence": curve
        and {"weights": dict(curve.weights), "followed": followed(presses, by_request(presses, traces))},
    }
    print_table(pair, figures)
    kinds = ["workspace"] * (workspace is not None) + [eagerness] * (eagerness != Config().completion.eagerness)
    name = "-".join(["keystrokes", *kinds, pair])
    print(f"wrote {results_file.write('keystrokes', figures, name=name)}", flush=True)
    found = faults(figures)
    for fault in found:
        print(f"wrong: {fault}")
    return not found


def faults(figures: Mapping[str, Any]) -> list[str]:
    """What a sound server does not do; figures with any of it say nothing about speed."""
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


# ── what is printed ──────────────────────────────────────────────────────────────────────────────────────────


def print_table(pair: str, figures: Mapping[str, Any]) -> None:
    """All languages together and each by itself, the aims beside."""
    columns = {"all": figures, **figures["languages"]}
    print(f"{pair}: {figures['keys']} keys, {figures['recorded_minutes']} min of recorded typing, in real time")
    print(f"{'':36}" + "".join(f"{name[:10]:>11}" for name in columns) + "   aim (0.5B, CPU)")
    for label, path, form, aim in ROWS:
        cells = "".join(f"{cell(of, path, form):>11}" for of in columns.values())
        print(f"{label:36}{cells}{'   ' + aim if aim else ''}")
    where, engine = figures["server"]["mean_ms_of_shown_from_model"], figures["engine"]["mean_ms"]
    said = ", ".join(f"{name.replace('_', ' ')} {ms:g}" for name, ms in where.items())
    print(f"a suggestion the model made, mean ms: {said}")
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `speclsp bench keystrokes`."""
    pairs.add_arguments(parser)
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "--minutes",
        metavar="N",
        type=float,
        default=USUAL_MINUTES,
        help=f"of typing, spread over all languages (default: {USUAL_MINUTES:g})",
    )
    length.add_argument("--quick", action="store_const", const=QUICK_MINUTES, dest="minutes", help="one minute")
    parser.add_argument("--workspace", metavar="DIR", type=Path, help="type the files that lie there, and index it")
    length.add_argument("--all", action="store_const", const=math.inf, dest="minutes", help="every key of every file")


def main(options: argparse.Namespace) -> int:
    """Exit code 1 when an answer was missing, wrong or an error."""
    if not options.minutes > 0:
        raise InputError(f"--minutes {options.minutes:g}: expected a number above 0.")
    workspace = options.workspace.resolve() if options.workspace is not None else None
    return 0 if min([bench(one, options.minutes, workspace) for one in pairs.settings(options)]) else 1
