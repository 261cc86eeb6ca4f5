"""Other engines beside speclsp: the same weights, prompts, lengths and threads, greedy, in one run that takes turns.

    python -m benchmarks peers --model qwen2.5-coder-0.5b-instruct [--peers openvino,llama.cpp] [--quick | --tune]

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
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import model_options, results_file
from benchmarks.peers.driver_process import DRIVERS, PeerError, PeerProcess, peer_dir, peers_dir, python_of
from benchmarks.peers.figures import Way, against, facts, show
from benchmarks.peers.reference import bf16_folder, bf16_way
from benchmarks.speed.holes import holes_and_rests
from speclsp import config, process_resources
from speclsp.config import Config
from speclsp.engine.loading.loading import pick_format
from speclsp.errors import ConfigError
from speclsp.weights import auto_choice, store
from speclsp.weights.cards import Card, Weights

CONTEXT_LINES = 44  # about 550 prompt tokens
HOLES, QUICK_HOLES, TUNING_HOLES, TUNING_SEED = 10, 3, 3, 21
RESERVE_MIB = 2048  # left to the system
QUIET_LOAD = 0.7  # a higher load average comes from other processes

Settings = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Peer:
    """Recipe to run a peer. Memory is an estimate, used to decide which peers are loaded together."""

    driver: str
    models: str  # where a model is, of {root} and {name}; "": our own safetensors
    bytes_per_parameter: float
    base_mib: int
    own_process: bool = False  # for each mode; otherwise one process holds all modes
    shares_weights: bool = False  # among the modes of a process


PEERS = {
    "speclsp": Peer("speclsp_driver.py", "", 2.2, 900, shares_weights=True),
    "openvino": Peer("openvino_driver.py", "{root}/models/{name}", 1.3, 500),
    "vllm": Peer("vllm_driver.py", "", 2.1, 3400, own_process=True),
    "llama.cpp": Peer("llama_driver.py", "{root}/models/{name}", 1.2, 150),
    "ik_llama.cpp": Peer("ik_llama_driver.py", "{root}/models/{name}", 1.2, 150),
    "transformers": Peer("transformers_driver.py", "", 2.1, 700, shares_weights=True),
}
OTHERS = [name for name in PEERS if name != "speclsp"]


@dataclass(frozen=True, slots=True)
class Hole:
    """A prompt as token ids, and the token that is typed next."""

    ids: list[int]
    typed: int


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
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_HOLES} holes, plain and the best other mode")
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
    holes = bench.holes(options.holes or (QUICK_HOLES if options.quick else HOLES))
    tuning = read_tuning(bench.card.name)
    ours = [Way("speclsp", mode, best) for mode, best in chosen("speclsp", bench.card, {}).items()]
    theirs: list[Way] = []
    missing: dict[str, str] = {}
    wanted = options.modes.split(",") if options.modes else None
    for name in names:
        modes = {mode: best for mode, best in chosen(name, bench.card, tuning).items() if not wanted or mode in wanted}
        if options.quick and len(modes) > 2:
            fastest = min((mode for mode in modes if mode != "plain"), key=lambda mode: tuned_ms(tuning, name, mode))
            modes = {"plain": modes["plain"], fastest: modes[fastest]}
        if why := bench.not_installed(name):
            missing[name] = why
        else:
            theirs += [Way(name, mode, best) for mode, best in modes.items()]
    started_load = os.getloadavg()
    if started_load[0] > QUIET_LOAD:
        say(f"other programs are running (load {started_load[0]:.1f}): they take part in every figure")
    prompts = [(hole.ids, hole.typed) for hole in holes]
    bf16 = bf16_way(bf16_folder(bench.card.target, bench.models_dir), prompts, options.tokens, bench.threads)
    groups = bench.run(ours, theirs, holes)
    if broken := next((way for way in ours if way.failed), None):
        raise PeerError(broken.failed)
    missing |= {way.name: way.failed for way in theirs if way.failed}
    wanted, card = settings.engine.quantization, bench.card
    figures = {
        "pair": bench.card.name,
        "quantization": pick_format(wanted, "cpu", card.target.parameters, auto_choice.few_bits(card)),
        "settings": bench.assignments,
        "new_tokens": options.tokens,
        "prompt_tokens": [len(hole.ids) for hole in holes],
        "threads": bench.threads,
        "load_average_before": started_load,
        "groups": groups,
        "not_measured": {name: why.replace(str(Path.home()), "~") for name, why in missing.items()},
        "against_the_best_peer": against(ours[-1], [way for way in theirs if not way.failed]),
        "ways": {way.name: facts(way, ours[0], bf16, bench.stops) for way in (*ours, *theirs) if not way.failed},
    }
    words = (card.name, wanted.removeprefix("auto"), options.name, results_file.cpu_kind())
    name = "-".join(word for word in words if word)
    file = results_file.write("peers", figures, f"peers-{name}")
    runs = {way.name: way.timings() for way in (*ours, *theirs) if not way.failed}
    results_file.write_raw(f"peers-{bench.card.name}-runs", runs)
    show(figures)
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


def tuned_ms(tuning: Mapping[str, Any], peer: str, mode: str) -> float:
    """A mode's best time in the sweep; 0 where it was not tried, so that it is."""
    return min((row["cold"] for row in tuning.get(peer, {}).get(mode, []) if "cold" in row), default=0.0)


