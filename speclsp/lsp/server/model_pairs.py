"""Which pairs a client may offer: what each would fetch, what memory it takes, and whether this machine has that.

Read from the cards, so the sizes are known before anything is fetched. What the pair in use occupies counts as free:
another one would take its place.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from speclsp.config import Config
from speclsp.weights import store
from speclsp.weights.cards import MARGIN_MIB, Card

MIB = 2**20
BYTES_PER_PARAMETER = 2  # as published, where the card does not list the files
SLOW_ON_CPU_PARAMETERS = 2 * 10**9
IN_THE_PACKAGE = ("bundled", "none")  # for tests: listed last


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """Where a model would run, and the memory it could have."""

    device: str  # "cpu" | "cuda"
    free_mib: int


def listing(config: Config, current: str) -> dict[str, object]:
    """What speclsp/pairs answers. Looks at files and, where there is a GPU, waits for its driver: not for a loop."""
    here = machine(config.device)
    known = store.listing(config.models_dir)
    used_mib = next((needed_mib(card, here, config) for card, _ in known if card.name == current), 0)
    here = MachineFacts(here.device, here.free_mib + used_mib)
    known.sort(key=lambda found: found[0].target.format in IN_THE_PACKAGE)
    return {"current": current, "pairs": [as_json(card, fetched, here, config) for card, fetched in known]}


def as_json(card: Card, fetched: bool, here: MachineFacts, config: Config) -> dict[str, object]:
    need_mib = needed_mib(card, here, config)
    fits = need_mib <= here.free_mib
    why = "" if fits else f"it needs {need_mib} MiB, and the {here.device} has {here.free_mib} MiB to give"
    if fits and here.device == "cpu" and card.target.parameters > SLOW_ON_CPU_PARAMETERS:
        why = "without a GPU it answers late"
    return {
        "name": card.name,
        "title": card.title,
        "target": card.target.name,
        "draft": card.draft.name if card.draft else "",
        "download_mib": 0 if fetched else download_mib(card),
        "memory_mib": need_mib,
        "fits": fits,
        "fetched": fetched,
        "licence": card.licence,
        "why": why,
    }


def download_mib(card: Card) -> int:
    """What fetching the pair's models takes; an estimate from their parameters where the card lists no sizes."""
    sizes = [
        sum(file.bytes for file in one.files) or one.parameters * BYTES_PER_PARAMETER
        for one in card.weights()
        if one.format not in IN_THE_PACKAGE
    ]
    return round(sum(sizes) / MIB)


def needed_mib(card: Card, here: MachineFacts, config: Config) -> int:
    """The pair's memory in the number format that it would be loaded in: on a GPU the smaller one is a way out."""
    by_format: Mapping[str, int] = card.memory_mib
    wanted = config.engine.quantization
    if wanted == "auto":
        formats = ["int8"] if here.device == "cpu" else ["bf16", "nf4"]
        margin_mib = 0 if here.device == "cpu" else MARGIN_MIB
        sizes = [by_format[name] + margin_mib for name in formats if name in by_format]
        return next((size for size in sizes if size <= here.free_mib), min(sizes, default=0))
    doubled = 2 if wanted == "fp32" else 1
    return doubled * by_format.get("bf16" if wanted == "fp32" else wanted, 0)


def machine(device: str) -> MachineFacts:
    """The GPU's free memory as its driver says it, else what the system has available."""
    import psutil

    if device != "cpu" and (tool := shutil.which("nvidia-smi")):
        _, _, number = device.partition(":")
        query = [tool, "--query-gpu=memory.free", "--format=csv,noheader,nounits", "-i", number or "0"]
        try:
            answer = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout
            return MachineFacts("cuda", int(answer.split()[0]))
        except (OSError, ValueError, IndexError, subprocess.SubprocessError):
            pass  # a driver without a GPU
    return MachineFacts("cpu", int(psutil.virtual_memory().available / MIB))
