"""Time of the first suggestion in a file: opened just now, looked at for a while, or completed in some time ago.

    python -m benchmarks first-suggestion [--model NAME] [--files 8] [--look-ms 2000]

Each file is a module of this repository, with the cursor in its middle. Each case has a language server of its own:

    new       opened, and a request at once
    focus     opened, speclsp/didFocus, a request after --look-ms
    back      completed in twice before, then in all other files, and again
    sibling   opened beside a file of the same folder that was completed in just before

`--open` measures another case, from the start of the server's process with no engine: opening.py.

Prints the medians and writes benchmarks/results/first-suggestion-MODEL.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import results_file
from benchmarks.editor import opening
from benchmarks.editor.cursor_file import CursorFile, cursor_file
from benchmarks.keystrokes.language_server import ANSWER_S, Server
from benchmarks.results_file import CHECKOUT
from speclsp.config import Config

FOLDERS = ("speclsp/lsp/completion", "speclsp/lsp/context", "speclsp/engine/decoding", "speclsp/weights")
MIN_LINES = 100
INDEXING_S = 8.0  # the workspace is indexed before the first request
CASES = ("new", "focus", "back", "sibling")


def cursor_files(count: int) -> Iterator[CursorFile]:
    """Files of each folder in turn, so that neighbours in the sequence are no siblings."""
    folders = [sorted((CHECKOUT / folder).glob("*.py")) for folder in FOLDERS]
    long = [[path for path in paths if path.read_text().count("\n") > MIN_LINES] for paths in folders]
    for number in range(count):
        paths = long[number % len(long)]
        yield cursor_file(paths[number // len(long) % len(paths)])


def suggestion_ms(server: Server, file: CursorFile) -> float:
    """The time from a request to its answer."""
    number = server.number()
    document = {"uri": file.uri, "version": 1}
    params = {"textDocument": document, "position": file.position, "context": {"triggerKind": 2}}
    started_s = time.perf_counter()
    server.send({"id": number, "method": "textDocument/inlineCompletion", "params": params})
    if not server.answered(number, ANSWER_S):
        raise TimeoutError(f"no answer for {file.path} within {ANSWER_S} s")
    return (server.answers[number][0] - started_s) * 1000


def open_file(server: Server, file: CursorFile) -> None:
    server.open(file.uri, "python", file.text)


def measure(config: Config, files: Sequence[CursorFile], look_ms: float) -> Mapping[str, list[float]]:
    """Milliseconds of each case, by file. Each case has a server of its own, which has seen no file."""
    times: dict[str, list[float]] = {}
    for case in CASES:
        with tempfile.TemporaryDirectory() as place:
            server = Server(config, Path(place))
            try:
                server.begin(CHECKOUT.as_uri())
                time.sleep(INDEXING_S)
                times[case] = list(case_times(server, case, files, look_ms / 1000))
            finally:
                server.end()
    return times


def case_times(server: Server, case: str, files: Sequence[CursorFile], look_s: float) -> Iterator[float]:
    """The time of one case for each file."""
    for file in [*files, *files] if case == "back" else []:  # the first time, its context is still incomplete
        open_file(server, file)
        suggestion_ms(server, file)
        server.close(file.uri)
    for file in files:
        if case == "sibling":
            sibling = next(path for path in sorted(file.path.parent.glob("*.py")) if path != file.path and long(path))
            neighbour = cursor_file(sibling)
            open_file(server, neighbour)
            suggestion_ms(server, neighbour)
        open_file(server, file)
        if case == "focus":
            focused = {"textDocument": {"uri": file.uri}, "position": file.position}
            server.send({"method": "speclsp/didFocus", "params": focused})
            time.sleep(look_s)
        yield suggestion_ms(server, file)
        server.close(file.uri)
        if case == "sibling":
            server.close(sibling.as_uri())


def long(path: Path) -> bool:
    return path.read_text(encoding="utf-8").count("\n") > MIN_LINES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks first-suggestion`."""
    parser.add_argument("--model", metavar="NAME", default="qwen2.5-coder-0.5b-instruct", help="default: %(default)s")
    parser.add_argument("--files", metavar="N", type=int, default=12, help="files in each case (default: %(default)s)")
    parser.add_argument(
        "--look-ms", metavar="MS", type=float, default=2000, help="from the focus to the request (default: %(default)s)"
    )
    parser.add_argument("--open", action="store_true", help="from the start of the server, with no engine")
    parser.add_argument("--cold", action="store_true", help="drop the model's files from the page cache before --open")
    parser.add_argument("--no-peer", action="store_true", help="--open without llama.cpp's server")


def main(options: argparse.Namespace) -> int:
    """Exit code 0."""
    if options.open:
        files = list(cursor_files(options.files))
        opening.run(options.model, files, is_cold=options.cold, has_peer=not options.no_peer)
        return 0
    config = replace(Config(), model=options.model)
    config = replace(config, completion=replace(config.completion, timeout_ms=ANSWER_S * 1000))
    files = list(cursor_files(options.files))
    times = measure(config, files, options.look_ms)
    new_ms = statistics.median(times["new"])
    figures = {
        case: {
            "p50_ms": round(statistics.median(case_ms)),
            "max_ms": round(max(case_ms)),
            "share_of_new": round(statistics.median(case_ms) / new_ms, 3),
        }
        for case, case_ms in times.items()
    }
    print(json.dumps(figures, indent=1))
    summary = {"model": options.model, "files": len(files), "look_ms": options.look_ms, "cases": figures}
    print(f"wrote {results_file.write('first-suggestion', summary, f'first-suggestion-{options.model}')}")
    return 0
