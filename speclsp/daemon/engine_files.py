"""Files of this user's shared engines: how a client finds one, and the lock that allows one for each settings.

    engine-KEY.lock   locked by the engine as long as it lives, however it ends; the holder of the lock may start one
    engine-KEY.json   written by the engine when it listens: its process, version, settings and address; mode 0600
    engine-KEY.sock   its Unix socket; on Windows, where asyncio has none, and where the path is too long: a port on
                      loopback, and a token in engine-KEY.json

KEY is a hash of the program's version and of the settings that a running engine cannot change. All files are in the
runtime directory, which only this user can enter. The lock decides: a file without a locked lock was left by an engine
that was killed. A starter takes the lock first and hands it to the engine it starts, so that of any number of
simultaneous starts exactly one begins a process.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import stat
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from speclsp import __version__, config, private_files
from speclsp.config import Config
from speclsp.daemon import platform
from speclsp.errors import EngineError, SpeclspError
from speclsp.plain_text import digest
from speclsp.private_files import NO_LINK_FLAGS, locks
from speclsp.private_files.os_errors import sentence

ENGINES_OWN = ("model", "device", "models_dir", "engine.", "echo.")  # prefixes of the settings that an engine uses
LIGHT = (  # exceptions: a difference here needs no other engine; it keeps the values it was started with
    "engine.shutdown_delay_seconds",
    "engine.idle_unload_minutes",
    "engine.offline",
)
NOT_AN_ENGINE = "the process on the engine's socket is not a speclsp engine: run `speclsp engine stop`."
MAX_STATE_BYTES = 65_536
REPLACED_S = 0.2  # for a file that is being replaced on Windows; editors read it in their event loops


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineEndpoint:
    """An engine and how to reach it: the content of engine-KEY.json."""

    pid: int
    socket: str = ""  # the path of its Unix socket; "": it listens on `port`
    port: int = 0  # on 127.0.0.1
    token: str = ""  # sent as `Authorization: Bearer`; needed on a port
    version: str = __version__
    settings: Mapping[str, object] = field(default_factory=dict)  # heavy_settings(config) it was started with

    @property
    def model(self) -> str:
        """The setting as it was written: a name, or "auto"."""
        return str(self.settings.get("model", "auto"))


def rooted(settings: Config) -> Config:
    """The settings with relative paths made absolute: the engine works in another directory."""
    model, models_dir = settings.model, settings.models_dir
    if model.startswith((".", "~")):  # a directory, not a card's name
        model = str(Path(model).expanduser().absolute())
    return replace(settings, model=model, models_dir=models_dir and str(Path(models_dir).absolute()))


def heavy_settings(settings: Config) -> dict[str, object]:
    """The settings, by dotted key, that a running engine cannot change and that differ from their defaults."""
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in config.changes(rooted(settings)).items()
        if key.startswith(ENGINES_OWN) and key not in LIGHT
    }


@dataclass(frozen=True, slots=True)
class EngineFiles:
    """The files of one engine. Each method raises EngineError for a file that is not this user's private one."""

    key: str

    @classmethod
    def of(cls, settings: Config) -> EngineFiles:
        """The files of the engine that serves these settings."""
        return cls(digest(json.dumps([__version__, heavy_settings(settings)], sort_keys=True)))

    @property
    def state(self) -> Path:
        """engine-KEY.json. Raises SpeclspError when the place of its directory is taken."""
        return config.runtime_path() / f"engine-{self.key}.json"

    @property
    def lock(self) -> Path:
        """engine-KEY.lock. Raises SpeclspError."""
        return self.state.with_suffix(".lock")

    @property
    def socket(self) -> Path | None:
        """engine-KEY.sock; None where an engine listens on a port. Raises SpeclspError."""
        path = self.state.with_suffix(".sock")
        fits = len(os.fsencode(path)) <= config.SOCKET_PATH_BYTES
        return path if platform.HAS_UNIX_SOCKETS and fits else None

    def find(self) -> EngineEndpoint | None:
        """The engine that the state file describes; None without a valid file.

        The engine may have been killed since. Another process cannot listen on its socket then, but it can on its
        port: so an engine on a port counts only while the lock is locked.
        """
        engine = self.read()
        return engine if engine is not None and (engine.socket or self.is_locked()) else None

    def read(self) -> EngineEndpoint | None:
        """The content of the state file, also of an engine that was killed; None without a valid file."""
        path = self.state
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

    def write(self, engine: EngineEndpoint) -> None:
        """Replace the state file in one step. Raises SpeclspError."""
        path = config.runtime_dir() / self.state.name
        with contextlib.suppress(FileNotFoundError):
            private_files.check_private(path, path.lstat())
        try:
            private_files.replace(path, json.dumps(asdict(engine)).encode())
        except OSError as error:
            raise EngineError(sentence(error, path, "be written")) from error

    def remove(self, pid: int) -> None:
        """Remove the state file and the socket if they are those of process `pid`."""
        with contextlib.suppress(OSError, SpeclspError):
            engine = self.read()
            if engine is not None and engine.pid == pid:
                private_files.retry_while_open(self.state.unlink)
                if engine.socket and self.socket is not None:
                    self.socket.unlink()

    def try_lock(self) -> int | None:
        """A handle that holds the lock; None: an engine has it.

        The caller keeps the handle or passes it to the engine it starts (`inherited`).
        """
        path = config.runtime_dir() / self.lock.name
        try:
            return locks.acquire(path, check=private_files.check_private)
        except OSError as error:
            raise EngineError(sentence(error, path, "be locked")) from error

    def is_locked(self) -> bool:
        """True while an engine runs or starts. Makes no file."""
        try:
            handle = locks.acquire(self.lock, create=False, check=private_files.check_private)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise EngineError(sentence(error, self.lock, "be locked")) from error
        if handle is not None:
            os.close(handle)
        return handle is None

    def inherited(self, number: int) -> int:
        """The handle of the lock that a starter passed to this process, hidden from this process's own children.

        `number`: platform.number_of(handle) in the starter. Raises EngineError: it is not the lock.
        """
        path = self.lock
        try:
            handle = platform.descriptor(number)
            if locks.is_at(path, handle) and locks.lock_now(handle):
                return handle
        except OSError:
            pass  # not an open file at all
        raise EngineError(f"--lock-fd {number} is not the lock on {path}: leave it out, and the engine takes the lock.")


