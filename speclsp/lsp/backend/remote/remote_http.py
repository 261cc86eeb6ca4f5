"""HTTP client for third-party servers: bounds every answer in time and size, and explains every failure with a fix.

    connect   the certificate is always verified; a proxy is used only for a server on another machine
    answer    uncompressed, as JSON or server-sent events, of bounded length; redirects are never followed
    key       goes to this one server only, and is redacted from all that the server sends back

httpx is imported when a backend starts: by then the editor has its reply to `initialize`.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from speclsp import __version__
from speclsp.errors import EngineError, shortened
from speclsp.lsp.backend.engine_http import (
    ConnectionLost,
    EventParser,
    InvalidResponse,
    ResponseTimeout,
    is_loopback_url,
    parse_object,
)

if TYPE_CHECKING:
    import httpx

CONNECT_S = 3.0
SLACK_S = 2.0  # time after a request's deadline before its connection is closed
DRAIN_S = 0.05  # to read what follows the last event: a connection is reusable only after a complete answer
MAX_LINE_BYTES = 2**20
MAX_ANSWER_BYTES = 8 * 2**20
MAX_ERROR_BYTES = 2**16
MAX_WAIT_S = 86_400.0  # a longer Retry-After is taken for a mistake
QUOTED_CHARACTERS = 12  # characters in a row that are also in the request: from this number on, a quotation
DONE: Mapping[str, Any] = {"stop": True}  # stands for the event `data: [DONE]`
FIXES = {  # of an HTTP status
    401: ": `speclsp key set URL` stores a key for it.",
    403: ": ask whoever runs it what your key may do.",
    404: ": correct remote.url or remote.model.",
    429: ": it takes no more requests from you for now.",
}
REDIRECT_FIX = ": no redirect is followed. If its target is the right server, set remote.url to it."


class Unreachable(ConnectionLost):
    """No connection could be made."""


class HttpRefused(EngineError):
    """The server answered with an error."""

    def __init__(self, status: int, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.status, self.retry_after_s = status, retry_after_s


class RemoteHttp:
    """One server and a pool of connections to it. Paths are appended to `url`."""

    def __init__(self, url: str, key: str = "", ca_file: str = "") -> None:
        """Raises EngineError: `ca_file` holds no certificates."""
        import httpx

        self.url, self._key = url.rstrip("/"), key
        headers = {"user-agent": f"speclsp/{__version__}", "accept-encoding": "identity"}
        if key:
            headers["authorization"] = f"Bearer {key}"
        self._http = httpx.AsyncClient(
            base_url=self.url + "/",
            headers=headers,
            verify=tls_context(ca_file) if url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            trust_env=not is_loopback_url(url),  # local traffic never goes through a proxy
            follow_redirects=False,
            limits=httpx.Limits(max_connections=None),
        )

    async def fetch(self, path: str, timeout_s: float, body: Mapping[str, object] | None = None) -> Any:
        """The JSON of a successful GET, or POST of `body`. Raises EngineError."""

        async def fetch() -> Any:
            async with self._answer(path, body, timeout_s) as response:
                data = await read(response, MAX_ANSWER_BYTES)
            try:
                return json.loads(data)
            except (ValueError, RecursionError) as error:
                raise not_json(content_type_of(response)) from error

        try:
            return await asyncio.wait_for(fetch(), timeout_s)
        except asyncio.TimeoutError as error:
            raise ResponseTimeout(f"it has not answered within {timeout_s:g} s.") from error

    async def post_events(
        self,
        path: str,
        body: Mapping[str, object],
        deadline_ms: int,
        is_last: Callable[[Mapping[str, Any]], bool],
        headers: Mapping[str, str] = {},
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        """POST `body`; the JSON of each server-sent event as it arrives, up to the one that `is_last`, or DONE.

        Closing the iterator closes the connection. Raises EngineError.
        """
        limit_s = deadline_ms / 1000 + SLACK_S
        async with self._answer(path, body, limit_s, headers) as response:
            chunks = response.aiter_raw()
            async with aclosing(self._events(response, within(chunks, limit_s), body)) as events:
                async for event in events:
                    if is_last(event):
                        with suppress(asyncio.TimeoutError):
                            await asyncio.wait_for(drain(chunks), DRAIN_S)
                        yield event
                        return
                    yield event

    async def close(self) -> None:
        await self._http.aclose()

    @asynccontextmanager
    async def _answer(
        self, path: str, body: Mapping[str, object] | None, limit_s: float, headers: Mapping[str, str] = {}
    ) -> AsyncIterator[httpx.Response]:
        """The successful response to a GET, or to a POST of `body`. Raises EngineError, also inside the context."""
        import httpx

        timeout = httpx.Timeout(limit_s, connect=min(limit_s, CONNECT_S))
        content: dict[str, Any] = {}
        if body is not None:  # ASCII: a lone surrogate from an editor survives as an escape
            content = {"content": json.dumps(body).encode()}
            headers = {**headers, "content-type": "application/json"}
        method = "GET" if body is None else "POST"
        try:
            async with self._http.stream(method, path, timeout=timeout, headers=dict(headers), **content) as response:
                if not 200 <= response.status_code < 300:
                    raise await self._refusal(response, path, body)
                yield response
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._connection_error(error, limit_s) from error

    async def _events(
        self, response: httpx.Response, chunks: AsyncIterator[bytes], request: Mapping[str, object]
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        """The events of a successful answer."""
        kind = content_type_of(response)
        if kind == "application/json":  # a server that does not stream
            yield self._parse_event(await read(response, MAX_ANSWER_BYTES, chunks), request)
            yield DONE
            return
        if kind not in ("text/event-stream", ""):
            raise not_json(kind)
        check_encoding(response)
        parser = EventParser(MAX_LINE_BYTES, MAX_ANSWER_BYTES)
        async for chunk in chunks:
            for data in parser.feed(chunk):
                if data is not None:
                    yield DONE if data == b"[DONE]" else self._parse_event(data, request)

    def _parse_event(self, data: bytes, request: Mapping[str, object]) -> dict[str, Any]:
        """One event. Raises EngineError when it is an error."""
        try:
            event = parse_object(data)
        except (InvalidResponse, RecursionError) as error:
            raise InvalidResponse("its answer is not a JSON object for each event.") from error
        if "error" in event and not event.get("choices"):
            raise HttpRefused(500, f"it failed: {self._error_text(data, request) or 'it does not say why'}.")
        return event

    async def _refusal(self, response: httpx.Response, path: str, request: Mapping[str, object] | None) -> HttpRefused:
        """The error for an HTTP status other than success."""
        status, text = response.status_code, ""
        with suppress(InvalidResponse):
            text = self._error_text(await read(response, MAX_ERROR_BYTES), request or {})
        name = HTTPStatus(status).phrase if status in set(HTTPStatus) else "unknown"
        fix = REDIRECT_FIX if 300 <= status < 400 else FIXES.get(status, ".")
        message = f"it answers HTTP {status} ({name}) at {urlsplit(self.url).path}/{path}{text and f', {text!r}'}{fix}"
        wait = response.headers.get("retry-after", "").strip() if status in (429, 503) else ""
        wait_s = min(float(wait[:9]), MAX_WAIT_S) if wait.isascii() and wait.isdigit() else 0.0
        return HttpRefused(status, message, wait_s)

    def _error_text(self, body: bytes, request: Mapping[str, object]) -> str:
        """The text of a JSON error answer in one line, without the key; "" if it quotes the request: it is logged."""
        text: object = ""
        with suppress(ValueError, RecursionError):
            answer = json.loads(body)
            error = answer.get("error", answer.get("message", answer.get("detail"))) if isinstance(answer, dict) else ""
            text = error.get("message") if isinstance(error, dict) else error
        text = printable(text) if isinstance(text, str) else ""
        sent = printable(json.dumps(request, ensure_ascii=False))
        starts = range(len(text) - QUOTED_CHARACTERS + 1)
        if any(text[start : start + QUOTED_CHARACTERS] in sent for start in starts):
            return ""
        return shortened(text.replace(self._key, "***") if self._key else text, 300)

    def _connection_error(self, error: Exception, limit_s: float) -> EngineError:
        """The error for a connection that failed."""
        import httpx

        if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout):
            return ResponseTimeout(f"it has not answered within {limit_s:g} s.")
        host, cause = urlsplit(self.url).hostname or "", root_cause(error)
        reason = printable(f"{type(error).__name__}: {cause}".removesuffix(".").removesuffix(": "))
        if isinstance(cause, ssl.SSLCertVerificationError):
            return Unreachable(
                f"the certificate of {host} is not valid here ({cause.verify_message}): correct remote.url, or set "
                f"remote.ca_file to the file with your organisation's certificate."
            )
        if isinstance(error, httpx.ConnectTimeout | httpx.ConnectError | httpx.ProxyError | httpx.InvalidURL):
            return Unreachable(
                f"no connection to {host} could be made ({reason}): start the server, correct remote.url, or check "
                f"the network."
            )
        return ConnectionLost(f"the connection was lost ({shortened(reason, 100)}).")


async def within(chunks: AsyncIterator[bytes], limit_s: float) -> AsyncIterator[bytes]:
    """The chunks, for a limited time. Raises ResponseTimeout."""
    ends_s = time.monotonic() + limit_s
    async for chunk in chunks:
        if time.monotonic() > ends_s:
            raise ResponseTimeout(f"its answer has not ended within {limit_s:g} s.")
        yield chunk


async def read(response: httpx.Response, most_bytes: int, chunks: AsyncIterator[bytes] | None = None) -> bytes:
    """The body, of bounded size, as it was sent. Raises InvalidResponse."""
    check_encoding(response)
    data = bytearray()
    async for chunk in chunks if chunks is not None else response.aiter_raw():
        data += chunk
        if len(data) > most_bytes:
            raise InvalidResponse("its answer has no end.")
    return bytes(data)


def check_encoding(response: httpx.Response) -> None:
    """Raises InvalidResponse for a compressed answer: a few bytes could expand to any number."""
    if response.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
        raise InvalidResponse("it compresses its answer, though it was asked not to.")


def not_json(kind: str) -> InvalidResponse:
    """The error for an answer of an unexpected content type."""
    return InvalidResponse(f"its answer is {kind or 'of no stated kind'} and not JSON: correct remote.url.")


async def drain(chunks: AsyncIterator[bytes]) -> None:
    async for _ in chunks:
        pass


def content_type_of(response: httpx.Response) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


def printable(text: str) -> str:
    """`text` in one line, without control characters, which a terminal or an editor would execute."""
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())


def root_cause(error: BaseException) -> BaseException:
    """The first error of a chain: the system's or TLS's own."""
    while cause := next(iter(getattr(error, "exceptions", ())), None) or error.__cause__ or error.__context__:
        error = cause
    return error


def tls_context(ca_file: str) -> ssl.SSLContext:
    """Verifies certificates against the authorities of the system, of Mozilla and of `ca_file`. Raises EngineError."""
    import certifi

    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    try:
        if ca_file:
            context.load_verify_locations(ca_file)
    except OSError as error:  # SSLError as well
        why = error.strerror if isinstance(error, FileNotFoundError | PermissionError) else "it holds no certificates"
        raise EngineError(f"remote.ca_file = {ca_file!r} cannot be used: {why}.") from error
    return context
