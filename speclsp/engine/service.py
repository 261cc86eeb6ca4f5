"""`speclsp engine`: completions over HTTP on a Unix socket. The only door to starlette and uvicorn.

    POST /infill  ·  POST /v1/completions  ·  GET /v1/models  ·  GET /health  ·  GET /metrics

The socket answers at once; the model loads in the engine's thread (turns.py), and until it is there /health says how
far it is and completions are refused with 503. Rounds travel from that thread to the event loop as they come. A client
that goes away has its request dropped: within a round nothing is computed for it any more.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as Http
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from speclsp import __version__
from speclsp.config import Config
from speclsp.engine import door, lifetime, wire
from speclsp.engine.echo import EchoCompleter
from speclsp.engine.seam import Completer
from speclsp.engine.turns import Done, Event, Failed, Job, Load, Said, Turns
from speclsp.errors import InputError, SpeclspError
from speclsp.metrics import Metrics

MAX_BODY_BYTES = 16 * 2**20
MAX_DRAINED_BYTES = 4 * MAX_BODY_BYTES  # read on, so that a client that sends too much can hear so
KEEP_ALIVE_S = 600  # an editor's pool must not meet a connection that was just closed
SETTLE_S = 0.1  # a pair that needs no loading is there before the first request is read
GRACE_S = 1.2  # from the wish to stop to the end of the process, even in the middle of a round

log = logging.getLogger("speclsp.engine")


@dataclass(frozen=True, slots=True)
class Engine:
    """What the handlers need."""

    config: Config
    turns: Turns
    metrics: Metrics
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))


# Answering


async def infill(http: Http) -> Response:
    """POST /infill, as llama.cpp has it."""
    engine, body = await ready(http)
    ask = wire.infill(body, engine.config)
    answer = Answering(http, engine, ask)
    first = await answer.first()
    if ask.stream:
        return EventStream(infill_events(answer, first))
    done = await answer.rest(first)
    return json(wire.final_json(ask, done.results, engine.turns.pair, done.queue_ms, sent=()))


async def infill_events(answer: Answering, event: Event | None) -> AsyncIterator[bytes]:
    """The rounds as they come, then the final object."""
    sent: list[str] = [""] * answer.ask.request.n
    while isinstance(event, Said):
        sent[event.index] += event.piece.text
        yield sse(wire.piece_json(event.index, event.piece))
        event = await answer.next()
    if isinstance(event, Done):
        pair = answer.engine.turns.pair
        yield sse(wire.final_json(answer.ask, event.results, pair, event.queue_ms, sent))
    elif isinstance(event, Failed):
        yield sse(wire.error_json(*explain(event.error)))


async def completions(http: Http) -> Response:
    """POST /v1/completions, as OpenAI has it."""
    engine, body = await ready(http)
    ask = wire.completions(body, engine.config)
    answer = Answering(http, engine, ask)
    first = await answer.first()
    if ask.stream:
        return EventStream(completion_events(answer, first))
    done = await answer.rest(first)
    choices = [wire.choice_json(index, result.text, result) for index, result in enumerate(done.results)]
    whole = wire.chunk_json(answer.number, engine.turns.pair, choices, done.results[0])
    return json(whole | {"usage": wire.usage_json(done.results)})


async def completion_events(answer: Answering, event: Event | None) -> AsyncIterator[bytes]:
    """The rounds as they come, the reason each choice ended, and [DONE]."""
    number, pair = answer.number, answer.engine.turns.pair
    sent: list[str] = [""] * answer.ask.request.n
    while isinstance(event, Said):
        sent[event.index] += event.piece.text
        if event.piece.text:
            yield sse(wire.chunk_json(number, pair, [wire.choice_json(event.index, event.piece.text)]))
        event = await answer.next()
    if isinstance(event, Done):
        for index, result in enumerate(event.results):
            choice = wire.choice_json(index, wire.unsent(result, sent, index), result)
            yield sse(wire.chunk_json(number, pair, [choice], result))
        if answer.ask.include_usage:
            yield sse(wire.chunk_json(number, pair, []) | {"usage": wire.usage_json(event.results)})
        yield b"data: [DONE]\n\n"
    elif isinstance(event, Failed):
        yield sse(wire.error_json(*explain(event.error)))


class Answering:
    """One request on its way: asks for its turn, hands over what the engine's thread tells, notices a closed stream."""

    def __init__(self, http: Http, engine: Engine, ask: wire.Ask) -> None:
        self.engine = engine
        self.ask = ask
        self.number = next(engine.numbers)
        self._told: asyncio.Queue[Event | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def tell(event: Event) -> None:
            with suppress(RuntimeError):  # the loop has closed: the process is ending
                loop.call_soon_threadsafe(self._told.put_nowait, event)

        self._job = engine.turns.ask(ask.request, tell)
        self._watch = loop.create_task(self._notice_closing(http.receive, self._job))

    async def _notice_closing(self, receive: Receive, job: Job) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.engine.turns.drop(job)
        self._told.put_nowait(None)

    async def next(self) -> Event | None:
        """What comes next; None when the client has gone. Nothing follows Done, Failed and None."""
        try:
            event = await self._told.get()
        except asyncio.CancelledError:  # the process is stopping and waits no longer
            self.engine.turns.drop(self._job)
            raise
        if not isinstance(event, Said):
            self._watch.cancel()
        return event

    async def first(self) -> Event | None:
        """The first event, so that what fails before any round still fails with its own status code."""
        event = await self.next()
        if isinstance(event, Failed):
            raise event.error
        return event

    async def rest(self, event: Event | None) -> Done:
        """The end, when nothing is streamed. Raises what the completion raised, or ClientDisconnect."""
        while isinstance(event, Said):
            event = await self.next()
        if isinstance(event, Failed):
            raise event.error
        if event is None:
            raise ClientDisconnect
        return event


class EventStream(Response):
    """Server-sent events. starlette's own streaming reads `receive` too, and a closed stream must be noticed once."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes]) -> None:
        self.events = events
        self.status_code = 200
        self.background = None
        self.init_headers({"cache-control": "no-cache"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for event in self.events:
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def ready(http: Http) -> tuple[Engine, bytes]:
    """The engine and the request's body. Raises HTTPException: still loading, failed to load, or too much to read."""
    engine: Engine = http.app.state.engine
    body, size = bytearray(), 0
    async for chunk in http.stream():
        size += len(chunk)
        if size <= MAX_BODY_BYTES:
            body += chunk
        elif size > MAX_DRAINED_BYTES:
            break
    if size > MAX_BODY_BYTES:
        raise HTTPException(413, f"the body has more than {MAX_BODY_BYTES // 2**20} MiB: send less text.")
    turns = engine.turns
    if turns.failure:
        raise HTTPException(503, turns.failure)
    if turns.completer is None:
        fraction, message = turns.progress
        raise HTTPException(503, f"the model is loading ({fraction:.0%}, {message}): ask again when /health says ok.")
    return engine, bytes(body)


# Saying how it is


async def health(http: Http) -> Response:
    """GET /health: loading, ok or error."""
    turns: Turns = http.app.state.engine.turns
    about: wire.Json = {"pair": turns.pair, "version": __version__}
    if turns.failure:
        return json({"status": "error", **wire.error_json(503, turns.failure), **about}, 503)
    if turns.completer is None:
        fraction, message = turns.progress
        return json({"status": "loading", "progress": round(fraction, 4), "message": message, **about}, 503)
    made = turns.completer
    return json({"status": "ok", "target": made.target, "draft": made.draft, "device": made.device, **about})


async def models(http: Http) -> Response:
    """GET /v1/models: the one pair there is."""
    pair = http.app.state.engine.turns.pair
    return json({"object": "list", "data": [{"id": pair, "object": "model", "created": 0, "owned_by": "speclsp"}]})


async def metrics(http: Http) -> Response:
    """GET /metrics, for Prometheus."""
    engine: Engine = http.app.state.engine
    running, waiting = engine.turns.counts()
    engine.metrics.set("running_requests", running)
    engine.metrics.set("waiting_requests", waiting)
    made = engine.turns.completer
    if made is not None:
        engine.metrics.set(
            "pair_info",
            1,
            pair=made.pair,
            target=made.target,
            draft=made.draft,
            device=made.device,
            version=__version__,
        )
    return Response(engine.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def refuse(http: Http, error: Exception) -> Response:
    """Every error as one JSON object."""
    if isinstance(error, ClientDisconnect):
        return Response(status_code=499)  # nobody reads it
    code, message = explain(error)
    if code == 404:
        message = f"there is nothing at {http.url.path}: see /infill, /v1/completions, /v1/models, /health, /metrics."
    elif code == 405:
        message = f"{http.url.path} does not take {http.method}."
    http.app.state.engine.metrics.count("errors_total", code=str(code))
    return json(wire.error_json(code, message), code, getattr(error, "headers", None))


def explain(error: Exception) -> tuple[int, str]:
    """The status code and the sentence for an error."""
    if isinstance(error, HTTPException):
        return error.status_code, error.detail
    if isinstance(error, InputError):
        return 400, str(error)
    if isinstance(error, SpeclspError):
        return 503, str(error)
    return 500, f"the engine failed on this request ({type(error).__name__}): its log says where."


def json(answer: wire.Json, code: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON response, in ASCII."""
    return Response(wire.dump(answer), code, headers, media_type="application/json")


def sse(answer: wire.Json) -> bytes:
    """One server-sent event."""
    return b"data: " + wire.dump(answer) + b"\n\n"


def application(engine: Engine) -> Starlette:
    """The five addresses."""
    app = Starlette(
        routes=[
            Route("/infill", infill, methods=["POST"]),
            Route("/v1/completions", completions, methods=["POST"]),
            Route("/v1/models", models),
            Route("/health", health),
            Route("/metrics", metrics),
        ],
        exception_handlers=dict.fromkeys((HTTPException, SpeclspError, ClientDisconnect, Exception), refuse),
    )
    app.state.engine = engine
    return app


# Living and ending


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
    server = Server(application(Engine(config, turns, counts)), entrance, turns)
    try:
        turns.thread.start()
        turns.settled.wait(SETTLE_S)
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
