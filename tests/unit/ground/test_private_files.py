"""A file is replaced in one step, also while another program has it open; leftovers of killed processes are removed."""

from __future__ import annotations

import errno
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import pytest

from speclsp import private_files
from speclsp.private_files import locks, os_errors


def left_behind(path: Path, age_s: float) -> Path:
    file = path.with_name(f".{path.name}.a1b2c3_4")
    file.write_bytes(b"a part")
    os.utime(file, (time.time() - age_s,) * 2)
    return file


@pytest.mark.parametrize("name", ["state.json", "state[1].json"])
def test_what_a_killed_process_left_an_hour_ago_is_removed(tmp_path: Path, name: str):
    path = tmp_path / name
    old, other = left_behind(path, 3700), left_behind(tmp_path / "other.json", 3700)
    recent = path.with_name(f".{name}.b1b2c3_4")  # a process may still write it
    recent.write_bytes(b"a part")
    private_files.replace(path, b"new")
    assert path.read_bytes() == b"new"
    assert not old.exists() and other.exists() and recent.exists()


class OpenElsewhere(PermissionError):
    """The error of Windows for a file that another program has open."""

    def __init__(self, code: int | None) -> None:
        super().__init__(errno.EACCES, "access denied", "state.json")
        self.winerror = code


@pytest.mark.parametrize("code", [5, 32, 33, None])
@pytest.mark.parametrize("failures", [0, 1, 3])
def test_a_file_that_another_program_has_open_is_tried_again(code: int | None, failures: int):
    errors = iter([OpenElsewhere(code)] * failures)

    def action() -> str:
        for error in errors:
            raise error
        return "done"

    assert private_files.retry_while_open(action) == "done"


def test_a_file_that_stays_open_is_one_sentence_after_a_bounded_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(private_files, "RETRY_S", 0.05)
    tries = []

    def action() -> None:
        tries.append(1)
        raise OpenElsewhere(32)

    with pytest.raises(PermissionError) as caught:
        private_files.retry_while_open(action)
    assert len(tries) > 1
    assert os_errors.reason(caught.value) == private_files.STAYS_OPEN


@pytest.mark.parametrize(
    "error",
    [
        # as the C library raises it; on Windows that one may be of a file that is open elsewhere
        *([] if sys.platform == "win32" else [PermissionError(errno.EACCES, "no")]),
        OpenElsewhere(19),
        FileNotFoundError(),
    ],
)
def test_every_other_error_is_raised_at_once(error: OSError):
    tries = []

    def action() -> None:
        tries.append(1)
        raise error

    with pytest.raises(OSError) as caught:
        private_files.retry_while_open(action)
    assert (caught.value, len(tries)) == (error, 1)


@pytest.mark.parametrize(
    ("mode", "problem"),
    [
        (0o600, ""),
        (0o700, ""),
        (0o400, ""),
        (0o640, "is open to others (mode 0640)"),
        (0o602, "is open to others (mode 0602)"),
    ],
)
def test_exposure_names_the_access_of_others_and_restrict_ends_it(mode: int, problem: str, tmp_path: Path):
    path = tmp_path / "token"
    path.touch()
    path.chmod(mode)
    assert private_files.exposure(path, path.stat()) == problem
    private_files.restrict(path)
    assert private_files.exposure(path, path.stat()) == ""


# ── locks ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_lock_has_one_owner_until_its_last_handle_is_closed(tmp_path: Path):
    path = tmp_path / "a.lock"
    owner = locks.acquire(path)
    assert owner is not None and locks.is_at(path, owner) and locks.lock_now(owner)
    assert locks.acquire(path) is None
    other = locks.acquire(tmp_path / "b.lock")
    assert other is not None, "each file has a lock of its own"
    inherited = os.dup(owner)
    os.close(owner)
    assert locks.acquire(path) is None, "as in a child that inherits the handle"
    path.unlink()
    assert not locks.is_at(path, inherited)
    new_owner = locks.acquire(path)
    assert new_owner is not None, "a lock on a removed file excludes nobody"
    for handle in (inherited, other, new_owner):
        os.close(handle)


def test_a_file_system_without_locks_is_an_error_with_a_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(OSError) as caught:
        locks.acquire(tmp_path / "a.lock")
    assert re.search(r"does not support this\. \w+ .*a directory on a local disk", os_errors.sentence(caught.value))


def test_the_sentence_of_an_error_opens_no_file(monkeypatch: pytest.MonkeyPatch):
    """Its cause may be that no file can be opened or written."""

    def refuse(*_words: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", "/scratch")
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), b"/scratch/a")
    assert os_errors.sentence(error) == (
        "/scratch/a cannot be read or written: the disk is full. "
        "Free some space, or set TMPDIR to a directory on a larger disk."
    )
