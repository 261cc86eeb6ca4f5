"""The models that a client can offer: download size, memory, and whether they fit; the loaded one's edits.

The sizes come from the cards, so they are known before any download. The memory of the current model counts
as free, because another model would replace it.
"""

from __future__ import annotations

import asyncio
import subprocess
from functools import lru_cache

from speclsp import process_resources
from speclsp.config import Config
from speclsp.lsp.backend.edit_prompt import SWEEP
from speclsp.lsp.backend.types import Status
from speclsp.process_resources.programs import find_program
from speclsp.weights import cards, store
from speclsp.weights.auto_choice import uses_draft
from speclsp.weights.cards import Card

MIB = 2**20
SLOW_ON_CPU_PARAMETERS = 2 * 10**9
IN_THE_PACKAGE = ("bundled", "none")  # for tests: listed last


def listing(config: Config, current: str) -> dict[str, object]:
    """The answer of speclsp/models. It reads files and waits for the GPU driver: do not call it in an event loop."""
    device, free_mib = machine(config.device)
    known, quantization = store.listing(config.models_dir), config.engine.quantization
    used_mib = next((card.needed_mib(device, free_mib, quantization) for card, _ in known if card.name == current), 0)
    known.sort(key=lambda entry: entry[0].target.format in IN_THE_PACKAGE)
    models = [as_json(card, fetched, device, free_mib + used_mib, config) for card, fetched in known]
    return {"current": current, "models": models}


def as_json(card: Card, fetched: bool, device: str, free_mib: int, config: Config) -> dict[str, object]:
    """The facts of one model. `device`: "cpu" or "cuda"; its memory is that of the number format to be loaded."""
    need_mib = card.needed_mib(device, free_mib, config.engine.quantization)
    fits, loaded = need_mib <= free_mib, card.weights(uses_draft(config, device))
    why = "" if fits else f"it needs {need_mib} MiB, and the {device} has {free_mib} MiB free"
    if fits and device == "cpu" and card.target.parameters > SLOW_ON_CPU_PARAMETERS:
        why = "slow without a GPU"
    return {
        "name": card.name,
        "title": card.title,
        "target": card.target.name,
        "draft": card.draft.name if card.draft else "",
        "download_mib": 0 if fetched else round(sum(model.download_bytes() for model in loaded) / MIB),
        "memory_mib": need_mib,
        "fits": fits,
        "fetched": fetched,
        "licence": card.licence,
        "why": why,
    }


async def predicts_edits(status: Status | None) -> bool:
    """True if a model is loaded that declares an edit format: by its card, or as a remote backend reports it."""
    if status is None or status.state != "ready":
        return False
    if status.remote:
        return status.edit_format == SWEEP
    return await asyncio.to_thread(declared_edit_format, status.model) == SWEEP


@lru_cache(maxsize=8)  # a directory's card is made from its files each time
def declared_edit_format(model: str) -> str:
    return cards.edit_format(model)


def machine(device: str) -> tuple[str, int]:
    """("cuda", its free MiB as the driver reports them), or ("cpu", those of this process) if there is no GPU."""
    if device != "cpu" and (tool := find_program("nvidia-smi")):
        _, _, number = device.partition(":")
        query = [tool, "--query-gpu=memory.free", "--format=csv,noheader,nounits", "-i", number or "0"]
        try:
            answer = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout
            return "cuda", int(answer.split()[0])
        except (OSError, ValueError, IndexError, subprocess.SubprocessError):
            pass  # a driver without a GPU
    return "cpu", process_resources.memory().free_mib
