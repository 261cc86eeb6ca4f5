"""The engine's Unix listening socket: open to this user only, in a checked directory, and never a second one.

The directory is created 0700 if missing and must belong to this user (or be a sticky one of root's, like /tmp); the
socket is 0600. A socket file that nobody listens on was left by a killed engine and is replaced. Anything else at the
path is refused, never removed. The directory is locked meanwhile, so of many engines that start at once one wins.
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
from speclsp.private_files.locks import lock_now
from speclsp.private_files.os_errors import reason, sentence, way_out

MAX_PATH_BYTES = 107 if sys.platform == "linux" else 103  # sun_path without its closing NUL
LOCK_WAIT_S = 5.0
CONNECT_TIMEOUT_S = 1.0
BACKLOG = 128


class SocketInUse(EngineError):
    """Another engine listens at the path."""


class UnixListener:
    """A listening socket and its file."""

    def __init__(self, path: Path, listener: socket.socket) -> None:
        self.path = path
        self.listener = listener
        self._file = identity(path.lstat())

    def is_there(self) -> bool:
        """True while the file at our path is still our socket."""
        with suppress(OSError):
            return identity(self.path.lstat()) == self._file
        return False

    def remove(self) -> None:
        """Remove the socket file, unless it is no longer ours."""
        with suppress(OSError):
            if self.is_there():
                self.path.unlink()


def listen(text: str) -> UnixListener:
    """Listen on the Unix socket at path `text`. Raises EngineError with the obstacle and its fix."""
    if sys.platform == "win32":
        raise NotImplementedError
    path = checked_path(text)
    check_directory(path.parent)
    with locked(path.parent):
        check_replaceable(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            bind_and_listen(listener, path)
        except OSError as error:
            listener.close()
            raise EngineError(f"cannot listen on {path}: {reason(error)}. {way_out(error, path)}") from error
        return UnixListener(path, listener)


def bind_and_listen(listener: socket.socket, path: Path) -> None:
    """Create the socket file under another name and move it to `path` once it listens: a visible file accepts."""
    hidden = path.with_name(f".{os.getpid()}")
    if len(os.fsencode(hidden)) > MAX_PATH_BYTES:
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
    """The absolute path that `text` names. Raises EngineError when it cannot be a Unix socket's path."""
    if re.fullmatch(r"(tcp://)?[^/]*:\d+", text):
        raise EngineError(f"{text} is a network address: the engine listens on Unix sockets only, so give a file path.")
    if not text or "\0" in text or text.endswith("/"):
        raise EngineError(f"{text!r} is not a socket path: give a file in a directory of yours.")
    path = Path(os.path.abspath(text))  # noqa: PTH100 - a final symlink must stay visible
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        size_bytes = len(os.fsencode(path))
        raise EngineError(
            f"socket path has {size_bytes} bytes, the system takes {MAX_PATH_BYTES}: choose a shorter one."
        )
    return path


def check_directory(directory: Path) -> None:
    """Create `directory` if missing. Raises EngineError when another user could replace the socket in it."""
    if sys.platform == "win32":
        raise NotImplementedError
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.stat()
    except OSError as error:
        raise EngineError(sentence(error, directory, "be used for the socket")) from error
    sticky = bool(status.st_mode & stat.S_ISVTX)
    if status.st_uid != os.getuid() and not (status.st_uid == 0 and sticky):
        raise EngineError(f"{directory} belongs to another user (uid {status.st_uid}): choose a directory of your own.")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky:
        mode = stat.S_IMODE(status.st_mode)
        raise EngineError(f"others can write to {directory} (mode {mode:04o}): run `chmod 700` on it, or use another.")


def check_replaceable(path: Path) -> None:
    """Remove a dead socket of ours at `path`. Raises EngineError for anything else at the path."""
    if sys.platform == "win32":
        raise NotImplementedError
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "not a socket"
        raise EngineError(f"{path} exists and is {kind}: remove it, or choose another path with --socket.")
    if status.st_uid != os.getuid():
        raise EngineError(f"{path} belongs to another user (uid {status.st_uid}): choose another path with --socket.")
    if is_live(path):
        raise SocketInUse(f"an engine already listens on {path}: attach to it with engine.socket, or stop it first.")
    with suppress(FileNotFoundError):
        path.unlink()


def is_live(path: Path) -> bool:
    """True when a process listens on the socket at `path`. One too busy to accept is alive."""
    if sys.platform == "win32":
        raise NotImplementedError
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
    """Lock `directory` against other engines that start now. The directory itself is locked: no lock file is left."""
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise EngineError(sentence(error, directory, "be locked")) from error
    try:
        deadline_s = time.monotonic() + LOCK_WAIT_S
        while not lock_now(handle):
            if time.monotonic() > deadline_s:
                raise EngineError(f"{directory} is locked by another program: choose another path.")
            time.sleep(0.02)
    except OSError as error:
        os.close(handle)
        raise EngineError(sentence(error, directory, "be locked")) from error
    try:
        yield
    finally:
        os.close(handle)


def identity(status: os.stat_result) -> tuple[int, int]:
    """Device and inode, which tell a file from another of the same name."""
    return status.st_dev, status.st_ino
