"""HTTP routes of the engine: one handler for each address. One of the modules that import starlette.

    POST /infill  ·  POST /completion             llama.cpp's API (llamacpp_api.py)
    POST /v1/completions  ·  GET /v1/models       OpenAI's API (openai_api.py)
    GET /props  ·  GET /metrics                   and the addresses of leases.py

The model loads in the engine's thread (scheduler.py, residency.py). Until it is loaded, /health reports the progress
and completions are refused with 503. Rounds travel from that thread to the event loop as they are made. The request of
a client that disconnects is cancelled: after the current round nothing more is computed for it.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import ClientDisconnect
from starlette.requests import Request as Http
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive

from speclsp import __version__
from speclsp.config import Config
from speclsp.engine.http import json_fields, leases, llamacpp_api, openai_api
from speclsp.engine.http.leases import Leases
from speclsp.engine.http.responses import EventStream, error_object, json_response, sse, status_and_message
from speclsp.engine.scheduling.residency import Residency
from speclsp.engine.scheduling.scheduled_job import DoneEvent, ErrorEvent, Event, RoundEvent, ScheduledJob
from speclsp.engine.scheduling.scheduler import Scheduler
from speclsp.observability.metrics import Metrics

MAX_BODY_BYTES = 16 * 2**20
LARGE_BODY_BYTES = 2**20
MAX_DRAINED_BYTES = 4 * MAX_BODY_BYTES  # read on, so that a client that sends too much can receive the refusal

ADDRESSES = ("/infill", "/completion", "/v1/completions", "/v1/models", "/props", "/health", "/metrics")


@dataclass(frozen=True, slots=True)
class RouteContext:
    """The engine as the handlers see it: `http.app.state.engine`."""

    config: Config
    scheduler: Scheduler  # runs completions
    metrics: Metrics  # of /metrics
    leases: Leases  # of /lease, /health and /leave
    answer_numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))  # for OpenAI's ids
    created_s: int = field(default_factory=lambda: int(time.time()))  # Unix time, for /v1/models

    @property
    def residency(self) -> Residency:
        """The state of the model."""
        return self.scheduler.residency

    @property
    def context_tokens(self) -> int:
        """The most tokens of a prompt and its completion: those of the loaded model, else the configured ones."""
        completer = self.residency.completer
        return (completer.context_tokens if completer else 0) or self.config.engine.context_tokens


def context_of(http: Http) -> RouteContext:
    """The engine that answers `http`."""
    context: RouteContext = http.app.state.engine
    return context


# ── completions ──────────────────────────────────────────────────────────────────────────────────────────

Parse = Callable[[bytes, Config], json_fields.ParsedRequest]


def completion_handler(parse: Parse) -> Callable[[Http], Awaitable[Response]]:
    """The handler of completions whose bodies `parse` reads, in llama.cpp's or OpenAI's form."""
    is_openai = parse is openai_api.completions

    async def handle(http: Http) -> Response:
        answer = await begin_answer(http, parse)
        first = await answer.first()
        if answer.parsed.stream:
            return EventStream((openai_events if is_openai else llamacpp_events)(answer, first))
        done = await answer.rest(first)
        if is_openai:
            return json_response(openai_api.answer_json(answer.number, done.results, answer.model, done.queue_ms))
        return json_response(llamacpp_api.answer_json(answer.parsed, done.results, answer.model, done.queue_ms))

    return handle


async def llamacpp_events(answer: RunningAnswer, event: Event | None) -> AsyncGenerator[bytes, None]:
    """Each round as it is made, then the final object of each completion."""
    parsed = answer.parsed
    sent = [""] * parsed.request.n
    while isinstance(event, RoundEvent):
        sent[event.index] += event.piece.text
        yield sse(llamacpp_api.piece_json(event.index, event.piece, event.start))
        event = await answer.next()
    if isinstance(event, DoneEvent):
        for index, result in enumerate(event.results):
            yield sse(llamacpp_api.final_json(parsed, index, result, answer.model, event.queue_ms, sent[index]))
    elif isinstance(event, ErrorEvent):
        yield sse(error_object(event.error))


async def openai_events(answer: RunningAnswer, event: Event | None) -> AsyncGenerator[bytes, None]:
    """Each round as it is made, the finish reason of each choice, the token counts if wanted, and [DONE]."""
    parsed, number, name = answer.parsed, answer.number, answer.model
    sent = [""] * parsed.request.n
    usage = {"usage": None} if parsed.include_usage else {}
    while isinstance(event, RoundEvent):
        index, piece = event.index, event.piece
        sent[index] += piece.text
        if piece.text:
            choice = openai_api.choice_json(index, piece.text)
            yield sse(openai_api.chunk_json(number, name, [choice]) | usage)
        event = await answer.next()
    if isinstance(event, DoneEvent):
        for index, result in enumerate(event.results):
            choice = openai_api.choice_json(index, result.text[len(sent[index]) :], result)
            costs = json_fields.costs_json([result], event.queue_ms)
            yield sse(openai_api.chunk_json(number, name, [choice]) | costs | usage)
        if parsed.include_usage:
            yield sse(openai_api.chunk_json(number, name, []) | {"usage": openai_api.usage_json(event.results)})
        yield b"data: [DONE]\n\n"
    elif isinstance(event, ErrorEvent):
        yield sse(error_object(event.error))


async def chat(http: Http) -> Response:
    """POST /v1/chat/completions: not offered."""
    raise HTTPException(404, "speclsp completes code and has no chat: use another server for chat.")


class RunningAnswer:
    """One request under way: submits it, passes on the events of the engine's thread, and notices a disconnect."""

    def __init__(self, http: Http, context: RouteContext, parsed: json_fields.ParsedRequest) -> None:
        self.parsed = parsed
        self.number = next(context.answer_numbers)
        self._scheduler = context.scheduler
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def notify(event: Event) -> None:
            with suppress(RuntimeError):  # the loop has closed: the process is ending
                loop.call_soon_threadsafe(self._events.put_nowait, event)

        self._job = self._scheduler.submit(parsed.request, notify)
        self._watch = loop.create_task(self._cancel_on_disconnect(http.receive, self._job))

    @property
    def model(self) -> str:
        """The model that answers; certain once the first event is here."""
        return self._scheduler.residency.model

    async def _cancel_on_disconnect(self, receive: Receive, job: ScheduledJob) -> None:
        await leases.until_disconnect(receive)
        self._scheduler.cancel(job)
        self._events.put_nowait(None)

    async def next(self) -> Event | None:
        """The next event; None when the client has disconnected. Nothing follows DoneEvent, ErrorEvent and None."""
        try:
            event = await self._events.get()
        except asyncio.CancelledError:  # the process is stopping and waits no longer
            self._scheduler.cancel(self._job)
            raise
        if not isinstance(event, RoundEvent):
            self._watch.cancel()
        return event

    async def first(self) -> Event | None:
        """The first event. Raises an error that comes before any round, so that it has its own status code."""
        event = await self.next()
        if isinstance(event, ErrorEvent):
            raise event.error
        return event

    async def rest(self, event: Event | None) -> DoneEvent:
        """The end of an answer that is not streamed. Raises the completion's error, or ClientDisconnect."""
        text, ms, why = "", 0.0, ""
        while isinstance(event, RoundEvent):
            text, ms = text + event.piece.text, ms + event.piece.ms
            if not why and (why := llamacpp_api.early_stop(self.parsed, text, ms)):
                self._scheduler.cancel(self._job, "enough")  # the rest would not be returned
            event = await self.next()
        if why and isinstance(event, DoneEvent):
            event.results[0].stop_type = why
        if isinstance(event, ErrorEvent):
            raise event.error
        if event is None:
            raise ClientDisconnect
        return event


