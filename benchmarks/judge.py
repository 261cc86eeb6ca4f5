"""One page on a model, beside the model that `auto` takes on any CPU: three measures, and the confidence curve.

    python -m benchmarks judge MODEL [--set KEY=VALUE]

    quality      exact lines of tasks of 2026, a part of them stratified by language and by the need of other files
    auto-closed  places with closers of the editor
    economy      function bodies typed again over a recording, and the curve that is fitted to them

The sizes below take about an hour on two idle cores for 1.5B in int4. Both models get the same tasks, and intervals of
95 % come from paired bootstrap draws. `--set` is for MODEL alone. Generations and recordings are kept in the user's
cache: a stopped run continues, and the reference is measured once. Writes benchmarks/results/judge-<model>.json.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from benchmarks import model_options, results_file
from benchmarks.keystrokes.economy import economy
from benchmarks.keystrokes.economy import figures as typing_figures
from benchmarks.keystrokes.economy.bodies import Body, bodies
from benchmarks.keystrokes.economy.person import READER
from benchmarks.keystrokes.economy.policies import judge as line_values_of
from benchmarks.keystrokes.economy.recording import Recording, record
from benchmarks.keystrokes.economy.typing import SETTINGS
from benchmarks.quality import quality
from benchmarks.quality.auto_closed import places
from benchmarks.quality.auto_closed.auto_closed import PRODUCT as DEFAULT
from benchmarks.quality.auto_closed.outcomes import outcome
from benchmarks.quality.auto_closed.places import Case
from benchmarks.quality.cache.generation_cache import GenerationCache
from benchmarks.quality.calibration import calibration
from benchmarks.quality.run_task import TaskRunner
from benchmarks.quality.scoring import bootstrap
from benchmarks.quality.scoring import figures as quality_figures
from benchmarks.quality.scoring.bootstrap import Counts
from benchmarks.quality.tasks import packages as corpus
from benchmarks.quality.tasks.tasks import Task
from speclsp import config as settings_of
from speclsp.cli import terminal
from speclsp.config import Config, changes
from speclsp.errors import InputError
from speclsp.weights import auto_choice

REFERENCE = "qwen2.5-coder-0.5b-instruct"  # with its included adapter
TASKS, PLACES = 300, 80  # economy has its usual bodies
HIGHER, LOWER, NEITHER = 1, -1, 0  # the better direction of a metric; NEITHER decides nothing
DECISIVE = ("economy", "keys_saved")  # alone, because among many metrics one is better by chance


@dataclass(frozen=True, slots=True)
class Metric:
    """A line of the page."""

    label: str
    better: int
    scale: float = 100.0


METRICS: Mapping[str, Mapping[str, Metric]] = {  # by measure, and by the name of its counts
    "quality": {
        "exact": Metric("exact lines, %", HIGHER),
        "saved_per_shown": Metric("characters saved by a suggestion", NEITHER, 1.0),
    },
    "auto-closed": {"exact": Metric("exact documents, %", HIGHER), "unbalanced": Metric("unbalanced, %", LOWER)},
    "economy": {
        "keys_saved": Metric("keys saved of 100 for a reader", HIGHER),
        "wrong_per_key": Metric("wrong suggestions per 100 keys", LOWER),
        "shown_at_pauses": Metric("pauses with a suggestion, %", NEITHER),
        "right_at_pauses": Metric("of them with the right first line, %", HIGHER),
    },
}
Item = TypeVar("Item")
Measures = dict[str, dict[str, Counts]]  # by measure and metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The tasks of all measures, the same for both models, and how many there are in all."""

    quality: Sequence[Task]
    places: Sequence[Case]
    bodies: Sequence[Body]
    of: Mapping[str, int]

    def sizes(self) -> dict[str, str]:
        """The size of each measure in words."""
        parts = {"quality": self.quality, "auto-closed": self.places}
        tasks = {name: f"{len(part)} of {self.of[name]} tasks" for name, part in parts.items()}
        return tasks | {"economy": f"{len(self.bodies)} bodies, {sum(len(body.keys) for body in self.bodies)} keys"}


