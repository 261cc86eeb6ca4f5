"""Memory of a device: unused memory is returned, and other programs' need of a GPU's is told from our own weights."""

from __future__ import annotations

import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp.engine.scheduling.device_memory import CHECK_S, SHORT_CHECKS, DeviceMemory, MemoryReserve

FREEZING = {"freeze": gc.freeze, "unfreeze": gc.unfreeze}  # conftest.py replaces them once the tests are collected
KEEP_MIB = 500


class Gpu(DeviceMemory):
    """A GPU with the free memory that the test sets."""

    def __init__(self, free_mib: int, device: str = "cuda") -> None:
        super().__init__(device)
        self.now_mib, self.reads, self.error = free_mib, 0, None
        self.error: Exception | None

    def free_mib(self) -> int:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return self.now_mib


def checked(reserve: MemoryReserve, gpu: Gpu, free_mib: list[int]) -> list[bool]:
    """Whether each check finds a shortage, with the free memory before it."""
    results = []
    for number, mib in enumerate(free_mib):
        gpu.now_mib = mib
        results.append(bool(reserve.shortage(number * CHECK_S)))
    return results


@given(free_mib=st.lists(st.integers(0, 2 * KEEP_MIB), max_size=12))
def test_a_shortage_is_free_memory_below_the_reserve_in_consecutive_checks(free_mib: list[int]):
    gpu = Gpu(8000)
    is_short = [mib < KEEP_MIB for mib in free_mib]
    expected = [
        all(is_short[max(0, at - SHORT_CHECKS + 1) : at + 1]) and at >= SHORT_CHECKS - 1 for at in range(len(is_short))
    ]
    assert checked(MemoryReserve(gpu, KEEP_MIB), gpu, free_mib) == expected


def test_the_free_memory_is_read_once_in_each_interval():
    gpu = Gpu(8000)
    reserve = MemoryReserve(gpu, KEEP_MIB)
    before = gpu.reads
    for tenth in range(11):
        reserve.shortage(tenth * CHECK_S / 10)
    assert gpu.reads - before == 2


@given(st.integers(0, 4000), st.integers(0, 4000))
def test_our_own_weights_do_not_count_as_another_programs_need(left_mib: int, later_mib: int):
    gpu = Gpu(left_mib)
    reserve = MemoryReserve(gpu, KEEP_MIB)
    assert reserve.mib == (KEEP_MIB if left_mib >= KEEP_MIB else left_mib // 2), "a fall by half is another program's"
    *after_loading, later = checked(reserve, gpu, [left_mib] * 3 + [later_mib] * SHORT_CHECKS)
    assert not any(after_loading), "what is left right after loading is enough"
    assert later == (later_mib < reserve.mib)


@pytest.mark.parametrize(("device", "min_free_mib"), [("cpu", KEEP_MIB), ("cuda", 0)])
def test_without_a_reserve_the_memory_is_never_read(device: str, min_free_mib: int):
    gpu = Gpu(0, device)
    reserve = MemoryReserve(gpu, min_free_mib)
    assert not any(checked(reserve, gpu, [0] * 5)) and reserve.room_problem(3000) == ""
    assert (gpu.reads, reserve.due_s(0.0)) == (0, float("inf"))


def test_nothing_is_short_where_the_free_memory_cannot_be_read():
    gpu = Gpu(8000)
    reserve = MemoryReserve(gpu, KEEP_MIB)
    gpu.error = OSError("no such device")
    assert not any(checked(reserve, gpu, [0] * 5)) and reserve.room_problem(3000) == ""
    assert reserve.due_s(0.0) == float("inf"), "it is not read again"


# ── measuring and returning memory ───────────────────────────────────────────────────────────────────────────


def test_trim_frees_frozen_reference_cycles(monkeypatch: pytest.MonkeyPatch):
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


def test_a_gpus_free_memory_is_the_drivers_figure_for_all_processes(monkeypatch: pytest.MonkeyPatch):
    import torch

    devices = []

    def mem_get_info(device: str) -> tuple[int, int]:
        devices.append(device)
        return 3 * 2**30, 8 * 2**30

    monkeypatch.setattr(torch.cuda, "mem_get_info", mem_get_info)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 2**30)
    memory = DeviceMemory("cuda:1")
    assert (memory.free_mib(), memory.held_mib(), devices) == (3072, 1024, ["cuda:1"])
