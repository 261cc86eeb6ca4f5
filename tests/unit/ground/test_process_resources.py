"""CPUs and memory of this process: laws over fake /proc and /sys trees with control groups.

Also the search for programs: only absolute folders on PATH count, so a project's own files are never started.
"""

from __future__ import annotations

import os
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
from speclsp.process_resources import MIB, Memory
from speclsp.process_resources.programs import find_program

MACHINE_MIB = 16_000
GARBAGE = ("", "\n", "max", "max 100000", "-1", "12x", "0x10", "1e9", "²", "9" * 400, "\x00\xff")
OWN = "0::/user/engine\n"
PATHS = ("", "/user", "/user/engine")  # from the root of the hierarchy to the process's own group
TEXTS = st.sampled_from(GARBAGE) | st.text(max_size=30)

Limits = dict[str, dict[str, str]]  # group -> file name -> text


@contextmanager
def system(own: str, groups: Limits) -> Iterator[Path]:
    """A root with the files of /proc and /sys. `groups`: by their directory under the root."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        files = {
            "proc/meminfo": f"MemTotal: 1 kB\nMemFree: 2 kB\nMemAvailable:   {MACHINE_MIB * 1024} kB\n",
            "proc/self/cgroup": own,
        }
        for group, texts in groups.items():
            files |= {f"{group}/{file}": text for file, text in texts.items()}
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8", errors="surrogateescape")
        yield root


def memory_files(limit_mib: int | None, used_mib: int = 0, cache_mib: int = 0) -> dict[str, str]:
    """The files of one group."""
    active = cache_mib * MIB // 2
    return {
        "memory.max": "max\n" if limit_mib is None else f"{limit_mib * MIB}\n",
        "memory.current": f"{used_mib * MIB}\n",
        "memory.stat": f"anon 5\nactive_file {active}\ninactive_file {cache_mib * MIB - active}\n",
    }


@given(
    limits=st.lists(st.none() | st.integers(0, 64_000), min_size=3, max_size=3),
    used_mib=st.integers(0, 30_000),
    cache_mib=st.integers(0, 30_000),
)
def test_free_and_whole_memory_follow_the_tightest_group_on_the_path_or_the_machine(
    limits: list[int | None], used_mib: int, cache_mib: int
):
    groups = {
        f"sys/fs/cgroup{path}": memory_files(limit, used_mib, cache_mib)
        for path, limit in zip(PATHS, limits, strict=True)
    }
    with system(OWN, groups) as root:
        memory, whole = process_resources.memory(root), process_resources.whole_memory(root)
    known = [limit for limit in limits if limit is not None]
    left = {limit: max(0, limit - used_mib + cache_mib) for limit in known}
    assert memory.free_mib == min([MACHINE_MIB, *left.values()])
    assert memory.limit_mib in ([limit for limit in known if left[limit] < MACHINE_MIB] or [None])
    machine_mib = psutil.virtual_memory().total // MIB
    lowest = min([machine_mib, *known])
    assert whole == Memory(lowest, None if lowest == machine_mib else lowest), "however much is in use"


@given(
    quotas=st.lists(st.none() | st.integers(1, 64_000), min_size=3, max_size=3),
    allowed=st.integers(1, 256),
    period_us=st.sampled_from([1000, 100_000, 1_000_000]),
)
def test_usable_cpus_are_the_affinity_or_the_smallest_quota(quotas: list[int | None], allowed: int, period_us: int):
    """`quotas`: in thousandths of a CPU."""
    groups: Limits = {}
    for path, quota in zip(PATHS, quotas, strict=True):
        text = "max" if quota is None else str(quota * period_us // 1000)
        groups[f"sys/fs/cgroup{path}"] = {"cpu.max": f"{text} {period_us}\n"}
    with system(OWN, groups) as root, patch.object(os, "sched_getaffinity", lambda pid: set(range(allowed))):
        cpus = process_resources.cpus(root)
    assert cpus.logical == allowed
    assert cpus.usable == pytest.approx(min([allowed, *(quota / 1000 for quota in quotas if quota)]), abs=1e-3)
    assert 1 <= cpus.workers <= allowed and cpus.workers <= max(1.0, cpus.usable)


@given(texts=st.lists(st.none() | TEXTS, min_size=3, max_size=3), own=TEXTS)
def test_missing_and_unreadable_files_are_no_limit_and_no_error(texts: list[str | None], own: str):
    names = ("memory.stat", "memory.max", "cpu.max")
    group = {name: text for name, text in zip(names, texts, strict=True) if text is not None}
    for line in (OWN, OWN + own, own):
        with system(line, {"sys/fs/cgroup/user": group}) as root:
            memory, cpus = process_resources.memory(root), process_resources.cpus(root)
        assert memory == Memory(MACHINE_MIB), "a limit without a use counts for nothing"
        assert cpus.logical == len(os.sched_getaffinity(0)) and cpus.workers >= 1


@pytest.mark.parametrize("own", ["/", "/docker/1", "/../other", "/docker/gone", "//"])
def test_a_container_sees_its_own_group_as_the_root_of_the_hierarchy(own: str):
    """A namespace, a bind mount of the group, and groups that the container does not see."""
    with system(
        f"1:name=systemd:/x\n0::{own}\n", {"sys/fs/cgroup": memory_files(300) | {"cpu.max": "50000 100000"}}
    ) as root:
        assert process_resources.memory(root) == Memory(300, 300)
        assert process_resources.cpus(root).quota == 0.5


def test_the_slowdown_limit_counts_as_a_limit():
    limits = memory_files(2000, used_mib=100) | {"memory.high": f"{1500 * MIB}\n"}
    with system(OWN, {"sys/fs/cgroup/user/engine": limits}) as root:
        assert process_resources.memory(root) == Memory(1400, 1500)


def test_hyperthreads_of_one_core_count_once():
    topology = {
        f"sys/devices/system/cpu/cpu{n}/topology": {"thread_siblings_list": f"{n % 4},{n % 4 + 4}\n"} for n in range(8)
    }
    with system("", topology) as root:
        assert process_resources.physical_cores(list(range(8)), root) == 4
        assert process_resources.physical_cores([1, 5], root) == 1
        assert process_resources.physical_cores([1, 6], root) == 2


# ── programs ─────────────────────────────────────────────────────────────────────────────────────────────────


def found_on_windows(files: Collection[str], path: str, **environment: str) -> str | None:
    """The answer for "pip" on a Windows with these files only."""
    return find_program("pip", {"PATH": path, **environment}, windows=True, is_program=set(files).__contains__)


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
    for folder, mode in {".": 0o755, "tools": 0o755, "b": 0o644, "c": 0o755}.items():
        Path(folder).mkdir(exist_ok=True)
        Path(folder, "pip").write_text("#!/bin/sh\n")
        Path(folder, "pip").chmod(mode)
    Path("a/pip").mkdir(parents=True)
    assert [find_program("pip", {"PATH": path}) for path in ("", ".", "tools", ":.:tools:")] == [None] * 4
    folders = ":".join(["tools", *(str(tmp_path / name) for name in ("missing", "a", "b", "c"))])
    assert find_program("pip", {"PATH": folders}) == str(tmp_path / "c/pip")
