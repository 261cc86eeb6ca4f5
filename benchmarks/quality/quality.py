"""Quality of suggestions: the share a person would have written, on code newer than the models, one thing varied.

    python -m benchmarks quality --model P [--set quick|full|second] [--variants base,full] [--tasks N] [--only cross]

Tasks are cursors in packages released in 2026 (tasks/tasks.py). The product's own pipeline completes them in every
variant (run_task.py, variants.py), and each suggestion is scored against the code that stands there (scoring/). Every
generation is cached (cache/), so a stopped run continues where it was, and a variant with the same prompts costs
nothing. Writes benchmarks/results/quality-<set>-<model>.json. Rows with texts stay in the user's cache, and so do the
results of a part of the set or of other settings, unless --keep is given.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import model_options, results_file
from benchmarks.quality import run_task, variants
from benchmarks.quality.cache.generation_cache import GenerationCache
from benchmarks.quality.run_task import Row, TaskRunner
from benchmarks.quality.scoring import bootstrap, figures, scores
from benchmarks.quality.tasks import packages as corpus
from benchmarks.quality.tasks import tasks as cursors
from benchmarks.quality.tasks.tasks import Task
from benchmarks.quality.variants import BASE, FULL, Variant
from speclsp import config as settings_of
from speclsp.cli import terminal
from speclsp.config import Config, changes
from speclsp.errors import InputError

SETS = tuple(cursors.SETS)
USUAL = f"{BASE},{FULL}"
WRITTEN = 3000  # characters of the person's text, stored beside the generated one
Rows = dict[str, list[Row]]  # by variant


def bench(config: Config, options: argparse.Namespace, name: str) -> None:
    """Measure a model, print the table, write the JSON."""
    every = tasks_of(name)
    tasks = selected(every, options.tasks, options.only)
    if not tasks:
        raise InputError(f"the {name} set has no such task.")
    compared = variants.chosen(options.variants)
    cache = GenerationCache(quality_dir() / "said")
    try:
        rows, about = run(config, compared, tasks, cache)
    finally:
        cache.close()
    summary: dict[str, Any] = {
        "pair": about["pair"],
        "set": name,
        "target": about["target"],
        "corpus": cursors.digest(every),
        "seed": bootstrap.SEED,
        "draws": bootstrap.DRAWS,
        "tasks": {kind: len(numbers) for kind, numbers in figures.groups(tasks).items()},
        "packages": len({task.package for task in tasks}),
        "of_tasks": len(every),
        "truths_left_open": left_open(tasks),
        "engine": {"threads": config.engine.threads, "context_tokens": config.engine.context_tokens},
        "arithmetic": about["arithmetic"],
        "variants": {
            variant.name: {"about": variant.about}
            | figures.of_variant(rows[variant.name], rows[BASE], tasks, by_kind=variant.name in variants.BY_KIND)
            for variant in compared
        },
    }
    if "plain" in rows and FULL in rows:
        summary["plain_differs_from_full_in"] = differing(rows["plain"], rows[FULL])
    if FULL in rows:
        others = [name for name in rows if name != FULL]
        summary["full_beside"] = {name: figures.beside(rows[FULL], rows[name], tasks) for name in others}
    print(results_file.as_text({name: summary[name] for name in ("variants", "full_beside") if name in summary}))
    whole = len(tasks) == len(every) and not options.assignments
    part = f"-{options.only or 'part'}-{len(tasks)}" if len(tasks) < len(every) else ""
    part += "-otherwise" if options.assignments else ""
    summary["settings"] = changes(config)
    file = f"quality-{name}{part}-{about['pair']}"
    directory = results_file.RESULTS if whole or options.keep else quality_dir() / "part"
    remark = "" if whole else " (not all of the set as it is)"
    print(f"wrote {results_file.write('quality', summary, file, directory)}{remark}")
    write_rows(tasks, rows, quality_dir() / "texts" / file)


def run(
    config: Config, wanted: Sequence[Variant], tasks: Sequence[Task], cache: GenerationCache
) -> tuple[Rows, dict[str, Any]]:
    """Every task in every variant, and the model, its number format and a digest of its arithmetic."""
    engine = model_options.engine(config)
    runner = TaskRunner(engine, config, cache)
    rows: Rows = {variant.name: [] for variant in wanted}
    with terminal.progress() as bar:
        for number, task in enumerate(tasks):
            for variant in wanted:
                rows[variant.name].append(runner.row(task, variant))
            done = (number + 1) / len(tasks)
            bar.show("completing", done, f"{number + 1} of {len(tasks)} tasks, {runner.new_generations} asked")
    runner.check()
    return rows, {"pair": engine.model, "target": engine.target, "arithmetic": {engine.target: runner.arithmetic}}


# ── the tasks ────────────────────────────────────────────────────────────────────────────────────────────────


def tasks_of(name: str) -> list[Task]:
    """All tasks of a set, fetched first where they must be."""
    with terminal.progress() as bar:
        packages = corpus.fetch(lambda done, total: bar.bytes(done, total, "fetching packages"))
    return cursors.tasks(packages, name)


def selected(every: Sequence[Task], most: int | None, only: str | None) -> list[Task]:
    """`most` of one kind, in the order of their ids, which is no order; fewer are a part of more."""
    ordered = sorted(every, key=lambda task: task.id)
    matching = [task for task in ordered if only is None or bool(task.crosses) == (only == "cross")]
    return matching[:most]


def left_open(tasks: Sequence[Task]) -> float:
    """Share of the tasks in which the true text itself leaves more syntax errors."""
    parsed_truths = ((scores.truth_of(task), run_task.seen_at(task)[1]) for task in tasks)
    parsed = [scores.unparsed(truth, tree) for truth, tree in parsed_truths if tree is not None]
    return round(sum(parsed) / max(len(parsed), 1), 4)


def differing(one: Sequence[Row], other: Sequence[Row]) -> int:
    """In how many tasks two variants say something else."""
    return sum(a.said != b.said or a.text != b.text for a, b in zip(one, other, strict=True))


def quality_dir() -> Path:
    return settings_of.cache_dir() / "quality"


# ── what is left behind ──────────────────────────────────────────────────────────────────────────────────────


def write_rows(tasks: Sequence[Task], rows: Mapping[str, Sequence[Row]], texts: Path) -> None:
    """Write the row of each task in each variant, with its texts, below the user's cache; for reading."""
    texts.mkdir(parents=True, exist_ok=True)
    for name, of in rows.items():
        with (texts / f"{name}.jsonl").open("w", encoding="utf-8") as out:
            for task, row in zip(tasks, of, strict=False):
                place = {"package": task.package, "path": task.path, "kind": task.kind, "crosses": task.crosses}
                place |= {"language": task.language, "below": task.below}
                line, rest = task.text[: task.cursor].rpartition("\n")[2], task.text[task.cursor :].partition("\n")[0]
                out.write(
                    json.dumps(
                        asdict(row)
                        | place
                        | {"line": line, "rest": rest, "truth": task.truth, "written": written(task)}
                    )
                    + "\n"
                )


