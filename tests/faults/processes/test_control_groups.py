"""Real control groups, as a container has them: memory limits, CPU quotas, cpusets and affinity of a whole command.

Each test makes groups below the root of this machine's hierarchies (version 1 or 2), starts a command inside them and
removes them. Elsewhere, tests/unit/ground/test_process_resources.py holds the laws over the files' formats.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.soak import in_soak
from support.waiting import wait_until

from speclsp import process_resources

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has control groups")

PERIOD_US = 100_000
# Each line names the groups to join; the answer comes from a fork, so one process imports torch for all tests.
RESOURCES = """
import json, os, sys
from dataclasses import asdict
from speclsp import process_resources
from speclsp.config import Config
from speclsp.engine.loading.load_plan import cpu_threads
for line in sys.stdin:
    job = json.loads(line)
    if os.fork():
        os.wait()
        continue
    for group in job["groups"]:
        with open(f"{group}/cgroup.procs", "w") as file:
            file.write(str(os.getpid()))
    os.sched_setaffinity(0, job["affinity"] or os.sched_getaffinity(0))
    print(json.dumps({
        **asdict(process_resources.cpus()), **asdict(process_resources.memory()),
        "threads": cpu_threads(Config()), "whole_mib": process_resources.whole_memory().free_mib,
    }), flush=True)
    os._exit(0)
"""
READ_TWICE = """
import sys
from speclsp import process_resources
for _ in range(2):  # the second time, the kernel moves its pages to the active list
    with open(sys.argv[1], "rb") as file:
        while file.read(1 << 20): pass
free_mib = process_resources.memory().free_mib
ballast = b"x" * (100 << 20)
print(free_mib, len(ballast) >> 20)
"""


class Groups:
    """Control groups of one test, by controller, and the commands started inside all of them."""

    def __init__(self, reader: subprocess.Popen[str]) -> None:
        """`reader` runs RESOURCES."""
        self.directories: list[Path] = []
        self._reader = reader

    def make(self, controller: str, **limits: int | str) -> Path:
        """A new group below the hierarchy's root; `limits` by file name, "." written as "__"."""
        return self.below(self.root(controller), controller, **limits)

    def below(self, parent: Path, controller: str, **limits: int | str) -> Path:
        """A new group below `parent`; skips the test where this user cannot make it or its files are missing."""
        directory = parent / f"speclsp-test-{os.getpid()}-{len(self.directories)}"
        try:
            directory.mkdir()
            self.directories.append(directory)
            for name, limit in limits.items():
                (directory / name.replace("__", ".", 1)).write_text(str(limit))
        except OSError as error:
            pytest.skip(f"control groups for {controller} cannot be made here: {error}")
        return directory

    def root(self, controller: str) -> Path:
        """The root of the hierarchy of `controller`."""
        mounts = process_resources.mounts()
        if controller in mounts:
            return mounts[controller].directory
        root = mounts[""].directory if "" in mounts else None
        if root is None or controller not in (root / "cgroup.subtree_control").read_text().split():
            pytest.skip(f"no hierarchy of control groups limits {controller} here")
        return root

    def version(self, controller: str) -> int:
        return 1 if controller in process_resources.mounts() else 2

    def with_memory(self, mib: int) -> Path:
        self.root("memory")
        limit = {"memory__limit_in_bytes" if self.version("memory") == 1 else "memory__max": mib * 2**20}
        return self.make("memory", **limit)

    def with_quota(self, cpus: float) -> Path:
        self.root("cpu")
        quota_us = round(cpus * PERIOD_US)
        if self.version("cpu") == 1:
            return self.make("cpu", cpu__cfs_period_us=PERIOD_US, cpu__cfs_quota_us=quota_us)
        return self.make("cpu", cpu__max=f"{quota_us} {PERIOD_US}")

    def with_cpuset(self, cpus: str) -> Path:
        root = self.root("cpuset")
        nodes = {"cpuset__mems": (root / "cpuset.mems").read_text()} if self.version("cpuset") == 1 else {}
        return self.make("cpuset", **nodes, cpuset__cpus=cpus)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command in all groups that were made."""
        script = "".join(f"echo $$ > {group}/cgroup.procs && " for group in self.directories)
        return subprocess.run(
            ["sh", "-c", f'{script}exec "$@"', "sh", *words], capture_output=True, text=True, timeout=300, check=False
        )

    def resources(self, *inside: Path, affinity: tuple[int, ...] = ()) -> dict[str, Any]:
        """The resources that a process in these groups, on these CPUs, reads for itself."""
        assert self._reader.stdin is not None and self._reader.stdout is not None
        self._reader.stdin.write(json.dumps({"groups": list(map(str, inside)), "affinity": affinity}) + "\n")
        self._reader.stdin.flush()
        answer: dict[str, Any] = json.loads(self._reader.stdout.readline())
        return answer

    def close(self) -> None:
        for directory in reversed(self.directories):
            if directory.is_dir():
                wait_until(lambda directory=directory: removed(directory))  # the kernel still ends its last process


def removed(directory: Path) -> bool:
    try:
        directory.rmdir()
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def reader() -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", RESOURCES], stdin=pipe, stdout=pipe, text=True) as process:
        yield process


@pytest.fixture
def groups(reader: subprocess.Popen[str]) -> Iterator[Groups]:
    groups = Groups(reader)
    yield groups
    groups.close()


Speclsp = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def speclsp(groups: Groups) -> Speclsp:
    """Runs `speclsp` inside the test's groups."""
    return lambda *words: groups.run(sys.executable, "-m", "speclsp", *words)


