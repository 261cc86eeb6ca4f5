"""Waterfall of one computed suggestion: where the time from a key to the reply goes, stage by stage.

    python -m benchmarks waterfall --model NAME [--minutes N]

    editor ─► language server ─► engine ─► language server ─► editor

The typing traces of `keystrokes` are replayed against a language server and an engine that note the time at each stage
(timed_process.py). A stage lasts from one stamp to the next, so the stages add up to the whole. Only requests that ran
through all stages count: an answer from the cache, or from a running stream, has no such path. No key is pressed before
the answer to the one before, so that the share of overtaken requests does not choose which requests count.
Writes benchmarks/results/waterfall-<model>.json.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import model_options, results_file
from benchmarks.keystrokes.figures import by_request, mean, of_model, quantile
from benchmarks.keystrokes.keystrokes import ROOT, chosen, fetched, recordings, type_all
from benchmarks.keystrokes.language_server import serving
from benchmarks.keystrokes.replay_editor import Press
from benchmarks.speed.waterfall import timed_process
from speclsp.cli import terminal
from speclsp.config import Config, changes
from speclsp.errors import InputError

USUAL_MINUTES = 3.0
STAGES = (  # a stage, and the stamp that ends it; each begins at the end of the one before
    ("read the edit", "change received"),
    ("document sync", "change handled"),
    ("dispatch", "turn"),
    ("parse, plan", "parsed"),
    ("context", "context built"),
    ("request build", "posted"),
    ("HTTP to engine", "body read"),
    ("request parse", "submitted"),
    ("queue", "begun"),
    ("tokens, healing", "tokens made"),
    ("first pass", "first round"),
    ("further rounds", "last round"),
    ("event back", "stream ended"),
    ("postprocess, filters", "answered"),
    ("reply", "replied"),
    ("write to the editor", "heard"),
)
COMPUTING = ("first pass", "further rounds")


@dataclass(frozen=True, slots=True)
class Stamp:
    """One stamp: the system's monotonic clock, and the processor time of the thread that made it."""

    at_s: float
    thread: int = 0
    processor_s: float = 0.0


Stamps = Mapping[str, Mapping[str, Sequence[Stamp]]]  # {name: {key as JSON: stamps in order}}


def read_stamps(folder: Path) -> tuple[Stamps, dict[str, str]]:
    """The stamps of all processes, and {editor's request: key of its HTTP body}, both keys as JSON."""
    stamps: dict[str, dict[str, list[Stamp]]] = defaultdict(lambda: defaultdict(list))
    bodies = {}
    for file in folder.glob("*.jsonl"):
        for line in file.read_text().splitlines():
            name, key, *rest = json.loads(line)
            if name == "body":
                bodies[json.dumps(key[0])] = json.dumps(key[1])
            else:
                stamps[name][json.dumps(key)].append(Stamp(*rest))
    return stamps, bodies


def way_of(press: Press, stamps: Stamps, body: str) -> dict[str, Stamp] | None:
    """The stamps of one request; None where a stage is missing."""

    def all_of(name: str, key: str) -> list[Stamp]:
        return [stamp for stamp in stamps[name].get(key, ()) if press.sent_s <= stamp.at_s <= press.heard_s]

    number, change = json.dumps(press.number), json.dumps([press.uri, press.version])
    way = {"sent": [Stamp(press.sent_s)], "heard": [Stamp(press.heard_s)]}
    for name in ("received", "handled"):
        way[f"change {name}"] = all_of(name, change) or all_of(name, number)
    way |= {name: all_of(name, number) for name in ("turn", "parsed", "context built", "posted")}
    way |= {name: all_of(name, number) for name in ("stream ended", "answered", "replied")}
    way |= {name: all_of(name, body) for name in ("body read", "submitted", "begun", "tokens made")}
    ended = way["stream ended"][:1]
    rounds = [stamp for stamp in all_of("round", body) if ended and stamp.at_s <= ended[0].at_s]
    way |= {"first round": rounds, "last round": rounds[-1:]}
    return {name: found[0] for name, found in way.items()} if all(way.values()) else None


def stages_of(way: Mapping[str, Stamp]) -> dict[str, tuple[float, float | None]]:
    """Milliseconds of each stage, and of the processor where one thread did all of it."""
    ends, stages = [way["sent"], *(way[stamp] for _, stamp in STAGES)], {}
    for (name, _), before, after in zip(STAGES, ends, ends[1:], strict=False):
        processor_ms = (after.processor_s - before.processor_s) * 1000 if after.thread == before.thread else None
        stages[name] = (after.at_s - before.at_s) * 1000, processor_ms
    return stages


