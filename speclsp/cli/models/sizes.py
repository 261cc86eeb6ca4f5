"""Requirements of a model on this machine: download size, disk, memory, and whether they fit."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from speclsp.cli import terminal
from speclsp.config import Config
from speclsp.weights import auto_choice, locations, removal, store
from speclsp.weights.cards import Card, Weights


@dataclass(frozen=True, slots=True)
class Machine:
    """Free resources of this machine."""

    device: str  # cpu | cuda | cuda:N
    memory_mib: int  # free on the device
    disk_bytes: int  # free in the store


def measure_machine(config: Config) -> Machine:
    """The device that the settings select, and its free memory and disk."""
    import psutil

    device, memory_mib = auto_choice.gpu(config.device)
    if device == "cpu":
        memory_mib = psutil.virtual_memory().available >> 20
    return Machine(device, memory_mib, shutil.disk_usage(nearest_existing(locations.store_root(None))).free)


def nearest_existing(path: Path) -> Path:
    """`path`, or the first directory above it that exists."""
    return path if path.exists() or path == path.parent else nearest_existing(path.parent)


def disk_bytes(weights: Weights, models_dir: str = "") -> int:
    """Bytes that a download needs at its highest point: a GGUF is converted to 16 bits beside itself."""
    converted = 2 * weights.parameters if weights.format == "gguf" else 0
    return store.download_bytes(weights, models_dir) + converted + store.SPARE_BYTES


def needed_mib(card: Card, config: Config, machine: Machine) -> int:
    """Memory of the loaded model on this machine; 0 where the card has no figure."""
    return card.needed_mib(machine.device, machine.memory_mib, config.engine.quantization)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """The reason why a model does not fit."""

    resource: str  # memory | disk
    sentence: str  # with the figures and the fix


def obstacle(card: Card, config: Config, machine: Machine) -> Obstacle | None:
    """The first resource that the model lacks on this machine; None when it fits."""
    need_mib = needed_mib(card, config, machine)
    if need_mib > machine.memory_mib:
        return Obstacle(
            "memory",
            f"{card.name} needs {need_mib} MiB of memory and {machine.device} has {machine.memory_mib} MiB free: "
            "close other programs, or choose a smaller model (`speclsp models list`).",
        )
    missing = [weights for weights in card.weights() if store.path(weights, config.models_dir) is None]
    need_bytes = sum(disk_bytes(weights, config.models_dir) - removal.partial_bytes(weights) for weights in missing)
    if need_bytes > machine.disk_bytes:
        return Obstacle(
            "disk",
            f"{card.name} needs {terminal.in_size(need_bytes)} of disk in {locations.store_root(None)} and "
            f"{terminal.in_size(machine.disk_bytes)} are free: free some, or set XDG_CACHE_HOME to a larger disk.",
        )
    return None


def fits(card: Card, config: Config, machine: Machine) -> str:
    """ "yes", "no memory" or "no disk"."""
    lacking = obstacle(card, config, machine)
    return f"no {lacking.resource}" if lacking else "yes"
