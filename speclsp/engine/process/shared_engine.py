"""The user's shared engine: its lock, its listeners and its discovery file (engine.json). No torch here.

`run_foreground` serves until it is stopped, for a terminal and for service managers; daemonize.py serves until
no client uses the engine. Everything imported with this module is in memory when daemonize.py forks, so it must not
start threads.
"""

from __future__ import annotations

import logging
import os
import secrets
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from speclsp import __version__
from speclsp.config import Config
from speclsp.daemon import endpoint, launch, platform
from speclsp.daemon.endpoint import EngineEndpoint
from speclsp.engine.process import unix_socket
from speclsp.engine.process.unix_socket import UnixListener
from speclsp.errors import EngineError, SpeclspError
from speclsp.observability.logfile import PrivateFile
from speclsp.private_files import locks

if TYPE_CHECKING:
    from speclsp.engine.process.server_process import Listeners

PATIENCE_S = 20.0  # with an engine that is just starting, or just ending
POLL_S = 0.05

log = logging.getLogger("speclsp.engine")


def run_foreground(settings: Config, host: str = "", port: int | None = None) -> int:
    """Serve until stopped; returns the exit code. Raises SpeclspError when another runs, or it cannot listen."""
    lock = lock_or_running_engine()
    if isinstance(lock, EngineEndpoint):
        raise EngineError(f"{running_message(lock)}: `speclsp engine stop` ends it.")
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="speclsp engine: %(message)s")
    quiet_libraries()

    def print_port(lines: list[str]) -> None:
        if lines:
            print("\n".join(lines), flush=True)

    serve(settings, lock, host, port, on_listening=print_port)
    return 0


def serve(
    settings: Config,
    lock: int,
    host: str,
    port: int | None,
    *,
    grace_s: float | None = None,
    on_listening: Callable[[list[str]], None] = lambda lines: None,
) -> None:
    """Listen, write engine.json, and answer until it is time to end. Raises SpeclspError when it cannot listen.

    `on_listening` is called once it listens, with the lines that explain how other programs reach the port, if one was
    requested. The lock is held by its open handle, which nothing closes before the process ends.
    """
    from speclsp.engine.process import server_process

    load = server_process.model_loader(settings)
    listeners, address = open_listeners(settings, host, port)
    flags = start_flags(settings, listeners if port is not None else None, keep_running=grace_s is None)
    address = replace(address, start_flags=flags)

    def keep_discoverable() -> UnixListener | None:
        nonlocal lock
        lock = keep_lock(lock)
        return restore_endpoint(address, listeners.unix)

    listeners.restore = keep_discoverable

    def announce() -> None:
        endpoint.write(address)
        log.info(
            "version %s listens on %s, %s; settings %s",
            __version__,
            address.socket or f"port {address.port} of this machine",
            "while clients use it" if grace_s is not None else "until it is stopped",
            dict(address.settings) or "default",
        )
        on_listening(port_message(listeners) if port is not None else [])

    server_process.serve(settings, load, listeners, grace_s=grace_s, on_listening=announce)
    log.info("ended")


def start_flags(settings: Config, listeners: Listeners | None, keep_running: bool) -> tuple[str, ...]:
    """The flags of `speclsp engine` that start this engine again: see launch.py. `listeners`: with a requested port."""
    flags = launch.engine_flags(launch.rooted(settings))
    if listeners is not None and listeners.tcp is not None:
        flags += ["--port", str(listeners.tcp.getsockname()[1]), "--host", listeners.host]
    return (*flags, *(["--keep-running"] if keep_running else []))


def quiet_libraries() -> None:
    """Let only our own loggers write at INFO."""
    for name in ("uvicorn", "asyncio", "httpx", "transformers"):
        logging.getLogger(name).setLevel(logging.WARNING)


# ── the lock ─────────────────────────────────────────────────────────────────────────────────────────────


def lock_or_running_engine() -> int | EngineEndpoint:
    """The lock's handle, or the engine that has the lock and listens.

    Waits PATIENCE_S for an engine that is just starting or ending. Raises EngineError when it does not listen by then.
    """
    from speclsp.daemon import control

    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        lock = endpoint.try_lock()
        if lock is not None:
            return lock
        running = control.alive()
        if running is not None:
            return running
        time.sleep(POLL_S)
    raise EngineError(
        f"another engine holds {endpoint.lock_path()} and does not listen: `speclsp engine stop` ends it."
    )


