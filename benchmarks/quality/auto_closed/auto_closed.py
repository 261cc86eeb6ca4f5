"""Suggestions where an editor has closed brackets, quotes and tags by itself: 240 places of held-out packages.

    python -m benchmarks auto-closed --model M [--set engine.adapter=none] [--places N]

The product's own pipeline completes each place twice: with the editor's closers right of the cursor, and with nothing
there. outcomes.py compares the whole document with the author's. Generations are cached, so a stopped run continues.
Writes benchmarks/results/auto-closed-<model>.json. A run replaces its own column there; the column has the adapter's
name. Columns are compared in models, the same places drawn for both.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks import model_options, results_file
from benchmarks.quality.auto_closed import places
from benchmarks.quality.auto_closed.outcomes import Outcome, outcome
from benchmarks.quality.auto_closed.places import Case
from benchmarks.quality.cache.generation_cache import GenerationCache
from benchmarks.quality.run_task import Row, TaskRunner
from benchmarks.quality.scoring import bootstrap
from benchmarks.quality.tasks import packages as corpus
from benchmarks.quality.variants import FULL, Variant
from speclsp.cli import terminal
from speclsp.config import Config, cache_dir
from speclsp.errors import InputError

BENCH = "auto-closed"
CLOSED, BARE = "closed", "bare"  # right of the cursor: the editor's closers, nothing
METRICS = ("shown", "exact", "unbalanced", "more_errors", "more_brackets", "closable")
PRODUCT = Variant(name=FULL, about="speclsp as it comes")
Outcomes = Mapping[str, Sequence[Outcome]]  # by CLOSED and BARE


def bench(config: Config, cases: Sequence[Case]) -> None:
    """Measure one model, print its figures, write its column."""
    cache = GenerationCache(cache_dir() / "quality" / "said")
    try:
        engine = model_options.engine(config)
        adapter = engine.target_format.partition("adapter ")[2].partition(" ")[0]
        runner = TaskRunner(engine, config, cache)
        with terminal.progress() as bar:
            rows: dict[str, list[Row]] = {CLOSED: [], BARE: []}
            for number, case in enumerate(cases):
                bar.show("completing", number / len(cases), f"{number} of {len(cases)} places")
                rows[CLOSED].append(runner.row(case.closed(), PRODUCT))
                rows[BARE].append(runner.row(case.bare(), PRODUCT))
            runner.check()
    finally:
        cache.close()
    outcomes = {
        what: [
            outcome(case.file.text, case.place, case.closed() if what == CLOSED else case.bare(), row)
            for case, row in zip(cases, rows[what], strict=True)
        ]
        for what in (CLOSED, BARE)
    }
    machine = {key: results_file.machine()[key] for key in ("cpu", "cpu_features", "cores", "gpu")}
    column = column_of(cases, outcomes) | {
        "target": f"{engine.card.target.name} ({engine.target_format})",
        "arithmetic": runner.arithmetic,
        "measured_utc": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": machine,
    }
    name = adapter or "none"
    print(results_file.as_text({name: column}))
    model = Path(engine.model).name
    write_rows(f"{model}-{name}", cases, rows, outcomes)
    if len(cases) < places.PER_LANGUAGE * len(set(places.GROUPS.values())):
        print("not written: this is a part of the places")
        return
    print(f"wrote {keep(model, name, column)}")


def column_of(cases: Sequence[Case], outcomes: Outcomes) -> dict[str, Any]:
    """All figures of a model: of both tasks, their paired difference, by language and by kind."""
    drawn = bootstrap.draws(len(cases))
    column: dict[str, Any] = {"places": len(cases)}
    for what, of in outcomes.items():
        column[what] = {metric: figure(of, metric, drawn) for metric in METRICS}
        reasons = sorted(one.reason for one in of if one.reason)
        column[what]["nothing_because"] = {reason: reasons.count(reason) for reason in dict.fromkeys(reasons)}
        column[what]["flags"] = {metric: flags(of, metric) for metric in METRICS}
    column["closed_less_bare"] = {
        metric: difference(flags(outcomes[CLOSED], metric), flags(outcomes[BARE], metric))
        for metric in ("shown", "exact")
    }
    for key, labels in (
        ("languages", [case.language for case in cases]),
        ("kinds", [case.place.kind for case in cases]),
    ):
        column[key] = {
            label: {
                what: {
                    metric: sum(getattr(one, metric) for one, its in zip(of, labels, strict=True) if its == label)
                    for metric in METRICS
                }
                for what, of in outcomes.items()
            }
            | {"places": labels.count(label)}
            for label in dict.fromkeys(labels)
        }
    return column


def figure(of: Sequence[Outcome], metric: str, drawn: bootstrap.Draws) -> dict[str, Any]:
    """A count, its share of the places, and the interval of the share."""
    counts = [float(getattr(one, metric)) for one in of]
    share = bootstrap.figure((counts, [1.0] * len(counts)), drawn)
    return {"count": int(sum(counts))} | (share.json() if share is not None else {})


def flags(of: Sequence[Outcome], metric: str) -> str:
    """A metric of all places, in their order: 1 or 0 each."""
    return "".join("01"[getattr(one, metric)] for one in of)


def difference(mine: str, others: str) -> dict[str, Any]:
    """Paired difference of two shares, with the places gained and lost."""
    ones = [1.0] * len(mine)
    first, second = ([float(flag) for flag in flags_of] for flags_of in (mine, others))
    interval = bootstrap.difference((first, ones), (second, ones), bootstrap.draws(len(mine)))
    gained = sum(a > b for a, b in zip(mine, others, strict=True))
    lost = sum(a < b for a, b in zip(mine, others, strict=True))
    return {"gained": gained, "lost": lost} | (interval.json() if interval is not None else {})


def compared(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Each column against "none", and each pair of adapters, on the places with closers."""
    names = sorted(columns, key=lambda name: (name != "none", name))
    return {
        f"{later} less {earlier}": {
            metric: difference(columns[later][CLOSED]["flags"][metric], columns[earlier][CLOSED]["flags"][metric])
            for metric in METRICS
        }
        for at, later in enumerate(names)
        for earlier in names[:at]
        if columns[later]["places"] == columns[earlier]["places"]
    }


