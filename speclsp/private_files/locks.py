"""Locks between processes: held by an open handle, and by the processes that inherit it, however they end.

POSIX: flock. A file system without it (NFS without lockd, some FUSE and 9p mounts) is an error. Windows: a file opened
without sharing.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from speclsp import private_files
from speclsp.private_files import os_errors


def open_lock_file(path: Path, create: bool = True) -> int | None:
    """A descriptor of the lock file, for `lock_now`; None: another process has the lock (Windows reports it here).

    Windows: the handle carries the lock, so that a child that inherits the handle keeps the lock. A byte lock belongs
    to one process, and a starter could not pass it on. Raises OSError.
    """
    if sys.platform != "win32":
        return os.open(path, os.O_RDWR | (os.O_CREAT if create else 0) | private_files.NO_LINK_FLAGS, 0o600)
    from speclsp.private_files import windows_files

    handle = windows_files.open_unshared(path, create)
    if create and handle is not None:
        with contextlib.suppress(OSError):  # a file system without rights: `check_private` reports it
            private_files.restrict(path)
    return handle


def lock_now(handle: int) -> bool:
    """Lock an open file or directory without waiting; False: another process has the lock. Raises OSError.

    On Windows `open_lock_file` has locked it.
    """
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def acquire(
    path: Path, create: bool = True, check: Callable[[Path, os.stat_result], None] = lambda path, status: None
) -> int | None:
    """A handle that holds the lock on the file at `path`; None: another process has the lock.

    `create`: make a missing file. `check` may refuse the file. Raises OSError with the file's name.
    """
    with os_errors.naming(path):
        handle = open_lock_file(path, create)
        if handle is None:
            return None
        try:
            check(path, os.fstat(handle))
            if lock_now(handle) and is_at(path, handle):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        return None


def is_at(path: Path, handle: int) -> bool:
    """True when the locked file is still the one at `path`: a lock on a removed file excludes nobody."""
    try:
        current, locked = path.lstat(), os.fstat(handle)
    except FileNotFoundError:
        return False
    return os.path.samestat(current, locked)