def written(task: Task) -> str:
    """The file's text in the package from the cursor on, beyond the truth too."""
    return (task.root / task.path).read_text(encoding="utf-8")[task.cursor :][:WRITTEN]


def spanned(one: Mapping[str, float] | None, times: float = 100, form: str = "{:.1f}") -> str:
    """A figure and its interval."""
    if one is None:
        return "-"
    value, low, high = (form.format(one[name] * times) for name in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


# ── the command ──────────────────────────────────────────────────────────────────────────────────────────────


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks quality`. --set takes settings, and the name of the task set."""
    model_options.add_arguments(parser)
    parser.add_argument("--variants", metavar="NAMES", default=USUAL, help=f"comma-separated (default: {USUAL})")
    parser.add_argument("--tasks", metavar="N", type=int, help="so many of the set; the result goes to the cache")
    parser.add_argument("--keep", action="store_true", help="keep a part's result too, or that of other settings")
    parser.add_argument("--only", choices=("cross", "single"), help="tasks that need another file, or the others")
    parser.epilog = "--set quick, full or second is the task set (default: quick); --set KEY=VALUE is a setting."


def main(options: argparse.Namespace) -> int:
    """Exit code 0."""
    named = [word for word in options.assignments if "=" not in word]
    options.assignments = [word for word in options.assignments if "=" in word]
    if unknown := [word for word in named if word not in SETS]:
        raise InputError(f"--set {unknown[0]}: expected {', '.join(SETS)}, or a setting as KEY=VALUE.")
    for setting in model_options.settings(options):
        bench(setting, options, named[-1] if named else SETS[0])
    return 0
