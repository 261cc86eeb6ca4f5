"""Requirements of a model on this machine: download size, disk, memory, and whether they fit."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from speclsp import process_resources
from speclsp.cli import terminal
from speclsp.config import Config, nearest_existing
from speclsp.errors import WeightsError, memory_fix
from speclsp.private_files.os_errors import sentence
from speclsp.weights import auto_choice, locations, store
from speclsp.weights.cards import Card


@dataclass(frozen=True, slots=True)
class Machine:
    """Resources that are free for this process."""

    device: str  # cpu | cuda | cuda:N
    memory_mib: int  # free on the device
    disk_bytes: int  # free in the store
    memory: process_resources.Memory | None = None  # of the CPU, where it is the device


def measure_machine(config: Config) -> Machine:
    """The device that the settings select, and its free memory and disk. Raises WeightsError: the disk is missing."""
    device = auto_choice.device_of(config.device)
    memory = process_resources.memory() if device == "cpu" else None
    place = nearest_existing(locations.store_root())
    try:
        free_bytes = shutil.disk_usage(place).free
    except OSError as error:  # a drive of Windows that is not connected
        raise WeightsError(sentence(error, place, "be read")) from error
    return Machine(device, process_resources.free_mib(device), free_bytes, memory)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """The reason why a model does not fit."""

    resource: str  # torch | memory | disk
    sentence: str  # with the figures and the fix


def obstacle(card: Card, config: Config, machine: Machine) -> Obstacle | None:
    """The first resource that the model lacks on this machine; None when it fits."""
    if problem := auto_choice.torch_problem(card, machine.device):
        return Obstacle("torch", problem)
    need_mib = card.needed_mib(machine.device, machine.memory_mib, config.engine.quantization)
    if need_mib > machine.memory_mib:
        smaller = auto_choice.smaller(card, machine.memory_mib, machine.device)
        return Obstacle(
            "memory",
            f"{card.name} needs {need_mib} MiB of memory and {machine.device} has {machine.memory_mib} MiB free: "
            + memory_fix(smaller, machine.memory.limit_fix(need_mib) if machine.memory else ""),
        )
    weights_to_load = card.weights(auto_choice.uses_draft(config, machine.device))
    missing = [weights for weights in weights_to_load if store.path(weights, config.models_dir) is None]
    need_bytes = sum(
        store.download_bytes(weights, config.models_dir) + store.SPARE_BYTES - locations.partial_bytes(weights)
        for weights in missing
    )
    if need_bytes > machine.disk_bytes:
        return Obstacle(
            "disk",
            f"{card.name} needs {terminal.in_size(need_bytes)} of disk in {locations.store_root()} and "
            f"{terminal.in_size(machine.disk_bytes)} are free: free some, or set XDG_CACHE_HOME to a larger disk.",
        )
    return None
