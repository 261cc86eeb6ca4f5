"""Latency of suggestions at the start of a line: functions of 2026 typed at human speed, each in its own workspace.

    python -m benchmarks lines [--model NAME] [--quick | --bodies N] [--busy]

    bodies.py of economy   the functions: Python, TypeScript, Rust, Go and Java in turn
    schedule.py            their keys and times; the same in every run
    figures.py             the figures for each kind of key

A body is typed with the settings' defaults, after its workspace is indexed. Other files of the package are open. Each
key sends didChange, `$/cancelRequest` of the unanswered request and inlineCompletion; nothing is accepted. The editor
reports its cursor by `speclsp/didFocus` when the document gets the focus, and after REPORTED_S of rest at a line's end.
A suggestion that grows is not requested again: its first answer counts.

    line start   Enter            mid-line     any other key      blank line   Enter, with a blank line behind it
    after rest   Enter, 3 s after the line's last key: 1 in 5, and no line start
    new place    the first Enter in a document, 3 s after it got the focus

--busy measures a second time beside a process that keeps one core busy. Writes benchmarks/results/lines-<model>.json.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from itertools import accumulate
from time import perf_counter
from typing import Any

import psutil

from benchmarks import model_options, results_file
from benchmarks.keystrokes.economy.bodies import GROUPS, Body, bodies
from benchmarks.keystrokes.economy.typing import TypingEditor
from benchmarks.keystrokes.language_server import ANSWER_S, Server, serving
from benchmarks.keystrokes.lines.figures import KeyRow, by_request, of_condition, with_adopted_prompts
from benchmarks.keystrokes.lines.schedule import AFTER_REST, SEED, keys_of
from benchmarks.keystrokes.replay_editor import Editor, Key, Press, position
from benchmarks.quality.tasks import packages as corpus
from speclsp.cli import terminal
from speclsp.cli.complete import own_model
from speclsp.config import Config, changes
from speclsp.lsp.server.workspace_indexes import START_S
from speclsp.weights import auto_choice

ROOT = "file:///replay"
USUAL_BODIES, QUICK_BODIES = 15, 3
REPORTED_S = 0.3  # of rest, until the editor reports the cursor
QUIET_S, POLL_S = 60.0, 0.5
QUIET_SHARE = 0.05  # of a core
IDLE, LOADED = "idle", "loaded"  # conditions
ABILITIES = {"outdent": True, "suggestionGrew": True}  # those of both extensions


@dataclass(frozen=True, slots=True)
class TypedBody:
    """One body as it went."""

    body: Body
    presses: list[Press]
    typing_s: float
    processor_s: float


def fetched(settings: Config, bar: terminal.ProgressLine) -> str:
    """The name of the model of `settings`, downloaded if it must be. Raises SpeclspError."""
    card, _ = auto_choice.auto(settings)
    own_model.fetch(settings, card, bar)
    return card.name


def warm_up(server: Server, language: str, text: str) -> None:
    """One completion that does not count, in a file of its own: the first one ever takes longer."""
    uri, number = f"{ROOT}/warm-up", server.number()
    server.open(uri, language, text)
    params = {"textDocument": {"uri": uri}, "position": {"line": 0, "character": 0}, "context": {"triggerKind": 1}}
    server.send({"id": number, "method": "textDocument/inlineCompletion", "params": params})
    server.answered(number, 30)
    server.close(uri)


def wait_until_quiet(server: Server) -> None:
    """Wait until the server has indexed the folder and is idle, with its processes; QUIET_S at most."""
    server.wait(lambda: False, START_S + POLL_S)
    until_s, before_s = perf_counter() + QUIET_S, processor_s(server)
    while perf_counter() < until_s:
        server.wait(lambda: False, POLL_S)
        now_s = processor_s(server)
        if now_s - before_s < QUIET_SHARE * POLL_S:
            return
        before_s = now_s


def processor_s(server: Server) -> float:
    """Processor time of the server and its processes so far, those that have ended included."""
    parent, spent_s = psutil.Process(server.process.pid), 0.0
    for process in (parent, *parent.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # it has just ended: its parent's time includes it
            times = process.cpu_times()
            spent_s += times.user + times.system + times.children_user + times.children_system
    return spent_s


def focus(editor: Editor) -> None:
    """Report the cursor, as the editors' extensions do."""
    params = {"textDocument": {"uri": editor.uri}, "position": position(editor.text, editor.cursor)}
    editor.server.send({"method": "speclsp/didFocus", "params": params})


