"""Time from opening an editor with a file to its first suggestion: no server and no engine runs before.

    python -m benchmarks first-suggestion [--model NAME] [--files 12] [--cold] [--no-peer]

Ours: the server's process is started, initialized, told of the file and asked for a suggestion. The answer is empty
until the model is loaded, and the request is repeated then, as our editors do. The engine is the shared one, as by
default. Every suggestion is shown, however uncertain. llama.vscode's way, in turn: llama.cpp's server is started at
the moment of opening, and asked for a fill-in when it is healthy: 256 lines above, 64 below, until its first line ends.

`--cold` drops the files of the model from the page cache before each turn. Prints the medians and writes
benchmarks/results/first-suggestion-open-MODEL.json, or first-suggestion-open-cold-MODEL.json.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from benchmarks import results_file
from benchmarks.editor.cursor_file import CursorFile, cursor_file
from benchmarks.keystrokes.language_server import ANSWER_S, Server
from benchmarks.quality.llama_vscode.policy import Ask
from benchmarks.results_file import CHECKOUT
from benchmarks.speed.start import OURS, PEER, drop_from_page_cache, infill, model_files, peer_engine
from speclsp.config import Config
from speclsp.errors import EngineError

FOLDERS = ("speclsp/lsp/completion", "speclsp/lsp/context", "speclsp/engine/decoding", "speclsp/weights")
MIN_LINES = 100
SHOWS_ALL = 0.001  # completion.min_confidence
LOAD_S = 120.0
PEER_FLAGS = ("--ctx-size", "16384")  # for llama.vscode's prompts


def cursor_files(count: int) -> Iterator[CursorFile]:
    """Modules of this repository, with the cursor in their middle; files of each folder in turn."""
    folders = [sorted((CHECKOUT / folder).glob("*.py")) for folder in FOLDERS]
    long = [[path for path in paths if path.read_text().count("\n") > MIN_LINES] for paths in folders]
    for number in range(count):
        paths = long[number % len(long)]
        yield cursor_file(paths[number // len(long) % len(paths)])


def our_times_s(model: str, file: CursorFile) -> dict[str, float]:
    """Seconds from the start of the server's process to each step; {} without a suggestion. Raises EngineError."""
    config = replace(Config(), model=model)
    config = replace(
        config, completion=replace(config.completion, min_confidence=SHOWS_ALL, timeout_ms=ANSWER_S * 1000)
    )
    with tempfile.TemporaryDirectory(prefix="speclsp-") as place:
        began_s = perf_counter()
        server = Server(config, Path(place))
        try:
            server.initialize(CHECKOUT.as_uri())
            initialized_s = perf_counter()
            server.open(file.uri, "python", file.text)
            if not (answered_s := suggestion_time_s(server, file)):
                server.wait(lambda: server.status.get("state") in ("ready", "error"), LOAD_S)
                answered_s = suggestion_time_s(server, file)
            ready_s = server.state_times_s["ready"]
        finally:
            server.end()
    if not answered_s:
        return {}
    times_s = {"initialized_s": initialized_s, "ready_s": ready_s, "suggestion_s": answered_s}
    return {name: round(time_s - began_s, 3) for name, time_s in times_s.items()}


def suggestion_time_s(server: Server, file: CursorFile) -> float:
    """Request a suggestion; the clock's time of the answer, 0 for an empty one."""
    number = server.number()
    params = {"textDocument": {"uri": file.uri}, "position": file.position, "context": {"triggerKind": 2}}
    server.send({"id": number, "method": "textDocument/inlineCompletion", "params": params})
    if not server.answered(number, ANSWER_S):
        raise EngineError(f"no answer for {file.path} within {ANSWER_S} s")
    time_s, answer = server.answers[number]
    return time_s if answer["result"]["items"] else 0.0


def peer_times_s(model: str, file: CursorFile) -> dict[str, float]:
    """Seconds from the start of llama.cpp's server to the end of its first line. Raises EngineError."""
    ask = Ask(
        document=file.text.split("\n"), line=file.line, column=file.character, cursor=0, end_of_line="\n", chunks=()
    )
    with (
        tempfile.TemporaryDirectory(prefix="speclsp-") as folder,
        peer_engine(model, Path(folder), *PEER_FLAGS) as peer,
    ):
        text = ""
        for event in infill(peer.http, ask.request()):
            text += event.get("content") or ""
            if "\n" in text.lstrip():
                break
        return {"ready_s": round(peer.ready_s, 3), "suggestion_s": round(perf_counter() - peer.began_s, 3)}


def run(model: str, files: Sequence[CursorFile], *, is_cold: bool, has_peer: bool) -> None:
    """Open each file in turn, and write the result. Raises EngineError."""
    ways: dict[str, Callable[[str, CursorFile], dict[str, float]]] = {OURS: our_times_s}
    if has_peer:
        ways[PEER] = peer_times_s
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    our_times_s(model, files[0])  # the first start does work that later ones reuse
    for number, file in enumerate(files):
        for name in list(ways)[:: -1 if number % 2 else 1]:
            if is_cold:
                drop_from_page_cache(model_files(model))
            rows[name].append(ways[name](model, file))
        print(f"{file.path.name}: " + ", ".join(f"{name} {row[-1]}" for name, row in rows.items()), flush=True)
        if not rows[OURS][-1]:
            for row in rows.values():
                row.pop()
    figures: dict[str, object] = {
        name: {step: round(statistics.median(times_s[step] for times_s in row), 3) for step in row[0]}
        for name, row in rows.items()
    }
    for name, figure in figures.items():
        print(f"{name}: {figure}")
    summary = {
        "model": model,
        "page_cache": "cold" if is_cold else "warm",
        "files": len(rows[OURS]),  # in which we have a suggestion
        "medians": figures,
        "turns": dict(rows),
    }
    name = f"first-suggestion-open-{'cold-' if is_cold else ''}{model}"
    print(f"wrote {results_file.write('first-suggestion', summary, name)}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks first-suggestion`."""
    parser.add_argument("--model", metavar="NAME", default="qwen2.5-coder-0.5b-instruct", help="default: %(default)s")
    parser.add_argument("--files", metavar="N", type=int, default=12, help="files (default: %(default)s)")
    parser.add_argument("--cold", action="store_true", help="drop the model's files from the page cache")
    parser.add_argument("--no-peer", action="store_true", help="without llama.cpp's server")


def main(options: argparse.Namespace) -> int:
    """Exit code 0."""
    files = list(cursor_files(options.files))
    run(options.model, files, is_cold=options.cold, has_peer=not options.no_peer)
    return 0