async def begin_answer(http: Http, parse: Parse) -> RunningAnswer:
    """Read and parse the body, and submit its request. Only text that can be used is kept while that waits and runs.

    While the model is unloaded, the whole text waits, and is truncated then. Raises as `read_body` and `parse`.
    """
    context, body = await read_body(http)
    if len(body) > LARGE_BODY_BYTES:
        leases.trim_memory_soon()
    parsed = parse(body, context.config)
    if completer := context.residency.completer:
        parsed = replace(parsed, request=completer.truncate(parsed.request))
    return RunningAnswer(http, context, parsed)


async def read_body(http: Http) -> tuple[RouteContext, bytes]:
    """The engine and the request's body. Raises HTTPException: the body is too large, or the engine cannot queue it."""
    context = context_of(http)
    body, size_bytes = bytearray(), 0
    async for chunk in http.stream():
        size_bytes += len(chunk)
        if size_bytes <= MAX_BODY_BYTES:
            body += chunk
        elif size_bytes > MAX_DRAINED_BYTES:
            break
    if size_bytes > MAX_BODY_BYTES:
        raise HTTPException(413, f"the body has more than {MAX_BODY_BYTES // 2**20} MiB: send less text.")
    if why := context.residency.refusal():
        raise HTTPException(503, why)
    return context, bytes(body)


