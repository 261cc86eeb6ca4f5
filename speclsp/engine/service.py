"""What the engine answers over HTTP: one handler for each address, top to bottom. A door to starlette.

    POST /infill  ·  POST /v1/completions  ·  GET /v1/models  ·  GET /health  ·  GET /metrics

The model loads in the engine's thread (turns.py, holding.py); until it is there /health says how far it is and
completions are refused with 503. Rounds travel from that thread to the event loop as they come. A client
that goes away has its request dropped: within a round nothing is computed for it any more.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as Http
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from speclsp import __version__
from speclsp.config import Config
from speclsp.engine import leases, wire
from speclsp.engine.leases import Leases
from speclsp.engine.turns import Done, Event, Failed, Job, Said, Turns
from speclsp.errors import InputError, SpeclspError
from speclsp.metrics import Metrics

MAX_BODY_BYTES = 16 * 2**20
MAX_DRAINED_BYTES = 4 * MAX_BODY_BYTES  # read on, so that a client that sends too much can hear so

log = logging.getLogger("speclsp.engine")


@dataclass(frozen=True, slots=True)
class Engine:
    """What the handlers need."""

    config: Config
    turns: Turns
    metrics: Metrics
    leases: Leases
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
    return json(wire.final_json(ask, done.results, engine.turns.holding.pair, done.queue_ms, sent=()))


async def infill_events(answer: Answering, event: Event | None) -> AsyncIterator[bytes]:
    """The rounds as they come, then the final object."""
    sent: list[str] = [""] * answer.ask.request.n
    while isinstance(event, Said):
        sent[event.index] += event.piece.text
        yield sse(wire.piece_json(event.index, event.piece))
        event = await answer.next()
    if isinstance(event, Done):
        pair = answer.engine.turns.holding.pair
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
    whole = wire.chunk_json(answer.number, engine.turns.holding.pair, choices, done.results[0])
    return json(whole | {"usage": wire.usage_json(done.results)})


async def completion_events(answer: Answering, event: Event | None) -> AsyncIterator[bytes]:
    """The rounds as they come, the reason each choice ended, and [DONE]."""
    number, pair = answer.number, answer.engine.turns.holding.pair
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
    holding = engine.turns.holding
    if holding.state == "error":
        raise HTTPException(503, holding.message)
    if holding.state == "loading" and not holding.draft_only:
        fraction, message = holding.progress, holding.message
        raise HTTPException(503, f"the model is loading ({fraction:.0%}, {message}): ask again when /health says ok.")
    return engine, bytes(body)


# Saying how it is


async def models(http: Http) -> Response:
    """GET /v1/models: the one pair there is."""
    pair = http.app.state.engine.turns.holding.pair
    return json({"object": "list", "data": [{"id": pair, "object": "model", "created": 0, "owned_by": "speclsp"}]})


async def metrics(http: Http) -> Response:
    """GET /metrics, for Prometheus."""
    engine: Engine = http.app.state.engine
    running, waiting = engine.turns.counts()
    engine.metrics.set("running_requests", running)
    engine.metrics.set("waiting_requests", waiting)
    made = engine.turns.holding.completer
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
            Route("/health", leases.health),
            Route("/metrics", metrics),
        ],
        exception_handlers=dict.fromkeys((HTTPException, SpeclspError, ClientDisconnect, Exception), refuse),
    )
    app.state.engine = engine
    return app
