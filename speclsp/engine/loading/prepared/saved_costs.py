"""Times of a model's passes on this machine, kept beside its prepared weights: a start measures nothing.

first load   time passes over the mapped file and over the same numbers in huge pages; measure the costs ─► file
later        read the file; served rounds refresh the costs (policy.py), and an unload writes them again
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

from speclsp import private_files, process_resources
from speclsp.engine.decoding.policy import Costs
from speclsp.engine.model.int8.native import NativeDecoder
from speclsp.weights import auto_choice

FILE = "costs.json"  # in the directory of the prepared weights
MAX_BYTES = 1 << 16
LEAST_GAIN = 1.05  # of memory of the process against a mapped file, which the system may reclaim
TURNS = 6  # of reading all weights
LEAST_MIB = 64  # of weights: smaller ones stay in the processor's caches


@dataclass(frozen=True, slots=True)
class SavedCosts:
    """A model's costs on one machine. `mapped`: its decoder computes with the mapped file, not with a copy."""

    file: Path
    machine: str
    mapped: bool
    costs: Costs

    def save(self) -> None:
        """Write the file. Where that fails, the next start measures again."""
        content = {"machine": self.machine, "mapped": self.mapped, "costs": asdict(self.costs)}
        with suppress(OSError):
            private_files.replace(self.file, json.dumps(content).encode())


def read(file: Path, threads: int) -> SavedCosts | None:
    """The costs of this machine; None if there are none that fit."""
    machine = auto_choice.machine_name(threads)
    try:
        content = json.loads(private_files.read_bytes(file, MAX_BYTES))
        if content["machine"] != machine:
            return None
        costs = Costs(**content["costs"])
        costs.verify_ms = {int(rows): ms for rows, ms in costs.verify_ms.items()}
        others_ms = [costs.prefill_ms, *costs.guess_ms.values(), *costs.missing_ms.values()]
        if not costs.verify_ms or not all(0 <= ms < math.inf for ms in (*costs.verify_ms.values(), *others_ms)):
            return None
        return SavedCosts(file, machine, bool(content["mapped"]), costs)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):  # none, or one that a person has edited
        return None


def mapping_is_fast(mapped: NativeDecoder, in_memory: NativeDecoder) -> bool:
    """True if reading all weights of the mapped file takes about as long as reading those in memory.

    The two take turns. The copy must win by its fastest turn and by most turns: other programs disturb single ones.
    """
    pass_s(mapped), pass_s(in_memory)  # the first one maps the pages
    times = [(pass_s(mapped), pass_s(in_memory)) for _ in range(TURNS)]
    fastest = min(own for own, _ in times) / min(other for _, other in times)
    return min(fastest, median(own / other for own, other in times)) <= LEAST_GAIN


def pass_s(decoder: NativeDecoder) -> float:
    """The time of reading all weights once."""
    began_s = perf_counter()
    decoder.read_weights()
    return perf_counter() - began_s


def is_worth_measuring(decoder: NativeDecoder) -> bool:
    """True if a second copy of the weights fits into free memory, with half of it left, and they are not tiny."""
    return decoder.weight_mib > LEAST_MIB and process_resources.memory().free_mib > 2 * decoder.weight_mib
