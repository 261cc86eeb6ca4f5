"""What the engine answers over HTTP: one handler for each address, top to bottom. A door to starlette.

    POST /infill  ·  POST /completion             as llama.cpp has them (llamacpp.py)
    POST /v1/completions  ·  GET /v1/models       as OpenAI has them (openai.py)
    POST /verify                                  the last requests again, plainly and speculatively (replay.py)
    GET /props  ·  GET /slots  ·  GET /metrics    and what leases.py answers

The model loads in the engine's thread (turns.py, holding.py); until it is there /health says how far it is and
completions are refused with 503. Rounds travel from that thread to the event loop as they come. A client
that goes away has its request dropped: within a round nothing is computed for it any more.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator
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
from speclsp.daemon import platform
from speclsp.engine.http import json_fields, leases, llamacpp_api, openai_api, replay
from speclsp.engine.http.leases import Leases
from speclsp.engine.scheduling.job import DoneEvent, ErrorEvent, Event, RoundEvent, ScheduledJob
from speclsp.engine.scheduling.scheduler import Scheduler
from speclsp.errors import InputError, SpeclspError
from speclsp.observability.metrics import Metrics

MAX_BODY_BYTES = 16 * 2**20
MAX_DRAINED_BYTES = 4 * MAX_BODY_BYTES  # read on, so that a client that sends too much can hear so

ADDRESSES = ("/infill", "/completion", "/v1/completions", "/v1/models", "/props", "/slots", "/health", "/metrics")


@dataclass(frozen=True, slots=True)
class RouteContext:
    """What the handlers need."""

    config: Config
    scheduler: Scheduler
    metrics: Metrics
    leases: Leases
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    since: int = field(default_factory=lambda: int(time.time()))
    recent: replay.RecentRequests = field(default_factory=replay.RecentRequests)


# ── answering ────────────────────────────────────────────────────────────────────────────────────────────────


async def infill(http: Http) -> Response:
    """POST /infill, as llama.cpp has it."""
    return await llama(http, llamacpp_api.infill)


async def completion(http: Http) -> Response:
    """POST /completion, as llama.cpp has it."""
    return await llama(http, llamacpp_api.completion)


async def llama(http: Http, read: Callable[[bytes, Config], json_fields.ParsedRequest]) -> Response:
    """The answer to either."""
    engine, body = await ready(http)
    ask = read(body, engine.config)
    answer = Answering(http, engine, ask)
    first = await answer.first()
    if ask.stream:
        return EventStream(llama_events(answer, first))
    done = await answer.rest(first)
    return json(llamacpp_api.whole_json(ask, done.results, answer.pair, done.queue_ms))


async def llama_events(answer: Answering, event: Event | None) -> AsyncIterator[bytes]:
    """The rounds as they come, then the final object of each completion."""
    ask = answer.ask
    sent = [""] * ask.request.n
    while isinstance(event, RoundEvent):
        sent[event.index] += event.piece.text
        yield sse(llamacpp_api.piece_json(event.index, event.piece, event.start))
        event = await answer.next()
    if isinstance(event, DoneEvent):
        for index, result in enumerate(event.results):
            yield sse(llamacpp_api.final_json(ask, index, result, answer.pair, event.queue_ms, sent[index]))
    elif isinstance(event, ErrorEvent):
        yield sse(failure(event.error))


async def completions(http: Http) -> Response:
    """POST /v1/completions, as OpenAI has it."""
    engine, body = await ready(http)
    ask = openai_api.completions(body, engine.config)
    answer = Answering(http, engine, ask)
    first = await answer.first()
    if ask.stream:
        return EventStream(completion_events(answer, first))
    done = await answer.rest(first)
    return json(openai_api.whole_json(ask, answer.number, done.results, answer.pair, done.queue_ms))


async def completion_events(answer: Answering, event: Event | None) -> AsyncIterator[bytes]:
    """The rounds as they come, the reason each choice ended, the counts if wanted, and [DONE]."""
    ask, number, name = answer.ask, answer.number, answer.pair
    wanted = ask.request.logprobs
    sent, spelled = [""] * ask.request.n, [0] * ask.request.n  # spelled: characters of the tokens told of
    usage = {"usage": None} if ask.include_usage else {}
    if ask.echo:
        for index in range(ask.request.n):
            yield sse(openai_api.chunk_json(number, name, [openai_api.choice_json(index, ask.echo)]) | usage)
    while isinstance(event, RoundEvent):
        index, piece = event.index, event.piece
        sent[index] += piece.text
        if piece.text or piece.likely:
            choice = openai_api.choice_json(index, piece.text, None, wanted, piece.likely, spelled[index])
            yield sse(openai_api.chunk_json(number, name, [choice]) | usage)
        spelled[index] += sum(len(one.text) for one in piece.likely)
        event = await answer.next()
    if isinstance(event, DoneEvent):
        name = json_fields.served(name, event.results)
        for index, result in enumerate(event.results):
            choice = openai_api.choice_json(index, result.text[len(sent[index]) :], result)
            costs = json_fields.costs_json([result], event.queue_ms)
            yield sse(openai_api.chunk_json(number, name, [choice]) | costs | usage)
        if ask.include_usage:
            yield sse(openai_api.chunk_json(number, name, []) | {"usage": openai_api.usage_json(event.results)})
        yield b"data: [DONE]\n\n"
    elif isinstance(event, ErrorEvent):
        yield sse(failure(event.error))


async def chat(http: Http) -> Response:
    """POST /v1/chat/completions: not here."""
    raise HTTPException(404, "speclsp completes code and does not chat: point what chats at another server.")


class Answering:
    """One request on its way: asks for its turn, hands over what the engine's thread tells, notices a closed stream."""

    def __init__(self, http: Http, engine: RouteContext, ask: json_fields.ParsedRequest) -> None:
        self.engine = engine
        self.ask = ask
        self.number = next(engine.numbers)
        self._told: asyncio.Queue[Event | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def tell(event: Event) -> None:
            with suppress(RuntimeError):  # the loop has closed: the process is ending
                loop.call_soon_threadsafe(self._told.put_nowait, event)

        self._job = engine.scheduler.submit(ask.request, tell)
        self._watch = loop.create_task(self._notice_closing(http.receive, self._job))

    @property
    def pair(self) -> str:
        """Who answers; known for certain when the first event is here."""
        return self.engine.scheduler.residency.pair

    async def _notice_closing(self, receive: Receive, job: ScheduledJob) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.engine.scheduler.cancel(job)
        self._told.put_nowait(None)

    async def next(self) -> Event | None:
        """What comes next; None when the client has gone. Nothing follows Done, Failed and None."""
        try:
            event = await self._told.get()
        except asyncio.CancelledError:  # the process is stopping and waits no longer
            self.engine.scheduler.cancel(self._job)
            raise
        if not isinstance(event, RoundEvent):
            self._watch.cancel()
        return event

    async def first(self) -> Event | None:
        """The first event, so that what fails before any round still fails with its own status code."""
        event = await self.next()
        if isinstance(event, ErrorEvent):
            raise event.error
        return event

    async def rest(self, event: Event | None) -> DoneEvent:
        """The end, when nothing is streamed. Raises what the completion raised, or ClientDisconnect."""
        text, ms, why = "", 0.0, ""
        while isinstance(event, RoundEvent):
            text, ms = text + event.piece.text, ms + event.piece.ms
            if not why and (why := llamacpp_api.ended(self.ask, text, ms)):
                self.engine.scheduler.cancel(self._job, "enough")  # the rest would not be shown
            event = await self.next()
        if why and isinstance(event, DoneEvent):
            event.results[0].stop_type = why
        if isinstance(event, ErrorEvent):
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


async def ready(http: Http) -> tuple[RouteContext, bytes]:
    """The engine and the request's body. Raises HTTPException: too much to read, or it need not even wait."""
    engine: RouteContext = http.app.state.engine
    body, size = bytearray(), 0
    async for chunk in http.stream():
        size += len(chunk)
        if size <= MAX_BODY_BYTES:
            body += chunk
        elif size > MAX_DRAINED_BYTES:
            break
    if size > MAX_BODY_BYTES:
        raise HTTPException(413, f"the body has more than {MAX_BODY_BYTES // 2**20} MiB: send less text.")
    if why := engine.scheduler.residency.refusal():
        raise HTTPException(503, why)
    return engine, bytes(body)


# ── what was answered, again ─────────────────────────────────────────────────────────────────────────────────


async def verify(http: Http) -> Response:
    """POST /verify {"last": N}: the last N requests again, plainly and speculatively; a line for each, then the end."""
    engine, body = await ready(http)
    _, port = http.scope.get("server") or ("", None)
    if port and platform.HAS_UNIX_SOCKETS:  # a team's server: the lines name files, and not only those of who asks
        raise HTTPException(404, "/verify is answered on this user's own socket alone: `speclsp verify`.")
    if engine.scheduler.residency.draft_only:
        raise HTTPException(503, "the target is still loading: ask again when /health says ok.")
    last = json_fields.read(body or b"{}").whole("last", replay.KEPT, 1, replay.KEPT)
    return EventStream(verified(http, engine.scheduler, engine.recent.last(last)))


async def verified(http: Http, scheduler: Scheduler, kept: list[replay.DeliveredCompletion]) -> AsyncIterator[bytes]:
    """The lines as they come. Whoever does not wait for them ends them."""
    again = replay.InTurn(scheduler)
    watch = asyncio.create_task(gone(http.receive, again))
    lines = replay.verify(kept, again.run, lambda: scheduler.residency.completer)
    try:
        while (line := await asyncio.to_thread(next, lines, None)) is not None:
            yield sse(line)
        yield sse({"end": True})
    except Exception as error:
        yield sse(failure(error))
    finally:
        again.stop()
        watch.cancel()


async def gone(receive: Receive, again: replay.InTurn) -> None:
    """Make nothing more when the client has closed its stream."""
    await leases.until_gone(receive)
    again.stop()


# ── saying how it is ─────────────────────────────────────────────────────────────────────────────────────────


async def models(http: Http) -> Response:
    """GET /v1/models: the one pair there is."""
    return json({"object": "list", "data": [the_model(http)]})


async def model(http: Http) -> Response:
    """GET /v1/models/NAME."""
    told = the_model(http)
    if http.path_params["name"] != told["id"]:
        raise HTTPException(404, f"the model served here is {told['id']}: ask for that, or for all with /v1/models.")
    return json(told)


def the_model(http: Http) -> json_fields.Json:
    """What /v1/models says about it."""
    engine: RouteContext = http.app.state.engine
    return openai_api.model_json(engine.scheduler.residency.pair or engine.config.pair, engine.config, engine.since)


async def slots(http: Http) -> Response:
    """GET /slots, as llama.cpp has it."""
    engine: RouteContext = http.app.state.engine
    return json(llamacpp_api.slots_json(engine.config, engine.scheduler.counts()[0]))


async def props(http: Http) -> Response:
    """GET /props, as llama.cpp has it."""
    engine: RouteContext = http.app.state.engine
    residency = engine.scheduler.residency
    target = residency.completer.target if residency.completer else ""
    running, _ = engine.scheduler.counts()
    return json(llamacpp_api.props_json(engine.config, residency.pair, target, running, residency.state == "asleep"))


async def metrics(http: Http) -> Response:
    """GET /metrics, for Prometheus."""
    engine: RouteContext = http.app.state.engine
    running, waiting = engine.scheduler.counts()
    engine.metrics.set("running_requests", running)
    engine.metrics.set("waiting_requests", waiting)
    made = engine.scheduler.residency.completer
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
    if code == 404 and message == "Not Found":  # starlette's word
        message = f"there is nothing at {http.url.path}: see {', '.join(ADDRESSES)}."
    elif code == 405:
        message = f"{http.url.path} does not take {http.method}."
    http.app.state.engine.metrics.count("errors_total", code=str(code))
    told = json_fields.error_json(code, message, getattr(error, "name", None))
    return json(told, code, getattr(error, "headers", None))


def explain(error: Exception) -> tuple[int, str]:
    """The status code and the sentence for an error."""
    if isinstance(error, HTTPException):
        return error.status_code, error.detail
    if isinstance(error, InputError):
        return 400, str(error)
    if isinstance(error, SpeclspError):
        return 503, str(error)
    return 500, f"the engine failed on this request ({type(error).__name__}): its log says where."


def failure(error: Exception) -> json_fields.Json:
    """An error in the middle of a stream."""
    return json_fields.error_json(*explain(error))


def json(
    answer: json_fields.Json | list[json_fields.Json], code: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """A JSON response, in ASCII."""
    return Response(json_fields.dump(answer), code, headers, media_type="application/json")


def sse(answer: json_fields.Json) -> bytes:
    """One server-sent event."""
    return b"data: " + json_fields.dump(answer) + b"\n\n"


def application(engine: RouteContext) -> Starlette:
    """All the addresses."""
    app = Starlette(
        routes=[
            Route("/infill", infill, methods=["POST"]),
            Route("/completion", completion, methods=["POST"]),
            Route("/v1/completions", completions, methods=["POST"]),
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/verify", verify, methods=["POST"]),
            Route("/v1/models", models),
            Route("/v1/models/{name:path}", model),
            Route("/models", models),
            Route("/props", props),
            Route("/slots", slots),
            Route("/metrics", metrics),
            *leases.routes(),
        ],
        exception_handlers=dict.fromkeys((HTTPException, SpeclspError, ClientDisconnect, Exception), refuse),
    )
    app.state.engine = engine
    engine.scheduler.on_result = replay.keeping(engine.recent, record=engine.config.engine.record)
    return app
