"""CPUs and memory that this process may use: affinity, CPU quota, and memory limits of its control groups.

    CPUs      logical   the affinity mask, into which the kernel has already taken a cpuset
              cores     physical cores among them: hyperthreads of one core count once
              quota     the smallest CPU quota on the path of control groups, in CPUs; None without one
    memory    free      the machine's free memory, or what the tightest control group leaves; the driver's on a GPU

A container, a systemd unit and a batch job limit a process by control groups (cgroups, version 2). Limits are nested:
each group on the path from the process's own group to the root of the hierarchy applies. A container sees its own group
as that root. Page cache counts as free memory, because the kernel drops it before it refuses an allocation.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

MIB = 2**20
ROOT = Path("/")
MAX_BYTES = 1 << 20  # of a file under /proc or /sys


@dataclass(frozen=True, slots=True)
class Cpus:
    """CPUs of this process."""

    logical: int
    cores: int
    quota: float | None = None

    @property
    def usable(self) -> float:
        """CPUs that this process can keep busy: the logical ones, or the quota where that is lower."""
        return self.logical if self.quota is None else min(self.logical, self.quota)

    @property
    def whole(self) -> int:
        """`usable` in whole CPUs; at least 1."""
        return max(1, int(self.usable))

    @property
    def workers(self) -> int:
        """Threads that compute at once: one for each physical core, and no more than the quota lets run together."""
        return min(self.cores, self.whole)


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of this process."""

    free_mib: int
    limit_mib: int | None = None  # of the control group that leaves the least; None where the machine leaves less

    def limit_fix(self, need_mib: int) -> str:
        """The way out where the limit is too small, in part of a sentence; "" where the machine is."""
        if self.limit_mib is None or self.limit_mib >= need_mib:
            return ""
        return f"raise the memory limit of its control group ({self.limit_mib} MiB)"


# ── CPUs ─────────────────────────────────────────────────────────────────────────────────────────────────────


def cpus(root: Path = ROOT) -> Cpus:
    """The CPUs of this process now. `root`: of /proc and /sys."""
    allowed = affinity()
    quotas = [quota for group in groups(root) if (quota := group_quota(group)) is not None]
    return Cpus(len(allowed), physical_cores(allowed, root), min(quotas, default=None))


def affinity() -> list[int]:
    """Numbers of the CPUs that may run this process."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))  # macOS has no affinity; on Windows few processes have one


def physical_cores(allowed: list[int], root: Path = ROOT) -> int:
    """Physical cores among logical CPUs; at least 1."""
    topology = root / "sys/devices/system/cpu"
    siblings = [read(topology / f"cpu{number}/topology/thread_siblings_list") for number in allowed]
    if siblings and all(siblings):
        return len(set(siblings))
    import psutil

    with suppress(OSError, NotImplementedError):
        return max(1, min(psutil.cpu_count(logical=False) or len(allowed), len(allowed)))
    return max(1, len(allowed))


def group_quota(group: Path) -> float | None:
    """A control group's CPU quota, in CPUs; None without one."""
    quota_us, _, period_us = read(group / "cpu.max").strip().partition(" ")
    quota, period = number(quota_us), number(period_us)
    return quota / period if quota and period else None


# ── memory ───────────────────────────────────────────────────────────────────────────────────────────────────


def memory(root: Path = ROOT) -> Memory:
    """The memory that this process could allocate now. `root`: of /proc and /sys."""
    return min([Memory(machine_free_mib(root)), *limits(root)], key=lambda memory: memory.free_mib)


def whole_memory(root: Path = ROOT) -> Memory:
    """The memory that this process could use if no other used any: the machine's, or its lowest limit."""
    import psutil

    machine = Memory(int(psutil.virtual_memory().total / MIB))
    limited = [replace(memory, free_mib=memory.limit_mib or 0) for memory in limits(root)]
    return min([machine, *limited], key=lambda memory: memory.free_mib)


def limits(root: Path = ROOT) -> list[Memory]:
    """The memory that each limit of the control groups leaves to this process."""
    return [memory for group in groups(root) if (memory := group_memory(group))]


def free_mib(device: str) -> int:
    """The memory that a program could allocate now on "cpu", with control groups, or on a GPU by torch's name."""
    if device == "cpu":
        return memory().free_mib
    import torch

    return int(torch.cuda.mem_get_info(device)[0] >> 20)  # the driver's figure, for all processes together


def machine_free_mib(root: Path = ROOT) -> int:
    """Memory of the whole machine that a program could allocate."""
    available_kib = re.search(r"^MemAvailable:\s+(\d+)", read(root / "proc/meminfo"), re.MULTILINE)
    if available_kib:
        return int(available_kib[1]) * 1024 // MIB
    import psutil

    return int(psutil.virtual_memory().available / MIB)


def group_memory(group: Path) -> Memory | None:
    """The memory that a control group leaves; None without a limit, or where its files cannot be read.

    `memory.high` counts as a limit: the kernel slows a group above it down until it frees memory.
    """
    limits = [limit for name in ("max", "high") if (limit := number(read(group / f"memory.{name}"))) is not None]
    used = number(read(group / "memory.current"))
    if not limits or used is None:
        return None
    counts = dict(re.findall(r"^(\w+) (\d+)$", read(group / "memory.stat"), re.MULTILINE))
    cache = sum(int(counts.get(name, 0)) for name in ("active_file", "inactive_file"))
    return Memory(max(0, (min(limits) - used + cache) // MIB), min(limits) // MIB)


# ── control groups ───────────────────────────────────────────────────────────────────────────────────────────


def groups(root: Path = ROOT) -> list[Path]:
    """The directory of each control group of this process, its own group first; [] without version 2.

    A group that the hierarchy does not show is above its root: then the root's own limits apply.
    """
    hierarchy = root / "sys/fs/cgroup"
    line = re.search(r"^0::/(.*)$", read(root / "proc/self/cgroup"), re.MULTILINE)
    if line is None:
        return []
    own = hierarchy / line[1].lstrip("/")
    if ".." in own.parts or not own.is_dir():
        own = hierarchy
    return [group for group in (own, *own.parents) if group.is_relative_to(hierarchy)]


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────


def read(path: Path) -> str:
    """The text of a file under /proc or /sys; "" where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):  # ValueError: a null character in a path
        return ""


def number(text: str) -> int | None:
    """A limit or a count; None for "max", and for no number at all."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 20 else None
