"""A file is replaced in one step, also while another program has it open; leftovers of killed processes are removed."""

from __future__ import annotations

import errno
import os
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
    file, other = left_behind(path, 3700), left_behind(tmp_path / "other.json", 3700)
    private_files.replace(path, b"new")
    assert path.read_bytes() == b"new"
    assert not file.exists() and other.exists()


def test_a_replacement_that_another_process_may_still_write_is_left_alone(tmp_path: Path):
    file = left_behind(tmp_path / "state.json", 60)
    private_files.replace(tmp_path / "state.json", b"new")
    assert file.exists()


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


@pytest.fixture(params=["flock", *sorted(os_errors.LOCKLESS)])
def file_system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system with locks, and those that refuse them."""
    if request.param == "flock":
        return
    if sys.platform != "linux":
        pytest.skip("Linux has abstract sockets")

    def refuse(handle: int, operation: int) -> None:
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr("fcntl.flock", refuse)


@pytest.mark.usefixtures("file_system")
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
    excluded = locks.is_at(path, inherited)  # a socket keeps no inode: the new file can have that of the removed one
    assert (new_owner is None) == excluded, "a lock on a removed file excludes nobody"
    for handle in filter(None, (inherited, other, new_owner)):
        os.close(handle)
    again = locks.acquire(path)
    assert again is not None
    os.close(again)


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
