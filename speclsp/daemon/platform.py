"""Differences between operating systems that the shared engine depends on: sockets, peers and new processes.

The branches for Windows were run under Wine, not yet on Windows itself. Those for macOS follow its documentation and
were not run.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HAS_UNIX_SOCKETS = sys.platform != "win32"
CAN_FORK = sys.platform == "linux"  # on macOS a forked process needs a new interpreter to use the system's libraries
SOL_LOCAL, LOCAL_PEERCRED, LOCAL_PEERPID, XUCRED_BYTES = 0, 1, 2, 76  # <sys/un.h> and <sys/ucred.h> of macOS


# ── the peer of a connection ──


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
    if sys.platform == "win32":
        return _windows_listener(connection.getpeername()[1])
    if connection.family != getattr(socket, "AF_UNIX", None):
        return None
    if hasattr(socket, "SO_PEERCRED"):
        return _linux_peer(connection)[0]
    if sys.platform == "darwin":
        return connection.getsockopt(SOL_LOCAL, LOCAL_PEERPID)
    return None


def _linux_peer(connection: socket.socket) -> tuple[int, int]:
    """Process and user at the other end."""
    if sys.platform != "linux":
        raise NotImplementedError
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))  # pid, uid, gid
    pid, uid, _ = struct.unpack("3I", credentials)
    return int(pid), int(uid)


def _windows_listener(port: int) -> int | None:
    """The process that listens on a TCP port of this machine; None where the system does not report it (Wine)."""
    import psutil

    rows = [
        row for row in psutil.net_connections("tcp4") if row.status == psutil.CONN_LISTEN and row.laddr.port == port
    ]
    return (rows[0].pid or None) if rows else None


def set_address_options(listener: socket.socket) -> None:
    """Let a TCP listener take over a port in TIME_WAIT, but never one on which another process listens.

    SO_REUSEADDR means that on POSIX. On Windows it would allow two listeners, so the opposite option is set there.
    """
    if sys.platform == "win32":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
    else:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


# ── new processes ──


def number_of(handle: int) -> int:
    """The number by which a child that inherits `handle` knows it: see `descriptor`."""
    if sys.platform != "win32":
        return handle
    import msvcrt

    return msvcrt.get_osfhandle(handle)


def descriptor(number: int) -> int:
    """The descriptor of an inherited handle, hidden from children. `number`: of `number_of`, in the parent.

    Raises OSError: it is no open handle.
    """
    if sys.platform != "win32":
        os.set_inheritable(number, False)
        return number
    import msvcrt

    os.set_handle_inheritable(number, False)
    return msvcrt.open_osfhandle(number, os.O_RDWR | os.O_NOINHERIT)


def child_options(handles: Sequence[int] = (), flags: int = 0) -> dict[str, Any]:
    """Arguments of subprocess.Popen: the child inherits `handles`, and no other handles but its standard streams.

    Windows: it gets no console window, and Ctrl-C in the parent's console does not reach it. A detached process
    (DETACHED_PROCESS) would open a window, because python.exe of a virtual environment starts another python.exe.
    `flags`: more of the creation flags of Windows.
    """
    if sys.platform != "win32":
        return {"pass_fds": tuple(handles)}
    numbers = [number_of(handle) for handle in handles]
    for number in numbers:
        os.set_handle_inheritable(number, True)
    return {
        "startupinfo": subprocess.STARTUPINFO(lpAttributeList={"handle_list": numbers}),
        "creationflags": subprocess.CREATE_NO_WINDOW | subprocess.CREATE_NEW_PROCESS_GROUP | flags,
    }


def spawn_detached(
    words: Sequence[str], directory: Path, environment: Mapping[str, str], handles: Sequence[int]
) -> None:
    """Start a process that outlives this one, where there is no fork (Windows); it inherits `handles`.

    It leaves the job object of an editor that kills its children, if that job allows it. Raises OSError.
    """
    attempts = [0]
    if sys.platform == "win32":
        attempts = [subprocess.CREATE_BREAKAWAY_FROM_JOB, 0]
    for flags in attempts:
        try:
            child = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=directory,
                env=environment,
                start_new_session=True,
                **child_options(handles, flags),
            )
        except PermissionError:
            if not flags:
                raise  # otherwise: the job does not allow it
        else:
            child.returncode = 0  # nobody waits for it: no ResourceWarning about that
            return
