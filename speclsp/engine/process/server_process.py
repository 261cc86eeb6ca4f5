"""`speclsp engine` as a process: where it listens, whom it serves, when it leaves. A door to uvicorn.

The socket answers at once; the model loads in the engine's thread. A signal, the end of the process it was told to
watch, or the last lease (leases.py) ends it, and then in GRACE_S whatever it is doing. Where a step hangs, or the
device does not answer any more, all requests fail and it ends with exit code HUNG and without a word to its leases:
who holds one takes that for a crash and starts another, as service managers do.
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
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from speclsp.config import Config
from speclsp.daemon import endpoint
from speclsp.engine.api import Completer
from speclsp.engine.decoding.echo import EchoCompleter
from speclsp.engine.http import tcp_guard
from speclsp.engine.http.leases import Leases
from speclsp.engine.http.routes import RouteContext, application
from speclsp.engine.process import parent_watch
from speclsp.engine.process import unix_socket as door
from speclsp.engine.process.unix_socket import UnixListener
from speclsp.engine.scheduling.loaded_model import Load, LoadedModel
from speclsp.engine.scheduling.scheduler import Scheduler
from speclsp.errors import EngineError, SpeclspError
from speclsp.observability.metrics import Metrics

KEEP_ALIVE_S = 600  # an editor's pool must not meet a connection that was just closed
SETTLE_S = 0.1  # a pair that needs no loading is there before the first request is read
TICK_S = 1.0
LOOK_AFTER_TICKS = 5  # whether the engine can still be found
LOOK_SELDOM_TICKS = 300  # the same, once that could not be mended
HUNG = 75  # the exit code: try again (sysexits.h)
TOLD_S = 0.3  # for those who have asked to hear of it
GRACE_S = 1.2  # from the wish to stop to the end of the process, even in the middle of a round

log = logging.getLogger("speclsp.engine")


class Replaced(EngineError):
    """Another engine has this one's place."""


@dataclass(slots=True)
class Listeners:
    """Where the engine listens."""

    door: UnixListener | None = None  # a Unix socket, for this user's processes
    port: socket.socket | None = None  # TCP, for who has the token
    token: str = ""
    host: str = "127.0.0.1"  # of `port`, as it was asked for
    remove: Callable[[], None] = lambda: None  # what else was made for others to find the engine
    restore: Callable[[], UnixListener | None] = lambda: None  # what was removed meanwhile; the door, if it was

    @property
    def url(self) -> str:
        """Of the port; "" without one."""
        if self.port is None:
            return ""
        named = f"[{self.host.strip('[]')}]" if ":" in self.host else self.host
        return f"http://{named}:{self.port.getsockname()[1]}"

    def listeners(self) -> list[socket.socket]:
        """All of them."""
        return [one for one in (self.door.listener if self.door else None, self.port) if one is not None]

    def close(self) -> None:
        """Nobody finds it any more."""
        self.remove()
        if self.door is not None:
            self.door.remove()


