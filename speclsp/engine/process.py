"""`speclsp engine` as a process: where it listens, whom it serves, when it leaves. A door to uvicorn.

The socket answers at once; the model loads in the engine's thread. A signal, the end of the process it was told to
watch, or the last lease (leases.py) ends it, and then in GRACE_S whatever it is doing.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from speclsp.config import Config
from speclsp.engine import door, lifetime
from speclsp.engine.echo import EchoCompleter
from speclsp.engine.holding import Load
from speclsp.engine.leases import Leases
from speclsp.engine.seam import Completer
from speclsp.engine.service import Engine, application
from speclsp.engine.turns import Turns
from speclsp.errors import SpeclspError
from speclsp.metrics import Metrics

KEEP_ALIVE_S = 600  # an editor's pool must not meet a connection that was just closed
SETTLE_S = 0.1  # a pair that needs no loading is there before the first request is read
GRACE_S = 1.2  # from the wish to stop to the end of the process, even in the middle of a round


def main(config: Config, socket: str | Path, watch_parent: int | None = None) -> int:
    """Serve on the Unix socket at path `socket` until a signal, or until process `watch_parent` is gone.

    With `watch_parent`, the end of standard input counts as that process's end when it is a pipe. Returns the exit
    code: 0 after a wished end, 1 with one line on stderr when the pair is unknown or the socket cannot be had.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="speclsp engine: %(message)s")
    try:
        load = loader(config)
        entrance = door.listen(str(socket))
    except SpeclspError as error:
        print(f"speclsp engine: {error}", file=sys.stderr)
        return 1
    counts = Metrics()
    turns = Turns(load, counts, pair="" if config.pair == "auto" else config.pair)
    server = Server(application(Engine(config, turns, counts, Leases())), entrance, turns)
    try:
        turns.thread.start()
        turns.holding.settled.wait(SETTLE_S)
        if watch_parent:
            lifetime.watch(watch_parent, server.stop)
        server.run(sockets=[entrance.listener])
    finally:
        server.stop()
        entrance.remove()
    turns.thread.join()  # in a long step, or loading, it may not end: then GRACE_S does
    server.ended.set()
    return 0


class Server(uvicorn.Server):
    """uvicorn on a socket of ours, ending when told and then soon."""

    def __init__(self, app: Starlette, entrance: door.Door, turns: Turns) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=OwnUserProtocol,
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
        self.entrance = entrance
        self.turns = turns
        self.ended = threading.Event()  # nothing runs any more
        self._stopping = threading.Lock()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals end the process in the same way as a parent that is gone; uvicorn would raise them again."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self.stop)
        yield

    def stop(self) -> None:
        """Cancel all work, close, and end the process in GRACE_S whatever still runs. From any thread; once."""
        if not self._stopping.acquire(blocking=False):
            return
        self.should_exit = True
        threading.Thread(target=self._end_soon, name="grace", daemon=True).start()
        self.turns.close()

    def _end_soon(self) -> None:
        if not self.ended.wait(GRACE_S):
            self.entrance.remove()
            lifetime.leave()


class OwnUserProtocol(H11Protocol):
    """HTTP with this user's own processes only."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refuse another user's process before it has said a word."""
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        if connection is None or not door.is_own_peer(connection):
            transport.abort()


def loader(config: Config) -> Load:
    """What makes the completer, to be called in the engine's thread. Raises UnknownPair for a name without a card."""
    if config.pair == "echo":
        return lambda progress: EchoCompleter(config)
    from speclsp import cards

    named = None if config.pair == "auto" else cards.load(config.pair)

    def load(progress: Callable[[float, str], None]) -> Completer:
        from speclsp import weights

        card, why = (named, "starting torch") if named else weights.auto(config)
        progress(0.0, why)
        from speclsp.engine import loading

        return loading.load(config, card, progress)

    return load