# ── memory ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.soak
def test_the_list_of_models_plans_with_the_limit_of_the_container(groups: Groups, speclsp: Speclsp):
    groups.with_memory(400)
    rows = {row["name"]: row for row in json.loads(speclsp("models", "list", "--json").stdout)["pairs"]}
    for name, row in rows.items():
        assert row["fits"] == ("yes" if row["memory_mib"] < 330 else "no memory"), (name, row["memory_mib"])


@pytest.mark.soak
def test_setup_names_the_limit_and_no_model_where_none_fits(groups: Groups, speclsp: Speclsp):
    groups.with_memory(400)
    ended = speclsp("setup", "--yes", "--model", "qwen2.5-coder-0.5b-instruct")
    assert ended.returncode == 2
    assert "raise the memory limit of its control group (400 MiB); no smaller model fits now" in ended.stderr
    assert "or set model" not in ended.stderr


@pytest.mark.soak
def test_setup_names_a_smaller_model_where_one_fits(groups: Groups, speclsp: Speclsp):
    groups.with_memory(1800)
    ended = speclsp("setup", "--yes", "--model", "qwen2.5-coder-7b-q8_0")
    assert ended.returncode == 2
    assert 'control group (1800 MiB), or set model = "qwen2.5-coder-0.5b' in ended.stderr


def test_doctor_reports_the_limit_and_is_not_killed_by_it(groups: Groups, speclsp: Speclsp):
    groups.with_memory(480)
    ended = speclsp("doctor", "--json", "--model", "echo")
    assert ended.returncode == 0, ended.stderr
    device = next(check for check in json.loads(ended.stdout)["checks"] if check["name"] == "device")
    assert " MiB free of a limit of 480 MiB" in device["found"]
    assert device["facts"]["memory_limit_mib"] == 480 > device["facts"]["free_mib"]


def test_the_tightest_limit_on_the_path_applies(groups: Groups):
    parent = groups.with_memory(600)
    child = groups.below(parent, "memory")
    answer = groups.resources(child)
    assert answer["limit_mib"] == 600 and 0 < answer["free_mib"] < 600
    assert answer["whole_mib"] == 600, "however much of it is in use"


def test_page_cache_counts_as_free_and_is_given_back(groups: Groups, tmp_path: Path):
    groups.with_memory(200)
    file = tmp_path / "file"
    file.write_bytes(os.urandom(2**20) * 150)
    ended = groups.run(sys.executable, "-c", READ_TWICE, str(file))
    assert ended.returncode == 0, "the kernel kills a process that gets over the limit"
    free_mib, allocated_mib = map(int, ended.stdout.split())
    assert free_mib > 120 > allocated_mib == 100


# ── CPUs ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("quota", "threads"), [(0.5, 1), *in_soak((1.0, 1), (1.5, 1))])
def test_a_quota_of_fewer_than_two_cpus_means_one_thread(groups: Groups, quota: float, threads: int):
    answer = groups.resources(groups.with_quota(quota))
    assert answer["quota"] == quota and answer["threads"] == threads


@pytest.mark.soak
def test_a_quota_above_the_cpus_of_the_machine_changes_nothing(groups: Groups):
    unlimited = groups.resources()
    assert groups.resources(groups.with_quota(1000.0))["threads"] == unlimited["threads"]


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="it needs two CPUs")
def test_a_cpuset_and_an_affinity_of_one_cpu_mean_one_thread(groups: Groups):
    for answer in (groups.resources(groups.with_cpuset("1")), groups.resources(affinity=(1,))):
        assert (answer["logical"], answer["cores"], answer["threads"]) == (1, 1, 1)
