"""A shared engine of the user: its lock, its listeners and its discovery file. No torch here.

`run_foreground` serves until it is stopped, for a terminal and for service managers; daemonize.py serves until
no client uses the engine. Everything imported with this module is in memory when daemonize.py forks, so it must not
start threads.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from speclsp import __version__, config
from speclsp.config import Config
from speclsp.daemon import engine_files
from speclsp.daemon.engine_files import EngineEndpoint, EngineFiles
from speclsp.errors import EngineError
from speclsp.private_files.os_errors import reason, way_out

if TYPE_CHECKING:
    from speclsp.engine.process.server_process import Listeners

PATIENCE_S = 20.0  # with an engine that is just starting, or just ending
POLL_S = 0.05
BACKLOG = 128

log = logging.getLogger("speclsp.engine")


def run_foreground(settings: Config, host: str = "", port: int | None = None) -> int:
    """Serve until stopped; returns the exit code. Raises SpeclspError when another runs, or it cannot listen."""
    files = EngineFiles.of(settings)
    lock = lock_or_running_engine(files)
    if isinstance(lock, EngineEndpoint):
        raise EngineError(f"{running_message(lock)}: `speclsp engine stop` ends it.")
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="speclsp engine: %(message)s")
    quiet_libraries()

    def print_port(lines: list[str]) -> None:
        if lines:
            print("\n".join(lines), flush=True)

    serve(settings, files, host, port, on_listening=print_port)
    return 0


def serve(
    settings: Config,
    files: EngineFiles,
    host: str,
    port: int | None,
    *,
    grace_s: float | None = None,
    on_listening: Callable[[list[str]], None] = lambda lines: None,
) -> None:
    """Listen, write the discovery file, and answer until it is time to end. Raises SpeclspError: it cannot listen.

    This process holds the lock of `files` by an open handle, which nothing closes before the process ends.
    `on_listening` is called once it listens, with the lines that explain how other programs reach the port, if one was
    requested.
    """
    from speclsp.engine.process import server_process

    load = server_process.model_loader(settings)
    listeners, address = open_listeners(settings, files, host, port)

    def announce() -> None:
        files.write(address)
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


def quiet_libraries() -> None:
    """Let only our own loggers write at INFO."""
    for name in ("uvicorn", "asyncio", "httpx", "transformers"):
        logging.getLogger(name).setLevel(logging.WARNING)


# ── the lock ─────────────────────────────────────────────────────────────────────────────────────────────


def lock_or_running_engine(files: EngineFiles) -> int | EngineEndpoint:
    """The lock's handle, or the engine that has the lock and listens.

    Waits PATIENCE_S for an engine that is just starting or ending. Raises EngineError when it does not listen by then.
    """
    from speclsp.daemon import control

    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        lock = files.try_lock()
        if lock is not None:
            return lock
        running = control.alive(files)
        if running is not None:
            return running
        time.sleep(POLL_S)
    raise EngineError(f"another engine holds {files.lock} and does not listen: `speclsp engine stop` ends it.")


def running_message(running: EngineEndpoint) -> str:
    """The sentence that an engine already runs."""
    return f"an engine with these settings already runs (process {running.pid}, model {running.model})"


# ── listeners and discovery ──────────────────────────────────────────────────────────────────────────────


def open_listeners(
    settings: Config, files: EngineFiles, host: str, port: int | None
) -> tuple[Listeners, EngineEndpoint]:
    """Open the listeners; returns them and the address by which clients find the engine. Raises EngineError.

    A Unix socket, and the port if one is requested. Without a Unix socket: a loopback port that the system chooses,
    unless one is requested. Its token is only in the discovery file, and that of a requested port also in the token's.
    """
    from speclsp.engine.process.server_process import Listeners

    listeners = Listeners(host=host or "127.0.0.1", remove=lambda: files.remove(os.getpid()))
    address = EngineEndpoint(pid=os.getpid(), settings=engine_files.heavy_settings(settings))
    config.runtime_dir()
    path = files.socket
    if port is not None or path is None:
        from speclsp.engine.http import tcp_guard, token_file

        listeners.tcp = tcp_guard.listen(listeners.host, port or 0)
        listeners.token = secrets.token_urlsafe(32) if port is None else token_file.token()
    if path is not None:
        listeners.unix = listen(path)
        return listeners, replace(address, socket=str(path))
    assert listeners.tcp is not None
    return listeners, replace(address, port=listeners.tcp.getsockname()[1], token=listeners.token)


def listen(path: Path) -> socket.socket:
    """Listen on the Unix socket at `path`, in a directory that only this user can enter. Raises EngineError.

    A socket that is there was left by a killed engine, because this process holds the lock. It is replaced. Anything
    else is refused.
    """
    if sys.platform == "win32":
        raise NotImplementedError
    if os.path.lexists(path):
        engine_files.check_socket(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise EngineError(f"cannot listen on {path}: {reason(error)}. {way_out(error, path)}") from error
    listener.setblocking(False)
    return listener


def port_message(listeners: Listeners) -> list[str]:
    """The lines that tell how other programs reach the port."""
    from speclsp.engine.http import tcp_guard, token_file

    url, token_path = listeners.url, token_file.token_path()
    lines = [
        f"listens on {url} too (OpenAI's API at {url}/v1, llama.cpp's at {url}/infill)",
        f'the token is in {token_path}: curl -H "Authorization: Bearer $(cat {token_path})" {url}/v1/models',
    ]
    return lines + [warning for warning in [tcp_guard.warning(listeners.host)] if warning]
