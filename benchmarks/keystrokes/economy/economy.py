"""Economy of suggestions: keys saved of 100, and wrong suggestions per 100 keys, while functions are typed again.

    python -m benchmarks economy [--model P] [--bodies N] [--peer N] [--timed N]

    bodies.py      function bodies of packages from 2026, which no training reads
    recording.py   types each of them once over LSP, and records every candidate before the gate
    clock.py       the time between their keys
    person.py      the persons who type them: reader, typist, word taker
    replay.py      types them again over the recording, under any policy, with any of the persons
    policies.py    the product's value, by any bar
    peer.py        llama.vscode's requests and filters, on the same engine

It also fits the model's confidence curve (benchmarks/quality/calibration). A policy is judged with weights from
packages that are not the body's own. The costs are chosen on one half of the packages and judged on the other. The
recording is kept in the user's cache, so a second run takes a minute. Writes benchmarks/results/economy-<model>.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks import model_options, results_file
from benchmarks.keystrokes.economy import figures
from benchmarks.keystrokes.economy.bodies import Body, bodies
from benchmarks.keystrokes.economy.peer import peer
from benchmarks.keystrokes.economy.person import ONLOOKER, PERSONS, READER, Person
from benchmarks.keystrokes.economy.policies import Judged, by_value, judge
from benchmarks.keystrokes.economy.recording import Recording, record
from benchmarks.keystrokes.economy.replay import Counts, replay
from benchmarks.keystrokes.economy.typing import SETTINGS
from benchmarks.quality.calibration.calibration import calibrate, crossed_curves, source
from benchmarks.quality.calibration.fit import halves
from benchmarks.quality.tasks import packages as corpus
from speclsp.cli import terminal
from speclsp.config import Config, changes
from speclsp.lsp.completion.confidence import LEVELS, Bar
from speclsp.weights import auto_choice

USUAL_BODIES = 60
COSTS = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0, 16.0)  # that are compared, in characters
MOST_WRONG, MOST_SHOWN = 0.025, 0.6  # aims of "medium": wrong suggestions of a key, and share of pauses
SPEEDS = (0.5, 0.8, 1.0, 2.0, 4.0)  # of the machine, as multiples of this one
PEER = "llama.vscode"
PLAIN = {f"min_confidence {least:g}": Bar(least=least) for least in (0.1, 0.2, 0.3, 0.5)}
POLICIES: Mapping[str, Bar] = {"everything": Bar(), **LEVELS, **PLAIN}  # the bars that are compared
MEDIUM = LEVELS["medium"]


def typed(
    recordings: Sequence[Recording], judged: Sequence[Judged], bar: Bar, person: Person, speed: float = 0.0
) -> list[Counts]:
    """The counts of each body."""
    return [
        replay(recording, by_value(values, bar), person, speed)
        for recording, values in zip(recordings, judged, strict=True)
    ]


def compare(recordings: Sequence[Recording], judged: Sequence[Judged]) -> dict[str, Any]:
    """The figures of all policies for each person, and of the usual ones by language for the reader."""
    result: dict[str, Any] = {"persons": {}, "languages": {}}
    body_list = [recording.body for recording in recordings]
    for person in (*PERSONS, ONLOOKER):
        walks = {name: typed(recordings, judged, bar, person) for name, bar in POLICIES.items()}
        base = walks["everything"]
        result["persons"][person.name] = {name: figures.of_policy(counts, base) for name, counts in walks.items()}
        if person == READER:
            names = ("everything", "medium")
            result["languages"] = {name: figures.by_language(body_list, walks[name]) for name in names}
    return result


def chosen_costs(recordings: Sequence[Recording], judged: Sequence[Judged]) -> dict[str, Any]:
    """The cost of "medium" that each half of the packages chooses, and its figures on the other half.

    It saves the reader most keys among those that keep MOST_WRONG and MOST_SHOWN.
    """
    half = halves([recording.body.package for recording in recordings])
    walks = {cost: typed(recordings, judged, Bar(cost, MEDIUM.least), READER) for cost in COSTS}
    everything = typed(recordings, judged, Bar(), READER)
    result = {}
    for name, folds in {"first half": (0,), "second half": (1,), "all": (0, 1)}.items():

        def part(counts: Sequence[Counts], inside: bool, folds: tuple[int, ...] = folds) -> list[Counts]:
            return [
                count
                for count, recording in zip(counts, recordings, strict=True)
                if (half[recording.body.package] in folds) == inside
            ]

        cost = best_cost({cost: part(counts, True) for cost, counts in walks.items()})
        other = len(folds) == 1
        row = figures.of_policy(part(walks[cost], not other), part(everything, not other))
        result[name] = {"cost": cost, "judged_on": "the other half" if other else "itself", **row}
    return result


def best_cost(walks: Mapping[float, Sequence[Counts]]) -> float:
    """The cost within the aims that saves most keys; the one that shows least at pauses where none is."""
    shown = {cost: figures.ratio(counts, "shown_at_pauses") for cost, counts in walks.items()}
    within = [
        cost
        for cost, counts in walks.items()
        if shown[cost] <= MOST_SHOWN and figures.ratio(counts, "wrong_per_key") <= MOST_WRONG
    ]
    if not within:
        return min(shown, key=lambda cost: shown[cost])
    return max(within, key=lambda cost: (figures.ratio(walks[cost], "keys_saved"), -shown[cost]))


def in_real_time(recordings: Sequence[Recording], judged: Sequence[Judged]) -> dict[str, Any]:
    """The reader's figures with "medium", where a suggestion that comes after the next key is not shown."""
    at_once = typed(recordings, judged, MEDIUM, READER)
    rows = {"at once": figures.of_policy(at_once)}
    for speed in SPEEDS:
        rows[f"speed {speed:g}"] = figures.of_policy(typed(recordings, judged, MEDIUM, READER, speed), at_once)
    return rows


