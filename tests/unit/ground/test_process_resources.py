"""CPUs and memory of this process: laws over fake /proc and /sys trees of both versions of control groups.

Also the search for programs: only absolute folders on PATH count, so a project's own files are never started.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp import process_resources
from speclsp.process_resources import MIB, Cpus, Memory
from speclsp.process_resources.programs import find_program

LARGEST = 9223372036854771712  # version 1's way to write "no limit"
MACHINE_MIB = 16_000
GARBAGE = ("", "\n", "max", "max 100000", "-1", "12x", "0x10", "1e9", "²", "9" * 400, "\x00\xff", str(LARGEST))

Limits = dict[str, dict[str, str]]  # group -> file name -> text


@contextmanager
def system(own: str, mountinfo: str, groups: Limits) -> Iterator[Path]:
    """A root with the files of /proc and /sys. `groups`: by their directory under the root."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        files = {
            "proc/meminfo": f"MemTotal: 1 kB\nMemFree: 2 kB\nMemAvailable:   {MACHINE_MIB * 1024} kB\n",
            "proc/self/cgroup": own,
            "proc/self/mountinfo": mountinfo,
        }
        for group, texts in groups.items():
            files |= {f"{group}/{file}": text for file, text in texts.items()}
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8", errors="surrogateescape")
        yield root


def mount(directory: str, kind: str, options: str, top: str = "/") -> str:
    return f"31 23 0:28 {top} /{directory} rw,relatime shared:9 - {kind} {kind} {options}\n"


V2 = mount("sys/fs/cgroup", "cgroup2", "rw,nsdelegate")
V1 = mount("sys/fs/cgroup/memory", "cgroup", "rw,memory") + mount("sys/fs/cgroup/cpu", "cgroup", "rw,cpu,cpuacct")
OWN_V2, OWN_V1 = "0::/user/engine\n", "5:cpu,cpuacct:/user/engine\n4:memory:/user/engine\n1:name=systemd:/x\n0::/\n"
PATHS = ("", "/user", "/user/engine")  # from the root of the hierarchy to the process's own group


def in_version_2(limits: list[int | None], used_mib: int, cache_mib: int) -> Limits:
    """The memory files of nested groups; a limit in MiB, None: "max"."""
    stat = f"anon 5\nactive_file {cache_mib * MIB // 2}\ninactive_file {cache_mib * MIB - cache_mib * MIB // 2}\n"
    return {
        f"sys/fs/cgroup{path}": {
            "memory.max": "max\n" if limit is None else f"{limit * MIB}\n",
            "memory.current": f"{used_mib * MIB}\n",
            "memory.stat": stat,
        }
        for path, limit in zip(PATHS, limits, strict=True)
    }


def in_version_1(limits: list[int | None], used_mib: int, cache_mib: int) -> Limits:
    stat = f"inactive_file 7\ntotal_inactive_file {cache_mib * MIB}\ntotal_active_file 0\n"
    return {
        f"sys/fs/cgroup/memory{path}": {
            "memory.limit_in_bytes": f"{LARGEST if limit is None else limit * MIB}\n",
            "memory.usage_in_bytes": f"{used_mib * MIB}\n",
            "memory.stat": stat,
        }
        for path, limit in zip(PATHS, limits, strict=True)
    }


VERSIONS = {"version 1": (OWN_V1, V1, in_version_1), "version 2": (OWN_V2, V2, in_version_2)}
LIMITS = st.lists(st.none() | st.integers(0, 64_000), min_size=3, max_size=3)


@pytest.mark.parametrize("version", VERSIONS)
@given(limits=LIMITS, used_mib=st.integers(0, 30_000), cache_mib=st.integers(0, 30_000))
def test_free_memory_is_what_the_tightest_group_on_the_path_or_the_machine_leaves(
    version: str, limits: list[int | None], used_mib: int, cache_mib: int
):
    own, mountinfo, written = VERSIONS[version]
    with system(own, mountinfo, written(limits, used_mib, cache_mib)) as root:
        memory = process_resources.memory(root)
    left = [max(0, limit - used_mib + cache_mib) for limit in limits if limit is not None]
    assert memory.free_mib == min([MACHINE_MIB, *left])
    tightest = [limit for limit in limits if limit is not None and max(0, limit - used_mib + cache_mib) < MACHINE_MIB]
    assert memory.limit_mib in ([*tightest] or [None])


@pytest.mark.parametrize("version", VERSIONS)
@given(limits=LIMITS, used_mib=st.integers(0, 30_000))
def test_the_whole_memory_is_the_lowest_limit_or_the_machines_however_much_is_used(
    version: str, limits: list[int | None], used_mib: int
):
    own, mountinfo, written = VERSIONS[version]
    machine_mib = psutil.virtual_memory().total // MIB
    with system(own, mountinfo, written(limits, used_mib, 0)) as root:
        whole = process_resources.whole_memory(root)
    lowest = min([machine_mib, *(limit for limit in limits if limit is not None)])
    assert whole.free_mib == lowest
    assert whole.limit_mib == (None if lowest == machine_mib else lowest)