@dataclass(slots=True)
class Bench:
    """One model on this machine: its prompts, and its engines taking turns."""

    card: Card
    tokens: int
    threads: int
    assignments: dict[str, object]
    models_dir: str
    tokenizer: Any
    prompter: Any

    @classmethod
    def of(cls, options: argparse.Namespace, settings: Config) -> Bench:
        from speclsp.engine.decoding.prompt import Prompter
        from speclsp.engine.decoding.vocabulary import Vocabulary
        from speclsp.engine.loading import checkpoint

        card, _ = auto_choice.auto(settings)
        for weight in card.weights():
            store.ensure(weight, models_dir=settings.models_dir)
        directory = store.path(card.target, settings.models_dir)
        assert directory is not None
        tokenizer = checkpoint.read_tokenizer(directory)
        prompter = Prompter(card, tokenizer, Vocabulary(tokenizer), settings.engine.context_tokens)
        threads = options.threads or process_resources.cpus().whole
        assignments = {"engine.adapter": "none", **dict(config.from_words(words) for words in options.assignments)}
        return cls(card, options.tokens, threads, assignments, settings.models_dir, tokenizer, prompter)

    @property
    def stops(self) -> frozenset[int]:
        """Tokens after which an engine that may not stop says something else than one that may not say them."""
        stops: frozenset[int] = self.prompter.stop_tokens
        return stops

    def holes(self, count: int, seed: int = 20) -> list[Hole]:
        """Prompts from the standard library, as token ids that every engine gets."""
        result = []
        for request, rest in holes_and_rests(count, self.tokens, seed, CONTEXT_LINES):
            prompt = self.prompter.build(replace(request, heal=False))
            result.append(Hole(prompt.ids, self.prompter.encode(rest)[0]))
        return result

    def not_installed(self, peer: str) -> str:
        """Reason that a peer cannot be measured; "" when it can."""
        how = f"`python -m benchmarks install-peers {peer} --model {self.card.name}` installs it"
        if not python_of(peer).exists() or not (peer_dir(peer) / "requirements.txt").is_file():
            return f"not installed: {how}"
        for weight in self.card.weights():
            path = Path(self.model(peer, weight))
            if not path.is_dir() and not list(path.parent.glob(f"{path.name}.*")):
                return f"{weight.name} is not prepared for it: {how}"
        return ""

    def model(self, peer: str, one: Weights | None) -> str:
        """Path of a model for `peer`; "" for none."""
        if one is None:
            return ""
        if PEERS[peer].models:
            return PEERS[peer].models.format(root=peer_dir(peer), name=one.name)
        return str(store.path(one, self.models_dir) if peer == "speclsp" else bf16_folder(one, self.models_dir))

    def mib(self, ways: Sequence[Way]) -> int:
        """Memory in MiB that a process with these ways is likely to need."""
        peer, total_mib = PEERS[ways[0].peer], 0.0
        for way in ways:
            both = way.mode.startswith("draft") or way.peer == "speclsp"
            models = [self.card.target, self.card.draft] if both else [self.card.target]
            need = peer.base_mib + sum(peer.bytes_per_parameter * model.parameters / 2**20 for model in models if model)
            total_mib = max(total_mib, need) if peer.shares_weights else total_mib + need
        return int(total_mib)

    def start(self, ways: Sequence[Way]) -> PeerProcess:
        """Load one process with these ways. Raises PeerError."""
        peer = ways[0].peer
        job = {
            "pair": self.card.name,
            "settings": self.assignments,
            "model": self.model(peer, self.card.target),
            "draft": self.model(peer, self.card.draft),
            "peer": str(peer_dir(peer)),
            "threads": self.threads,
            "modes": {way.mode: way.settings for way in ways},
        }
        log = peers_dir() / "logs" / f"{ways[0].name.replace(' ', '-')}.log"
        say(f"loading {peer}: {', '.join(way.mode for way in ways)}")
        process = PeerProcess(peer, DRIVERS / PEERS[peer].driver, job, python_of(peer), log)
        for way in ways:
            way.about = {"load_s": process.load_s, "versions": process.versions}
        return process

    def run(self, ours: Sequence[Way], theirs: Sequence[Way], holes: Sequence[Hole]) -> list[list[str]]:
        """Every way on every hole; the ways that were loaded together, group by group."""
        groups = []
        with ExitStack() as stack:
            mine = stack.enter_context(self.start(ours)) if ours else None
            room = process_resources.memory().free_mib - RESERVE_MIB
            for number, units in enumerate(grouped(units_of(theirs), self.mib, room)):
                with ExitStack() as group:
                    turns = [(way, mine) for way in ours if mine]
                    for unit in units:
                        try:
                            process = group.enter_context(self.start(unit))
                        except PeerError as error:
                            give_up(unit, error)
                            continue
                        turns += [(way, process) for way in unit]
                    for way, _ in turns:
                        way.group = number
                    self.take_turns(turns, holes, number)
                    for way, process in turns:
                        way.about["memory_mib"] = process.memory_mib()  # of its process, with other modes in it
                    groups.append([way.name for way, _ in turns])
        return groups

    def take_turns(self, turns: Sequence[tuple[Way, PeerProcess]], holes: Sequence[Hole], group: int) -> None:
        """One warm-up prompt each, then hole by hole; the first in turn changes with each hole."""
        warm_up = self.holes(1, TUNING_SEED + 1)
        for number, hole in enumerate([*warm_up, *holes], start=-1):
            at = number % max(1, len(turns))
            for way, process in (*turns[at:], *turns[:at]):
                if way.failed:
                    continue
                try:
                    for kind, ids in (("cold", hole.ids), ("warm", [*hole.ids, hole.typed])):
                        answer = process.ask(ids, self.tokens, way.mode, kind == "cold")
                        if len(answer["tokens"]) != self.tokens:
                            raise PeerError(f"{way.name} made {len(answer['tokens'])} of {self.tokens} tokens.")
                        if number >= 0:
                            decode_ms = round(answer["total_ms"] - answer["first_ms"], 2)
                            way.runs[kind].append({"hole": number, "group": group, "decode_ms": decode_ms, **answer})
                except PeerError as error:
                    give_up([way], error)
            if number >= 0:
                say(f"hole {number + 1} of {len(holes)}")