def running_message(running: EngineEndpoint) -> str:
    """The sentence that an engine already runs."""
    return f"this user's engine already runs (process {running.pid}, model {running.model})"


def check_compatible(running: EngineEndpoint, settings: Config, port: int | None) -> None:
    """Raise EngineError when the running engine does not have the requested settings."""
    from speclsp.daemon import control

    unlike = endpoint.differences(running, settings, str(control.health(running).get("pair") or ""))
    if port is not None:
        unlike.append(f"--port {port} needs an engine that starts now")
    if unlike:
        raise EngineError(f"{running_message(running)}, but {'; '.join(unlike)}. `speclsp engine stop` ends it.")


def keep_lock(lock: int) -> int:
    """The lock, acquired again if its file was removed. Raises EngineReplaced when another engine has it meanwhile."""
    path = endpoint.lock_path()
    if locks.is_at(path, lock):
        return lock
    new_lock = endpoint.try_lock()
    if new_lock is None:
        from speclsp.engine.process.server_process import EngineReplaced

        raise EngineReplaced(f"{path} was removed, and another engine was started")
    os.close(lock)
    log.info("recreated and locked the removed %s", path)
    return new_lock


# ── listeners and discovery ──────────────────────────────────────────────────────────────────────────────


def open_listeners(settings: Config, host: str, port: int | None) -> tuple[Listeners, EngineEndpoint]:
    """Open the listeners; returns them and the address by which clients find the engine. Raises EngineError.

    A Unix socket, and the port if one is requested. Without Unix sockets: a loopback port that the system chooses,
    unless one is requested. Its token is only in engine.json, and that of a requested port also in the token's file.
    """
    from speclsp.engine.process.server_process import Listeners

    listeners = Listeners(host=host or "127.0.0.1")
    address = {"pid": os.getpid(), "model": settings.model, "settings": endpoint.restart_settings(settings)}
    try:
        if platform.HAS_UNIX_SOCKETS:
            remove_abandoned()
            path = endpoint.socket_path("engine.sock")
            listeners.unix = unix_socket.listen(str(path))
            address["socket"] = str(path)
        if port is not None or not platform.HAS_UNIX_SOCKETS:
            from speclsp.engine.http import tcp_guard, token_file

            listeners.tcp = tcp_guard.listen(listeners.host, port or 0)
            listeners.token = secrets.token_urlsafe(32) if port is None else token_file.token()
            if not platform.HAS_UNIX_SOCKETS:
                address |= {"port": listeners.tcp.getsockname()[1], "token": listeners.token}
    except BaseException:
        listeners.close()
        raise
    listeners.remove = lambda: remove_endpoint(address.get("socket"))
    return listeners, EngineEndpoint(**address)  # type: ignore[arg-type]


def remove_abandoned() -> None:
    """Remove files that a killed engine left outside the runtime directory. We hold the lock: nobody uses them."""
    with suppress(OSError, SpeclspError):
        abandoned = endpoint.find()
        if abandoned is not None and abandoned.socket:
            endpoint.remove_socket_directory(Path(abandoned.socket).parent)


def remove_endpoint(socket_text: object) -> None:
    """Remove engine.json, and the directory that was made for the socket."""
    endpoint.remove(os.getpid())
    if isinstance(socket_text, str):
        endpoint.remove_socket_directory(Path(socket_text).parent)


def restore_endpoint(address: EngineEndpoint, listener: UnixListener | None) -> UnixListener | None:
    """Restore what somebody removed: the log file, engine.json and the socket. Returns the new socket, if any.

    Raises SpeclspError, OSError.
    """
    for handler in logging.getLogger().handlers:
        if isinstance(handler, PrivateFile):
            handler.bound()
    current = endpoint.find()
    if current is None or current.pid != address.pid:
        endpoint.write(address)
        log.info("wrote %s again", endpoint.state_path())
    if listener is None or listener.is_there():
        return None
    return unix_socket.listen(address.socket)


def port_message(listeners: Listeners) -> list[str]:
    """The lines that tell how other programs reach the port."""
    from speclsp.engine.http import tcp_guard, token_file

    url, token_path = listeners.url, token_file.token_path()
    lines = [
        f"listens on {url} too (OpenAI's API at {url}/v1, llama.cpp's at {url}/infill)",
        f'the token is in {token_path}: curl -H "Authorization: Bearer $(cat {token_path})" {url}/v1/models',
    ]
    return lines + [warning for warning in [tcp_guard.warning(listeners.host)] if warning]
