"""The `speclsp engine` process: listeners, signals, and its end. Imports uvicorn, as tcp_guard.py does.

The socket answers at once; the model loads in the engine's thread. A signal or the end of the last lease (leases.py)
stops it, and after STOP_S it ends whatever it is doing. When a step hangs, or the
device no longer answers, all requests fail and the process exits with code HUNG without ending its leases properly:
clients treat that as a crash and start another engine, as service managers do.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import uvicorn

from speclsp.config import Config
from speclsp.daemon.engine_files import is_own_peer
from speclsp.engine.api import Completer
from speclsp.engine.decoding.echo import EchoCompleter
from speclsp.engine.http import tcp_guard
from speclsp.engine.http.leases import Leases
from speclsp.engine.http.routes import RouteContext, application
from speclsp.engine.scheduling.loaded_model import Load, LoadedModel
from speclsp.engine.scheduling.scheduler import Scheduler
from speclsp.errors import SpeclspError
from speclsp.observability.logfile import PrivateFile
from speclsp.observability.metrics import Metrics
from speclsp.private_files.os_errors import message

KEEP_ALIVE_S = 600  # an editor's pool must not meet a connection that was just closed
READY_WAIT_S = 0.1  # a model that needs no loading is ready before the first request is read
# An idle process wakes up seldom: its end is signalled. On Windows a signal's handler waits for the next tick.
TICK_S = 0.5 if sys.platform == "win32" else 5.0
HUNG = 75  # the exit code: try again (sysexits.h)
REPORT_S = 0.3  # for failed requests to be answered
STOP_S = 1.2  # from the request to stop to the end of the process, even in the middle of a round

log = logging.getLogger("speclsp.engine")


@dataclass(slots=True)
class Listeners:
    """The engine's listening sockets."""

    unix: socket.socket | None = None  # for this user's processes
    tcp: socket.socket | None = None  # for clients with the token
    token: str = ""
    host: str = "127.0.0.1"  # of `tcp`, as it was requested
    remove: Callable[[], None] = lambda: None  # remove the files by which clients find the engine

    @property
    def url(self) -> str:
        """URL of the TCP port; "" without one."""
        if self.tcp is None:
            return ""
        host = f"[{self.host.strip('[]')}]" if ":" in self.host else self.host
        return f"http://{host}:{self.tcp.getsockname()[1]}"

    def sockets(self) -> list[socket.socket]:
        """All listening sockets."""
        return [listener for listener in (self.unix, self.tcp) if listener is not None]


def serve(
    config: Config,
    load: Load,
    listeners: Listeners,
    *,
    grace_s: float | None = None,
    on_listening: Callable[[], None] = lambda: None,
) -> None:
    """Answer until it is time to end. `on_listening` is called once clients are answered. Raises what that raises.

    `grace_s`: idle shutdown delay, after the last user has gone; None: serve without users as well.
    """
    metrics = Metrics()
    scheduler = Scheduler(
        load,
        metrics,
        model="" if config.model == "auto" else config.model,
        idle_s=60 * config.engine.idle_unload_minutes,
    )
    measure_speed_when_idle(config, scheduler)
    server = EngineServer(config, metrics, listeners, scheduler, grace_s, on_listening)
    try:
        scheduler.thread.start()
        scheduler.residency.ready_event.wait(READY_WAIT_S)
        server.run(sockets=listeners.sockets())
    finally:
        server.stop()
        listeners.remove()
    scheduler.thread.join()  # in a long step, or while loading, it may not end: then the process ends after STOP_S
    server.ended.set()
    if server.failure is not None:
        raise server.failure


class SelectorConfig(uvicorn.Config):
    """uvicorn's settings, with the selector loop on every system.

    Windows' default, the Proactor loop, closes the listening socket when a client resets its connection before it is
    accepted (CPython issue 93821). select() has room for 512 sockets there, and tcp_guard.py admits 64.
    """

    @property
    def use_subprocess(self) -> bool:
        """True: on Windows uvicorn then chooses the selector loop."""
        return True


