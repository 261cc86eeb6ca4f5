"""Where this user's one engine is to be found, by whoever wants it or wants to start it.

    engine.lock   locked by the engine as long as it lives, however it ends; who gets the lock may start one
    engine.json   written by the engine when it listens: its process, version, settings and address; mode 0600
    engine.sock   its Unix socket; or, where there are none (Windows), a port on loopback and a token in engine.json

All in the runtime directory, which only this user can enter. The lock is the truth: a file without a locked lock was
left by an engine that was killed. A starter takes the lock first and hands it to the engine it starts, so that of any
number of simultaneous starts exactly one begins a process.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import struct
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from speclsp import __version__, config
from speclsp.config import Config
from speclsp.errors import EngineError

HAS_UNIX_SOCKETS = sys.platform != "win32"
HEAVY = ("pair", "device", "models_dir", "engine.", "echo.")  # what a running engine cannot change
LIGHT = (  # ... but these are no reason for another one: it keeps to those it was started with
    "engine.socket",
    "engine.shared",
    "engine.grace_seconds",
    "engine.idle_unload_minutes",
    "engine.keep_free_mib",
    "engine.offline",
)
LONGEST_STATE_BYTES = 65_536
CAREFULLY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
SOL_LOCAL, LOCAL_PEERCRED, LOCAL_PEERPID, XUCRED_BYTES = 0, 1, 2, 76  # <sys/un.h> and <sys/ucred.h> of macOS


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineEndpoint:
    """An engine and how to reach it."""

    pid: int
    socket: str = ""  # the path of its Unix socket; "": it listens on `port`
    port: int = 0  # on 127.0.0.1
    token: str = ""  # sent as `Authorization: Bearer`; needed on a port
    version: str = __version__
    pair: str = ""  # as it was asked for: a name, or "auto"
    settings: Mapping[str, object] = field(default_factory=dict)  # heavy(config) it was started with


def heavy(settings: Config) -> dict[str, object]:
    """The settings, by dotted key, that a running engine cannot change and that differ from their defaults."""
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in config.changes(settings).items()
        if key.startswith(HEAVY) and key not in LIGHT
    }


def differences(found: EngineEndpoint, settings: Config, running_pair: str = "") -> list[str]:
    """What keeps `settings` from using the engine at `found`, each as a phrase; [] when it suits.

    "auto" suits any pair. `running_pair`: what it runs, where that is known; asking for it by name suits as well.
    """
    told = []
    if found.version != __version__:
        told.append(f"it is of version {found.version} and this is {__version__}")
    theirs, ours = dict(found.settings), heavy(settings)
    if settings.pair in ("auto", running_pair):
        theirs.pop("pair", None), ours.pop("pair", None)
    for key in sorted({*theirs, *ours}):
        default = config.KNOWN[key].default if key in config.KNOWN else None
        there, here = theirs.get(key, default), ours.get(key, default)
        if there != here:
            told.append(f"{key} is {json.dumps(there)} there and {json.dumps(here)} here")
    return told


# ── the files ────────────────────────────────────────────────────────────────────────────────────────────────


def state_path() -> Path:
    """engine.json. Raises SpeclspError when there is no private directory for it."""
    return config.runtime_dir() / "engine.json"


def lock_path() -> Path:
    """engine.lock. Raises SpeclspError."""
    return config.runtime_dir() / "engine.lock"


def find() -> EngineEndpoint | None:
    """The engine that engine.json tells of; None without a file that can be used.

    It may have been killed since. Then nobody else's process can listen on its socket, but on its port one can: an
    engine on a port that holds no lock is not told of. Raises EngineError: something else is in the file's place.
    """
    path = state_path()
    try:
        handle = os.open(path, os.O_RDONLY | CAREFULLY)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EngineError(f"{path} cannot be read: {reason(error)}. Remove it.") from error
    try:
        check_ours(path, os.fstat(handle))
        text = os.read(handle, LONGEST_STATE_BYTES)
    finally:
        os.close(handle)
    try:
        told = json.loads(text)
        known = {name: told[name] for name in EngineEndpoint.__dataclass_fields__ if name in told}
        found = EngineEndpoint(**known)
    except (ValueError, TypeError):
        return None  # half written by one that was killed, or of a version to come
    texts = (found.socket, found.token, found.version, found.pair)
    numbers = (found.pid, found.port)
    right = all(isinstance(text, str) for text in texts) and all(type(number) is int for number in numbers)
    if not right or not isinstance(found.settings, dict):
        return None
    return found if found.socket or is_locked() else None


def write(address: EngineEndpoint) -> None:
    """Write engine.json, whole or not at all. Raises EngineError, SpeclspError."""
    path = state_path()
    with contextlib.suppress(FileNotFoundError):
        check_ours(path, path.lstat())
    handle, name = tempfile.mkstemp(prefix=".engine-", dir=path.parent)  # 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(asdict(address), file)
        Path(name).replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise EngineError(f"{path} cannot be written: {reason(error)}.") from error


def remove(pid: int) -> None:
    """Remove engine.json if it tells of process `pid`."""
    with contextlib.suppress(OSError, EngineError):
        found = find()
        if found is not None and found.pid == pid:
            state_path().unlink()


def check_ours(path: Path, found: os.stat_result) -> None:
    """Raises EngineError unless it is a plain file of this user's that nobody else can read or write."""
    if not stat.S_ISREG(found.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "not a plain file"
        raise EngineError(f"{path} is {kind}: remove it.")
    if hasattr(os, "getuid"):
        if found.st_uid != os.getuid():
            raise EngineError(f"{path} belongs to another user (uid {found.st_uid}): remove it.")
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise EngineError(f"{path} is open to others (mode {stat.S_IMODE(found.st_mode):04o}): remove it.")


# ── the lock ─────────────────────────────────────────────────────────────────────────────────────────────────


def try_lock() -> int | None:
    """A handle that holds engine.lock, to be handed to the engine (`pass_fds`) or kept by it; None: an engine has it.

    Raises EngineError: the lock file is not ours to lock.
    """
    path = lock_path()
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | CAREFULLY, 0o600)
    except OSError as error:
        raise EngineError(f"{path} cannot be opened: {reason(error)}. Remove it.") from error
    try:
        check_ours(path, os.fstat(handle))
        if lock_now(handle) and is_at(path, handle):
            return handle
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return None


