"""Engines that take turns: one model's prompts, the processes that are loaded together, and one run at a time."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.peers.bf16_weights import bf16_folder
from benchmarks.peers.driver_process import DRIVERS, PeerError, PeerProcess, peer_dir, peers_dir, python_of
from benchmarks.peers.figures import Way
from benchmarks.speed.holes import holes_and_rests
from speclsp import config, process_resources
from speclsp.config import Config
from speclsp.weights import auto_choice, store
from speclsp.weights.cards import Card, Weights

CONTEXT_LINES = 44  # about 550 prompt tokens
TUNING_SEED = 21
RESERVE_MIB = 2048  # left to the system


@dataclass(frozen=True, slots=True)
class Peer:
    """Recipe to run a peer. Memory is an estimate, used to decide which peers are loaded together."""

    driver: str
    models: str  # where a model is, of {root} and {name}; "": bf16_folder
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
