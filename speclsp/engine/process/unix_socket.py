"""The engine's Unix socket: in a directory of one's own, open to this user alone, and there is never a second one.

The directory is made 0700 if missing and must belong to this user (or be a sticky one of root's, like /tmp); the
socket is 0600. A socket file that nobody listens on is what a killed engine left and is replaced; anything else that
is in the way is refused, never removed. The directory is locked meanwhile, so of many that start at once one wins.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from speclsp.errors import EngineError
from speclsp.private_files import reason

LONGEST_PATH_BYTES = 107 if sys.platform == "linux" else 103  # sun_path without its closing NUL
LOCK_WAIT_S = 5.0
CONNECT_TIMEOUT_S = 1.0
BACKLOG = 128


class SocketInUse(EngineError):
    """Another engine listens there."""


class UnixListener:
    """A listening socket and its file."""

    def __init__(self, path: Path, listener: socket.socket) -> None:
        self.path = path
        self.listener = listener
        self._file = identity(path.lstat())

    def is_there(self) -> bool:
        """Whether the file at our path is still ours."""
        with suppress(OSError):
            return identity(self.path.lstat()) == self._file
        return False

    def remove(self) -> None:
        """Remove the file, unless it is no longer ours."""
        with suppress(OSError):
            if self.is_there():
                self.path.unlink()


def listen(text: str) -> UnixListener:
    """Listen on the Unix socket at path `text`. Raises EngineError: what is in the way, and the way out."""
    path = checked_path(text)
    check_directory(path.parent)
    with locked(path.parent):
        check_replaceable(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            bind_and_listen(listener, path)
        except OSError as error:
            listener.close()
            raise EngineError(
                f"cannot listen on {path}: {reason(error)}. Choose another path with --socket."
            ) from error
        return UnixListener(path, listener)


def bind_and_listen(listener: socket.socket, path: Path) -> None:
    """Make the socket file under another name and move it to `path` when it listens: who sees it can connect."""
    hidden = path.with_name(f".{os.getpid()}")
    if len(os.fsencode(hidden)) > LONGEST_PATH_BYTES:
        hidden = path
    check_replaceable(hidden)
    mask = os.umask(0o177)
    try:
        listener.bind(str(hidden))
    finally:
        os.umask(mask)
    listener.listen(BACKLOG)
    listener.setblocking(False)
    hidden.rename(path)


def checked_path(text: str) -> Path:
    """The absolute path that `text` names. Raises EngineError when it cannot be a Unix socket's."""
    if re.fullmatch(r"(tcp://)?[^/]*:\d+", text):
        raise EngineError(f"{text} is a network address: the engine listens on Unix sockets only, so give a file path.")
    if not text or "\0" in text or text.endswith("/"):
        raise EngineError(f"{text!r} is not a socket path: give a file in a directory of yours.")
    path = Path(os.path.abspath(text))  # noqa: PTH100 - a final symlink must stay visible
    if len(os.fsencode(path)) > LONGEST_PATH_BYTES:
        found = len(os.fsencode(path))
        raise EngineError(
            f"socket path has {found} bytes, the system takes {LONGEST_PATH_BYTES}: choose a shorter one."
        )
    return path


def check_directory(directory: Path) -> None:
    """Make `directory` if missing; raise EngineError when others could replace the socket in it."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = directory.stat()
    except OSError as error:
        raise EngineError(f"cannot use {directory} for the socket: {reason(error)}. Choose another path.") from error
    sticky = bool(found.st_mode & stat.S_ISVTX)
    if found.st_uid != os.getuid() and not (found.st_uid == 0 and sticky):
        raise EngineError(f"{directory} belongs to another user (uid {found.st_uid}): choose a directory of your own.")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky:
        mode = stat.S_IMODE(found.st_mode)
        raise EngineError(f"others can write to {directory} (mode {mode:04o}): run `chmod 700` on it, or use another.")


def check_replaceable(path: Path) -> None:
    """Remove a dead socket of ours at `path`; raise EngineError for anything else that is there."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "not a socket"
        raise EngineError(f"{path} exists and is {kind}: remove it, or choose another path with --socket.")
    if found.st_uid != os.getuid():
        raise EngineError(f"{path} belongs to another user (uid {found.st_uid}): choose another path with --socket.")
    if is_live(path):
        raise SocketInUse(f"an engine already listens on {path}: attach to it with engine.socket, or stop it first.")
    with suppress(FileNotFoundError):
        path.unlink()


def is_live(path: Path) -> bool:
    """Whether someone listens on the socket at `path`. One too busy to accept is alive."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(CONNECT_TIMEOUT_S)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
        return True


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold `directory` against others that start now. It is the directory that is locked: no lock file is left."""
    import fcntl  # not on Windows, where there is no such door

    handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        until = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise EngineError(f"{directory} is locked by another program: choose another path.") from None
                time.sleep(0.02)
        yield
    finally:
        os.close(handle)


def identity(found: os.stat_result) -> tuple[int, int]:
    """What tells one file from another of the same name."""
    return found.st_dev, found.st_ino
