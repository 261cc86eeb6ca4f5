"""Scaling: time and memory of a completion as the prompt, the document and the output grow.

    python -m benchmarks scale --model qwen2.5-coder-0.5b-instruct [--quick]

    prompt     128 .. 8192 tokens: first token from a cold prompt, and after one more character
    output     8 .. 256 tokens, plain and speculative: one long run, its time read off at each number of tokens
    document   100 .. 100 000 lines: the parts of the language server alone, then typing into the real language
               server with the model `echo`, key to answer
    memory     resident set of the engine's process and of the language server's

Writes benchmarks/results/scale-<model>.json and scale-editor.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from benchmarks import model_options, results_file
from benchmarks.speed import rounds
from benchmarks.speed.holes import MODULES, holes, source
from speclsp.cli import terminal
from speclsp.config import Config, ContextConfig
from speclsp.engine.api import Request

if TYPE_CHECKING:
    from speclsp.engine.decoding.completion import CompletionEngine

PROMPT_TOKENS = (128, 256, 512, 1024, 2048, 4096, 8192)
OUTPUT_TOKENS = (8, 16, 32, 64, 128, 256)
DOCUMENT_LINES = (100, 1000, 10_000, 100_000)
QUICK_PROMPT_TOKENS, QUICK_OUTPUT_TOKENS, QUICK_DOCUMENT_LINES = (128, 512, 2048), (8, 32, 64), (100, 10_000)
STEPS = 8  # plain steps behind each prompt
KEYS = "result_of_the_measurement_"  # the keys typed into the document
PARSE_MS = 60_000  # far above any parse here, because the parse time is measured
ANSWER_S = 60


def mib(pid: int | None = None) -> float:
    """Resident memory of a process, this one by default."""
    import psutil

    return round(float(psutil.Process(pid).memory_info().rss) / 2**20, 1)


def milliseconds(began_s: float) -> float:
    return (perf_counter() - began_s) * 1e3


# ── prompt and output ────────────────────────────────────────────────────────────────────────────────────────


def code(characters: int) -> str:
    """So much source text, from the standard library, over and over."""
    text = "".join(map(source, MODULES))
    return (text * (characters // len(text) + 1))[:characters]


def of_length(engine: CompletionEngine, tokens: int) -> str:
    """Source text of about so many tokens."""
    characters = tokens * 3
    for _ in range(4):
        characters = round(characters * tokens / len(engine.prompter.encode(code(characters), keep=False)))
    return code(characters).rstrip()


def by_prompt(engine: CompletionEngine, lengths: tuple[int, ...], bar: terminal.ProgressLine) -> list[dict[str, float]]:
    """For each length that fits: first token cold, the same with one more character typed, and a plain step's time."""
    most = engine.config.context_tokens - STEPS - 16
    rows = []
    for number, tokens in enumerate(lengths):
        bar.step(number / len(lengths), f"{engine.model}: prompt of {tokens} tokens")
        if tokens > most:
            continue
        text = of_length(engine, tokens)
        request = Request(raw_prompt=text, max_tokens=STEPS, speculate=False, ignore_eos=True, heal=False)
        repeats = 3 if tokens <= 512 else 1
        runs = [rounds.run(engine, replace(request, cache_prompt=False)) for _ in range(repeats)]
        cold = sorted(runs, key=lambda run: run.result.ttft_ms)[repeats // 2]
        warm = rounds.run(engine, replace(request, raw_prompt=text + "x")).result
        rows.append(
            {
                "prompt_tokens": cold.result.prompt_tokens,
                "cold_first_ms": round(cold.result.ttft_ms, 1),
                "prefill_ms": round(cold.result.prompt_ms, 1),
                "warm_first_ms": round(warm.ttft_ms, 1),
                "warm_new_tokens": warm.prompt_tokens - warm.cached_tokens,
                "step_ms": round(cold.result.decode_ms / max(len(cold.result.tokens), 1), 2),
                "resident_mib": mib(),
            }
        )
    return rows


def by_output(
    engine: CompletionEngine, lengths: tuple[int, ...], bar: terminal.ProgressLine, count: int = 3
) -> list[dict[str, float]]:
    """Decoding's milliseconds by output length, the mean of `count` holes."""
    runs: dict[str, list[rounds.Run]] = {"plain": [], "speculative": []}
    for number, hole in enumerate(holes(count, max_tokens=max(lengths))):
        for name, rows in runs.items():
            bar.step(number / count, f"{engine.model}: output of {max(lengths)} tokens, {name}")
            rows.append(rounds.run(engine, replace(hole, speculate=name == "speculative", ignore_eos=True)))
    return [
        {"tokens": tokens}
        | {f"{name}_ms": round(sum(run.decode_ms(tokens) for run in rows) / count, 1) for name, rows in runs.items()}
        for tokens in lengths
    ]


def bench_pair(settings: Config, quick: bool) -> None:
    """The engine's part for one model."""
    bare_mib = mib()
    engine = model_options.engine(settings)
    loaded_mib = mib()
    with terminal.progress() as bar:
        prompts = by_prompt(engine, QUICK_PROMPT_TOKENS if quick else PROMPT_TOKENS, bar)
        outputs = by_output(engine, QUICK_OUTPUT_TOKENS if quick else OUTPUT_TOKENS, bar, 1 if quick else 3)
    figures = {
        **model_options.about(engine),
        "context_tokens": engine.config.context_tokens,
        "prompt": prompts,
        "output": outputs,
        "memory_mib": {"before_loading": bare_mib, "loaded": loaded_mib, "after": mib()},
    }
    for row in prompts:
        print(
            f"{engine.model}: prompt of {row['prompt_tokens']:5} tokens: first token {row['cold_first_ms']:7.0f} ms "
            f"cold, {row['warm_first_ms']:5.0f} ms after a character; step {row['step_ms']:5.1f} ms"
        )
    for row in outputs:
        print(
            f"{engine.model}: output of {row['tokens']:4} tokens: plain {row['plain_ms']:7.0f} ms, "
            f"speculative {row['speculative_ms']:7.0f} ms"
        )
    print(f"{engine.model}: {loaded_mib:.0f} MiB resident when loaded, {mib():.0f} MiB in the end")
    print(f"wrote {results_file.write('scale', figures, f'scale-{engine.model}')}", flush=True)


# ── the document ─────────────────────────────────────────────────────────────────────────────────────────────


def document(lines: int) -> tuple[list[str], int]:
    """That many lines of Python, and the number of an empty one in the middle to type into."""
    lines_of_code = code(60 * lines).split("\n")
    lines_of_code = (lines_of_code * (lines // len(lines_of_code) + 1))[:lines]
    at = next((n for n in range(lines // 2, lines) if lines_of_code[n].startswith(("def ", "class "))), lines // 2)
    lines_of_code[at - 1] = ""
    return lines_of_code, at - 1


def editor_wing(lines: int) -> dict[str, float]:
    """Parsing and choosing the context, by themselves: all of the document, then after each key."""
    from speclsp.lsp.context import build
    from speclsp.lsp.documents.document import Snapshot
    from speclsp.lsp.syntax.parser import SyntaxParser

    text_lines, at = document(lines)
    before, after = "\n".join(text_lines[:at]) + "\n", "\n" + "\n".join(text_lines[at + 1 :])
    parser, parses, builds = SyntaxParser(), [], []
    for typed in range(len(KEYS)):
        text = before + KEYS[:typed] + after
        snapshot = Snapshot("file:///scale.py", "python", typed, text, len(before) + typed)
        began_s = perf_counter()
        tree = parser.parse("python", text, PARSE_MS, near=snapshot.cursor)
        parses.append(milliseconds(began_s))
        began_s = perf_counter()
        build.build(snapshot, tree, ContextConfig())
        builds.append(milliseconds(began_s))
    return {
        "first_parse_ms": round(parses[0], 1),
        "next_parse_ms": round(rounds.quantile(parses[1:], 0.5), 1),
        "first_context_ms": round(builds[0], 1),
        "next_context_ms": round(rounds.quantile(builds[1:], 0.5), 1),
    }


class Server:
    """`speclsp lsp` with the model `echo`; sends one request at a time."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process, self.numbers = process, itertools.count(1)

    def send(self, message: dict[str, object]) -> None:
        assert self.process.stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        """The next message; the server's own requests are answered with null."""
        assert self.process.stdout is not None
        length = 0
        while (line := self.process.stdout.readline()).strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        if not length:
            raise EOFError("the language server ended")
        message: dict[str, Any] = json.loads(self.process.stdout.read(length))
        if "method" in message and "id" in message:
            self.send({"id": message["id"], "result": None})
        return message

    def notify(self, method: str, params: object) -> None:
        self.send({"method": method, "params": params})

    def call(self, method: str, params: object) -> Any:
        """A request's result."""
        number = next(self.numbers)
        self.send({"id": number, "method": method, "params": params})
        while True:
            message = self.read()
            if message.get("id") == number and "method" not in message:
                return message.get("result")

    def until_ready(self) -> None:
        """Wait for the engine."""
        while True:
            message = self.read()
            if message.get("method") == "speclsp/status" and message["params"].get("state") == "ready":
                return


@contextmanager
def serving() -> Iterator[Server]:
    """The language server, initialized and its engine ready; ended with its editor's pipe."""
    words = [sys.executable, "-m", "speclsp", "lsp", "--model", "echo", "--set", "engine.shared=false"]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ}
    ) as process:
        server = Server(process)
        server.call("initialize", {"processId": os.getpid(), "rootUri": None, "capabilities": {}})
        server.notify("initialized", {})
        server.until_ready()
        yield server
        assert process.stdin is not None
        process.stdin.close()
        process.wait(10)


def typed_answers(lines: int) -> dict[str, float]:
    """Key to answer, for each of KEYS typed into the document in the real language server; and its memory."""
    text_lines, at = document(lines)
    uri = Path("/scale.py").as_uri()
    took_ms = []
    with serving() as server:
        opened = {"uri": uri, "languageId": "python", "version": 0, "text": "\n".join(text_lines)}
        server.notify("textDocument/didOpen", {"textDocument": opened})
        for column, key in enumerate(KEYS):
            place, end = {"line": at, "character": column}, {"line": at, "character": column + 1}
            change = {"range": {"start": place, "end": place}, "text": key}
            began_s = perf_counter()
            version = {"uri": uri, "version": column + 1}
            server.notify("textDocument/didChange", {"textDocument": version, "contentChanges": [change]})
            server.call(
                "textDocument/inlineCompletion",
                {"textDocument": {"uri": uri}, "position": end, "context": {"triggerKind": 1}},
            )
            took_ms.append(milliseconds(began_s))
        resident = mib(server.process.pid)
    return {
        "first_answer_ms": round(took_ms[0], 1),
        "answer_p50_ms": round(rounds.quantile(took_ms[1:], 0.5), 1),
        "answer_p95_ms": round(rounds.quantile(took_ms[1:], 0.95), 1),
        "server_mib": resident,
    }


def bench_editor(quick: bool) -> None:
    """The language server's part; no model is involved."""
    rows = []
    with terminal.progress() as bar:
        sizes = QUICK_DOCUMENT_LINES if quick else DOCUMENT_LINES
        for number, lines in enumerate(sizes):
            bar.step(number / len(sizes), f"document of {lines} lines")
            rows.append({"lines": lines} | editor_wing(lines) | typed_answers(lines))
    for row in rows:
        print(
            f"document of {row['lines']:6} lines: parse {row['first_parse_ms']:6.1f} then {row['next_parse_ms']:5.1f} "
            f"ms, context {row['next_context_ms']:5.1f} ms, key to answer p50 {row['answer_p50_ms']:5.1f} "
            f"p95 {row['answer_p95_ms']:5.1f} ms, server {row['server_mib']:.0f} MiB"
        )
    print(
        f"wrote {results_file.write('scale-editor', {'pair': 'echo', 'keys': len(KEYS), 'document': rows})}",
        flush=True,
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks scale`."""
    model_options.add_arguments(parser)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter, for a first look")


def main(options: argparse.Namespace) -> int:
    """Exit code 0."""
    sizes = QUICK_PROMPT_TOKENS if options.quick else PROMPT_TOKENS
    for setting in model_options.settings(options, {"engine.context_tokens": max(sizes) + 64}):
        bench_pair(setting, options.quick)
    bench_editor(options.quick)
    return 0