def present() -> list[EngineFiles]:
    """The files of every engine that runs or was killed. Raises SpeclspError when their directory is not ours."""
    with contextlib.suppress(FileNotFoundError):
        names = sorted(entry.name for entry in config.runtime_path().iterdir())
        matches = [re.fullmatch(r"engine-([0-9a-f]{8})\.(?:lock|json)", name) for name in names]
        return [EngineFiles(key) for key in dict.fromkeys(match[1] for match in matches if match)]
    return []


def log_path() -> Path:
    """The log of all engines; each line names the process."""
    return config.log_dir() / "engine.log"


def log_file() -> str:
    """The path of the log if it exists; "": an engine in the foreground, or one without a writable directory."""
    return str(log_path()) if log_path().is_file() else ""


def log_phrase() -> str:
    """ "; its log is PATH", where there is one."""
    return f"; its log is {log_file()}" if log_file() else ""


def _parse(text: bytes) -> EngineEndpoint | None:
    """The content of a state file; None for one that was cut short or edited. KEY stands for one version of it."""
    try:
        engine = EngineEndpoint(**json.loads(text))
    except (ValueError, TypeError):
        return None
    texts = (engine.socket, engine.token, engine.version)
    numbers = (engine.pid, engine.port)
    valid = all(isinstance(text, str) for text in texts) and all(type(number) is int for number in numbers)
    return engine if valid and isinstance(engine.settings, dict) else None


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
