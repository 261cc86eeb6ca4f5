"""Law: each error of the operating system is printed with the file, the cause and a way out.

A preloaded library lets one operation fail below the test's directories, in the command and in the engine it starts.
Never a bare strerror, a traceback or "bug in speclsp". Each command meets each operation; the errnos take turns.
"""

from __future__ import annotations

import copy
import errno
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.source_tree import ROOT
from support.weights.faulty_hub import FaultyHubRun, cache

from speclsp.private_files import os_errors

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD and flock are Linux's")

ERRNOS = (
    *(errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ENAMETOOLONG),
    *(errno.ELOOP, errno.EMFILE, errno.ETXTBSY, errno.EPERM, errno.ENFILE, errno.ENOTCONN, errno.EUCLEAN),
)
CHANGES = "open create read write fsync rename"
CASES = {  # command: the directory with the fault, and the operations that the command makes there
    "config list": ("cfg", "open read"),
    "config set engine.threads 2": ("cfg", CHANGES),
    "config unset engine.offline": ("cfg", CHANGES),
    "stats --forget": ("sta", "unlink"),
    "doctor --model echo": ("run", "create"),
    "models verify hubbed": ("cac", "open read"),
    "models pull hubbed": ("cac", "create write fsync rename mkdir flock"),
    "models pull shelved": ("cac", "create read write fsync rename mkdir flock"),
    "models remove hubbed --yes": ("cac", "create flock"),
    "complete {file}:1:5 --model hubbed": ("cac", "open read"),
    "complete {file}:1:5 --model echo --json": ("a.py", "open read"),
    "complete {file}:1:5 --model echo": ("run", "create write rename mkdir"),
    "engine status": ("run", "open create"),
    "engine start --model echo": ("run", "create write rename mkdir flock"),
}
JOB = """
import ctypes, os, sys
preloaded = ctypes.CDLL(None)
preloaded.fault_set(os.environ["FAULT"].encode())
from speclsp.cli import entry
code = entry.main({words!r})
print("HITS", preloaded.fault_hits(), file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The preloaded library."""
    built = tmp_path_factory.mktemp("preloaded") / "faulty_disk.so"
    source = ROOT / "tests/support/faults/faulty_disk.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(built), str(source), "-ldl"], check=True)
    return built


@pytest.fixture
def disk(house: FaultyHubRun, library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyHubRun]:
    """The installation with the library; its forks have the faults that FAULT names."""
    monkeypatch.setenv("LD_PRELOAD", str(library))
    forks = copy.copy(house)
    forks.zygote = None
    yield forks
    assert forks.zygote is not None
    forks.zygote.kill()
    forks.zygote.communicate()


def prepare(house: FaultyHubRun, isolated: Path, command: str) -> list[str]:
    """Fill the test's directories with what the command reads, changes or removes; the command's words."""
    for directory in isolated.iterdir():
        shutil.rmtree(directory, ignore_errors=True)
    (isolated / "run").mkdir(mode=0o700)
    for directory in ("cfg/speclsp", "sta/speclsp"):
        (isolated / directory).mkdir(parents=True, mode=0o700)
    (isolated / "cfg/speclsp/config.toml").write_text("[engine]\noffline = false\n")
    (isolated / "sta/speclsp/stats.db").touch()
    (isolated / "a.py").write_text("a = ")
    if "pull" not in command:
        shutil.copytree(house.whole / "speclsp/models/hubbed", cache() / "hubbed")
    return command.format(root=isolated, file=isolated / "a.py").split()


def wrong(output: str, code: int, number: int, root: Path) -> str:
    """The breach of the law; "" without one."""
    if any(text in output for text in ("Traceback", "bug in speclsp", "[Errno", "Error:")) or code not in (0, 1, 2):
        return "a traceback or a bug"
    row = os_errors.CAUSES.get(number, os_errors.UNKNOWN)
    cause = row.cause or os.strerror(number).lower()
    lines = [line for line in output.splitlines() if cause in line or os.strerror(number) in line]
    if code == 2 and not lines:
        return "no cause"
    for line in lines:
        if str(root) not in line:
            return "no file"
        if not any(way and way in line.lower() for way in (row.action.lower(), row.directory)):
            return "no way out"
    return ""


def test_each_error_of_the_system_names_the_file_the_cause_and_the_way_out(disk: FaultyHubRun, isolated: Path):
    errnos, breaches = itertools.cycle(ERRNOS), []
    for command, (directory, operations) in CASES.items():
        for operation in operations.split():
            number = next(errnos)
            words = prepare(disk, isolated, command)
            fault = f"{operation} {number} {isolated / directory}"
            code, output = disk.fork(program=JOB.format(words=words), FAULT=fault)
            if code == 0:
                disk.fork("engine", "stop")
            unnoticed = code == 0 and not command.startswith("doctor")
            if breach := "no error" if unnoticed else wrong(output, code, number, isolated):
                breaches.append(f"{breach}: {command} / {operation} / {errno.errorcode[number]}: {code} {output}")
    assert not breaches, "\n".join(breaches)
