"""Files of this user's shared engine: how a client finds it, and the lock that allows one engine at a time.

    engine.lock   locked by the engine as long as it lives, however it ends; the holder of the lock may start one
    engine.json   written by the engine when it listens: its process, version, settings and address; mode 0600
    engine.sock   its Unix socket; on Windows, where asyncio has none: a port on loopback, and a token in engine.json

All of them are in the runtime directory, which only this user can enter. The lock decides: engine.json without a locked
lock was left by an engine that was killed. A starter takes the lock first and hands it to the engine it starts, so that
of any number of simultaneous starts exactly one begins a process.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import stat
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from speclsp import __version__, config, private_files
from speclsp.config import Config
from speclsp.daemon import platform
from speclsp.errors import EngineError
from speclsp.private_files import NO_LINK_FLAGS, locks
from speclsp.private_files.os_errors import sentence

HEAVY = (
    "model",
    "device",
    "models_dir",
    "engine.",
    "echo.",
)  # prefixes of settings that a running engine cannot change
LIGHT = (  # exceptions: a difference here is no reason for another engine; it keeps the values it was started with
    "engine.socket",
    "engine.shared",
    "engine.shutdown_delay_seconds",
    "engine.idle_unload_minutes",
    "engine.min_free_memory_mib",
    "engine.offline",
)
MAX_STATE_BYTES = 65_536
REPLACED_S = 0.2  # for a file that is being replaced on Windows; editors read it in their event loops
SOCKET_DIRECTORY = "speclsp-"  # prefix of a temporary directory that was made for a socket alone

WIRE_NAMES = {"model": "pair"}  # fields of EngineEndpoint by another name in engine.json


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineEndpoint:
    """An engine and how to reach it: the content of engine.json."""

    pid: int
    socket: str = ""  # the path of its Unix socket; "": it listens on `port`
    port: int = 0  # on 127.0.0.1
    token: str = ""  # sent as `Authorization: Bearer`; needed on a port
    version: str = __version__
    model: str = ""  # the setting as it was written: a name, or "auto"
    settings: Mapping[str, object] = field(default_factory=dict)  # restart_settings(config) it was started with
    start_flags: tuple[str, ...] = ()  # of `speclsp engine`: they start it again as it was, with its port


def restart_settings(settings: Config) -> dict[str, object]:
    """The settings, by dotted key, that a running engine cannot change and that differ from their defaults."""
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in config.changes(settings).items()
        if key.startswith(HEAVY) and key not in LIGHT
    }


def differences(engine: EngineEndpoint, settings: Config, running_model: str = "") -> list[str]:
    """The reasons why `engine` cannot serve these settings, each a phrase; [] when it can.

    "auto" suits any model. `running_model`: the loaded model, where it is known; its name suits as well.
    """
    phrases = []
    if engine.version != __version__:
        phrases.append(f"its version is {engine.version} and this is {__version__}")
    theirs, ours = dict(engine.settings), restart_settings(settings)
    if settings.model in ("auto", running_model):
        theirs.pop("model", None)
        ours.pop("model", None)
    for key in sorted({*theirs, *ours}):
        default = config.KNOWN[key].default if key in config.KNOWN else None
        there, here = theirs.get(key, default), ours.get(key, default)
        if there != here:
            phrases.append(f"{key} is {json.dumps(there)} there and {json.dumps(here)} here")
    return phrases


# ── engine.json ──


def state_path() -> Path:
    """engine.json. Raises SpeclspError when the place of its directory is taken."""
    return config.runtime_path() / "engine.json"


def lock_path() -> Path:
    """engine.lock. Raises SpeclspError."""
    return config.runtime_path() / "engine.lock"


def socket_path(name: str) -> Path:
    """`name` in the runtime directory; in a fresh directory of ours where that path is too long for a socket."""
    path = config.runtime_dir() / name
    if len(os.fsencode(path)) <= config.SOCKET_PATH_BYTES:
        return path
    return Path(tempfile.mkdtemp(prefix=SOCKET_DIRECTORY)) / name  # 0700, and a name that cannot be guessed


def remove_socket_directory(directory: Path) -> None:
    """Remove a directory that `socket_path` made, and no other."""
    temporary = Path(tempfile.gettempdir())
    if directory.parent == temporary and directory.name.startswith(SOCKET_DIRECTORY) and not directory.is_symlink():
        with contextlib.suppress(OSError):
            if not private_files.exposure(directory, directory.stat()):
                shutil.rmtree(directory, ignore_errors=True)


def find() -> EngineEndpoint | None:
    """The engine that engine.json describes; None without a valid file.

    The engine may have been killed since. Another process cannot listen on its socket then, but it can on its port: so
    an engine on a port counts only while the lock is locked. Raises EngineError: the file is not a private one.
    """
    engine = read()
    return engine if engine is not None and (engine.socket or is_locked()) else None


def read(path: Path | None = None) -> EngineEndpoint | None:
    """The content of engine.json, also of an engine that was killed; None without a valid file. Raises EngineError.

    `path`: another file of this format, which stands for a Unix socket where there are none.
    """
    path = path or state_path()
    try:
        handle = private_files.retry_while_open(lambda: os.open(path, os.O_RDONLY | NO_LINK_FLAGS), REPLACED_S)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EngineError(sentence(error, path, "be read")) from error
    try:
        private_files.check_private(path, os.fstat(handle))
        return _parse(os.read(handle, MAX_STATE_BYTES))
    except OSError as error:
        raise EngineError(sentence(error, path, "be read")) from error
    finally:
        os.close(handle)


def at(path: Path) -> EngineEndpoint | None:
    """The engine with the Unix socket at `path`; where there are none, the one that the file at `path` describes.

    None without such a socket or file. Raises EngineError: the file is not a private one.
    """
    if platform.HAS_UNIX_SOCKETS:
        return EngineEndpoint(pid=0, socket=str(path)) if path.exists() else None
    engine = read(path)
    return engine if engine is not None and engine.port else None


def _parse(text: bytes) -> EngineEndpoint | None:
    """The content of engine.json; None for a file that was cut short, or that a later version wrote differently.

    None too for an engine on a Unix socket where there are none: no client of this system can reach it.
    """
    try:
        fields = json.loads(text)
        names = {name: WIRE_NAMES.get(name, name) for name in EngineEndpoint.__dataclass_fields__}
        known = {name: fields[wire] for name, wire in names.items() if wire in fields}
        engine = EngineEndpoint(**known | {"start_flags": tuple(known.get("start_flags", ()))})
    except (ValueError, TypeError):
        return None
    texts = (engine.socket, engine.token, engine.version, engine.model, *engine.start_flags)
    numbers = (engine.pid, engine.port)
    valid = all(isinstance(text, str) for text in texts) and all(type(number) is int for number in numbers)
    reachable = platform.HAS_UNIX_SOCKETS or not engine.socket
    return engine if valid and reachable and isinstance(engine.settings, dict) else None


def write(engine: EngineEndpoint, path: Path | None = None) -> None:
    """Replace engine.json, or the file at `path`, in one step. Raises EngineError, SpeclspError."""
    path = path or config.runtime_dir() / state_path().name
    with contextlib.suppress(FileNotFoundError):
        private_files.check_private(path, path.lstat())
    try:
        fields = {WIRE_NAMES.get(name, name): value for name, value in asdict(engine).items()}
        private_files.replace(path, json.dumps(fields).encode())
    except OSError as error:
        raise EngineError(sentence(error, path, "be written")) from error


def remove(pid: int) -> None:
    """Remove engine.json if it describes process `pid`."""
    with contextlib.suppress(OSError, EngineError):
        engine = read()
        if engine is not None and engine.pid == pid:
            private_files.retry_while_open(state_path().unlink)


# ── the lock ──


def try_lock() -> int | None:
    """A handle that holds engine.lock; None: an engine has the lock.

    The caller keeps the handle or passes it to the engine it starts (`inherited`). Raises EngineError: the lock file is
    not this user's private file.
    """
    return _try_lock(config.runtime_dir() / lock_path().name, create=True)


def _try_lock(path: Path, create: bool) -> int | None:
    """As `try_lock`. Raises FileNotFoundError: there is no lock file, and none is to be made."""
    try:
        return locks.acquire(path, create, private_files.check_private)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not create:
            raise
        raise EngineError(sentence(error, path, "be locked")) from error


def is_locked() -> bool:
    """True while an engine runs or starts. Makes no file. Raises EngineError: the lock file is not a private one."""
    try:
        handle = _try_lock(lock_path(), create=False)
    except FileNotFoundError:
        return False
    if handle is not None:
        os.close(handle)
    return handle is None


def inherited(number: int) -> int:
    """The handle of the lock that a starter passed to this process, hidden from this process's own children.

    `number`: platform.number_of(handle) in the starter. Raises EngineError: it is not the lock.
    """
    path = lock_path()
    try:
        handle = platform.descriptor(number)
        if locks.is_at(path, handle) and locks.lock_now(handle):
            return handle
    except OSError:
        pass  # not an open file at all
    raise EngineError(f"--lock-fd {number} is not the lock on {path}: leave it out, and the engine takes the lock.")


# ── connections ──


def connect(engine: EngineEndpoint, timeout_s: float = 1.0) -> socket.socket:
    """A connection to the engine. Raises OSError: nothing listens; EngineError: another user's process listens."""
    if not engine.socket:
        return socket.create_connection(("127.0.0.1", engine.port), timeout_s)
    if sys.platform == "win32":
        raise NotImplementedError
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        path = Path(engine.socket)
        if os.path.lexists(path):
            check_socket(path)
        connection.connect(str(path))
        if not is_own_peer(connection):
            raise EngineError(f"a process of another user listens on {path}: remove that file.")
    except BaseException:
        connection.close()
        raise
    return connection


def check_socket(path: Path) -> None:
    """Raise EngineError unless `path` is a Unix socket of this user's. Does not check that anything listens."""
    if sys.platform == "win32":
        raise NotImplementedError
    try:
        status = path.lstat()
    except OSError as error:
        raise EngineError(sentence(error, path, "be used")) from error
    if not stat.S_ISSOCK(status.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "not a socket"
        raise EngineError(f"{path} is {kind}: remove it.")
    if status.st_uid != os.getuid():
        raise EngineError(f"{path} belongs to another user (uid {status.st_uid}): remove it.")


def is_own_peer(connection: socket.socket) -> bool:
    """True when the other end of a Unix socket runs as this user.

    Also where the system does not report the user: there the mode of the socket file protects it. Also over TCP,
    where the token protects it.
    """
    if sys.platform == "win32" or connection.family != socket.AF_UNIX:
        return True
    uid = platform.peer_uid(connection)
    return uid is None or uid == os.getuid()