def main(config: Config, socket: str | Path, watch_parent: int | None = None) -> int:
    """Serve on the Unix socket at path `socket` until a signal, or until process `watch_parent` is gone.

    With `watch_parent`, the end of standard input counts as that process's end when it is a pipe. Returns the exit
    code: 0 after a wished end, 1 with one line on stderr when the pair is unknown or the socket cannot be had.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="speclsp engine: %(message)s")
    try:
        load = loader(config)
        entrances = Listeners(held := door.listen(str(socket)))
    except SpeclspError as error:
        print(f"speclsp engine: {error}", file=sys.stderr)
        return 1
    if watch_parent:
        entrances.remove = lambda: leave_no_directory(held)
    serve(config, load, entrances, watch_parent=watch_parent)
    return 0


def leave_no_directory(held: UnixListener) -> None:
    """Remove the socket, and the directory that an editor made for it, which may be killed before it can do that."""
    from speclsp.engine.process.shared_engine import OWN_DIRECTORY

    held.remove()
    if held.path.parent.name.startswith(OWN_DIRECTORY):
        with suppress(OSError):  # there is something else in it
            held.path.parent.rmdir()


def serve(
    config: Config,
    load: Load,
    entrances: Listeners,
    *,
    watch_parent: int | None = None,
    grace_s: float | None = None,
    listens: Callable[[], None] = lambda: None,
) -> None:
    """Answer until it is time to end; `listens` is called when a client would be answered. Raises what that raises.

    `grace_s`: end when nobody has used the engine for so long.
    """
    counts = Metrics()
    scheduler = Scheduler(
        load,
        counts,
        pair="" if config.pair == "auto" else config.pair,
        idle_s=60 * config.engine.idle_unload_minutes,
        keep_free_mib=config.engine.keep_free_mib,
    )
    server = EngineServer(config, counts, entrances, scheduler, grace_s, listens)
    try:
        scheduler.thread.start()
        scheduler.residency.ready_event.wait(SETTLE_S)
        if watch_parent:
            parent_watch.watch(watch_parent, server.stop)
        server.run(sockets=entrances.listeners())
    finally:
        server.stop()
        entrances.close()
    scheduler.thread.join()  # in a long step, or loading, it may not end: then GRACE_S does
    server.ended.set()
    if server.failure is not None:
        raise server.failure


class EngineServer(uvicorn.Server):
    """uvicorn on sockets of ours, ending when told and then soon."""

    def __init__(
        self,
        config: Config,
        counts: Metrics,
        entrances: Listeners,
        scheduler: Scheduler,
        grace_s: float | None,
        listens: Callable[[], None],
    ) -> None:
        self.leases = Leases(scheduler.residency, self.stop, grace_s)
        self.leases.url = entrances.url
        app = self.leases.counting(application(RouteContext(config, scheduler, counts, self.leases)))
        guarded = tcp_guard.TcpGuard(app, entrances.token, entrances.host) if entrances.port is not None else None
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol(guarded),
                ws="none",
                loop="asyncio",
                lifespan="off",
                log_config=None,
                log_level="critical",  # what is worth a line is logged here, without text from requests
                access_log=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=1,
            )
        )
        self.entrances = entrances
        self.scheduler = scheduler
        self.ended = threading.Event()  # nothing runs any more
        self.failure: SpeclspError | None = None  # it could not say that it listens
        scheduler.on_device_lost = self.fail_all
        self._look_after = LOOK_AFTER_TICKS
        self._missed = ""  # why it could not be made possible to find the engine, the last time
        self._listens = listens
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        self._stopping = threading.Lock()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals end the process in the same way as a parent that is gone; uvicorn would raise them again."""
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
        """Begin to answer, and say so."""
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self.leases.begin()
        try:
            self._listens()
        except SpeclspError as error:
            self.failure = error
            self.stop()

    async def main_loop(self) -> None:
        """As uvicorn's, which looks ten times a second whether it is to end: this one is told, and rests until then."""
        counter = 0
        while not await self.on_tick(counter):
            counter += 1
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._woken.wait(), TICK_S)

    async def on_tick(self, counter: int) -> bool:
        """Now and then make sure that the engine can be found: others clean up runtime and temporary directories."""
        if counter % self._look_after == self._look_after - 1 and not self.should_exit:
            self._look_after = LOOK_AFTER_TICKS
            try:
                restored = self.entrances.restore()
                if restored is not None:
                    await self._open(restored)
            except Replaced as error:
                self.leases.leave(str(error))
            except (SpeclspError, OSError) as error:
                self._look_after = LOOK_SELDOM_TICKS
                if str(error) != self._missed:
                    log.warning("%s", error)
                self._missed = str(error)
        return await super().on_tick(counter)

    async def _open(self, restored: UnixListener) -> None:
        """Listen there as well; who is connected by the old one stays."""

        def connected() -> asyncio.Protocol:
            made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state
            )
            return made

        loop = asyncio.get_running_loop()
        self.servers.append(await loop.create_server(connected, sock=restored.listener))
        self.entrances.door = restored
        log.info("listens on %s again, which somebody had removed", restored.path)

    def stop(self) -> None:
        """Cancel all work, close, and end the process in GRACE_S whatever still runs. From any thread; once."""
        if not self._stopping.acquire(blocking=False):
            return
        self.should_exit = True
        threading.Thread(target=self._end_soon, name="grace", daemon=True).start()
        self.entrances.close()  # who comes now starts another engine, which waits for the end of this one
        if self._loop is not None:
            with suppress(RuntimeError):  # it has closed
                self._loop.call_soon_threadsafe(self.leases.close)
                self._loop.call_soon_threadsafe(self._woken.set)
        self.scheduler.close()

    def fail_all(self) -> None:
        """Nothing here works any more: end, so that another can be started. From any thread; the rest may hang."""
        if not self._stopping.acquire(blocking=False):
            return  # it is ending
        self.entrances.restore = lambda: None
        self.entrances.close()
        time.sleep(TOLD_S)
        parent_watch.leave(HUNG)

    def _end_soon(self) -> None:
        if not self.ended.wait(GRACE_S):
            self.entrances.close()
            parent_watch.leave()


def protocol(guarded: ASGIApp | None) -> type[tcp_guard.TimedProtocol]:
    """HTTP with this user's own processes over the Unix socket, and over TCP with who gets past `guarded`."""

    class Protocol(tcp_guard.TimedProtocol):
        """Decided for each connection before it has said a word."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            """Another user's process is refused."""
            super().connection_made(transport)
            connection = transport.get_extra_info("socket")
            if connection is not None and connection.family == getattr(socket, "AF_UNIX", None):
                if not endpoint.is_own_peer(connection):
                    transport.abort()
            elif connection is not None and guarded is not None:
                self.app = guarded
            else:
                transport.abort()

    return Protocol


def loader(config: Config) -> Load:
    """What makes the completer, to be called in the engine's thread. Raises UnknownPair for a name without a card."""
    if config.pair == "echo":
        return lambda progress, with_draft=True: EchoCompleter(config)
    from speclsp.weights import cards

    chosen = None if config.pair == "auto" else cards.load(config.pair)

    def load(progress: Callable[[float, str], None], with_draft: bool = True) -> Completer | LoadedModel:
        from speclsp.weights import store

        nonlocal chosen  # auto's choice holds: who wakes finds the pair that fell asleep
        why = "starting torch"
        if chosen is None:
            chosen, why = store.auto(config)
        card = chosen
        progress(0.0, why)
        from speclsp.engine.loading import loading

        return loading.start(config, card, progress, with_draft)

    return load