def units_of(ways: Sequence[Way]) -> list[list[Way]]:
    """The ways by process."""
    units: list[list[Way]] = []
    for way in ways:
        if units and units[-1][0].peer == way.peer and not PEERS[way.peer].own_process:
            units[-1].append(way)
        else:
            units.append([way])
    return units


def grouped(units: Sequence[list[Way]], mib: Callable[[Sequence[Way]], int], room_mib: int) -> list[list[list[Way]]]:
    """Groups of processes, each placed in the first group with enough memory. One too large is split, or run alone."""
    groups: list[list[list[Way]]] = []
    pending = list(units)
    while pending:
        unit = pending.pop(0)
        if mib(unit) > room_mib and len(unit) > 1:
            half = (len(unit) + 1) // 2
            pending[:0] = [unit[:half], unit[half:]]
            continue
        group = next((group for group in groups if sum(map(mib, group)) + mib(unit) <= room_mib), None)
        if group is None:
            groups.append([unit])
        else:
            group.append(unit)
    return groups


def give_up(ways: Sequence[Way], error: PeerError) -> None:
    """Record and report that these modes cannot be measured; their earlier times are dropped."""
    for way in ways:
        way.failed = str(error)
        say(f"{way.name}: {error}")


def say(text: str) -> None:
    """Progress, beside the table."""
    print(text, file=sys.stderr, flush=True)
