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
import stat
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
LIGHT = ("engine.socket", "engine.shared", "engine.grace_seconds", "engine.idle_unload_minutes", "engine.offline")
LONGEST_STATE_BYTES = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
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


def differences(found: Address, settings: Config, running_pair: str = "") -> list[str]:
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


def find() -> Address | None:
    """The engine that engine.json tells of, alive or not; None without a file that can be used.

    Raises EngineError: something else is in its place, or another user's file.
    """
    path = state_path()
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EngineError(f"{path} cannot be read: {reason(error)}. Remove it.") from error
    with os.fdopen(handle, "rb") as file:
        check_ours(path, os.fstat(file.fileno()))
        text = file.read(LONGEST_STATE_BYTES)
    try:
        told = json.loads(text)
        known = {name: told[name] for name in Address.__dataclass_fields__ if name in told}
        found = Address(**known)
    except (ValueError, TypeError):
        return None  # half written by one that was killed, or of a version to come
    kinds = isinstance(found.pid, int) and isinstance(found.settings, dict) and isinstance(found.port, int)
    return (
        found if kinds and all(isinstance(text, str) for text in (found.socket, found.token, found.version)) else None
    )


def write(address: Address) -> None:
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
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        handle = os.open(path, flags, 0o600)
    except OSError as error:
        raise EngineError(f"{path} cannot be opened: {reason(error)}. Remove it.") from error
    try:
        check_ours(path, os.fstat(handle))
        if lock_now(handle):
            return handle
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return None


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


def reason(error: OSError) -> str:
    """The system's words, in lower case and without the path."""
    return (error.strerror or type(error).__name__).lower()
