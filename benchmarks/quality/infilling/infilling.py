"""HumanEval-Infilling: exact match and pass@1 of the model through the raw engine and through the product.

    python -m benchmarks humaneval-infilling [--model M] [--kind single|multi] [--through engine|product|joined]
                                             [--weights int8|int4|bf16] [--limit N]

A public yardstick beside the published figures of the models (published.py), and an end-to-end check of the engine: a
wrong kernel lowers it. The tasks are in every model's training data, so it compares implementations, not models; the
measure of suggestions is `quality`. Generations and test verdicts are kept in build/benchmarks, so a stopped run
continues. Writes benchmarks/results/humaneval-infilling-<model>.json; each run replaces its own columns there. With an
adapter a column has its name: `--set engine.adapter=none` measures the weights alone.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import model_options, results_file
from benchmarks.quality.cache.generation_cache import GenerationCache
from benchmarks.quality.infilling import figures, tasks
from benchmarks.quality.infilling.columns import MAX_TOKENS, THROUGH, Column, Completed
from benchmarks.quality.infilling.sandbox import Sandbox
from benchmarks.quality.infilling.tasks import KINDS, Task
from benchmarks.quality.infilling.verdicts import Verdicts
from benchmarks.quality.scoring import bootstrap
from speclsp.cli import terminal
from speclsp.config import Config

BENCH = "humaneval-infilling"
WEIGHTS = ("int8", "int4", "bf16")
Samples = Mapping[str, Sequence[Task]]  # by kind
Progress = Callable[[int], None]


def bench(config: Config, samples: Samples, options: argparse.Namespace) -> None:
    """Measure every requested column of a model, write each as soon as it is complete."""
    sandbox = None if options.no_tests else Sandbox.choose()
    verdicts = None if sandbox is None else Verdicts(results_file.RAW / BENCH / "verdicts.jsonl", sandbox)
    cache = GenerationCache(results_file.RAW / BENCH)
    try:
        for weights in options.weights or WEIGHTS[:1]:
            engine = model_options.engine(replace(config, engine=replace(config.engine, quantization=weights)))
            adapter = engine.target_format.partition("adapter ")[2].partition(" ")[0]
            for through in options.through or THROUGH:
                column = Column(engine, config, cache, through)
                for kind, sample in samples.items():
                    name = " ".join(filter(None, (through, weights, adapter)))
                    figures_of_column = measure(column, sample, kind, name, verdicts)
                    keep(name_of(engine.model), kind, name, figures_of_column, sample)
            del engine, column
            gc.collect()
    finally:
        cache.close()


def name_of(model: str) -> str:
    """The name of a model in files and figures: of a directory its last part."""
    return Path(model).name


def measure(column: Column, sample: Sequence[Task], kind: str, name: str, verdicts: Verdicts | None) -> dict[str, Any]:
    """Complete and score the tasks of one kind."""
    with terminal.progress() as bar:

        def show(what: str, number: int) -> None:
            bar.show(f"{kind}-line, {name}: {what}", number / len(sample), f"{number} of {len(sample)}")

        if verdicts is not None:
            verdicts.check_references(sample, partial(show, "canonical solutions"))
        rows = column.run(sample, kind, partial(show, "completing"))
        programs = [row.program for row in rows]
        passed = None if verdicts is None else verdicts.passed(programs, partial(show, "testing"))
    write_rows(f"{name_of(column.engine.model)}-{kind}-{name.replace(' ', '-')}", rows, passed)
    machine = {key: results_file.machine()[key] for key in ("cpu", "cpu_features", "cores", "gpu")}
    return figures.column(sample, rows, passed) | {
        "target": f"{name_of(column.engine.card.target.name)} ({column.engine.target_format})",
        "arithmetic": column.arithmetic,
        "sandbox": verdicts.sandbox.mode if verdicts is not None else "none",
        "measured_utc": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": machine,
    }


def write_rows(name: str, rows: Sequence[Completed], passed: Sequence[bool] | None) -> None:
    """The text and the scores of every task, in build/benchmarks."""
    verdicts = passed if passed is not None else [None] * len(rows)
    lines = [
        {key: value for key, value in asdict(row).items() if key != "program"} | {"passed": verdict}
        for row, verdict in zip(rows, verdicts, strict=True)
    ]
    results_file.write_raw(f"{BENCH}/{name}", lines)


def keep(model: str, kind: str, name: str, column: dict[str, Any], sample: Sequence[Task]) -> None:
    """Print the column, compare it with the one on file, and replace that unless it has more tasks."""
    file = results_file.RESULTS / f"{BENCH}-{model}.json"
    old = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    sets: dict[str, Any] = old.get("sets", {})
    columns: dict[str, Any] = sets.get(kind, {}).get("columns", {})
    print(line(f"{model}, {kind}-line, {name}", column))
    if (before := columns.get(name)) is not None:
        for metric, change in figures.difference(sample, before, column).items():
            if metric in figures.METRICS:
                print(f"    {metric}: {change['gained']} gained and {change['lost']} lost against the file")
        if before["tasks"] > column["tasks"]:
            print(f"    not written: {file.name} has {before['tasks']} tasks of this column")
            return
    columns = {**columns, name: column}
    longest = tasks.sample(tasks.load(kind), max(each_column["tasks"] for each_column in columns.values()))
    sets[kind] = {
        "of_tasks": tasks.COUNT[kind],
        "sha256": tasks.SHA256[kind],
        "max_tokens_engine": MAX_TOKENS[kind],
        "columns": columns,
        "compared": figures.compared(longest, columns),
    }
    package = f"{tasks.ARCHIVE.name} {tasks.ARCHIVE.version}"
    summary = {"pair": model, "package": package, "package_sha256": tasks.ARCHIVE.sha256, "greedy": True}
    summary |= {"seed": bootstrap.SEED, "draws": bootstrap.DRAWS, "intervals": "95 %, problems drawn", "sets": sets}
    print(f"    wrote {results_file.write(BENCH, summary, file.stem)}")


def line(name: str, column: Mapping[str, Any]) -> str:
    """A column in one line."""
    shares = [
        f"{metric} {column[metric]['value']:.1%} [{column[metric]['low']:.1%}, {column[metric]['high']:.1%}]"
        for metric in figures.METRICS
        if metric in column
    ]
    return f"{name}: {', '.join(shares)}, {column['tasks']} tasks, {column['suggested']} suggestions"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks humaneval-infilling`."""
    model_options.add_arguments(parser)
    for flag, choices, about in (
        ("kind", KINDS, "length of the removed text (default: both)"),
        ("through", THROUGH, "raw engine with the standard prompt, the product, or with joined lines (default: all)"),
        ("weights", WEIGHTS, "number format of the model (default: int8)"),
    ):
        parser.add_argument(f"--{flag}", choices=choices, action="append", help=f"{about}; can be given again")
    parser.add_argument(
        "--limit",
        metavar="N",
        type=int,
        help="tasks of the fixed sample (default: all 1033 single-line and 600 multi-line tasks)",
    )
    parser.add_argument("--no-tests", action="store_true", help="exact match only; run no generated code")


def main(options: argparse.Namespace) -> int:
    """Exit code 0."""
    samples = {
        kind: tasks.sample(tasks.load(kind), options.limit or tasks.USUAL_LIMIT[kind]) for kind in options.kind or KINDS
    }
    for setting in model_options.settings(options):
        bench(setting, samples, options)
    return 0
