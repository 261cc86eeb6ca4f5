"""CPUs, GPUs and memory that this process may use: affinity, CPU quota, and memory limits of its control groups.

    CPUs      logical   the affinity mask, into which the kernel has already taken a cpuset
              cores     physical cores among them: hyperthreads of one core count once
              quota     the smallest CPU quota on the path of control groups, in CPUs; None without one
    memory    free      the machine's free memory, or what the tightest control group leaves; the driver's on a GPU

A container, a systemd unit and a batch job limit a process by control groups (cgroups) of version 1 or 2. Limits are
nested: each group on the path from the process's own group to the root of the mount applies. A container sees its own
group as that root. Page cache counts as free memory, because the kernel drops it before it refuses an allocation.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from speclsp.process_resources import gpu_extra

MIB = 2**20
NO_LIMIT = 2**62  # version 1 writes its largest page-aligned number in place of "max"
ROOT = Path("/")
MIN_CAPABILITY = (8, 0)  # of a GPU: Ampere, the first with bfloat16
COPIED_BYTES = 1 << 28  # to measure a GPU's bandwidth
COPIES = 8
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
    limit_mib: int | None = None  # the limit that leaves the least; None where the machine leaves less
    is_address_space: bool = False  # the limit is `ulimit -v`; else it is that of a control group

    def limit_fix(self, need_mib: int) -> str:
        """The way out where the limit is too small, in part of a sentence; "" where the machine is."""
        if self.limit_mib is None:
            return ""
        if self.is_address_space:
            return f"raise the limit of its address space ({self.limit_mib} MiB; `ulimit -v unlimited`)"
        return (
            f"raise the memory limit of its control group ({self.limit_mib} MiB)" if self.limit_mib < need_mib else ""
        )


# ── CPUs ─────────────────────────────────────────────────────────────────────────────────────────────────────


def cpus(root: Path = ROOT) -> Cpus:
    """The CPUs of this process now. `root`: of /proc and /sys."""
    allowed = affinity()
    quotas = [quota for group, version in groups("cpu", root) if (quota := group_quota(group, version)) is not None]
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


def group_quota(group: Path, version: int) -> float | None:
    """A control group's CPU quota, in CPUs; None without one."""
    if version == 2:
        quota_us, _, period_us = read(group / "cpu.max").strip().partition(" ")
    else:
        quota_us, period_us = read(group / "cpu.cfs_quota_us"), read(group / "cpu.cfs_period_us")
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
    """The memory that each limit leaves to this process: those of its control groups and of its address space."""
    left = [memory for group, version in groups("memory", root) if (memory := group_memory(group, version))]
    return left + address_space(root)


