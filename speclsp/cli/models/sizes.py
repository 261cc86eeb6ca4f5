"""Requirements of a model on this machine, and whether they fit. The store checks the disk (weights/store.py)."""

from __future__ import annotations

from dataclasses import dataclass

from speclsp import process_resources
from speclsp.config import Config
from speclsp.errors import memory_fix
from speclsp.weights import auto_choice
from speclsp.weights.cards import Card


@dataclass(frozen=True, slots=True)
class Machine:
    """Resources that are free for this process."""

    device: str  # cpu | cuda | cuda:N
    memory_mib: int  # free on the device
    memory: process_resources.Memory | None = None  # of the CPU, where it is the device


def measure_machine(config: Config) -> Machine:
    """The device that the settings select, and its free memory."""
    device = auto_choice.device_of(config.device)
    memory = process_resources.memory() if device == "cpu" else None
    return Machine(device, process_resources.free_mib(device), memory)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """The reason why a model does not fit."""

    resource: str  # torch | memory
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
    return None