def summary(ms: Sequence[float]) -> dict[str, float | None]:
    """Median, 95th percentile and mean."""
    return {"p50_ms": quantile(ms, 0.5), "p95_ms": quantile(ms, 0.95), "mean_ms": round(mean(ms), 2)}


def figures_of(ways: Sequence[Mapping[str, Stamp]], traces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Median, 95th percentile and mean of each stage, and of the whole. `traces`: of the same requests."""
    requests = [stages_of(way) for way in ways]
    rows = {}
    for name, _ in STAGES:
        processor_ms = [stages[name][1] for stages in requests]
        known_ms = [ms for ms in processor_ms if ms is not None]
        rows[name] = summary([stages[name][0] for stages in requests])
        rows[name]["processor_p50_ms"] = quantile(known_ms, 0.5) if len(known_ms) == len(requests) else None
    whole = [[(name, ms) for name, (ms, _) in stages.items()] for stages in requests]
    rows["all stages"] = summary([sum(ms for _, ms in stages) for stages in whole])
    rows["all but computing"] = summary([sum(ms for name, ms in stages if name not in COMPUTING) for stages in whole])
    new_tokens = [trace["prompt_tokens"] - trace["cached_tokens"] for trace in traces]
    rounds = [trace["rounds"] for trace in traces]
    return {
        "requests": len(ways),
        "new_prompt_tokens": {"p50": quantile(new_tokens, 0.5), "p95": quantile(new_tokens, 0.95)},
        "rounds": {"p50": quantile(rounds, 0.5), "p95": quantile(rounds, 0.95)},
        "stages": rows,
    }


def bench(settings: Config, minutes: float, hurried: bool) -> None:
    """Replay, print the table, write the JSON."""
    plan, load_average = chosen(recordings(), minutes), os.getloadavg()
    with terminal.progress() as bar, tempfile.TemporaryDirectory(prefix="speclsp-") as folder:
        model = fetched(settings, bar)
        os.environ[timed_process.FOLDER] = folder
        with serving(settings, (timed_process.MODULE,)) as server:
            server.begin(ROOT)
            typed = type_all(server, plan, bar, patient=not hurried)
            server.end()
            traces = server.traces()
        stamps, bodies = read_stamps(Path(folder))
    presses = [press for run in typed for press in run.presses]
    traced = by_request(presses, traces)
    modelled = [press for press in presses if of_model(press, traced)]
    ways, ours = [], []
    for press in modelled:
        body = bodies.get(json.dumps(press.number))
        way = way_of(press, stamps, body) if body is not None and not traced[press.number]["adopted"] else None
        if way is not None:
            ways.append(way)
            ours.append(traced[press.number])
    figures = {
        "pair": model,
        "settings": changes(settings),
        "minutes": minutes,
        "hurried": hurried,
        "load_average_before": load_average,
        "of_the_model": len(modelled),
    }
    figures |= figures_of(ways, ours)
    show(figures)
    print(f"wrote {results_file.write('waterfall', figures, name=f'waterfall-{model}')}", flush=True)


def show(figures: Mapping[str, Any]) -> None:
    """The table."""
    count, of_the_model = figures["requests"], figures["of_the_model"]
    print(f"load average before: {figures['load_average_before'][0]:.1f}")
    print(f"{figures['pair']}: {count} requests through all stages, of {of_the_model} suggestions of the model")
    print(f"{'':42}{'p50 ms':>9}{'p95 ms':>9}{'mean ms':>9}{'processor p50':>15}")
    for name, row in figures["stages"].items():
        times = (row["p50_ms"], row["p95_ms"], row["mean_ms"], row.get("processor_p50_ms"))
        cells = ["-" if ms is None else f"{ms:.2f}" for ms in times]
        print(f"{name:42}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells, (9, 9, 9, 15), strict=True)))
    print(f"prompt tokens of the first pass: {figures['new_prompt_tokens']}; rounds: {figures['rounds']}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks waterfall`."""
    model_options.add_arguments(parser)
    parser.add_argument(
        "--minutes",
        metavar="N",
        type=float,
        default=USUAL_MINUTES,
        help=f"of typing, spread over all languages (default: {USUAL_MINUTES:g})",
    )
    parser.add_argument("--hurried", action="store_true", help="press keys in time, before an answer if it is late")


def main(options: argparse.Namespace) -> int:
    """Exit code 0."""
    if not options.minutes > 0:
        raise InputError(f"--minutes {options.minutes:g}: expected a number above 0.")
    for setting in model_options.settings(options):
        bench(setting, options.minutes, options.hurried)
    return 0
