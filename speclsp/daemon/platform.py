"""Differences between operating systems that the shared engine depends on: locks, sockets, peers and new processes.

The branches for Windows and macOS follow those systems' documentation. They were not run on these systems.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

HAS_UNIX_SOCKETS = sys.platform != "win32"
CAN_FORK = hasattr(os, "fork")
FORK_NEEDS_EXEC = sys.platform == "darwin"  # a forked process needs a new interpreter to use the system's libraries
SOL_LOCAL, LOCAL_PEERCRED, LOCAL_PEERPID, XUCRED_BYTES = 0, 1, 2, 76  # <sys/un.h> and <sys/ucred.h> of macOS


def lock_now(handle: int) -> bool:
    """Lock an open file without waiting; False: another process has the lock.

    On POSIX a process that inherits the handle shares the lock; on Windows the lock is this process's alone.
    """
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def peer_uid(connection: socket.socket) -> int | None:
    """The user of the process at the other end of a Unix socket; None where the system does not report it."""
    if hasattr(socket, "SO_PEERCRED"):
        return _linux_peer(connection)[1]
    if sys.platform == "darwin":  # a struct xucred: version, uid, groups
        credentials = connection.getsockopt(SOL_LOCAL, LOCAL_PEERCRED, XUCRED_BYTES)
        return int(struct.unpack_from("2I", credentials)[1])
    return None


def peer_pid(connection: socket.socket) -> int | None:
    """The process that listens at the other end, even if it has not accepted the connection yet.

    None where the system does not report it; 0 for a process in a container of its own.
    """
    if connection.family != getattr(socket, "AF_UNIX", None):
        return None
    if hasattr(socket, "SO_PEERCRED"):
        return _linux_peer(connection)[0]
    if sys.platform == "darwin":
        return connection.getsockopt(SOL_LOCAL, LOCAL_PEERPID)
    return None


def _linux_peer(connection: socket.socket) -> tuple[int, int]:
    """Process and user at the other end."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))  # pid, uid, gid
    pid, uid, _ = struct.unpack("3I", credentials)
    return int(pid), int(uid)


def set_address_options(listener: socket.socket) -> None:
    """Let a TCP listener take over a port in TIME_WAIT, but never one on which another process listens.

    SO_REUSEADDR means that on POSIX. On Windows it would allow two listeners, so the opposite option is set there.
    """
    if sys.platform == "win32":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
    else:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def spawn_detached(
    words: Sequence[str], directory: Path, environment: Mapping[str, str], stderr: BinaryIO
) -> subprocess.Popen[bytes]:
    """Start a process that outlives this one and has no console, where there is no fork (Windows)."""
    flags = getattr(subprocess, "DETACHED_PROCESS", 0x8) | getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0x200)
    return subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        cwd=directory,
        env=environment,
        creationflags=flags,
    )
