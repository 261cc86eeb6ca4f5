"""Other engines beside speclsp: the same weights, prompts, lengths and threads, greedy, in one run that takes turns.

    python -m benchmarks peers --model qwen2.5-coder-0.5b-instruct [--peers openvino,llama.cpp] [--tune]

    holes ─► token ids ─► [ each peer in each of its modes: cold, then one token more and warm ]*hole ─► ratios

Every engine gets the same token ids, without token healing or adapter, and continues through an end of text.
Cold: nothing of the prompt is cached. Warm: the same prompt and one more token, through the peer's own prefix cache.
Only one process runs at a time; the others are stopped. Engines that do not fit into memory together are measured in
groups, with speclsp again in each. `--tune` finds each peer's best settings among drivers/candidates.json, on other
holes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import model_options, results_file
from benchmarks.peers.bench import OTHERS, TUNING_SEED, Bench, say
from benchmarks.peers.driver_process import DRIVERS, PeerError
from benchmarks.peers.figures import Way, against, facts
from speclsp.config import Config
from speclsp.engine.loading.load_plan import pick_format
from speclsp.errors import ConfigError
from speclsp.weights import auto_choice
from speclsp.weights.cards import Card

HOLES, TUNING_HOLES = 10, 3
QUIET_LOAD = 0.7  # a higher load average comes from other processes

Settings = dict[str, Any]


# ── the command ──────────────────────────────────────────────────────────────────────────────────────────────


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--model and --set, as every benchmark; which peers, how much, and the sweep."""
    model_options.add_arguments(parser)
    parser.add_argument(
        "--peers", metavar="NAMES", default=",".join(OTHERS), help=f"comma-separated, of {', '.join(OTHERS)}"
    )
    parser.add_argument("--modes", metavar="NAMES", help="comma-separated modes of the peers (default: all)")
    parser.add_argument("--holes", metavar="N", type=int, help=f"prompts (default: {HOLES}; sweep: {TUNING_HOLES})")
    parser.add_argument("--tokens", metavar="N", type=int, default=32, help="new tokens of each run (default: 32)")
    parser.add_argument("--threads", metavar="N", type=int, help="for every engine (default: all cores)")
    parser.add_argument("--name", default="", help="added to the result's name, for a run beside the main one")
    parser.add_argument("--tune", action="store_true", help="the sweep that finds each peer's best settings")