def beside_peer(config: Config, recordings: Sequence[Recording], judged: Sequence[Judged]) -> dict[str, Any]:
    """llama.vscode, and ours on the same bodies."""
    theirs = peer(config, [recording.body for recording in recordings], PERSONS)
    rows = {}
    for person in PERSONS:
        ours = typed(recordings, judged, MEDIUM, person)
        rows[f"{person.name}, medium"] = figures.of_policy(ours, theirs[person.name])
        rows[f"{person.name}, {PEER}"] = figures.of_policy(theirs[person.name])
    return {"bodies": len(recordings), "policies": rows}


def bench(config: Config, options: argparse.Namespace) -> None:
    """Record what is missing, replay all policies, print the tables, write the JSON."""
    model = auto_choice.auto(config)[0].name
    config = replace(config, model=model)  # a server that chooses by itself could take another one
    with terminal.progress() as bar:
        packages = corpus.fetch(lambda done, total: bar.bytes(done, total, "fetching packages"))
        body_list: list[Body] = bodies(packages, options.bodies)

        def progress(done: int, total: int) -> None:
            bar.show("typing", done / total, f"{done} of {total} bodies")

        recordings = record(config, body_list, progress)
        timed = record(config, body_list[: options.timed], progress, anew=True)
    curves = crossed_curves(recordings)
    judged = [judge(recording, curves[recording.body.package]) for recording in recordings]
    result = {**compare(recordings, judged), "curve": calibrate(recordings)}
    tables = {**result["persons"], **{f"reader, {name}": rows for name, rows in result["languages"].items()}}
    result["chosen"] = tables["costs chosen for medium"] = chosen_costs(recordings, judged)
    if timed:
        tables["reader in real time"] = in_real_time(timed, judged[: len(timed)])
        result["real_time"] = {"bodies": len(timed), "speeds": tables["reader in real time"]}
    if options.peer:
        result["peer"] = beside_peer(config, recordings[: options.peer], judged[: options.peer])
        tables[f"on {options.peer} bodies"] = result["peer"]["policies"]
    print(results_file.as_text(tables))
    print(*(f"{name}: {row['cost']}" for name, row in result["chosen"].items()), sep="\n")
    print(f"\nFor speclsp/lsp/completion/confidence.py:\n{source(result['curve'], model)}")
    about = {
        "pair": model,
        "settings": changes(config),
        "bodies": len(recordings),
        "packages": len({recording.body.package for recording in recordings}),
        "keys": sum(len(recording.body.keys) for recording in recordings),
        "recording_s": round(sum(recording.seconds for recording in recordings)),
        "levels": {name: level._asdict() for name, level in LEVELS.items()},
    }
    part = [] if options.bodies == USUAL_BODIES else [str(options.bodies)]
    otherwise = [words.rpartition(".")[2].replace("=", "-") for words in options.assignments]
    name = "-".join(["economy", *part, *otherwise, model])
    print(f"\nwrote {results_file.write('economy', {**about, **result}, name)}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks economy`."""
    model_options.add_arguments(parser)
    parser.add_argument(
        "--bodies", metavar="N", type=int, default=USUAL_BODIES, help=f"bodies (default: {USUAL_BODIES})"
    )
    parser.add_argument(
        "--timed", metavar="N", type=int, default=0, help="bodies recorded anew, for the figures in real time"
    )
    parser.add_argument(
        "--peer", metavar="N", type=int, default=0, help=f"bodies typed with {PEER} too (default: none)"
    )


def main(options: argparse.Namespace) -> int:
    """Exit code 0."""
    for config in model_options.settings(options, SETTINGS):
        bench(config, options)
    return 0