class EngineServer(uvicorn.Server):
    """uvicorn on the engine's own sockets. It ends soon after `stop`."""

    def __init__(
        self,
        config: Config,
        metrics: Metrics,
        listeners: Listeners,
        scheduler: Scheduler,
        grace_s: float | None,
        on_listening: Callable[[], None],
    ) -> None:
        self.leases = Leases(scheduler.residency, self.stop, grace_s)
        self.leases.url = listeners.url
        app = self.leases.while_answering(application(RouteContext(config, scheduler, metrics, self.leases)))
        if listeners.tcp is not None:
            app = tcp_guard.TcpGuard(app, listeners.token, listeners.host)
        super().__init__(
            SelectorConfig(
                app,
                http=PeerCheckedProtocol,
                ws="none",
                loop="asyncio",
                lifespan="off",
                log_config=None,
                log_level="critical",  # this package logs what is worth a line, without text from requests
                access_log=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=1,
            )
        )
        self.listeners = listeners
        self.scheduler = scheduler
        self.ended = threading.Event()  # the engine's thread has ended
        self.failure: SpeclspError | None = None  # raised by `on_listening`
        scheduler.on_device_lost = self.exit_hung
        self._on_listening = on_listening
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        self._stopping = threading.Lock()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals end the process as the last lease's end does; uvicorn would raise them again."""
        for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGBREAK"):
            number = getattr(signal, name, None)
            if number is None:
                continue
            try:
                asyncio.get_running_loop().add_signal_handler(number, self.leases.leave, name)
            except NotImplementedError:  # Windows
                signal.signal(number, lambda *_, name=name: self.leases.leave(name))
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, and announce it."""
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self.leases.begin()
        try:
            self._on_listening()
        except SpeclspError as error:
            self.failure = error
            self.stop()

    async def main_loop(self) -> None:
        """Replaces uvicorn's loop, which polls ten times a second for the end: this one sleeps until it is woken."""
        tick = 0
        while not await self.on_tick(tick):
            tick += 1
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._woken.wait(), TICK_S)

    async def on_tick(self, counter: int) -> bool:
        """Bound the log: prints of libraries go into it as well."""
        for handler in logging.getLogger().handlers:
            if isinstance(handler, PrivateFile):
                handler.bound()
        return await super().on_tick(counter)

    def stop(self) -> None:
        """Cancel all work, close, and end the process after STOP_S whatever still runs. From any thread; once."""
        if not self._stopping.acquire(blocking=False):
            return
        self.should_exit = True
        threading.Thread(target=self._exit_after_stop, name="grace", daemon=True).start()
        self.listeners.remove()  # a new client starts another engine, which waits for the end of this one
        if self._loop is not None:
            with suppress(RuntimeError):  # it has closed
                self._loop.call_soon_threadsafe(self.leases.close)
                self._loop.call_soon_threadsafe(self._woken.set)
        self.scheduler.close()

    def exit_hung(self) -> None:
        """End the process, so that another engine can be started. From any thread; all others may hang.

        The discovery file stays, as that of a killed engine.
        """
        if not self._stopping.acquire(blocking=False):
            return  # it is ending
        time.sleep(REPORT_S)
        exit_now(HUNG)

    def _exit_after_stop(self) -> None:
        if not self.ended.wait(STOP_S):
            self.listeners.remove()
            exit_now(0)


def exit_now(code: int) -> None:
    """End the process without waiting for threads."""
    with suppress(Exception):
        sys.stderr.flush()
    os._exit(code)


class PeerCheckedProtocol(tcp_guard.TimedProtocol):
    """HTTP that checks the peer of each connection before it is read."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refuse another user's process on the Unix socket."""
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        if connection is None or not is_own_peer(connection):
            transport.abort()


def model_loader(config: Config) -> Load:
    """The function that loads the completer, for the engine's thread. Raises UnknownModel for an unknown name."""
    if config.model == "echo":
        return lambda progress: EchoCompleter(config)
    from speclsp.weights import cards

    chosen = None if config.model == "auto" else cards.load(config.model)
    why = ""

    def load(progress: Callable[[float, str], None]) -> Completer | LoadedModel:
        nonlocal chosen, why  # auto's choice holds for a reload: the same model wakes up that was unloaded
        if chosen is None:
            from speclsp.engine.loading import cpu_speed

            chosen, why = cpu_speed.choose_card(config)
        card = chosen
        progress(0.0, "starting")
        from speclsp.engine.loading import loading

        return replace(loading.start(config, card, progress), reason=why)

    return load


def measure_speed_when_idle(config: Config, scheduler: Scheduler) -> None:
    """Let the engine's thread measure the CPU's speed after it has unloaded the model, where "auto" needs that."""

    def on_idle() -> None:
        from speclsp.engine.loading import cpu_speed

        try:
            cpu_speed.measure_if_needed(config)
        except Exception as error:  # no failure of the model, which the next request loads
            log.warning("the CPU's speed was not measured: %s", message(error))

    if config.model == "auto":
        scheduler.residency.on_idle = on_idle
