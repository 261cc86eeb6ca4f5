"""Time to select context for a completion, in a workspace of 5,000 files.

    python -m benchmarks context [--files 5000] [--places 200]

The workspace has packages that are installed beside this one. At each place, in a file of its own, a
document is looked at for the first time, then 20 lines are written in it one after the other, with some keys on a line;
as the server does it, with its defaults. What was read for one document is there for the next, as in an editor. The
document is parsed beforehand: that is not the context's time.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median, quantiles

from benchmarks import results_file
from speclsp.config import ContextConfig
from speclsp.lsp.context import build, similar_code
from speclsp.lsp.context.chunk import Chunk
from speclsp.lsp.context.cross_file import CrossFileSources
from speclsp.lsp.context.selection import Selections
from speclsp.lsp.context.warm_up import IndexWarmUp
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.index.reader import IndexReader
from speclsp.lsp.syntax.grammars import SUFFIXES
from speclsp.lsp.syntax.parser import SyntaxParser
from speclsp.lsp.syntax.tree import SyntaxTree

SEED = 7
LINES = 20  # written at a place
MIN_LINES, MAX_CHARACTERS = 60, 200_000  # of a file with a place in it
KEYS = 3  # on every fifth line
PARSE_MS = 1000.0
PATIENT_MS = 60_000.0
LANGUAGES = {".py": "python", ".pyi": "python", ".js": "javascript", ".ts": "typescript", ".h": "c", ".c": "c"}


@dataclass
class Times:
    """ms by the clock, and of the processor's time: a busy machine shows in the one and not in the other."""

    clock: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    @contextmanager
    def took(self) -> Iterator[None]:
        began_s, used_s = time.perf_counter(), time.process_time()
        yield
        self.processor.append((time.process_time() - used_s) * 1000)
        self.clock.append((time.perf_counter() - began_s) * 1000)

    def summary(self) -> dict[str, float]:
        return {
            "n": len(self.clock),
            **{f"p50{kind}_ms": round(median(took), 2) for kind, took in self._kinds()},
            **{f"p95{kind}_ms": round(quantiles(took, n=20)[-1], 2) for kind, took in self._kinds()},
            "most_processor_ms": round(max(self.processor), 2),
        }

    def _kinds(self) -> Iterator[tuple[str, list[float]]]:
        yield from (("", self.clock), ("_processor", self.processor))


def lay(folder: Path, files: int) -> int:
    """Copy packages, whole, until there are so many source files; how many there are."""
    source, count = Path(sysconfig.get_path("purelib")), 0
    packages = [path for path in sorted(source.iterdir()) if path.is_dir() and not path.name.startswith(("_", "."))]
    random.Random(SEED).shuffle(packages)
    for package in packages:
        for file in sorted(package.rglob("*")):
            if file.suffix in SUFFIXES and file.is_file() and "__pycache__" not in file.parts:
                target = folder / file.relative_to(source)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)
                count += 1
                if count == files:
                    return count
    return count


