"""Reads and replaces files that only this user may touch.

A pipe or a device in the place of a file is refused and never waited for. A file is replaced in one step: its reader
sees the old content or the new one, and never a part. Windows refuses to replace a file that another program has open,
as a reader or a virus scanner: that is tried again for RETRY_S. "Only this user" is the mode on POSIX and the access
rights on Windows (windows_files.py).
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import secrets
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, TypeVar

from speclsp.errors import EngineError
from speclsp.private_files.os_errors import OPEN_ELSEWHERE, naming, sentence

PLAIN_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
PLAIN_FLAGS |= getattr(os, "O_BINARY", 0)  # Windows would change line ends, and end at a Ctrl-Z
LEFT_BEHIND_S = 3600.0  # age of a new file that no process still writes
NO_LINK_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
RETRY_S, RETRY_PAUSE_S = 2.0, 0.02  # of a file that another program has open, on Windows
STAYS_OPEN = "access denied, perhaps because another program has it open"
Result = TypeVar("Result")


def open_plain(path: str | Path, flags: int, mode: int = 0o600) -> int:
    """Open a regular file, as os.open does. Raises OSError; its errno is EINVAL for anything but a regular file."""
    handle = os.open(path, flags | PLAIN_FLAGS, mode)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not an ordinary file", str(path))
    return handle


def read_bytes(path: str | Path, most_bytes: int, *, follow: bool = True) -> bytes:
    """The file's content. Raises OSError: EFBIG for more than `most_bytes`, ELOOP for a link that is not followed."""
    flags = os.O_RDONLY | (0 if follow else getattr(os, "O_NOFOLLOW", 0))
    with naming(path), os.fdopen(open_plain(path, flags), "rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"larger than {most_bytes} bytes", str(path))
    return content


def version_of(file: IO[bytes]) -> tuple[int, int]:
    """The size of an open file and the time of its last change: they tell whether another program has altered it."""
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def replace(path: Path, data: bytes, *, mode: int = 0o600, sync: bool = False) -> None:
    """Write `data` to a new file beside `path` and rename it over `path`.

    `sync`: flush it to the disk first, so that a power cut cannot leave an empty file. Raises OSError; `path` is then
    as it was, and the new file is removed. A process that is killed leaves its new file; an hour later the next
    replacement of `path` removes it.
    """
    handle, name = create_beside(path)
    try:
        with naming(path), os.fdopen(handle, "wb") as file:
            if sys.platform == "win32" and mode == 0o600:  # POSIX has made it with that mode
                with contextlib.suppress(OSError):  # a file system without rights: `check_private` reports it
                    restrict(Path(name))
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        if mode != 0o600:
            Path(name).chmod(mode)
        retry_while_open(lambda: Path(name).replace(path))
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
    with contextlib.suppress(OSError):
        for left in path.parent.glob(f".{glob.escape(path.name)}.????????"):  # as `create_beside` names them
            if time.time() - left.stat().st_mtime > LEFT_BEHIND_S:
                left.unlink()


def create_beside(path: Path) -> tuple[int, str]:
    """A new file of mode 0600 in the directory of `path`, open for writing, and its name. Raises OSError.

    On Windows tempfile.mkstemp tries names without end in a directory in which this user may make no file.
    """
    name = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | PLAIN_FLAGS | getattr(os, "O_NOINHERIT", 0)
    return os.open(name, flags, 0o600), str(name)


def retry_while_open(action: Callable[[], Result], within_s: float | None = None) -> Result:
    """The result of `action` on a file, tried again while another program has the file open (Windows).

    `within_s`: how long; by default RETRY_S.

    Raises OSError: STAYS_OPEN after that time, or at once what `action` raises for any other reason.
    """
    deadline_s = time.monotonic() + (RETRY_S if within_s is None else within_s)
    while True:
        try:
            return action()
        except PermissionError as error:
            # os.open, a call of the C library, reports no code of Windows (None). On POSIX there is no such field.
            code = getattr(error, "winerror", 0)
            if code is not None and code not in OPEN_ELSEWHERE:
                raise
            if time.monotonic() > deadline_s:
                raise PermissionError(error.errno, STAYS_OPEN, error.filename, code) from error
        time.sleep(RETRY_PAUSE_S)


def flush(path: Path) -> None:
    """Write a file's bytes, or a directory's names, to the disk. Raises OSError.

    The file's pages leave the system's cache, where it has such a call: the next reader gets the bytes of the disk.
    Windows has no flush of a directory, and some file systems refuse it.
    """
    if path.is_dir():
        if sys.platform != "win32":
            handle = os.open(path, os.O_RDONLY)
            with contextlib.suppress(OSError):
                os.fsync(handle)
            os.close(handle)
        return
    with (
        naming(path),
        retry_while_open(lambda: path.open("r+b")) as file,
    ):  # Windows flushes only files that are open for writing
        os.fsync(file.fileno())
        if sys.platform == "linux":
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def remove(path: Path) -> None:
    """Remove a file that may be missing, as `retry_while_open`. Raises OSError."""
    retry_while_open(lambda: path.unlink(missing_ok=True))


# ── privacy ──────────────────────────────────────────────────────────────────────────────────────────────


def restrict(path: Path) -> None:
    """Let nobody but this user read or write `path`, a file or directory of this user's. Raises OSError."""
    if sys.platform == "win32":
        from speclsp.private_files import windows_files

        windows_files.restrict_to_user(path)
    else:
        path.chmod(0o700 if path.is_dir() else 0o600)


def exposure(path: Path, status: os.stat_result) -> str:
    """A phrase about the reason why `path` is not private, as "is open to others (mode 0644)"; "" for none.

    A private file or directory is no link, belongs to this user, and nobody else can read or write it. `status`: its
    stat result. Raises OSError.
    """
    if stat.S_ISLNK(status.st_mode):
        return "is a symbolic link"
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        return "is not a plain file"
    if sys.platform == "win32":
        from speclsp.private_files import windows_files

        names = windows_files.other_accounts(path)
        return f"is open to others ({', '.join(names)})" if names else ""
    if status.st_uid != os.getuid():
        return f"belongs to another user (uid {status.st_uid})"
    mode = stat.S_IMODE(status.st_mode)
    return f"is open to others (mode {mode:04o})" if mode & 0o077 else ""


def check_private(path: Path, status: os.stat_result) -> None:
    """Raise EngineError unless `status` is of a private file or directory, as `exposure` defines it."""
    try:
        problem = exposure(path, status)
    except FileNotFoundError:
        return  # removed since
    except OSError as error:
        raise EngineError(sentence(error, path, "be read")) from error
    if problem:
        raise EngineError(f"{path} {problem}: remove it.")
