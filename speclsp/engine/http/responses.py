"""HTTP responses: JSON, server-sent events, and the status code of each error."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from speclsp.engine.http import json_fields
from speclsp.errors import InputError, InvalidLogits, SpeclspError


class EventStream(Response):
    """Server-sent events. starlette's own streaming also reads `receive`, and a disconnect can be read only once."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        self.events = events
        self.status_code = 200
        self.background = None
        self.init_headers({"cache-control": "no-cache"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with aclosing(self.events) as events:
            async for event in events:
                await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def status_and_message(error: Exception) -> tuple[int, str]:
    """The status code and the sentence for an error."""
    if isinstance(error, HTTPException):
        return error.status_code, error.detail
    if isinstance(error, InputError):
        return 400, str(error)
    if isinstance(error, InvalidLogits):
        return 500, str(error)
    if isinstance(error, SpeclspError):
        return 503, str(error)
    return 500, f"the engine failed on this request ({type(error).__name__}): its log has the details."


def error_object(error: Exception) -> json_fields.Json:
    """An error in the middle of a stream."""
    return json_fields.error_json(*status_and_message(error))


def json_response(
    answer: json_fields.Json | list[json_fields.Json],
    code: int = 200,
    headers: dict[str, str] | None = None,
    background: BackgroundTask | None = None,
) -> Response:
    """A JSON response, in ASCII."""
    return Response(json_fields.dump(answer), code, headers, media_type="application/json", background=background)


def sse(answer: json_fields.Json) -> bytes:
    """One server-sent event."""
    return b"data: " + json_fields.dump(answer) + b"\n\n"