def address_space(root: Path = ROOT) -> list[Memory]:
    """The address space that is left to this process; [] without a limit (`ulimit -v`), as login nodes set one."""
    if sys.platform == "win32":
        return []
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    pages = number(read(root / "proc/self/statm").partition(" ")[0])
    if limit == resource.RLIM_INFINITY or pages is None:
        return []
    used_mib = pages * resource.getpagesize() // MIB
    return [Memory(max(0, limit // MIB - used_mib), limit // MIB, is_address_space=True)]


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


def group_memory(group: Path, version: int) -> Memory | None:
    """The memory that a control group leaves; None without a limit, or where its files cannot be read.

    `memory.high` counts as a limit: the kernel slows a group above it down until it frees memory.
    """
    names = ("memory.max", "memory.high") if version == 2 else ("memory.limit_in_bytes",)
    limits = [limit for name in names if (limit := number(read(group / name))) is not None]
    if not limits:
        return None
    used = number(read(group / ("memory.current" if version == 2 else "memory.usage_in_bytes")))
    if used is None:
        return None
    prefix = "" if version == 2 else "total_"  # version 1 counts a group's children under these names only
    counts = dict(re.findall(r"^(\w+) (\d+)$", read(group / "memory.stat"), re.MULTILINE))
    cache = sum(int(counts.get(f"{prefix}{name}", 0)) for name in ("active_file", "inactive_file"))
    return Memory(max(0, (min(limits) - used + cache) // MIB), min(limits) // MIB)


# ── GPUs ─────────────────────────────────────────────────────────────────────────────────────────────────────


def pick_device(wanted: str) -> tuple[str, str]:
    """(device, problem): "cpu" or a GPU by torch's name; and why an NVIDIA GPU is not used, or is slow, as a sentence.

    Of several GPUs, "auto" takes the one with the most free memory at the first call.
    """
    device, reason, fix = find_gpu(wanted)
    if not reason:
        return device, ""
    effect = "so the CPU computes" if device == "cpu" else "so the GPU computes more slowly"
    return device, f"{reason}, {effect}: {fix}."


def find_gpu(wanted: str) -> tuple[str, str, str]:
    """(device, reason, fix): as `pick_device`, with both parts of its sentence.

    torch is imported only with a GPU's driver, and not where an empty CUDA_VISIBLE_DEVICES hides all GPUs on purpose.
    """
    if wanted == "cpu":
        return "cpu", "", ""
    if not os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip():
        return "cpu", *(("", "") if wanted == "auto" else ("CUDA_VISIBLE_DEVICES is empty", "unset it"))
    if not gpu_extra.has_gpu_driver():
        return "cpu", *(("", "") if wanted == "auto" else ("This machine has no NVIDIA driver", "install it"))
    return _search_gpu(wanted)


def forget_gpu() -> None:
    """Make the next `find_gpu` search again."""
    _search_gpu.cache_clear()


@cache
def _search_gpu(wanted: str) -> tuple[str, str, str]:
    """One search per process: "auto", the memory plan and the note need one device, and free memory changes."""
    if not gpu_extra.is_installed():
        return "cpu", "This machine has an NVIDIA GPU, and PyTorch is not installed", gpu_extra.fix()
    import torch

    with warnings.catch_warnings(record=True) as caught:  # torch warns of an old driver
        warnings.simplefilter("always")
        try:
            reason, fix = unusable_gpu(torch, wanted, caught)
            if reason:
                return "cpu", reason, fix
            device = wanted if wanted.startswith("cuda:") else "cuda"
            if device == "cuda" and torch.cuda.device_count() > 1:
                usable = [at for at in range(torch.cuda.device_count()) if not without_bf16(torch, at)]
                device = f"cuda:{max(usable, key=lambda at: (free_gpu_bytes(torch, at), -at))}"
        except RuntimeError as error:
            return "cpu", f"The GPU does not answer ({first_line(error)})", "restart the machine, or its driver"
    if find_spec("triton") is None:
        return device, "Triton is not installed", f"run `pip install {triton_package(sys.platform)}`"
    return device, "", ""


def triton_package(platform: str) -> str:
    """The package that has the module triton. `platform`: as sys.platform."""
    return "triton-windows" if platform == "win32" else "triton"  # Triton's own has no build for Windows


def unusable_gpu(torch: Any, wanted: str, caught: Sequence[warnings.WarningMessage]) -> tuple[str, str]:
    """(reason, fix) for a GPU that torch cannot compute on; empty for one that it can.

    Args:
        caught: collects the warnings of torch.

    Raises:
        RuntimeError: a GPU does not answer.
    """
    if torch.version.cuda is None:
        reason = f"This machine has an NVIDIA GPU, and PyTorch {torch.__version__} is built without CUDA"
        return reason, f"install the other build with `pip install torch --index-url {gpu_extra.CUDA_INDEX}`"
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if not count and visible and not caught:
        return f'CUDA_VISIBLE_DEVICES = "{visible[:80]}" leaves no GPU', "unset it, or name a GPU in it"
    if not count:
        why = first_line(caught[0].message) if caught else "it finds no GPU"
        need = f"PyTorch {torch.__version__} with CUDA {torch.version.cuda} cannot use the NVIDIA driver"
        return f"{need} ({why})", "update the driver, or load it"
    number = int(wanted[5:]) if wanted.startswith("cuda:") and wanted[5:].isdigit() else None
    if number is not None and number >= count:
        return f"PyTorch finds no {wanted}", f"set cuda:0 to cuda:{count - 1}" if count > 1 else "set cuda:0"
    old = [without_bf16(torch, at) for at in ([number] if number is not None else range(count))]
    return (f"{old[0]} computes without bfloat16", 'set device = "cpu"') if all(old) else ("", "")


def without_bf16(torch: Any, index: int) -> str:
    """The name of a GPU that has no bfloat16; "" for one that has."""
    has_bf16 = torch.cuda.get_device_capability(index) >= MIN_CAPABILITY
    return "" if has_bf16 else str(torch.cuda.get_device_name(index))


def free_gpu_bytes(torch: Any, index: int) -> int:
    """Free memory of a GPU; 0 if it does not answer."""
    try:
        return int(torch.cuda.mem_get_info(index)[0])
    except RuntimeError:
        return 0


def first_line(error: object) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:160]


_gb_per_s: dict[str, float] = {}  # by device, as measured


def measured_gb_per_s(device: str) -> float | None:
    """The rate of a copy of 256 MiB on a GPU, bytes read and written; None if it cannot be measured now."""
    import torch

    if device in _gb_per_s:
        return _gb_per_s[device]
    try:
        source = torch.zeros(COPIED_BYTES, dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        target.copy_(source)
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.device(device):
            began.record()
            for _ in range(COPIES):
                target.copy_(source)
            ended.record()
            ended.synchronize()
        _gb_per_s[device] = 2 * COPIES * COPIED_BYTES / float(began.elapsed_time(ended)) / 1e6
        del source, target
        torch.cuda.empty_cache()  # so that the next choice sees this memory as free
        return _gb_per_s[device]
    except RuntimeError:  # out of memory, for example: then the model is chosen by its bf16 size
        return None


# ── control groups ───────────────────────────────────────────────────────────────────────────────────────────


def groups(controller: str, root: Path = ROOT) -> Iterator[tuple[Path, int]]:
    """(directory, version) of each control group of this process that may limit `controller`, its own group first."""
    for line in read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, inside = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        mount = mounts(root).get(controller if controllers else "")
        if mount is None:
            continue
        hierarchy, own = mount.directory, mount.directory_of(inside)
        for group in (own, *own.parents):
            yield group, 1 if controllers else 2
            if group == hierarchy:
                break


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted hierarchy of control groups."""

    directory: Path
    top: PurePosixPath  # the group at the mount's root; a container sees a part of the hierarchy only

    def directory_of(self, inside: str) -> Path:
        """The directory of the group `inside`, a path from the hierarchy's root or from the namespace's.

        A group that the mount does not show is above its root: then the mount's own root applies.
        """
        group = PurePosixPath(inside)
        if ".." in group.parts or not group.is_relative_to(self.top):
            return self.directory
        own = self.directory / group.relative_to(self.top)
        return own if own.is_dir() else self.directory


@lru_cache(maxsize=4)  # a machine with many containers has thousands of mounts, and a process's own never change
def mounts(root: Path = ROOT) -> dict[str, Mount]:
    """The mounted hierarchies, by controller; "" is version 2's."""
    hierarchies: dict[str, Mount] = {}
    for line in read(root / "proc/self/mountinfo", most_bytes=16 * MAX_BYTES).splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        top, directory = (re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text) for text in fields[3:5])
        mount = Mount(root / directory.lstrip("/"), PurePosixPath(top))
        for controller in kind[2].split(",") if kind[0] == "cgroup" else [""]:
            hierarchies.setdefault(controller, mount)
    return hierarchies


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────


def read(path: Path, most_bytes: int = MAX_BYTES) -> str:
    """The text of a file under /proc or /sys; "" where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(most_bytes).decode("utf-8", "replace")
    except (OSError, ValueError):  # ValueError: a null character in a path
        return ""


def number(text: str) -> int | None:
    """A limit or a count; None for "max", for -1, for the largest number of version 1, and for no number at all."""
    text = text.strip()
    value = int(text) if text.isascii() and text.isdecimal() and len(text) <= 20 else NO_LIMIT
    return value if value < NO_LIMIT else None
