"""This user's one engine: the lock it holds, where it listens, how others find it. No torch here.

`foreground` serves until it is told to stop, for a terminal and for service managers; detached.py until nobody uses it.
What is imported with this module is in memory when detached.py forks: nothing that has threads.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from speclsp import __version__, config
from speclsp.config import Config
from speclsp.daemon import endpoint, platform
from speclsp.daemon.endpoint import EngineEndpoint
from speclsp.errors import EngineError, SpeclspError
from speclsp.observability.logfile import PrivateFile

if TYPE_CHECKING:
    from speclsp.engine.process.server_process import Listeners
    from speclsp.engine.process.unix_socket import UnixListener

OWN_DIRECTORY = "speclsp-"  # begins the name of one made for the socket alone
PATIENCE_S = 20.0  # with an engine that is just starting, or just ending
POLL_S = 0.05

log = logging.getLogger("speclsp.engine")


def foreground(settings: Config, host: str = "", port: int | None = None) -> int:
    """Serve until told to stop; the exit code. Raises SpeclspError: another engine runs, or it cannot listen."""
    lock = lock_or_found()
    if isinstance(lock, EngineEndpoint):
        raise EngineError(f"{runs(lock)}: `speclsp engine --stop` ends it.")
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="speclsp engine: %(message)s")
    quiet_libraries()
    serve(settings, lock, host, port, listens=lambda told: print("\n".join(told), flush=True) if told else None)
    return 0


def serve(
    settings: Config,
    lock: int,
    host: str,
    port: int | None,
    *,
    grace_s: float | None = None,
    listens: Callable[[list[str]], None] = lambda told: None,
) -> None:
    """Listen, say so in engine.json, and answer until it is time to end. Raises SpeclspError when it cannot listen.

    `listens` is told when it does, and how other programs reach the port, line by line, where one was asked for. The
    lock is held by its open handle, which nothing closes before the process is gone.
    """
    from speclsp.engine.process import server_process

    load = server_process.loader(settings)
    entrances, found = open_entrances(settings, host, port)

    def look_after() -> UnixListener | None:
        nonlocal lock
        lock = kept(lock)
        return restore(found, entrances.door)

    entrances.restore = look_after

    def begin() -> None:
        endpoint.write(found)
        log.info(
            "version %s listens on %s, for %s; settings %s",
            __version__,
            found.socket or f"port {found.port} of this machine",
            "as long as it is used" if grace_s is not None else "as long as it is not told to stop",
            dict(found.settings) or "as they come",
        )
        listens(port_in_words(entrances) if port is not None else [])

    server_process.serve(settings, load, entrances, grace_s=grace_s, listens=begin)
    log.info("ended")


def quiet_libraries() -> None:
    """Only our own words at INFO."""
    for name in ("uvicorn", "asyncio", "httpx", "transformers"):
        logging.getLogger(name).setLevel(logging.WARNING)


# ── the lock ─────────────────────────────────────────────────────────────────────────────────────────────────


def lock_or_found() -> int | EngineEndpoint:
    """The lock's handle, or the engine that has it and listens. Raises EngineError: it does not within PATIENCE_S.

    One that is just starting or just ending is waited for.
    """
    from speclsp.daemon import control

    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        lock = endpoint.try_lock()
        if lock is not None:
            return lock
        found = control.alive()
        if found is not None:
            return found
        time.sleep(POLL_S)
    raise EngineError(
        f"another engine holds {endpoint.lock_path()} and does not listen: `speclsp engine --stop` ends it."
    )


def runs(found: EngineEndpoint) -> str:
    """That an engine runs, and which."""
    return f"this user's engine already runs (process {found.pid}, pair {found.pair})"


def check_suits(found: EngineEndpoint, settings: Config, port: int | None) -> None:
    """Raises EngineError when the engine that runs is not what is asked for."""
    from speclsp.daemon import control

    unlike = endpoint.differences(found, settings, str(control.health(found).get("pair") or ""))
    if port is not None:
        unlike.append(f"--port {port} is for one that starts")
    if unlike:
        raise EngineError(f"{runs(found)}, but {'; '.join(unlike)}. `speclsp engine --stop` ends it.")


# ── where it listens ─────────────────────────────────────────────────────────────────────────────────────────


def open_entrances(settings: Config, host: str, port: int | None) -> tuple[Listeners, EngineEndpoint]:
    """Listen, and what others need to know to find it. Raises EngineError.

    A Unix socket, and the port where one is asked for. Where there are no Unix sockets, a port on loopback that the
    system chooses, unless one is asked for, and a token that is in engine.json alone.
    """
    from speclsp.engine.process.server_process import Listeners

    entrances = Listeners(host=host or "127.0.0.1")
    found = {"pid": os.getpid(), "pair": settings.pair, "settings": endpoint.heavy(settings)}
    try:
        if platform.HAS_UNIX_SOCKETS:
            from speclsp.engine.process import unix_socket

            clear_abandoned()
            path = socket_path()
            entrances.door = unix_socket.listen(str(path))
            found["socket"] = str(path)
        if port is not None or not platform.HAS_UNIX_SOCKETS:
            from speclsp.engine.http import tcp_guard

            entrances.port = tcp_guard.listen(entrances.host, port or 0)
            entrances.token = tcp_guard.token() if platform.HAS_UNIX_SOCKETS else secrets.token_urlsafe(32)
            if not platform.HAS_UNIX_SOCKETS:
                found |= {"port": entrances.port.getsockname()[1], "token": entrances.token}
    except BaseException:
        entrances.close()
        raise
    entrances.remove = lambda: leave_no_trace(found.get("socket"))
    return entrances, EngineEndpoint(**found)  # type: ignore[arg-type]


def socket_path() -> Path:
    """engine.sock in the runtime directory; where that path is too long for a socket, in a fresh directory of ours."""
    path = config.runtime_dir() / "engine.sock"
    if len(os.fsencode(path)) <= config.SOCKET_PATH_BYTES:
        return path
    return Path(tempfile.mkdtemp(prefix=OWN_DIRECTORY)) / path.name  # 0700, and a name nobody could guess


def clear_abandoned() -> None:
    """Remove what a killed engine left outside the runtime directory. We hold the lock: nobody is using it."""
    with suppress(OSError, SpeclspError):
        found = endpoint.find()
        if found is not None and found.socket:
            remove_own_directory(Path(found.socket).parent)


def leave_no_trace(socket_text: object) -> None:
    """Remove engine.json, and the directory that was made for the socket."""
    endpoint.remove(os.getpid())
    if isinstance(socket_text, str):
        remove_own_directory(Path(socket_text).parent)


def remove_own_directory(directory: Path) -> None:
    """Remove a directory that `socket_path` made."""
    temporary = Path(tempfile.gettempdir())
    if directory.parent == temporary and directory.name.startswith(OWN_DIRECTORY) and not directory.is_symlink():
        with suppress(OSError):
            if directory.stat().st_uid == os.getuid():
                shutil.rmtree(directory, ignore_errors=True)


def kept(lock: int) -> int:
    """The lock, taken anew where somebody has removed its file. Raises Replaced: meanwhile another engine has it."""
    path = endpoint.lock_path()
    if endpoint.is_at(path, lock):
        return lock
    taken = endpoint.try_lock()
    if taken is None:
        from speclsp.engine.process.server_process import Replaced

        raise Replaced(f"{path} was removed, and another engine was started")
    os.close(lock)
    log.info("locked %s again, which somebody had removed", path)
    return taken


def restore(found: EngineEndpoint, held: UnixListener | None) -> UnixListener | None:
    """Make again what somebody removed: engine.json, and the socket, which is returned.

    Raises SpeclspError, OSError.
    """
    for handler in logging.getLogger().handlers:
        if isinstance(handler, PrivateFile):
            handler.bound()
    now = endpoint.find()
    if now is None or now.pid != found.pid:
        endpoint.write(found)
        log.info("wrote %s again", endpoint.state_path())
    if held is None or held.is_there():
        return None
    from speclsp.engine.process import unix_socket

    return unix_socket.listen(found.socket)


def port_in_words(entrances: Listeners) -> list[str]:
    """How other programs reach the port."""
    from speclsp.engine.http import tcp_guard

    where = entrances.url
    told = [
        f"listens on {where} too (OpenAI's API at {where}/v1, llama.cpp's at {where}/infill)",
        f'the token is in {tcp_guard.token_path()}: curl -H "Authorization: Bearer $(cat {tcp_guard.token_path()})" '
        f"{where}/v1/models",
    ]
    return told + [warning for warning in [tcp_guard.warning(entrances.host)] if warning]
