"""The `speclsp engine` process: listeners, signals, and its end. Imports uvicorn, as tcp_guard.py does.

The socket answers at once; the model loads in the engine's thread. A signal, the end of the watched parent process, or
the end of the last lease (leases.py) stops it, and after STOP_S it ends whatever it is doing. When a step hangs, or the
device no longer answers, all requests fail and the process exits with code HUNG without ending its leases properly:
clients treat that as a crash and start another engine, as service managers do.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from speclsp.config import Config
from speclsp.daemon import endpoint, platform
from speclsp.engine.api import Completer
from speclsp.engine.decoding.echo import EchoCompleter
from speclsp.engine.http import tcp_guard
from speclsp.engine.http.leases import Leases
from speclsp.engine.http.routes import RouteContext, application
from speclsp.engine.process import parent_watch, port_file, unix_socket
from speclsp.engine.process.event_loop import SelectorConfig, report_exception, woken_by_signals
from speclsp.engine.process.unix_socket import UnixListener
from speclsp.engine.scheduling.loaded_model import Load, LoadedModel
from speclsp.engine.scheduling.scheduler import Scheduler
from speclsp.errors import EngineError, SpeclspError
from speclsp.observability.metrics import Metrics
from speclsp.private_files.os_errors import message

KEEP_ALIVE_S = 600  # an editor's pool must not meet a connection that was just closed
READY_WAIT_S = 0.1  # a model that needs no loading is ready before the first request is read
TICK_S = 5.0  # an idle process wakes up seldom; its end is signalled and not polled for
HUNG = 75  # the exit code: try again (sysexits.h)
REPORT_S = 0.3  # for failed requests to be answered
STOP_S = 1.2  # from the request to stop to the end of the process, even in the middle of a round

log = logging.getLogger("speclsp.engine")


class EngineReplaced(EngineError):
    """Another engine has this one's place."""


@dataclass(slots=True)
class Listeners:
    """The engine's listening sockets, and callbacks that keep it discoverable."""

    unix: UnixListener | None = None  # for this user's processes
    tcp: socket.socket | None = None  # for clients with the token
    token: str = ""
    host: str = "127.0.0.1"  # of `tcp`, as it was requested
    remove: Callable[[], None] = lambda: None  # remove the other files that make the engine discoverable
    restore: Callable[[], UnixListener | None] = lambda: None  # restore removed files; the new socket, if it was one

    @property
    def url(self) -> str:
        """URL of the TCP port; "" without one."""
        if self.tcp is None:
            return ""
        host = f"[{self.host.strip('[]')}]" if ":" in self.host else self.host
        return f"http://{host}:{self.tcp.getsockname()[1]}"

    def sockets(self) -> list[socket.socket]:
        """All listening sockets."""
        listening = (self.unix.listener if self.unix else None, self.tcp)
        return [listener for listener in listening if listener is not None]

    def close(self) -> None:
        """Make the engine undiscoverable."""
        self.remove()
        if self.unix is not None:
            self.unix.remove()


