"""Index of a workspace of 5,000 files: time to build it, its size, and the time of a query.

    python -m benchmarks index [--files 5000]

The workspace consists of the installed packages: real code, copied, because the index ignores files in site-packages.
The queries are those of a completion, for the imports of a file.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median, quantiles

from benchmarks import results_file
from speclsp.lsp.index.query_cache import BUDGET_MS
from speclsp.lsp.index.reader import IndexReader
from speclsp.lsp.syntax.grammars import SUFFIXES, grammar_of

SEED = 7
QUESTIONS = 1000


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


def measure(files: int) -> dict[str, object]:
    """All figures."""
    with tempfile.TemporaryDirectory(prefix="speclsp-index-") as folder_name:
        folder, database = Path(folder_name) / "work", Path(folder_name) / "index" / "index.sqlite"
        count = lay(folder, files)
        build = apart(folder, database)
        again = apart(folder, database)
        index = IndexReader(str(folder), database)
        index.budget.query_ms = 1000  # so that queries over the budget are visible
        figures: dict[str, object] = {
            "load_1_min": round(os.getloadavg()[0], 1),
            "files": count,
            "source_mib": round(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 2**20, 1),
            "database_mib": round(database.stat().st_size / 2**20, 1),
            "build": build,
            "look_again": again,
            "questions": questions(index, folder),
            "budget_ms": BUDGET_MS,
        }
        index.close()
    return figures


def apart(folder: Path, database: Path) -> dict[str, float]:
    """Make the index, or look for changes, in a process of its own, as the server's child does."""
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


def questions(index: IndexReader, folder: Path) -> dict[str, object]:
    """ms by kind of question, nothing remembered from the one before."""
    chance = random.Random(SEED)
    paths = sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if grammar_of(file.name) == "python")
    took = dict[str, list[tuple[float, float]]]()

    def ask(kind: str, question: Callable[[], object]) -> None:
        index.clear_cache()
        began_s, used_s = time.perf_counter(), time.thread_time()
        question()
        took.setdefault(kind, []).append(((time.perf_counter() - began_s) * 1000, (time.thread_time() - used_s) * 1000))

    for path in chance.choices(paths, k=QUESTIONS // 5):
        statements = index.imports(path)
        ask("imports of a file", partial(index.imports, path))
        ask("importers of a file", partial(index.importers, path))
        ask("tests of a file", partial(index.counterparts, path))
        for statement in chance.sample(statements, min(2, len(statements))):
            ask("file of an import", partial(index.resolve_module, statement.module, path))
    return {kind: _summary(times) for kind, times in sorted(took.items())}


def _summary(times: list[tuple[float, float]]) -> dict[str, float]:
    """By the clock, and of the processor's time: a busy machine shows in the one and not in the other."""
    clock, processor = [seconds for seconds, _ in times], [seconds for _, seconds in times]
    return {
        "n": len(times),
        "p50_ms": round(median(clock), 2),
        "p95_ms": round(quantiles(clock, n=20)[-1], 2),
        "most_ms": round(max(clock), 2),
        "p50_processor_ms": round(median(processor), 2),
        "p95_processor_ms": round(quantiles(processor, n=20)[-1], 2),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks index`."""
    parser.add_argument("--files", metavar="N", type=int, default=5000, help="of the workspace (default: 5000)")


def main(options: argparse.Namespace) -> int:
    """Exit code 0."""
    figures = measure(options.files)
    print(json.dumps(figures, indent=1))
    print(f"wrote {results_file.write('index', figures)}")
    return 0
