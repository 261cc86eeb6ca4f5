"""Cost of next edits at the keys: the same typing without and with them, in turn, compared key by key.

    python -m benchmarks next-edit-cost --model NAME [--minutes 1] [--runs 4]

    along    answers to keys that agree with the suggestion on screen
    all      answers that came before the next key

A key counts if it was answered in every run. The ratio of a pair of runs is the median over the keys of with / without.
A machine's speed drifts from run to run by more than next edits cost, so the ratios of all pairs are shown: their
spread is the precision of this benchmark. Writes benchmarks/results/next-edit-cost-<pair>.json.
"""

from __future__ import annotations

import argparse
import gc
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import model_options, results_file
from benchmarks.keystrokes.keystrokes import ROOT, chosen, fetched, recordings, type_all
from benchmarks.keystrokes.language_server import serving
from benchmarks.keystrokes.recording import Recording
from benchmarks.keystrokes.replay_editor import Press
from speclsp.cli import terminal
from speclsp.config import Config
from speclsp.errors import InputError

MINUTES, RUNS = 1.0, 4
ARMS = (False, True)  # without next edits, with them

Key = tuple[str, int, str]  # document, its version, kind of the key
Presses = Mapping[Key, Press]


def typed(settings: Config, plan: Sequence[tuple[Recording, float]], next_edits: bool) -> Presses:
    """One run of the recordings against a server of its own."""
    with terminal.progress() as bar, serving(settings) as server:
        server.begin(ROOT)
        gc.freeze()  # a collection of the imports' objects would delay keys
        runs = type_all(server, plan, bar, next_edits)
        server.end()
    return {(press.uri, press.version, press.kind): press for run in runs for press in run.presses}


def compared(without: Sequence[Presses], with_edits: Sequence[Presses]) -> dict[str, Any]:
    """The times of both arms, of the keys that all runs have. Run n of an arm is paired with run n of the other."""
    runs = [*without, *with_edits]
    keys = [key for key in runs[0] if all(key in run and run[key].fresh for run in runs)]
    along = [key for key in keys if all(run[key].along for run in runs)]
    return {
        name: {
            "keys": len(of_kind),
            "without_ms": [median_ms(run, of_kind) for run in without],
            "with_ms": [median_ms(run, of_kind) for run in with_edits],
            **ratios([median_ratio(*pair, of_kind) for pair in zip(without, with_edits, strict=True)]),
        }
        for name, of_kind in (("along", along), ("all", keys))
        if of_kind
    }


def median_ms(run: Presses, keys: Sequence[Key]) -> float:
    """The median time of the answers to some keys."""
    return round(statistics.median(run[key].answer_ms for key in keys), 3)


def median_ratio(without: Presses, with_edits: Presses, keys: Sequence[Key]) -> float:
    """The median of with / without over the keys."""
    return statistics.median(with_edits[key].answer_ms / without[key].answer_ms for key in keys)


def ratios(pairs_of_runs: Sequence[float]) -> dict[str, Any]:
    """The ratio of each pair of runs, and their geometric mean."""
    return {
        "ratio": round(statistics.geometric_mean(pairs_of_runs), 4),
        "ratios": [round(ratio, 4) for ratio in pairs_of_runs],
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks next-edit-cost`."""
    model_options.add_arguments(parser)
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"of typing in a run (default: {MINUTES:g})")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"of each arm (default: {RUNS})")


def main(options: argparse.Namespace) -> int:
    """Exit code 0. Raises InputError, SpeclspError."""
    if not options.minutes > 0 or options.runs < 1:
        raise InputError(f"--minutes {options.minutes:g} --runs {options.runs}: expected numbers above 0.")
    plan = chosen(recordings(), options.minutes)
    for settings in model_options.settings(options):
        with terminal.progress() as bar:
            model_name = fetched(settings, bar)
        runs: dict[bool, list[Presses]] = {arm: [] for arm in ARMS}
        for number in range(options.runs):
            for arm in ARMS if number % 2 == 0 else ARMS[::-1]:  # neither arm is always the later one
                runs[arm].append(typed(settings, plan, arm))
        figures = compared(runs[False], runs[True])
        for name, row in figures.items():
            print(f"{name}: " + "  ".join(f"{key} {value}" for key, value in row.items()))
        summary = {"pair": model_name, "minutes": options.minutes, "runs": options.runs, **figures}
        print(f"wrote {results_file.write('next-edit-cost', summary, f'next-edit-cost-{model_name}')}")
    return 0