def parts() -> Parts:
    """Fetch the packages and choose the tasks. Raises CorpusError."""
    with terminal.progress() as bar:
        packages = corpus.fetch(lambda done, total: bar.bytes(done, total, "fetching packages"))
        bar.show("choosing tasks", 0.0, "")
        tasks, every_place = quality.tasks_of("full"), places.pinned(packages)
    return Parts(
        quality=evenly(sorted(tasks, key=lambda task: (bool(task.crosses), task.language, task.id)), TASKS),
        places=evenly(every_place, PLACES),
        bodies=bodies(packages, economy.USUAL_BODIES),
        of={"quality": len(tasks), "auto-closed": len(every_place)},
    )


def evenly(items: Sequence[Item], count: int) -> list[Item]:
    """`count` items at equal distances, so each run of equal items keeps its share; all of them if there are fewer."""
    count = min(count, len(items))
    return [items[number * len(items) // count] for number in range(count)]


# ── one model ────────────────────────────────────────────────────────────────────────────────────────────────


def measure(config: Config, tasks: Parts) -> tuple[str, Measures]:
    """(the model with its number format and adapter, counts of what it answers by request). Raises SpeclspError."""
    engine = model_options.engine(config)
    name = f"{Path(engine.model).name} ({engine.target_format})"
    measures: Measures = {}
    directory = quality.quality_dir() / "said"
    with terminal.progress() as bar, closing(GenerationCache(directory)) as cache:

        def show(what: str, total: int, done: int) -> None:
            bar.show(f"{name}: {what}", done / total, f"{done} of {total}")

        runner = TaskRunner(engine, config, cache)
        rows = []
        for number, task in enumerate(tasks.quality):
            show("quality", len(tasks.quality), number)
            rows.append(runner.row(task, DEFAULT))
        of_rows = quality_figures.METRICS
        measures["quality"] = {key: quality_figures.counts(rows, of_rows[key]) for key in METRICS["quality"]}
        outcomes = []
        for number, case in enumerate(tasks.places):
            show("auto-closed", len(tasks.places), number)
            task = case.closed()
            outcomes.append(outcome(case.file.text, case.place, task, runner.row(task, DEFAULT)))
        measures["auto-closed"] = {
            key: ([float(getattr(one, key)) for one in outcomes], [1.0] * len(outcomes))
            for key in METRICS["auto-closed"]
        }
        runner.check()
    return name, measures


def recordings_of(config: Config, tasks: Parts, name: str) -> list[Recording]:
    """The recordings of all bodies. Raises EngineError."""
    with terminal.progress() as bar:

        def show(done: int, total: int) -> None:
            bar.show(f"{name}: economy", done / total, f"{done} of {total} bodies")

        return record(config, tasks.bodies, show)


def typing_counts(recordings: Sequence[Recording]) -> dict[str, Counts]:
    """The counts of each body for the reader, under a curve from packages that are not its own."""
    curves = calibration.crossed_curves(recordings)
    judged = [line_values_of(recording, curves[recording.body.package]) for recording in recordings]
    typed = economy.typed(recordings, judged, economy.MEDIUM, READER)
    return {key: typing_figures.columns(typed, key) for key in METRICS["economy"]}


def curve_of(recordings: Sequence[Recording], model: str) -> tuple[dict[str, Any] | None, str]:
    """(figures of the curve that is fitted to all bodies, its source); (None, the reason) for too few lines."""
    try:
        curve = calibration.calibrate(recordings)
    except InputError as error:
        return None, str(error)
    return curve, calibration.source(curve, model)


# ── both models ──────────────────────────────────────────────────────────────────────────────────────────────


def compared(mine: Measures, reference: Measures) -> dict[str, dict[str, Any]]:
    """Each metric of both models, with intervals, and their paired difference."""
    figures: dict[str, dict[str, Any]] = {}
    for measure_name, metrics in METRICS.items():
        figures[measure_name] = {}
        for key, metric in metrics.items():
            one, other = mine[measure_name][key], reference[measure_name][key]
            drawn = bootstrap.draws(len(one[0]))
            values = {"model": bootstrap.figure(one, drawn), "reference": bootstrap.figure(other, drawn)}
            values["difference"] = bootstrap.difference(one, other, drawn)
            rows = {what: quality_figures.as_json(value) for what, value in values.items()}
            figures[measure_name][key] = {"label": metric.label, "scale": metric.scale, **rows}
    return figures


def verdict(model: str, figures: Mapping[str, Mapping[str, Any]]) -> str:
    """One sentence. A model beats the reference if it saves more keys, and is worse in nothing, beyond chance."""
    better, worse, decided = [], [], False
    for measure_name, metrics in METRICS.items():
        for key, metric in metrics.items():
            change = figures[measure_name][key]["difference"]
            ends = (
                sorted(metric.better * change[end] for end in ("low", "high")) if change and metric.better else (0, 0)
            )
            label = f"{measure_name}: {metric.label.partition(',')[0]}"
            better += [label] * (ends[0] > 0)
            decided |= ends[0] > 0 and (measure_name, key) == DECISIVE
            worse += [label] * (ends[1] < 0)
    reasons = [f"{word} in {' and '.join(labels)}" for word, labels in (("better", better), ("worse", worse)) if labels]
    beats = "beats" if decided and not worse else "does not beat"
    return f"{model} {beats} {REFERENCE}: {'; '.join(reasons) or 'no difference is beyond chance'}."


def page(title: str, sizes: Mapping[str, str], figures: Mapping[str, Mapping[str, Any]]) -> str:
    """The table of all measures."""
    lines = [title, "", " " * 42 + "".join(head.rjust(24) for head in ("model", "reference", "difference"))]
    for measure_name, rows in figures.items():
        lines.append(f"{measure_name}, {sizes[measure_name]}")
        for row in rows.values():
            cells = [
                quality.spanned(row[what], row["scale"], form)
                for what, form in (("model", "{:.1f}"), ("reference", "{:.1f}"), ("difference", "{:+.1f}"))
            ]
            lines.append(f"  {row['label']}".ljust(42) + "".join(cell.rjust(24) for cell in cells))
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks judge`."""
    parser.add_argument("model", metavar="MODEL", help=f"model to judge beside {REFERENCE}")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], dest="assignments", help="any setting of MODEL"
    )


def main(options: argparse.Namespace) -> int:
    """Exit code 0, whatever the judgement."""
    own = {**dict(map(settings_of.from_words, options.assignments)), "model": options.model}
    own["model"] = model = auto_choice.auto(settings_of.load(own))[0].name
    if own == {"model": REFERENCE}:
        raise InputError(f"{REFERENCE} is the reference itself: name another model, or a setting.")
    both = {"model": own, "reference": {"model": REFERENCE}}
    tasks, about, counts, recordings = parts(), {}, {}, {}
    for who, values in both.items():
        about[who], counts[who] = measure(settings_of.load(values), tasks)
        gc.collect()  # its weights, before the next model's
    for who, values in both.items():
        recordings[who] = recordings_of(settings_of.load({**SETTINGS, **values}), tasks, about[who])
        counts[who]["economy"] = typing_counts(recordings[who])
    figures = compared(counts["model"], counts["reference"])
    title = f"{about['model']}, beside {about['reference']}"
    sentence = verdict(about["model"], figures)
    curve, source = curve_of(recordings["model"], model)
    print(page(title, tasks.sizes(), figures))
    print(f"\nFor CURVES of speclsp/lsp/completion/confidence.py:\n\n{source}")
    print(f"\n{sentence}")
    summary = {
        "pair": model,
        **about,
        "settings": changes(settings_of.load(own)),
        "sizes": tasks.sizes(),
        "seed": bootstrap.SEED,
        "draws": bootstrap.DRAWS,
        "measures": figures,
        "curve": curve,
        "verdict": sentence,
    }
    print(f"wrote {results_file.write('judge', summary, f'judge-{Path(model).name}')}")
    return 0