def keep(model: str, name: str, column: dict[str, Any]) -> Path:
    """Put the column into the model's result file, and compare it with the others there."""
    file = results_file.RESULTS / f"{BENCH}-{model}.json"
    old = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    columns = old.get("columns", {}) if old.get("places_sha256") == places.SHA256 else {}
    columns[name] = column
    summary = {
        "pair": model, "greedy": True, "places_sha256": places.SHA256, "seed": bootstrap.SEED, "draws": bootstrap.DRAWS,
        "intervals": "95 %, places drawn", "columns": columns, "compared": compared(columns),
    }  # fmt: skip
    return results_file.write(BENCH, summary, file.stem)


def write_rows(name: str, cases: Sequence[Case], rows: Mapping[str, Sequence[Row]], outcomes: Outcomes) -> None:
    """The texts of every place, in build/benchmarks."""
    lines = [
        {
            "package": case.package.name, "path": case.file.path, "language": case.language, "kind": case.place.kind,
            "what": what, "line": case.file.text[: case.place.cursor].rpartition("\n")[2],
            "answer": case.place.answer, "rest": case.place.rest, "generated": row.said, "shown": row.text,
            "replaced": row.replaced, "reason": row.reason,
        }
        | {metric: getattr(one, metric) for metric in METRICS}
        for what in (CLOSED, BARE)
        for case, row, one in zip(cases, rows[what], outcomes[what], strict=True)
    ]  # fmt: skip
    results_file.write_raw(f"{BENCH}/{name}", lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks auto-closed`."""
    model_options.add_arguments(parser)
    parser.add_argument("--places", metavar="N", type=int, help="every so many-th place only; nothing is written")


def main(options: argparse.Namespace) -> int:
    """Exit code 0."""
    if options.places is not None and options.places < 1:
        raise InputError(f"--places {options.places}: expected 1 or more.")
    with terminal.progress() as bar:
        packages = corpus.fetch(lambda done, total: bar.bytes(done, total, "fetching packages"))
        bar.show("choosing places", 0.0, "")
        every = places.pinned(packages)
    step = max(1, len(every) // options.places) if options.places else 1
    for setting in model_options.settings(options):
        bench(setting, every[::step])
    return 0
