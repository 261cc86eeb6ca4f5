"""Economy of suggestions: keys saved of 100, and wrong suggestions per 100 keys, while functions are typed again.

    python -m benchmarks economy [--model P] [--bodies N] [--live N] [--peer N] [--join]

    bodies.py      function bodies of packages from 2026, which no training reads
    recording.py   types each of them once over LSP, and records every candidate before the gate
    replay.py      types them again over the recording, under any policy, with the person of person.py
    policies.py    the product's value, its settings, and the product before it had a value
    peer.py        llama.vscode's requests and filters, on the same engine
    live.py        the check: some bodies typed live, against the replay of the same ones

A policy is judged with weights from packages that are not the body's own. The recording is kept in the user's cache,
so a second run with other policies takes a minute. Writes benchmarks/results/economy-<model>.json.

`--join` judges further lines that join a first line, or stand ready for the next Tab. They come from a second
recording, with `completion.multiline = "always"`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from benchmarks import model_options, results_file
from benchmarks.keystrokes.economy import figures
from benchmarks.keystrokes.economy.bodies import Body, bodies
from benchmarks.keystrokes.economy.figures import Typed
from benchmarks.keystrokes.economy.live import live
from benchmarks.keystrokes.economy.peer import peer
from benchmarks.keystrokes.economy.policies import Judged, by_confidence, by_share, by_value, judge
from benchmarks.keystrokes.economy.recording import Recording, record
from benchmarks.keystrokes.economy.replay import AFTER_ACCEPTING, EVERYWHERE, PAUSES, Policy, replay, replay_joined
from benchmarks.keystrokes.economy.typing import SETTINGS
from benchmarks.quality.calibration.examples import examples
from benchmarks.quality.calibration.fit import USED, fit, halves
from benchmarks.quality.scoring import bootstrap
from benchmarks.quality.tasks import packages as corpus
from speclsp.cli import terminal
from speclsp.config import Config, changes
from speclsp.lsp.completion.confidence import COSTS, Cost, Curve, curve_of
from speclsp.weights import auto_choice

USUAL_BODIES = 60
BEFORE = 0.006  # the threshold of the product before
SHARES = (0.0, BEFORE, 0.03, 0.06, 0.1, 0.2, 0.3)
ONCE = (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24)  # characters that a wrong suggestion costs
CONFIDENCES = (0.05, 0.1, 0.2, 0.3, 0.5)
PEER = "llama.vscode"
JOINED = {  # where the further lines are there
    "ready after Tab": (AFTER_ACCEPTING,),
    "joined at pauses, ready after Tab": (PAUSES, AFTER_ACCEPTING),
    "joined everywhere": (EVERYWHERE,),
}


def crossed_curves(recordings: Sequence[Recording]) -> dict[str, Curve]:
    """For each package, a curve from the packages of the other half."""
    first, later = examples(recordings)
    half = halves([recording.body.package for recording in recordings])
    curves = [
        Curve(
            first=fit([example for example in first if half[example.package] != fold], USED),
            later=fit([example for example in later if half[example.package] != fold], USED),
            expected=0.5,
        )
        for fold in (0, 1)
    ]
    return {package: curves[fold] for package, fold in half.items()}


def typed(recordings: Sequence[Recording], policies: Sequence[Policy]) -> list[Typed]:
    """The counts of each body under its policy."""
    return [
        (replay(recording, policy), replay(recording, policy, accepts=False))
        for recording, policy in zip(recordings, policies, strict=True)
    ]


def all_policies(judged: Sequence[Judged]) -> dict[str, list[Policy]]:
    """Every policy that is compared, by name: one for each body."""

    def for_every_body(make: Callable[[Judged], Policy]) -> list[Policy]:
        return [make(values) for values in judged]

    named = {f"before, share {least:g}": [by_share(least)] * len(judged) for least in SHARES}
    for once in ONCE:
        cost = Cost(float(once), COSTS["medium"].each_line * (once > 0))
        named[f"cost {once}"] = for_every_body(lambda values, cost=cost: by_value(values, cost))  # type: ignore[misc]
    for least in CONFIDENCES:
        named[f"min_confidence {least:g}"] = for_every_body(lambda values, least=least: by_confidence(values, least))  # type: ignore[misc]
    for name, cost in COSTS.items():
        named[name] = for_every_body(lambda values, cost=cost: by_value(values, cost))  # type: ignore[misc]
    return named


def compare(recordings: Sequence[Recording], curves: Mapping[str, Curve]) -> dict[str, Any]:
    """The figures of all policies over all bodies, and of the usual ones by language."""
    body_list = [recording.body for recording in recordings]
    judged = [judge(recording, curves[recording.body.package]) for recording in recordings]
    walks = {name: typed(recordings, policies) for name, policies in all_policies(judged).items()}
    base = walks[f"before, share {BEFORE:g}"]
    return {
        "policies": {name: figures.of_policy(counts, base) for name, counts in walks.items()},
        "languages": {
            name: figures.by_language(body_list, walks[name]) for name in (f"before, share {BEFORE:g}", *COSTS)
        },
    }


def beside_peer(config: Config, recordings: Sequence[Recording], curves: Mapping[str, Curve]) -> dict[str, Any]:
    """llama.vscode, and ours on the same bodies."""
    walks = {PEER: peer(config, [recording.body for recording in recordings])}
    judged = [judge(recording, curves[recording.body.package]) for recording in recordings]
    policies = all_policies(judged)
    for name in (f"before, share {BEFORE:g}", "medium"):
        walks[name] = typed(recordings, policies[name])
    drawn = bootstrap.draws(len(recordings))
    counts = [
        [
            (figures.column(walks[name], above), figures.column(walks[name], below))
            for above, below in figures.FIGURES.values()
        ]
        for name in ("medium", PEER)
    ]
    change = {
        figure: interval.json()
        for figure, ours, theirs in zip(figures.FIGURES, *counts, strict=True)
        if (interval := bootstrap.difference(ours, theirs, drawn)) is not None
    }
    rows = {name: figures.of_policy(counts_of) for name, counts_of in walks.items()}
    return {"bodies": len(recordings), "policies": rows, "medium_less_peer": change}


def joined(
    recordings: Sequence[Recording], longer: Sequence[Recording], curves: Mapping[str, Curve]
) -> dict[str, dict[str, Any]]:
    """The figures of further lines that join the first one, and their differences from the first line alone."""
    result = {}
    for eagerness in ("medium", "high"):
        policies, longer_policies = (
            [by_value(judge(recording, curves[recording.body.package]), COSTS[eagerness]) for recording in recorded]
            for recorded in (recordings, longer)
        )
        alone = typed(recordings, policies)
        result[eagerness] = figures.of_policy(alone, alone)
        for name, ways in JOINED.items():
            walks = [
                (replay_joined(*recorded, ways), replay_joined(*recorded, ways, accepts=False))
                for recorded in zip(recordings, longer, policies, longer_policies, strict=True)
            ]
            result[f"{eagerness}, {name}"] = figures.of_policy(walks, alone)
    return result


def check_live(config: Config, recordings: Sequence[Recording], curve: Curve, eagerness: str) -> list[dict[str, Any]]:
    """For each body, the counts of a live run and of the replay under the same curve."""
    policies = [by_value(judge(recording, curve), COSTS[eagerness]) for recording in recordings]
    replayed = [replay(recording, policy) for recording, policy in zip(recordings, policies, strict=True)]
    ran = live(config, [recording.body for recording in recordings])
    return [
        {"body": recording.body.id, "live": asdict(one), "replay": asdict(other)}
        for recording, one, other in zip(recordings, ran, replayed, strict=True)
    ]


def bench(config: Config, options: argparse.Namespace) -> None:
    """Record what is missing, replay all policies, print the table, write the JSON."""
    model = auto_choice.auto(config)[0].name
    with terminal.progress() as bar:
        packages = corpus.fetch(lambda done, total: bar.bytes(done, total, "fetching packages"))
        body_list: list[Body] = bodies(packages, options.bodies)

        def progress(done: int, total: int) -> None:
            bar.show("typing", done / total, f"{done} of {total} bodies")

        recordings = record(config, body_list, progress)
        longer = record(with_several_lines(config), body_list, progress) if options.join else []
    curves = crossed_curves(recordings)
    result = compare(recordings, curves)
    print(figures.table(result["policies"]))
    for name, rows in result["languages"].items():
        print(f"\n{name}\n{figures.table(rows)}")
    if longer:
        result["joined"] = joined(recordings, longer, curves)
        print(f"\nfurther lines\n{figures.table(result['joined'])}\n{figures.changes_table(result['joined'])}")
    if options.peer:
        result["peer"] = beside_peer(config, recordings[: options.peer], curves)
        print(f"\non {options.peer} bodies\n{figures.table(result['peer']['policies'])}")
    curve = curve_of(model)
    if options.live and curve is not None:
        result["live"] = check_live(config, recordings[: options.live], curve, config.completion.eagerness)
        for row in result["live"]:
            print(row)
    about = {
        "pair": model,
        "settings": changes(config),
        "bodies": len(recordings),
        "packages": len({recording.body.package for recording in recordings}),
        "keys": sum(len(recording.body.keys) for recording in recordings),
        "recording_s": round(sum(recording.seconds for recording in recordings)),
        "costs": {name: cost._asdict() for name, cost in COSTS.items()},
    }
    part = [] if options.bodies == USUAL_BODIES else [str(options.bodies)]
    otherwise = [words.rpartition(".")[2].replace("=", "-") for words in options.assignments]
    name = "-".join(["economy", *part, *otherwise, model])
    print(f"\nwrote {results_file.write('economy', {**about, **result}, name)}")


def with_several_lines(config: Config) -> Config:
    """The settings of the recording with several lines everywhere."""
    return replace(config, completion=replace(config.completion, multiline="always"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks economy`."""
    model_options.add_arguments(parser)
    parser.add_argument(
        "--bodies", metavar="N", type=int, default=USUAL_BODIES, help=f"bodies (default: {USUAL_BODIES})"
    )
    parser.add_argument("--live", metavar="N", type=int, default=0, help="bodies typed live too (default: none)")
    parser.add_argument("--join", action="store_true", help="judge further lines that join a first line, too")
    parser.add_argument(
        "--peer", metavar="N", type=int, default=0, help=f"bodies typed with {PEER} too (default: none)"
    )


def main(options: argparse.Namespace) -> int:
    """Exit code 0."""
    for config in model_options.settings(options, SETTINGS):
        bench(config, options)
    return 0
