"""Memory-pressure hysteresis: immediate release, slow restore, never more than there is room for, no oscillation."""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass, field
from itertools import pairwise

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp import process_resources
from speclsp.engine.scheduling.device_memory import DeviceMemory
from speclsp.engine.scheduling.memory_ladder import CHECK_S, WAIT_S, MemoryPressure, Pressure

FREEZING = {"freeze": gc.freeze, "unfreeze": gc.unfreeze}  # conftest.py replaces them once the tests are collected
KEEP_MIB = 500
DIRECTION = {Pressure.RELEASE: 1, Pressure.HOLD: 0, Pressure.RESTORE: -1}
PATIENCE = int(WAIT_S / CHECK_S) + 1  # checks that must find room before a step is restored

parts_mib = st.lists(st.integers(0, 3000), min_size=1, max_size=4)  # MiB freed by each step
free_traces = st.lists(
    st.tuples(st.integers(0, 8000), st.integers(1, 40)), min_size=1, max_size=12
)  # (free MiB, number of checks)


@dataclass
class Machine:
    """A machine whose free memory follows a trace, or other programs and our own; it executes each decision."""

    parts_mib: list[int]
    keep_mib: int = KEEP_MIB
    now_s: float = 0.0
    pressure: MemoryPressure = field(init=False)
    looks: list[tuple[float, int]] = field(default_factory=list)  # (time, free MiB)
    moves: list[tuple[float, int, int]] = field(default_factory=list)  # (time, release 1 or restore -1, its MiB)

    def __post_init__(self) -> None:
        self.pressure = MemoryPressure(self.keep_mib, len(self.parts_mib))

    @property
    def held_mib(self) -> int:
        return sum(self.parts_mib[self.pressure.level :])

    def look(self, free_mib: int) -> int:
        self.now_s += CHECK_S
        self.looks.append((self.now_s, free_mib))
        move = DIRECTION[self.pressure.decide(self.now_s, free_mib)]
        level = self.pressure.level
        if move:
            part_mib = self.parts_mib[level if move > 0 else level - 1]
            self.moves.append((self.now_s, move, part_mib))
            self.pressure.released(part_mib) if move > 0 else self.pressure.restored()
        return move


def driven(parts: list[int], trace: list[tuple[int, int]]) -> Machine:
    machine = Machine(parts)
    for free_mib, looks in trace:
        for _ in range(looks):
            machine.look(free_mib)
    return machine


@given(parts_mib, free_traces)
def test_no_step_is_restored_sooner_than_the_wait_after_the_last_change(parts: list[int], trace: list[tuple[int, int]]):
    moves = driven(parts, trace).moves
    for (before_s, _, _), (now_s, move, _) in pairwise(moves):
        assert move > 0 or now_s - before_s >= WAIT_S


@given(parts_mib, free_traces)
def test_a_step_is_restored_only_after_room_for_it_and_the_reserve_throughout_the_wait(
    parts: list[int], trace: list[tuple[int, int]]
):
    machine = driven(parts, trace)
    for taken_s, move, part_mib in machine.moves:
        if move < 0:
            frees_mib = [free for when_s, free in machine.looks if taken_s - WAIT_S <= when_s <= taken_s]
            assert min(frees_mib) >= KEEP_MIB + part_mib


@given(parts_mib, free_traces)
def test_while_memory_stays_short_every_check_releases_one_step(parts: list[int], trace: list[tuple[int, int]]):
    machine = driven(parts, trace)
    for _ in parts:
        machine.look(KEEP_MIB - 1)
    assert machine.pressure.level == len(parts)
    assert machine.look(0) == 0, "there is no further step"


@given(parts_mib, free_traces)
def test_while_memory_stays_free_all_steps_are_restored_one_at_a_time(parts: list[int], trace: list[tuple[int, int]]):
    machine = driven(parts, trace)
    for _ in range(PATIENCE * (len(parts) + 1)):
        before = machine.pressure.level
        machine.look(KEEP_MIB + max(parts))
        assert before - machine.pressure.level in (0, 1)
    assert machine.pressure.level == 0