QUOTAS = st.lists(
    st.none() | st.integers(1, 64_000).map(lambda thousandths: thousandths / 1000), min_size=3, max_size=3
)


@pytest.mark.parametrize("version", VERSIONS)
@given(quotas=QUOTAS, allowed=st.integers(1, 256), period_us=st.sampled_from([1000, 100_000, 1_000_000]))
def test_usable_cpus_are_the_affinity_or_the_smallest_quota(
    version: str, quotas: list[float | None], allowed: int, period_us: int
):
    own, mountinfo, _ = VERSIONS[version]
    groups: Limits = {}
    for path, quota in zip(PATHS, quotas, strict=True):
        quota_us = None if quota is None else round(quota * period_us)
        if version == "version 2":
            text = f"{'max' if quota_us is None else quota_us} {period_us}\n"
            groups[f"sys/fs/cgroup{path}"] = {"cpu.max": text}
        else:
            text = "-1" if quota_us is None else str(quota_us)
            groups[f"sys/fs/cgroup/cpu{path}"] = {"cpu.cfs_quota_us": text, "cpu.cfs_period_us": str(period_us)}
    with system(own, mountinfo, groups) as root, patch.object(os, "sched_getaffinity", lambda pid: set(range(allowed))):
        cpus = process_resources.cpus(root)
    assert cpus.logical == allowed
    assert cpus.usable == pytest.approx(min([float(allowed), *filter(None, quotas)]), abs=1e-3)
    assert 1 <= cpus.workers <= allowed and cpus.workers <= max(1.0, cpus.usable)


TEXTS = st.sampled_from(GARBAGE) | st.text(max_size=30)


@pytest.mark.parametrize("version", VERSIONS)
@given(texts=st.lists(st.none() | TEXTS, min_size=5, max_size=5), own=TEXTS, mountinfo=TEXTS)
def test_missing_and_unreadable_files_are_no_limit_and_no_error(
    version: str, texts: list[str | None], own: str, mountinfo: str
):
    names = ("memory.stat", "memory.max", "memory.limit_in_bytes", "cpu.max", "cpu.cfs_quota_us")
    known_own, known_mounts, _ = VERSIONS[version]
    folder = "sys/fs/cgroup/memory/user" if version == "version 1" else "sys/fs/cgroup/user"
    group = {name: text for name, text in zip(names, texts, strict=True) if text is not None}
    for lines, mounted in ((known_own, known_mounts), (known_own + own, mountinfo), (own, known_mounts + mountinfo)):
        with system(lines, mounted, {folder: group}) as root:
            memory, cpus = process_resources.memory(root), process_resources.cpus(root)
        assert memory == Memory(MACHINE_MIB), "a limit without a use counts for nothing"
        assert cpus.logical == len(os.sched_getaffinity(0)) and cpus.workers >= 1


@pytest.mark.parametrize("text", GARBAGE)
def test_what_is_no_number_and_what_is_no_limit_reads_as_none(text: str):
    assert process_resources.number(text) is None
    assert process_resources.number("4096\n") == 4096


def test_a_container_sees_its_own_group_as_the_root_of_the_mount():
    limited = {"memory.max": str(300 * MIB), "memory.current": "0", "memory.stat": "", "cpu.max": "50000 100000"}
    shapes = {
        "a namespace": ("0::/\n", V2),
        "a bind mount of the group": ("0::/docker/1\n", mount("sys/fs/cgroup", "cgroup2", "rw", top="/docker/1")),
        "a group above the mount": ("0::/../other\n", V2),
        "a mount of another part": ("0::/docker/1\n", mount("sys/fs/cgroup", "cgroup2", "rw", top="/../..")),
        "a group that is gone": ("0::/docker/gone\n", V2),
    }
    for shape, (own, mountinfo) in shapes.items():
        with system(own, mountinfo, {"sys/fs/cgroup": limited}) as root:
            assert process_resources.memory(root) == Memory(300, 300), shape
            assert process_resources.cpus(root).quota == 0.5, shape


def test_a_mount_point_with_a_space_is_read_as_the_kernel_writes_it():
    escaped = mount("sys/fs/c\\040g", "cgroup2", "rw")
    group = {"memory.max": str(10 * MIB), "memory.current": "0", "memory.stat": ""}
    with system("0::/\n", escaped, {"sys/fs/c g": group}) as root:
        assert process_resources.memory(root) == Memory(10, 10)


