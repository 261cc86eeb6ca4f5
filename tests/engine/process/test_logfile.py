"""The log file where the system refuses to rename it: it stays bounded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.faults.filled_log import FILL_LOG


def write_600_lines(path: Path, platform: str) -> str:
    """Fill the log with 300 prints and 300 records, over twice its limit; returns the process's stderr."""
    command = [sys.executable, "-c", FILL_LOG, str(path), platform, "stdout"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stderr


def block_rename(path: Path) -> None:
    """A folder with content in the place of the file before: no user, root included, can rename the log onto it."""
    (path.with_name(path.name + ".1") / "content").mkdir(parents=True)


def test_a_log_that_cannot_be_renamed_stays_bounded_and_is_reported_once(isolated: Path):
    path = isolated / "state" / "engine.log"
    block_rename(path)
    errors = write_600_lines(path, "linux")
    assert path.stat().st_size <= 10_100
    assert errors.splitlines() == [line for line in errors.splitlines() if "It continues without a log." in line]
    assert errors.count("engine.log cannot be written: ") == 1


def test_on_windows_a_log_that_another_process_has_open_is_emptied_and_goes_on(isolated: Path):
    path = isolated / "state" / "engine.log"
    block_rename(path)
    assert write_600_lines(path, "win32") == ""
    assert path.stat().st_size <= 10_100
    assert path.read_text().splitlines()[-1] == "last words"
    assert "logged 299" in path.read_text() and "printed by a library 0\n" not in path.read_text()
