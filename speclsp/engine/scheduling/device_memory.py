"""Memory of a device: free memory, this process's share, and the release of unused allocations.

Free memory is the amount another program could allocate now. On a CPU it includes the page cache, which the system
drops on demand, and respects a control group's limit (a container's) where that is lower. On a GPU the driver reports
it for all processes together.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from speclsp.engine.scheduling.device_errors import ran_out_of_memory

MIB = 2**20
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")
MEMINFO = Path("/proc/meminfo")  # Linux's
VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")  # file names of the limit and the use
NO_LIMIT_BYTES = 2**62  # version 1 writes its largest page-aligned number


class DeviceMemory:
    """Memory of "cpu", or of a GPU by torch's name."""

    def __init__(self, device: str) -> None:
        self.device = device

    def free_mib(self) -> int:
        """Memory that another program could allocate."""
        if self.device == "cpu":
            return min([system_free_mib(), *cgroup_free_mib()])
        import torch

        return int(torch.cuda.mem_get_info(self.device)[0] / MIB)

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

    def trim(self) -> None:
        """Return unreferenced memory to the system; otherwise Python, torch and malloc keep it for later."""
        gc.unfreeze()  # loading froze its objects, so that no collection walks over them in mid-request
        gc.collect()
        if self.device != "cpu":
            import torch

            torch.cuda.empty_cache()
        trim_malloc()
        gc.freeze()


def trim_malloc() -> None:
    """Empty glibc's arenas of freed memory; other systems' allocators return it by themselves."""
    if sys.platform == "linux":
        malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
        if malloc_trim is not None:
            malloc_trim(0)


def system_free_mib(meminfo: Path = MEMINFO) -> int:
    """Memory of the whole machine that a program could allocate.

    An idle engine asks every few seconds, so Linux's own figure is read, at a twentieth of the cost of psutil's table.
    """
    with suppress(OSError, ValueError, IndexError):
        return int(meminfo.read_bytes().partition(b"MemAvailable:")[2].split(None, 1)[0]) * 1024 // MIB
    return int(psutil.virtual_memory().available / MIB)


def cgroup_free_mib(own: Path = OWN_CGROUP, root: Path = CGROUPS) -> list[int]:
    """Memory left under each control-group limit of this process, page cache counted as free; empty without limits.

    Reads control groups of version 2, and of version 1, where the memory controller has a tree of its own.
    """
    limits_mib = []
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        _, controllers, inside = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        names = ("memory.max", "memory.current") if not controllers else VERSION_1
        hierarchy = root / controllers
        own_group = hierarchy / inside.lstrip("/")
        for group in (own_group, *own_group.parents):  # a limit further up applies as well
            if (mib := group_free_mib(group, *names)) is not None:
                limits_mib.append(mib)
            if group == hierarchy:
                break
    return limits_mib


def group_free_mib(group: Path, limit_name: str, used_name: str) -> int | None:
    """Memory left under one group's limit; None without a limit, or where it cannot be read."""
    try:
        limit = int((group / limit_name).read_text())
        if limit >= NO_LIMIT_BYTES:
            return None
        used = int((group / used_name).read_text())
        counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # "max" is no limit
        return None
    cache = sum(int(counts.get(name, 0)) for name in ("active_file", "inactive_file"))
    return max(0, int((limit - used + cache) / MIB))