def is_locked() -> bool:
    """Whether an engine lives, or is just being started. Raises EngineError: the lock file is not ours."""
    handle = try_lock()
    if handle is not None:
        os.close(handle)
    return handle is None


def inherited(handle: int) -> int:
    """The lock that a starter took and handed to this process, kept from processes of our own. Raises EngineError."""
    path = lock_path()
    try:
        os.set_inheritable(handle, False)
        if is_at(path, handle) and lock_now(handle):
            return handle
    except OSError:
        pass  # not an open file at all
    raise EngineError(f"--lock-fd {handle} is not the lock on {path}: leave it out, and the engine takes the lock.")


def is_at(path: Path, handle: int) -> bool:
    """Whether the open file is still the one at `path`: a lock on a file that was removed keeps nobody out."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def lock_now(handle: int) -> bool:
    """Lock an open file for this process, and for those who inherit the handle where the system can do that."""
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


# ── the other end ────────────────────────────────────────────────────────────────────────────────────────────


def check_socket(path: Path) -> None:
    """Raises EngineError unless `path` is a Unix socket of this user's; whether somebody listens is not looked at."""
    try:
        found = path.lstat()
    except OSError as error:
        raise EngineError(f"{path}: {reason(error)}.") from error
    if not stat.S_ISSOCK(found.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "not a socket"
        raise EngineError(f"{path} is {kind}: remove it.")
    if found.st_uid != os.getuid():
        raise EngineError(f"{path} belongs to another user (uid {found.st_uid}): remove it.")


def is_own_peer(connection: socket.socket) -> bool:
    """Whether the other end of a Unix socket runs as this user.

    Where the system cannot say, the socket file's mode has decided; over TCP, the token decides.
    """
    if connection.family != getattr(socket, "AF_UNIX", None):
        return True
    uid = peer_uid(connection)
    return uid is None or uid == os.getuid()


def peer_uid(connection: socket.socket) -> int | None:
    """Who runs the process at the other end of a Unix socket; None where the system does not tell."""
    if hasattr(socket, "SO_PEERCRED"):
        return peer(connection)[1]
    if sys.platform == "darwin":  # a struct xucred: version, uid, groups
        told = connection.getsockopt(SOL_LOCAL, LOCAL_PEERCRED, XUCRED_BYTES)
        return int(struct.unpack_from("2I", told)[1])
    return None


def peer_pid(connection: socket.socket) -> int | None:
    """The process at the other end: the one that listens, though it may not have heard of us yet.

    None where the system does not tell; 0 where it runs in a container of its own.
    """
    if connection.family != getattr(socket, "AF_UNIX", None):
        return None
    if hasattr(socket, "SO_PEERCRED"):
        return peer(connection)[0]
    if sys.platform == "darwin":
        return connection.getsockopt(SOL_LOCAL, LOCAL_PEERPID)
    return None


def peer(connection: socket.socket) -> tuple[int, int]:
    """Process and user at the other end (Linux)."""
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))  # pid, uid, gid
    pid, uid, _ = struct.unpack("3I", told)
    return int(pid), int(uid)


def connect(found: EngineEndpoint, timeout_s: float = 1.0) -> socket.socket:
    """A connection to the engine at `found`. Raises OSError when nobody listens; EngineError: it is not ours."""
    if not found.socket:
        return socket.create_connection(("127.0.0.1", found.port), timeout_s)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        path = Path(found.socket)
        if os.path.lexists(path):
            check_socket(path)
        connection.connect(str(path))
        if not is_own_peer(connection):
            raise EngineError(f"a process of another user listens on {path}: remove that file.")
    except BaseException:
        connection.close()
        raise
    return connection


def reason(error: OSError) -> str:
    """The system's words, in lower case and without the path."""
    return (error.strerror or type(error).__name__).lower()