@given(parts_mib, st.lists(st.tuples(st.integers(0, 9000), st.integers(1, 40)), max_size=8), st.integers(0, 9000))
def test_releasing_and_restoring_never_trigger_each_other(
    parts: list[int], others: list[tuple[int, int]], last_mib: int
):
    """Free memory is the rest beside others and us. Once the others are steady, no restored step is released again."""
    machine, total_mib = Machine(parts), 9000

    def steadily(others_mib: int, looks: int) -> None:
        for _ in range(looks):
            machine.look(max(0, total_mib - others_mib - machine.held_mib))

    for others_mib, looks in others:
        steadily(others_mib, looks)
    machine.moves.clear()
    steadily(last_mib, PATIENCE * (len(parts) + 2))
    directions = [move for _, move, _ in machine.moves]
    assert directions == sorted(directions, reverse=True), "first down, as far as it must, and then only up"
    settled = len(machine.moves)
    steadily(last_mib, 5 * PATIENCE)
    assert len(machine.moves) == settled


@given(st.integers(0, 4000), st.integers(0, 4000))
def test_our_own_weights_do_not_count_as_another_programs_need(left_mib: int, later_mib: int):
    pressure = MemoryPressure(KEEP_MIB, 3)
    pressure.calibrate(left_mib)
    assert pressure.decide(CHECK_S, left_mib) is Pressure.HOLD, "what is left right after loading is enough"
    assert (pressure.decide(2 * CHECK_S, later_mib) is Pressure.RELEASE) == (
        later_mib < min(KEEP_MIB, pressure.keep_mib)
    )
    assert left_mib < KEEP_MIB or pressure.keep_mib == KEEP_MIB
    assert left_mib >= KEEP_MIB or pressure.decide(3 * CHECK_S, -(-left_mib // 2)) is Pressure.HOLD, (
        "our own caches may still grow"
    )


def test_a_failed_restore_is_tried_again_after_another_wait():
    machine = Machine([100])
    machine.look(0)
    while machine.pressure.decide(machine.now_s, 5000) is Pressure.HOLD:
        machine.now_s += CHECK_S
    machine.pressure.restore_failed()
    failed_s = machine.now_s
    while machine.pressure.decide(machine.now_s, 5000) is Pressure.HOLD:
        machine.now_s += CHECK_S
    assert machine.now_s - failed_s >= WAIT_S


# ── measuring memory ────────────────────────────────────────────────────────────────────────────────────────────────


def test_free_and_own_memory_of_this_machine_are_plausible():
    memory = DeviceMemory("cpu")
    assert 0 <= memory.free_mib() < 2**24
    assert 10 < memory.held_mib() < 2**20


@pytest.mark.skipif(not hasattr(psutil, "RLIMIT_AS"), reason="only Linux has psutil's limit of the address space")
def test_a_limit_of_the_own_address_space_is_no_need_of_another_program():
    process, room_mib = psutil.Process(), 32
    _, hard = process.rlimit(psutil.RLIMIT_AS)
    process.rlimit(psutil.RLIMIT_AS, (process.memory_info().vms + room_mib * 2**20, hard))
    try:
        assert process_resources.free_mib("cpu") <= room_mib < DeviceMemory("cpu").free_mib()
    finally:
        process.rlimit(psutil.RLIMIT_AS, (hard, hard))


def test_trim_frees_frozen_reference_cycles(monkeypatch):
    for name, function in FREEZING.items():
        monkeypatch.setattr(gc, name, function)

    class Cycle:
        """A reference cycle, as between a decoder and its captured passes."""

    cycle = Cycle()
    cycle.itself = cycle
    reference = weakref.ref(cycle)
    gc.collect()
    gc.freeze()
    del cycle
    DeviceMemory("cpu").trim()
    assert reference() is None


def test_a_gpus_free_memory_is_the_drivers_figure_for_all_processes(monkeypatch):
    import torch

    devices = []

    def mem_get_info(device: str) -> tuple[int, int]:
        devices.append(device)
        return 3 * 2**30, 8 * 2**30

    monkeypatch.setattr(torch.cuda, "mem_get_info", mem_get_info)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 2**30)
    memory = DeviceMemory("cuda:1")
    assert (memory.free_mib(), memory.held_mib(), devices) == (3072, 1024, ["cuda:1"])
