"""Typing traces replayed against the real language server: latency at the keys, and the work it costs.

    python -m benchmarks keystrokes --model NAME [--quick | --minutes N | --all]

    key to suggestion   from just before didChange is written to the answer with a suggestion, where no key came between
    in a pause          the same for any answer, over pauses of 1 s and more; none by then counts as endless
    fresh at the end    of pauses of 250 ms and more, those at whose end a suggestion for this very text is on screen
    typing through      the answers to keys that agree with the suggestion on screen
    stale work          the engine's time on unwanted requests, per key; in rounds: over the mean round
    cancel to stop      the same, for each request
    re-prefilled        prompt tokens not found in the KV cache: by a character typed while the engine was at rest, and
                        per key over everything (jumps, other files and requests overtaken while they read included)

The first six are timed in the replaying editor; the others come from the engine's /metrics and the server's trace.
benchmarks/keystrokes/README.md describes the traces. Writes benchmarks/results/keystrokes-<model>.json. --next-edits
also requests the next edit in each pause of 300 ms, and writes keystrokes-next-edits-<model>.json. With
--set completion.eagerness=high it writes keystrokes-high-<model>.json, with the confidence of every suggestion and the
keys that typed through it.
"""

from __future__ import annotations

import argparse
import gc
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import model_options, results_file
from benchmarks.keystrokes.figures import Typed, by_request, faults, followed, print_table, side_by_side, spread
from benchmarks.keystrokes.language_server import Server, serving
from benchmarks.keystrokes.recording import Recording
from benchmarks.keystrokes.replay_editor import EditRequests, replay
from speclsp.cli import complete, terminal
from speclsp.config import Config, changes
from speclsp.errors import InputError
from speclsp.lsp.completion.confidence import CURVES
from speclsp.weights import auto_choice

RECORDINGS = Path(__file__).parent / "recordings"
ROOT = "file:///replay"
USUAL_MINUTES, QUICK_MINUTES = 6.0, 1.0


def recordings(directory: Path | None = None) -> dict[str, list[Recording]]:
    """All recordings by language. Raises InputError when there are none."""
    by_language: dict[str, list[Recording]] = defaultdict(list)
    for file in sorted((directory or RECORDINGS).glob("*.jsonl")):
        recording = Recording.read(file)
        by_language[recording.language].append(recording)
    if not by_language:
        raise InputError(
            f"no recordings in {directory or RECORDINGS}: check out benchmarks/keystrokes/recordings again."
        )
    return dict(by_language)


def chosen(everything: Mapping[str, Sequence[Recording]], minutes: float) -> list[tuple[Recording, float]]:
    """The first `minutes` of keys, the same for each language: recordings, and how many ms of each."""
    parts = []
    for of_one in everything.values():
        left_ms = minutes * 60_000 / len(everything)
        for recording in of_one:
            if left_ms > 0:
                parts.append((recording, min(left_ms, recording.duration_ms)))
                left_ms -= recording.duration_ms
    return parts


def uri_of(recording: Recording) -> str:
    return f"{ROOT}/{recording.language}/{recording.path}"


def type_all(
    server: Server, plan: Sequence[tuple[Recording, float]], bar: terminal.ProgressLine, next_edits: bool = False
) -> list[Typed]:
    """Replay one after the other, the other files of the same language open beside it."""
    results, whole_ms, done_ms = [], sum(limit_ms for _, limit_ms in plan), 0.0
    warm_up(server, plan[0][0].language, plan[0][0].start)
    for recording, limit_ms in plan:
        beside = [other for other, _ in plan if other.language == recording.language and other is not recording]
        for other in beside:
            server.open(uri_of(other), other.language, other.start)
        before = server.metrics()
        bar.step(done_ms / whole_ms, f"{recording.language}: {recording.path}")
        edit_requests: EditRequests = []
        requests = edit_requests if next_edits else None
        presses = replay(server, recording, uri_of(recording), limit_ms, requests)
        after = server.metrics()
        grown = {name: value - before.get(name, 0.0) for name, value in after.items() if "quantile=" not in name}
        results.append(Typed(recording.language, presses, grown, edit_requests))
        for other in beside:
            server.close(uri_of(other))
        done_ms += limit_ms
    bar.step(1.0, "done")
    return results