def main(config: Config, socket: str | Path, watch_parent: int | None = None) -> int:
    """Serve on the Unix socket at path `socket` until a signal, or until process `watch_parent` ends.

    Without Unix sockets: on a port that a private file at that path names (port_file.py). With `watch_parent`, the end
    of standard input counts as that process's end when it is a pipe. Returns the exit code: 0 after a requested end, 1
    with one line on stderr when the model is unknown or the socket is not available.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="speclsp engine: %(message)s")
    try:
        load = model_loader(config)
        listeners = socket_listeners(config, str(socket), of_a_parent=bool(watch_parent))
    except SpeclspError as error:
        print(f"speclsp engine: {error}", file=sys.stderr)
        return 1
    serve(config, load, listeners, watch_parent=watch_parent)
    return 0


def socket_listeners(config: Config, path: str, of_a_parent: bool) -> Listeners:
    """The listener at `path`. `of_a_parent`: an editor waits for it, and made its directory. Raises SpeclspError."""
    if not platform.HAS_UNIX_SOCKETS:
        port = port_file.listen(path, config)
        return Listeners(tcp=port.listener, token=port.token, remove=port.remove)
    listener = unix_socket.listen(path)
    listeners = Listeners(listener)
    if of_a_parent:
        listeners.remove = lambda: remove_with_directory(listener)
    return listeners


def remove_with_directory(listener: UnixListener) -> None:
    """Remove the socket and the directory that an editor made for it, as the editor may be killed before it does."""
    listener.remove()
    if listener.path.parent.name.startswith(endpoint.SOCKET_DIRECTORY):
        with suppress(OSError):  # it has other content
            listener.path.parent.rmdir()


def serve(
    config: Config,
    load: Load,
    listeners: Listeners,
    *,
    watch_parent: int | None = None,
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
        min_free_memory_mib=config.engine.min_free_memory_mib,
    )
    measure_speed_when_idle(config, scheduler)
    server = EngineServer(config, metrics, listeners, scheduler, grace_s, on_listening)
    try:
        scheduler.thread.start()
        scheduler.residency.ready_event.wait(READY_WAIT_S)
        if watch_parent:
            parent_watch.watch(watch_parent, server.stop)
        server.run(sockets=listeners.sockets())
    finally:
        server.stop()
        listeners.close()
    scheduler.thread.join()  # in a long step, or while loading, it may not end: then the process ends after STOP_S
    server.ended.set()
    if server.failure is not None:
        raise server.failure


class EngineServer(uvicorn.Server):
    """uvicorn on the engine's own sockets. It ends soon after `stop`, and keeps the engine discoverable until then."""

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
        guarded = tcp_guard.TcpGuard(app, listeners.token, listeners.host) if listeners.tcp is not None else None
        super().__init__(
            SelectorConfig(
                app,
                http=http_protocol(guarded),
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
        self._last_warning = ""  # why the engine could not be made discoverable, the last time
        self._on_listening = on_listening
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        self._stopping = threading.Lock()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals end the process in the same way as the parent's end; uvicorn would raise them again."""
        for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGBREAK"):
            number = getattr(signal, name, None)
            if number is None:
                continue
            try:
                asyncio.get_running_loop().add_signal_handler(number, self.leases.leave, name)
            except NotImplementedError:  # Windows
                signal.signal(number, lambda *_, name=name: self.leases.leave(name))
        with woken_by_signals(asyncio.get_running_loop()):
            yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, and announce it."""
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(report_exception)
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
        """Restore what makes the engine discoverable: other programs clean up runtime and temporary directories."""
        if not self.should_exit:
            try:
                restored = self.listeners.restore()
                if restored is not None:
                    await self._listen_again(restored)
            except EngineReplaced as error:
                self.leases.leave(str(error))
            except (SpeclspError, OSError) as error:
                if (warning := message(error)) != self._last_warning:
                    log.warning("%s", warning)
                self._last_warning = warning
        return await super().on_tick(counter)

    async def _listen_again(self, restored: UnixListener) -> None:
        """Listen on the restored socket as well. Connections through the old one stay."""

        def connected() -> asyncio.Protocol:
            protocol: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state
            )
            return protocol

        loop = asyncio.get_running_loop()
        self.servers.append(await loop.create_server(connected, sock=restored.listener))
        self.listeners.unix = restored
        log.info("recreated the removed socket %s", restored.path)

    def stop(self) -> None:
        """Cancel all work, close, and end the process after STOP_S whatever still runs. From any thread; once."""
        if not self._stopping.acquire(blocking=False):
            return
        self.should_exit = True
        threading.Thread(target=self._exit_after_stop, name="grace", daemon=True).start()
        self.listeners.close()  # a new client starts another engine, which waits for the end of this one
        if self._loop is not None:
            with suppress(RuntimeError):  # it has closed
                self._loop.call_soon_threadsafe(self.leases.close)
                self._loop.call_soon_threadsafe(self._woken.set)
        self.scheduler.close()

    def exit_hung(self) -> None:
        """End the process, so that another engine can be started. From any thread; all others may hang.

        engine.json stays, as that of a killed engine: the next engine starts with the flags in it.
        """
        if not self._stopping.acquire(blocking=False):
            return  # it is ending
        self.listeners.restore = lambda: None
        self.listeners.remove = lambda: None
        self.listeners.close()
        time.sleep(REPORT_S)
        parent_watch.exit_now(HUNG)

    def _exit_after_stop(self) -> None:
        if not self.ended.wait(STOP_S):
            self.listeners.close()
            parent_watch.exit_now()


def http_protocol(guarded: ASGIApp | None) -> type[tcp_guard.TimedProtocol]:
    """The HTTP protocol: this user's processes on the Unix socket, and clients that pass `guarded` on TCP."""

    class PeerCheckedProtocol(tcp_guard.TimedProtocol):
        """Checks the peer of each connection before it is read."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            """Refuse another user's process."""
            super().connection_made(transport)
            connection = transport.get_extra_info("socket")
            if connection is not None and connection.family == getattr(socket, "AF_UNIX", None):
                if not endpoint.is_own_peer(connection):
                    transport.abort()
            elif connection is not None and guarded is not None:
                self.app = guarded
            else:
                transport.abort()

    return PeerCheckedProtocol


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

        round_ms = scheduler.metrics.median_ms("round_ms", cpu_speed.SERVED_REQUESTS)
        try:
            cpu_speed.measure_if_needed(config, scheduler.residency.model, round_ms)
        except Exception as error:  # no failure of the model, which the next request loads
            log.warning("the CPU's speed was not measured: %s", message(error))

    if config.model == "auto":
        scheduler.residency.on_idle = on_idle