def apart(folder: Path, database: Path) -> dict[str, float]:
    """Build the index in a process of its own, as the server's child does."""
    program = (
        "import sys, time, resource; from pathlib import Path; from speclsp.lsp.index.reader import IndexReader\n"
        "began = time.perf_counter(); IndexReader.build(sys.argv[1], Path(sys.argv[2])); used = time.process_time()\n"
        "rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024\n"
        "print(time.perf_counter() - began, used, rss)"
    )
    command = [sys.executable, "-c", program, str(folder), str(database)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    seconds, processor_s, peak_mib = map(float, output)
    return {"seconds": round(seconds, 2), "processor_s": round(processor_s, 2), "peak_mib": round(peak_mib, 1)}


class Editor:
    """Editor with open documents of a folder; builds the same context as the server."""

    def __init__(self, folder: Path, database: Path, patience_ms: float | None = None) -> None:
        similar_code.FILE_WORDS.clear()
        similar_code.OWN_WORDS.clear()
        similar_code.cached_words.cache_clear()
        gc.collect()
        gc.freeze()  # as the server does, once it is ready
        self.folder, self.root = folder, folder.as_uri()
        self.index = IndexReader(str(folder), database)
        self.index.metadata("built")  # the database is open, as in an editor
        self.sources = CrossFileSources(index=self.index)
        self.config = ContextConfig()
        self.warm_up = IndexWarmUp(self.index, lambda _seconds, _slice: None)
        self.slices = Times()
        if patience_ms is None:
            self.index.on_late = self.warm_up.add
        else:
            self.index.cache.query_ms = patience_ms
            self.sources = CrossFileSources(index=self.index, patience_ms=patience_ms)
            self.config = ContextConfig(parse_budget_ms=int(patience_ms))
        self.windows: build.Windows = {}
        self.selections: Selections = {}

    def look(self, snapshot: Snapshot, tree: SyntaxTree | None, times: Times) -> tuple[Chunk, ...]:
        """Choose, and note how long it took."""
        with times.took():
            context = build.build(
                snapshot,
                tree,
                self.config,
                self.root,
                (),
                self.windows,
                selections=self.selections,
                sources=self.sources,
            )
        return context.extra

    def rest(self) -> None:
        """Idle time: runs the queries that warm the cache."""
        more = True
        while more:
            with self.slices.took():
                more = self.warm_up.run_slice()


def places(folder: Path, count: int) -> Iterator[tuple[Path, list[str], int]]:
    """(file, its lines, the line to write from), each in another file."""
    chance = random.Random(SEED)
    files = sorted(file for file in folder.rglob("*") if file.suffix in LANGUAGES)
    chance.shuffle(files)
    for file in files:
        text = file.read_text("utf-8", "replace")
        lines = text.splitlines(keepends=True)
        if count and len(lines) >= MIN_LINES and len(text) <= MAX_CHARACTERS:
            count -= 1
            yield file, lines, chance.randrange(10, len(lines) - LINES)


def steps(file: Path, lines: list[str], first: int) -> Iterator[tuple[str, Snapshot, SyntaxTree | None]]:
    """The document at each measured key, with the kind of the key."""
    parser, language, version = SyntaxParser(), LANGUAGES[file.suffix], 0

    def now(line: int, typed: str) -> tuple[Snapshot, SyntaxTree | None]:
        above = "".join(lines[:line]) + typed
        text = above + "\n" + "".join(lines[first + LINES :])
        snapshot = Snapshot(file.as_uri(), language, version, text, len(above))
        return snapshot, parser.parse(language, text, PARSE_MS, near=len(above))

    for line in range(first, first + LINES):
        written = lines[line].rstrip("\n")
        indent = written[: len(written) - len(written.lstrip())]
        version += 1
        yield "cold" if line == first else "next line", *now(line, indent)
        for key in range(KEYS if (line - first) % 5 == 0 else 0):
            version += 1
            yield "key on the line", *now(line, written[: len(indent) + key + 1])


def measure(files: int, count: int) -> dict[str, object]:
    """All figures."""
    with tempfile.TemporaryDirectory(prefix="speclsp-context-") as folder_name:
        folder, database = Path(folder_name) / "work", Path(folder_name) / "index" / "index.sqlite"
        laid = lay(folder, files)
        apart(folder, database)
        return {
            "load_1_min": round(os.getloadavg()[0], 1),
            "files": laid,
            "places": count,
            **looks(folder, database, count),
        }


def looks(folder: Path, database: Path, count: int) -> dict[str, object]:
    """ms by kind of look, and how often the same is chosen as with all the time in the world."""
    times, chosen = dict[str, Times](), dict[str, list[tuple[Chunk, ...]]]()

    def look(kind: str, editor: Editor, snapshot: Snapshot, tree: SyntaxTree | None) -> None:
        chosen.setdefault(kind, []).append(editor.look(snapshot, tree, times.setdefault(kind, Times())))

    editor = Editor(folder, database)
    for file, lines, first in places(folder, count):
        for kind, snapshot, tree in steps(file, lines, first):
            look(kind, editor, snapshot, tree)
            if kind == "next line":
                editor.rest()
    slices = editor.slices
    editor = Editor(folder, database)
    for file, lines, first in places(folder, count):
        editor.warm_up.add(str(file.relative_to(folder)))
        editor.rest()
        for kind, snapshot, tree in islice(steps(file, lines, first), 12):
            if kind != "key on the line":
                look("first look" if kind == "cold" else "index changed", editor, snapshot, tree)
            editor.index.clear_cache()
    editor = Editor(folder, database, PATIENT_MS)
    for file, lines, first in places(folder, count):
        _, snapshot, tree = next(steps(file, lines, first))
        look("patient", editor, snapshot, tree)
    patient = chosen.pop("patient")
    times.pop("patient")
    times["slice of what is asked beforehand"] = slices
    return {
        "looks": {kind: quantiles.summary() for kind, quantiles in times.items()},
        "beforehand_processor_ms_a_document": round(sum(slices.processor) / count, 1),
        "not_cut_short_by_time": {
            kind: round(sum(mine == other for mine, other in zip(chosen[kind], patient, strict=True)) / count, 3)
            for kind in ("cold", "first look")
        },
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks context`."""
    parser.add_argument("--files", metavar="N", type=int, default=5000, help="of the workspace (default: 5000)")
    parser.add_argument("--places", metavar="N", type=int, default=200, help="where to write (default: 200)")


def main(options: argparse.Namespace) -> int:
    """Exit code 0."""
    figures = measure(options.files, options.places)
    print(json.dumps(figures, indent=1))
    print(f"wrote {results_file.write('context', figures)}")
    return 0