def main(options: argparse.Namespace) -> int:
    """Measure each model; exit code 1 if a requested peer could not be measured."""
    names = [name for name in options.peers.split(",") if name]
    for name in names:
        if name not in OTHERS:
            raise ConfigError("--peers", name, f"any of {', '.join(OTHERS)}")
    for name in ("holes", "tokens", "threads"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            raise ConfigError(f"--{name}", getattr(options, name), "a whole number, 1 or more")
    measure = sweep if options.tune else compare
    return max([measure(options, settings, names) for settings in model_options.settings(options)])


def compare(options: argparse.Namespace, settings: Config, names: Sequence[str]) -> int:
    """The comparison for one model: run, written, printed."""
    bench = Bench.of(options, settings)
    holes = bench.holes(options.holes or HOLES)
    tuning = read_tuning(bench.card.name)
    ours = [Way("speclsp", mode, best) for mode, best in chosen("speclsp", bench.card, {}).items()]
    theirs: list[Way] = []
    missing: dict[str, str] = {}
    wanted = options.modes.split(",") if options.modes else None
    for name in names:
        modes = {mode: best for mode, best in chosen(name, bench.card, tuning).items() if not wanted or mode in wanted}
        if why := bench.not_installed(name):
            missing[name] = why
        else:
            theirs += [Way(name, mode, best) for mode, best in modes.items()]
    started_load = os.getloadavg()
    if started_load[0] > QUIET_LOAD:
        say(f"other programs are running (load {started_load[0]:.1f}): they take part in every figure")
    groups = bench.run(ours, theirs, holes)
    if broken := next((way for way in ours if way.failed), None):
        raise PeerError(broken.failed)
    missing |= {way.name: way.failed for way in theirs if way.failed}
    wanted, card = settings.engine.quantization, bench.card
    figures = {
        "pair": bench.card.name,
        "quantization": pick_format(wanted, "cpu", auto_choice.prefers_int4(card)),
        "settings": bench.assignments,
        "new_tokens": options.tokens,
        "prompt_tokens": [len(hole.ids) for hole in holes],
        "threads": bench.threads,
        "load_average_before": started_load,
        "groups": groups,
        "not_measured": {name: why.replace(str(Path.home()), "~") for name, why in missing.items()},
        "against_the_best_peer": against(ours[-1], [way for way in theirs if not way.failed]),
        "ways": {way.name: facts(way, ours[0], bench.stops) for way in (*ours, *theirs) if not way.failed},
    }
    words = (card.name, wanted.removeprefix("auto"), options.name, results_file.cpu_kind())
    name = "-".join(word for word in words if word)
    file = results_file.write("peers", figures, f"peers-{name}")
    runs = {way.name: way.timings() for way in (*ours, *theirs) if not way.failed}
    results_file.write_raw(f"peers-{bench.card.name}-runs", runs)
    say(results_file.as_text(figures))
    say(f"written to {file}")
    return 1 if missing else 0


def sweep(options: argparse.Namespace, settings: Config, names: Sequence[str]) -> int:
    """Measure each peer's candidate settings on a few other holes; `compare` uses the best of each mode."""
    bench = Bench.of(options, settings)
    holes = bench.holes(options.holes or TUNING_HOLES, TUNING_SEED)
    figures: dict[str, Any] = {"pair": bench.card.name, "holes": len(holes), "peers": {}, "not_tuned": {}}
    figures["peers"] |= read_tuning(bench.card.name)
    for name in names:
        if why := bench.not_installed(name):
            figures["not_tuned"][name] = why
            continue
        ways = [
            Way(name, f"{mode}#{number}", candidate)
            for mode, candidates in candidates_of(name, bench.card).items()
            for number, candidate in enumerate(candidates)
        ]
        bench.run([], ways, holes)
        figures["peers"][name] = {}
        for way in ways:
            mode = way.mode.split("#")[0]
            row: dict[str, Any] = {"settings": way.settings}
            if way.failed:
                row["failed"] = way.failed
            else:
                row |= {kind: round(statistics.median(way.values(kind, "total_ms")), 1) for kind in way.runs}
            figures["peers"][name].setdefault(mode, []).append(row)
            say(f"{way.name}: {row.get('cold', row.get('failed'))} cold, {row.get('warm', '-')} warm {way.settings}")
        say(f"written to {results_file.write('peers-tuning', figures, name=tuning_name(bench.card.name))}")
    return 1 if figures["not_tuned"] else 0


# ── what is compared ─────────────────────────────────────────────────────────────────────────────────────────


def candidates_of(peer: str, card: Card) -> dict[str, list[Settings]]:
    """{mode: settings worth trying}; without a draft model there is no such mode."""
    every: dict[str, dict[str, list[Settings]]] = json.loads((DRIVERS / "candidates.json").read_text())
    return {mode: candidates for mode, candidates in every[peer].items() if card.draft or not mode.startswith("draft")}


def read_tuning(model: str) -> dict[str, Any]:
    """{peer: {mode: [{"settings", "cold", "warm", ...}]}} as the sweep left it; empty before the first."""
    file = results_file.RESULTS / f"{tuning_name(model)}.json"
    tuning: dict[str, Any] = json.loads(file.read_text())["peers"] if file.is_file() else {}
    return tuning


def tuning_name(model: str) -> str:
    """The sweep's result. The best settings differ between kinds of CPU."""
    return f"peers-tuning-{model}-{results_file.cpu_kind()}"


def chosen(peer: str, card: Card, tuning: Mapping[str, Any]) -> dict[str, Settings]:
    """{mode: the candidate that was fastest, cold and warm together}; the first one where nothing was tried."""
    best = {}
    for mode, candidates in candidates_of(peer, card).items():
        tried = [row for row in tuning.get(peer, {}).get(mode, []) if "cold" in row and row["settings"] in candidates]
        best[mode] = min(tried, key=lambda row: row["cold"] + row["warm"])["settings"] if tried else candidates[0]
    return best