def type_keys(editor: Editor, keys: Sequence[Key]) -> list[Press]:
    """Press the keys at their times. The last press is left out, because nothing follows it."""
    focus(editor)
    due_s = perf_counter()
    for key in keys:
        if key.kind == AFTER_REST:
            editor.rest(due_s + REPORTED_S)
            focus(editor)
        due_s += key.wait_ms / 1000
        editor.rest(due_s)
        if editor.newest is not None:
            editor.note(editor.newest)
        editor.press(key, due_s)
    for press in editor.presses:
        editor.server.answered(press.number, ANSWER_S)
        editor.note(press)
    return editor.presses[:-1]


def type_body(server: Server, body: Body) -> TypedBody:
    """Type a body's first lines in its workspace."""
    typing = TypingEditor(server, body)
    wait_until_quiet(server)
    began_s, before_s = perf_counter(), processor_s(server)
    presses = type_keys(typing.editor, keys_of(body))
    typed = TypedBody(body, presses, perf_counter() - began_s, processor_s(server) - before_s)
    typing.close()
    return typed


def texts_after_keys(body: Body) -> list[str]:
    """The rest of a body after each of its keys."""
    return [body.text[end:] for end in accumulate(len(key.text) for key in keys_of(body))]


def measure(config: Config, plan: Sequence[Body], bar: terminal.ProgressLine) -> tuple[dict[str, Any], list[KeyRow]]:
    """The figures of one condition, and a row for each key. Raises EngineError."""
    load_before = [round(load, 2) for load in os.getloadavg()]
    typed: list[TypedBody] = []
    with serving(config) as server:
        server.begin(ROOT, ABILITIES)
        gc.freeze()  # a collection of the imports' objects would delay keys
        warm_up(server, plan[0].language, plan[0].above)
        for at, body in enumerate(plan):
            bar.step(at / len(plan), f"{body.language}: {body.package}")
            typed.append(type_body(server, body))
        server.end()
        traces = server.traces()
    traced = by_request([press for run in typed for press in run.presses], traces)
    rows = [
        KeyRow.of(press, run.body.id, traced.get(press.number, {}), meant)
        for run in typed
        for press, meant in zip(run.presses, texts_after_keys(run.body), strict=False)
    ]
    rows = with_adopted_prompts(rows)
    figures = of_condition(rows, sum(run.typing_s for run in typed), sum(run.processor_s for run in typed))
    return {"load_before": load_before, **figures}, rows


@contextmanager
def one_busy_core() -> Iterator[None]:
    """A process beside that never waits. It ends with this one, even if this one is killed."""
    spin = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
    spinner = subprocess.Popen([sys.executable, "-c", spin])
    try:
        yield
    finally:
        spinner.kill()
        spinner.wait()


def bench(config: Config, options: argparse.Namespace) -> None:
    """Type all bodies in each condition, print its figures, write the JSON."""
    with terminal.progress() as bar:
        packages = corpus.fetch(lambda done, total: bar.bytes(done, total, "fetching packages"))
        plan = bodies(packages, options.bodies, tuple(dict.fromkeys(GROUPS.values())))
        model = fetched(config, bar)
    summary: dict[str, Any] = {
        "pair": model,
        "settings": changes(config),
        "cpu_kind": results_file.cpu_kind(),
        "seed": SEED,
        "packages": len({body.package for body in plan}),
        "bodies": [{"id": body.id, "package": body.package, "language": body.language} for body in plan],
    }
    otherwise = [words.rpartition(".")[2].replace("=", "-") for words in options.assignments]
    name = "-".join(["lines", *([str(options.bodies)] * (options.bodies != USUAL_BODIES)), *otherwise, model])
    for condition in (IDLE, LOADED)[: 1 + options.busy]:
        beside = one_busy_core() if condition == LOADED else nullcontext()
        with beside, terminal.progress() as bar:
            summary[condition], rows = measure(config, plan, bar)
        print(f"{model}, {condition}\n{results_file.as_text(summary[condition])}")
        results_file.write_raw(f"{name}-{condition}", [asdict(row) for row in rows])
        print(f"wrote {results_file.write('lines', summary, name)}", flush=True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks lines`."""
    model_options.add_arguments(parser)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--bodies", metavar="N", type=int, default=USUAL_BODIES, help=f"default: {USUAL_BODIES}")
    length.add_argument(
        "--quick", action="store_const", const=QUICK_BODIES, dest="bodies", help=f"{QUICK_BODIES} bodies: 3 minutes"
    )
    parser.add_argument("--busy", action="store_true", help="measure a second time beside a busy core")


def main(options: argparse.Namespace) -> int:
    """Exit code 0."""
    for config in model_options.settings(options):
        bench(config, options)
    return 0
