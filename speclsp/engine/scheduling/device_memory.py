"""A device's memory: how much is free, how much of it this process holds, and giving back what it no longer uses.

Free is what another program could have now. On a CPU that counts the page cache, which the system gives up for
whoever asks, and heeds a control group's limit (a container's) where that is nearer. On a GPU the driver says it, for
all processes together.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from pathlib import Path

import psutil

from speclsp.engine.scheduling.device_errors import ran_out_of_memory

MIB = 2**20
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")


class DeviceMemory:
    """The memory of "cpu", or of a GPU by torch's name for it."""

    def __init__(self, device: str) -> None:
        self.device = device

    def free_mib(self) -> int:
        """What another program could take."""
        if self.device == "cpu":
            return min([int(psutil.virtual_memory().available / MIB), *cgroup_free_mib()])
        import torch

        return int(torch.cuda.mem_get_info(self.device)[0] / MIB)

    def held_mib(self) -> int:
        """What this process takes of it."""
        if self.device == "cpu":
            return int(psutil.Process().memory_info().rss / MIB)
        import torch

        return int(torch.cuda.memory_reserved(self.device) / MIB)

    def works(self) -> bool:
        """Whether the device still answers. After some faults, and some suspends, it never does in this process."""
        if self.device == "cpu":
            return True
        import torch

        try:
            torch.ones(1, device=self.device).add_(1).item()
        except RuntimeError as error:
            return ran_out_of_memory(error)
        return True

    def trim(self) -> None:
        """Really give back what nothing refers to any more: Python, torch and malloc keep it for later otherwise."""
        gc.unfreeze()  # loading froze what it left, so that no collection walked over it in mid-request
        gc.collect()
        if self.device != "cpu":
            import torch

            torch.cuda.empty_cache()
        trim_malloc()
        gc.freeze()


def trim_malloc() -> None:
    """glibc keeps freed memory in its arenas; other systems' allocators give it back by themselves."""
    if sys.platform == "linux":
        give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
        if give_back is not None:
            give_back(0)


def cgroup_free_mib(own: Path = OWN_CGROUP, root: Path = CGROUPS) -> list[int]:
    """What is left of each memory limit this process is under, its page cache counted as free; none where no limit is.

    Control groups of version 2; of version 1, where the memory controller has a tree of its own, also.
    """
    left = []
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        _, controllers, inside = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        names = ("memory.max", "memory.current") if not controllers else VERSION_1
        top = root / controllers
        place = top / inside.lstrip("/")
        for group in (place, *place.parents):  # a limit further up holds as well
            if (mib := group_free_mib(group, *names)) is not None:
                left.append(mib)
            if group == top:
                break
    return left


VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")


def group_free_mib(group: Path, limit_name: str, used_name: str) -> int | None:
    """What is left of one group's limit; None where it has none, or cannot be read."""
    try:
        limit, used = int((group / limit_name).read_text()), int((group / used_name).read_text())
        counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # "max" is no limit
        return None
    cache = sum(int(counts.get(name, 0)) for name in ("active_file", "inactive_file"))
    return max(0, int((limit - used + cache) / MIB))