# ── models, state and metrics ────────────────────────────────────────────────────────────────────────────


async def models(http: Http) -> Response:
    """GET /v1/models: the one model."""
    context = context_of(http)
    model, completer = context.residency.model or context.config.model, context.residency.completer
    trained_tokens = completer.trained_tokens if completer else 0
    served = openai_api.model_json(model, context.context_tokens, trained_tokens, context.created_s)
    return json_response({"object": "list", "data": [served]})


async def props(http: Http) -> Response:
    """GET /props, llama.cpp's."""
    context = context_of(http)
    model, asleep = context.residency.model, context.residency.state == "asleep"
    running, _ = context.scheduler.counts()
    return json_response(llamacpp_api.props_json(context.config, context.context_tokens, model, running, asleep))


async def metrics(http: Http) -> Response:
    """GET /metrics, for Prometheus."""
    context = context_of(http)
    running, waiting = context.scheduler.counts()
    context.metrics.set("running_requests", running)
    context.metrics.set("waiting_requests", waiting)
    completer = context.residency.completer
    if completer is not None:
        names = {name: getattr(completer, name) for name in ("target", "draft", "device")}
        context.metrics.set("model_info", 1, model=completer.model, **names, version=__version__)
    return Response(context.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")


# ── errors and the application ───────────────────────────────────────────────────────────────────────────


async def error_response(http: Http, error: Exception) -> Response:
    """Every error as one JSON object."""
    if isinstance(error, ClientDisconnect):
        return Response(status_code=499)  # the client is gone
    code, message = status_and_message(error)
    if code == 404 and message == "Not Found":  # starlette's message
        message = f"{http.url.path} does not exist; the paths are {', '.join(ADDRESSES)}."
    elif code == 405:
        message = f"{http.url.path} does not support {http.method}."
    context_of(http).metrics.count("errors_total", code=str(code))
    body = json_fields.error_json(code, message, getattr(error, "name", None))
    return json_response(body, code, getattr(error, "headers", None))


def application(context: RouteContext) -> Starlette:
    """The ASGI application with all addresses."""
    app = Starlette(
        routes=[
            Route("/infill", completion_handler(llamacpp_api.infill), methods=["POST"]),
            Route("/completion", completion_handler(llamacpp_api.completion), methods=["POST"]),
            Route("/v1/completions", completion_handler(openai_api.completions), methods=["POST"]),
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/models", models),
            Route("/models", models),
            Route("/props", props),
            Route("/metrics", metrics),
            *leases.routes(),
        ],
        # Starlette raises an unexpected error again after its own answer: uvicorn would close the connection, and lose
        # the client's next request on it.
        middleware=[Middleware(ExceptionMiddleware, handlers={Exception: error_response})],
        exception_handlers={HTTPException: error_response},
    )
    app.state.engine = context
    return app
