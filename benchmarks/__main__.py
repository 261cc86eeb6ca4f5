"""Command line of the benchmarks: `python -m benchmarks NAME [flags]`, run from a checkout of the repository.

Each benchmark is a module with `add_arguments(parser)` and `main(options) -> int`. The module is imported only when it
is named, so `--help` loads no model library. Errors are one line on stderr; exit codes are those of the `speclsp`
command. `--results DIR` (default: benchmarks/results) is where a benchmark reads and writes its figures.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import results_file
from speclsp.cli.command_line import USER_ERROR
from speclsp.cli.entry import ArgumentParser, guarded

OUTSIDE_A_CHECKOUT = (
    "benchmarks need a checkout of the repository: clone it, then run `python -m benchmarks` in its root."
)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One entry of the command line: the module below `benchmarks`, and a description of one line."""

    module: str
    about: str


BENCHMARKS = {
    "judge": Benchmark("judge", "a model beside the one of `auto`: quality, closers and economy in one page"),
    "completions": Benchmark("speed.completions", "speculative against plain decoding: times, acceptance, same texts"),
    "lines": Benchmark("keystrokes.lines.lines", "suggestions at new lines, in functions of 2026 and their workspaces"),
    "peers": Benchmark("peers.compare", "other engines with the same weights, prompts and lengths, in one run"),
    "quality": Benchmark("quality.quality", "suggestions against the original code, in code newer than the models"),
    "next-edit": Benchmark("editor.next_edit", "next edits against the edits made between consecutive releases"),
    "next-edit-gate": Benchmark(
        "editor.edit_replay.gate.next_edit_gate", "weights of the gate of next edits, fitted, and the gate's rates"
    ),
    "next-edit-walks": Benchmark("editor.next_edit_walks", "next edits in walks through real code, edited by hand"),
    "renames": Benchmark("editor.edit_replay.renames", "next edits after a definition was renamed by program"),
    "economy": Benchmark(
        "keystrokes.economy.economy",
        "keys saved and wrong suggestions while functions of 2026 are typed again, and the confidence curve",
    ),
    "auto-closed": Benchmark(
        "quality.auto_closed.auto_closed", "suggestions where the editor has closed brackets, quotes and tags itself"
    ),
    "floor": Benchmark("speed.floor", "rounds of the CPU engine against the time its weight reads alone take"),
    "start": Benchmark("speed.start", "time from no engine to the first text, and memory, beside llama.cpp"),
    "install-size": Benchmark("speed.install_size", "size of the program without a GPU, by package"),
    "gpu": Benchmark("speed.gpu.gpu", "a GPU's limit, passes, rounds, equal tokens and tests"),
    "editor-latency": Benchmark("editor.latency", "time from a key to ghost text in Neovim and VS Code"),
    "first-suggestion": Benchmark("editor.opening", "first suggestion after opening an editor, with no engine"),
    "tasks": Benchmark("quality.tasks.tasks", "counts and checksum of the quality tasks"),
    "pin": Benchmark("quality.tasks.pin", "pinned versions of the packages that tasks are made from"),
    "install-peers": Benchmark(
        "peers.install", "installation of the engines that `peers` compares, in the user's cache"
    ),
    "charts": Benchmark("report.charts", "charts and tables of docs/benchmarks*.md and gpu.md, from the results"),
}


class BenchmarkParser(ArgumentParser):
    """Parser of one benchmark. Imports the module, and adds its flags, only when that benchmark is the one named."""

    module = ""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self.module:
            sys.path.append(str(results_file.CHECKOUT / "tests"))  # the benchmarks of editors use tests/support
            module = importlib.import_module(self.module)
            self.module = ""
            module.add_arguments(self)
            self.add_argument(
                "--results",
                metavar="DIR",
                type=Path,
                default=results_file.RESULTS,
                help="directory of result files (default: benchmarks/results)",
            )
            self.set_defaults(run=module.main)
        return super().parse_known_args(args, namespace)


def parser() -> ArgumentParser:
    """Every benchmark by name."""
    top = ArgumentParser(prog="python -m benchmarks", description="Benchmarks of speclsp, each run by one command.")
    names = top.add_subparsers(metavar="NAME", required=True, parser_class=BenchmarkParser)
    for name, benchmark in BENCHMARKS.items():
        about = benchmark.about
        sub_parser = names.add_parser(name, help=about, description=f"{name}: {about}.")
        sub_parser.module = f"benchmarks.{benchmark.module}"
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one benchmark; its exit code."""

    def run() -> int:
        options = parser().parse_args(argv)
        if not (results_file.CHECKOUT / "pyproject.toml").is_file():
            return fail(OUTSIDE_A_CHECKOUT, USER_ERROR)
        results_file.RESULTS = options.results
        code: int = options.run(options)
        return code

    return guarded(run, fail, "SPECLSP_TRACEBACK=1 shows the traceback.")


def fail(message: str, code: int) -> int:
    """Print one line on stderr; the exit code."""
    sys.stderr.write(f"benchmarks: {' '.join(message.splitlines())}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
