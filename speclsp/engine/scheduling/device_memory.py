"""Memory of a device: this process's share, the release of unused allocations, and other programs' need of a GPU's.

On a CPU nothing is released for other programs: the system reclaims the pages of mapped weights by itself.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import sys

import psutil  # here: an import may fail once memory has run out

from speclsp import process_resources
from speclsp.engine.scheduling.device_errors import is_device_failure, one_line, ran_out_of_memory

MIB = 2**20
CHECK_S = 2.0  # between two checks of a GPU's free memory
SHORT_CHECKS = 2  # in a row below the reserve: then another program needs the memory

log = logging.getLogger("speclsp.engine")


class DeviceMemory:
    """Memory of "cpu", or of a GPU by torch's name."""

    def __init__(self, device: str) -> None:
        self.device = device

    def free_mib(self) -> int:
        """Memory of a GPU that any program could allocate now, as its driver reports it."""
        return process_resources.free_mib(self.device)

    def held_mib(self) -> int:
        """Memory that this process has."""
        if self.device == "cpu":
            return int(psutil.Process().memory_info().rss / MIB)
        import torch

        return int(torch.cuda.memory_reserved(self.device) / MIB)

    def works(self) -> bool:
        """True while the device answers. After some faults and some suspends it never does again in this process."""
        if self.device == "cpu":
            return True
        import torch

        try:
            torch.ones(1, device=self.device).add_(1).item()
        except RuntimeError as error:
            return ran_out_of_memory(error)
        return True

    def lost_message(self, error: BaseException) -> str:
        """The message for a device that no longer answers; "" when `error` does not mean that."""
        if not is_device_failure(error) or self.works():
            return ""
        return (
            f"{self.device} no longer responds ({type(error).__name__}): the engine ends, "
            "and the next client starts another one."
        )

    def trim(self) -> None:
        """Return unreferenced memory to the system; otherwise Python, torch and malloc keep it for later."""
        gc.unfreeze()  # loading froze its objects, so that no collection walks over them in mid-request
        gc.collect()
        if self.device != "cpu":
            import torch

            torch.cuda.empty_cache()
        trim_malloc()
        gc.freeze()


class MemoryReserve:
    """The part of a GPU's memory that stays free for other programs: checks for too little, and for room to load.

    Args:
        memory: of the device that has just loaded the model.
        min_free_mib: the reserve; 0: none.
    """

    def __init__(self, memory: DeviceMemory, min_free_mib: int) -> None:
        self.mib = min_free_mib if memory.device != "cpu" else 0
        self._memory = memory
        self._next_check_s = float("-inf")
        self._short_checks = self._free_mib = 0  # checks in a row that found too little, and the last figure
        if self.mib and self._read_free() < self.mib:
            self.mib = self._free_mib // 2  # our own weights are not another program's need; a further fall is

    def due_s(self, now_s: float) -> float:
        """Time until the next check; infinite without a reserve."""
        return self._next_check_s - now_s if self.mib else float("inf")

    def shortage(self, now_s: float) -> str:
        """The need of other programs in words; "" while the reserve is free."""
        if self.due_s(now_s) <= 0:
            self._next_check_s = now_s + CHECK_S
            self._short_checks = self._short_checks + 1 if self._read_free() < self.mib else 0
        if self._short_checks < SHORT_CHECKS:
            return ""
        return (
            f"another program needs the GPU's memory ({self._free_mib} MiB were free, engine.min_free_memory_mib "
            f"keeps {self.mib})"
        )

    def room_problem(self, need_mib: int) -> str:
        """The reason that a model of `need_mib` cannot be loaded beside other programs; "" when there is room."""
        if not self.mib or self._read_free() >= need_mib + self.mib:
            return ""
        return (
            f"unloaded, because other programs need memory: {self._free_mib} MiB of the GPU's memory are free, the "
            f"model needs {need_mib} and {self.mib} stay free for others. Close other programs, set a smaller model "
            "(`speclsp models list`), or lower engine.min_free_memory_mib."
        )

    def _read_free(self) -> int:
        """The free memory. Where it cannot be read, there is no reserve from then on."""
        try:
            self._free_mib = self._memory.free_mib()
        except Exception as error:  # a driver's
            log.error("cannot read the free amount of the GPU's memory: %s", one_line(error))
            self.mib, self._free_mib = 0, 2**30
        return self._free_mib


def trim_malloc() -> None:
    """Empty glibc's arenas of freed memory; other systems' allocators return it by themselves."""
    if sys.platform == "linux":
        malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
        if malloc_trim is not None:
            malloc_trim(0)
