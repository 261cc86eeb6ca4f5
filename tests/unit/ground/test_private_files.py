"""A file is replaced in one step, and what a killed process left of a replacement is removed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from speclsp import private_files


def left_behind(path: Path, age_s: float) -> Path:
    file = path.with_name(f".{path.name}.a1b2c3_4")
    file.write_bytes(b"a part")
    os.utime(file, (time.time() - age_s,) * 2)
    return file


@pytest.mark.parametrize("name", ["state.json", "state[1].json"])
def test_what_a_killed_process_left_an_hour_ago_is_removed(tmp_path: Path, name: str):
    path = tmp_path / name
    file, other = left_behind(path, 3700), left_behind(tmp_path / "other.json", 3700)
    private_files.replace(path, b"new")
    assert path.read_bytes() == b"new"
    assert not file.exists() and other.exists()


def test_a_replacement_that_another_process_may_still_write_is_left_alone(tmp_path: Path):
    file = left_behind(tmp_path / "state.json", 60)
    private_files.replace(tmp_path / "state.json", b"new")
    assert file.exists()