def test_the_slowdown_limit_of_version_2_counts_as_a_limit():
    groups = in_version_2([None, None, 2000], used_mib=100, cache_mib=0)
    groups["sys/fs/cgroup/user/engine"]["memory.high"] = f"{1500 * MIB}\n"
    with system(OWN_V2, V2, groups) as root:
        assert process_resources.memory(root) == Memory(1400, 1500)


def test_hyperthreads_of_one_core_count_once():
    topology = {
        f"sys/devices/system/cpu/cpu{n}/topology": {"thread_siblings_list": f"{n % 4},{n % 4 + 4}\n"} for n in range(8)
    }
    with system("", "", topology) as root:
        assert process_resources.physical_cores(list(range(8)), root) == 4
        assert process_resources.physical_cores([1, 5], root) == 1
        assert process_resources.physical_cores([1, 6], root) == 2


@pytest.mark.parametrize(
    ("cpus", "workers"),
    [(Cpus(8, 4), 4), (Cpus(8, 4, 16.0), 4), (Cpus(8, 4, 2.5), 2), (Cpus(2, 2, 1.5), 1), (Cpus(2, 2, 0.1), 1)],
)
def test_workers_are_whole_cpus_of_the_quota_and_at_most_one_a_core(cpus: Cpus, workers: int):
    assert cpus.workers == workers


def test_this_machine_has_a_cpu_and_memory():
    assert 0 < process_resources.memory().free_mib < 2**24
    assert 1 <= process_resources.cpus().workers <= process_resources.cpus().logical <= (os.cpu_count() or 1)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux counts the address space in /proc")
def test_a_limit_of_the_address_space_counts_and_is_named():
    code = "from speclsp import process_resources as r; m = r.memory(); print(m.free_mib, m.limit_fix(1))"
    shell = ["sh", "-c", f"ulimit -v 1048576 && exec {sys.executable} -c '{code}'"]
    free_mib, fix = subprocess.run(shell, capture_output=True, text=True, check=True).stdout.strip().split(" ", 1)
    assert 0 < int(free_mib) < 1024
    assert fix == "raise the limit of its address space (1024 MiB; `ulimit -v unlimited`)"
    assert process_resources.address_space() == []


# ── programs ─────────────────────────────────────────────────────────────────────────────────────────────────


def found_on_windows(files: Collection[str], path: str, **environment: str) -> str | None:
    """The answer for "pip" on a Windows with these files only."""
    return find_program("pip", {"PATH": path, **environment}, windows=True, is_program=set(files).__contains__)


def executable(folder: Path, name: str = "pip") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)
    return folder / name


@pytest.mark.parametrize("path", ["", ".", "tools", r"\tools", "C:", "C:tools", r"..\tools"])
def test_windows_starts_nothing_from_the_current_directory_or_a_relative_folder(path: str):
    names = ("pip.exe", "pip.cmd", r".\pip.exe", r"tools\pip.exe", r"\tools\pip.exe", "C:pip.exe", r"C:tools\pip.exe")
    assert found_on_windows([*names, r"..\tools\pip.exe"], path) is None
    assert found_on_windows([*names, r"D:\bin\pip.exe"], rf"{path};D:\bin") == r"D:\bin\pip.exe"


def test_windows_takes_the_first_folder_and_the_extensions_in_the_order_of_pathext():
    files = [r"C:\a\pip.cmd", r"C:\a\pip.js", r"C:\b c\pip.exe", r"C:\b c\pip.cmd", r"\\server\share\pip.exe"]
    assert found_on_windows(files, r"C:\a;C:\b c") == r"C:\a\pip.cmd"
    assert found_on_windows(files, r'"C:\b c";C:\a') == r"C:\b c\pip.exe"
    assert found_on_windows(files, r"C:\b c", PATHEXT=".JS;.CMD;.EXE") == r"C:\b c\pip.cmd"
    assert found_on_windows(files, r"C:\a", PATHEXT=".JS") is None, "CreateProcess cannot start a script"
    assert found_on_windows(files, r"\\server\share") == r"\\server\share\pip.exe"


@pytest.mark.skipif(os.name == "nt", reason="rules of POSIX")
def test_posix_skips_relative_folders_files_without_rights_and_directories(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    executable(tmp_path)
    executable(tmp_path / "tools")
    assert [find_program("pip", {"PATH": path}) for path in ("", ".", "tools", ":.:tools:")] == [None] * 4
    (tmp_path / "a" / "pip").mkdir(parents=True)
    executable(tmp_path / "b").chmod(0o644)
    last = executable(tmp_path / "c")
    folders = ":".join(["tools", *(str(tmp_path / name) for name in ("missing", "a", "b", "c"))])
    assert find_program("pip", {"PATH": folders}) == str(last)