def warm_up(server: Server, language: str, text: str) -> None:
    """One completion that does not count, in a file of its own: the first one ever takes longer."""
    uri, number = f"{ROOT}/warm-up", server.number()
    server.open(uri, language, text)
    params = {"textDocument": {"uri": uri}, "position": {"line": 0, "character": 0}, "context": {"triggerKind": 1}}
    server.send({"id": number, "method": "textDocument/inlineCompletion", "params": params})
    server.answered(number, 30)
    server.close(uri)


def edits_of(typed: Sequence[Typed], answers: Mapping[int, tuple[float, dict[str, Any]]]) -> dict[str, Any]:
    """Requests for next edits, how many had an edit, and the ms until their answers."""
    requests = [request for run in typed for request in run.edit_requests]
    ended = [(*answers[number], sent_s) for number, sent_s in requests if number in answers]
    shown = sum(bool((message.get("result") or {}).get("edits")) for _, message, _ in ended)
    times_ms = spread([(heard_s - sent_s) * 1000 for heard_s, _, sent_s in ended])
    return {"requests": len(requests), "shown": shown, "ms": times_ms}


def fetched(settings: Config, bar: terminal.ProgressLine) -> str:
    """The name of the pair of `settings`, downloaded if it must be. Raises SpeclspError."""
    if settings.model == "echo":
        return settings.model
    card, _ = auto_choice.auto(settings)
    complete.fetch(settings, card, bar)
    return card.name


def bench(settings: Config, minutes: float, next_edits: bool = False) -> bool:
    """Replay against one model, print the table, write the JSON. True if all answers were correct."""
    plan = chosen(recordings(), minutes)
    with terminal.progress() as bar:
        model = fetched(settings, bar)
        bar.step(0.0, f"loading {model}")
        with serving(settings) as server:
            server.begin(ROOT)
            gc.freeze()  # a collection of the imports' objects would delay keys
            typed = type_all(server, plan, bar, next_edits)
            server.end()
            traces = server.traces()
    together = side_by_side(typed, traces)
    languages = list(dict.fromkeys(run.language for run in typed))
    presses = [press for run in typed for press in run.presses]
    curve, eagerness = CURVES.get(model), settings.completion.eagerness
    by_language = {name: side_by_side([run for run in typed if run.language == name], traces) for name in languages}
    figures = {
        "pair": model,
        "settings": changes(settings),
        "recordings": [
            {"path": recording.path, "origin": recording.origin, "seed": recording.seed} for recording, _ in plan
        ],
        "recorded_minutes": round(sum(limit_ms for _, limit_ms in plan) / 60_000, 2),
        "stray_answers": server.stray,
        "messages_shown": server.messages,
        **together,
        "next_edits": edits_of(typed, server.answers) if next_edits else None,
        "languages": by_language,
        "confidence": curve
        and {"weights": dict(curve.first), "followed": followed(presses, by_request(presses, traces))},
    }
    print_table(model, figures)
    is_usual = eagerness == Config().completion.eagerness
    kinds = ["next-edits"] * next_edits + [eagerness] * (not is_usual)
    name = "-".join(["keystrokes", *kinds, model])
    print(f"wrote {results_file.write('keystrokes', figures, name=name)}", flush=True)
    problems = faults(figures)
    for fault in problems:
        print(f"wrong: {fault}")
    return not problems


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks keystrokes`."""
    model_options.add_arguments(parser)
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "--minutes",
        metavar="N",
        type=float,
        default=USUAL_MINUTES,
        help=f"of typing, spread over all languages (default: {USUAL_MINUTES:g})",
    )
    length.add_argument("--quick", action="store_const", const=QUICK_MINUTES, dest="minutes", help="one minute")
    parser.add_argument("--next-edits", action="store_true", help="request next edits too")
    length.add_argument("--all", action="store_const", const=math.inf, dest="minutes", help="every key of every file")


def main(options: argparse.Namespace) -> int:
    """Exit code 1 when an answer was missing, wrong or an error."""
    if not options.minutes > 0:
        raise InputError(f"--minutes {options.minutes:g}: expected a number above 0.")
    runs = [bench(setting, options.minutes, options.next_edits) for setting in model_options.settings(options)]
    return 0 if all(runs) else 1
