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
from contextlib import aclosing, suppress
from dataclasses import dataclass
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
from speclsp.lsp.backend.remote import error_messages

if TYPE_CHECKING:
    import httpx

CONNECT_S = 3.0
SLACK_S = 2.0  # time after a request's deadline before its connection is closed
DRAIN_S = 0.05  # to read what follows the last event: a connection is reusable only after a complete answer
MAX_LINE_BYTES = 2**20
MAX_ANSWER_BYTES = 8 * 2**20
MAX_ERROR_BYTES = 2**16
DONE: Mapping[str, Any] = {"done": True}  # stands for the event `data: [DONE]`


class Unreachable(ConnectionLost):
    """No connection could be made."""


class HttpRefused(EngineError):
    """The server answered with an error."""

    def __init__(self, status: int, message: str, server_text: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.server_text, self.retry_after_s = status, server_text, retry_after_s


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """One complete answer."""

    status: int
    content_type: str
    data: bytes

    def json(self) -> Any:
        """Raises InvalidResponse."""
        try:
            return json.loads(self.data)
        except (ValueError, RecursionError) as error:
            raise InvalidResponse(error_messages.not_json(self.content_type)) from error


class RemoteHttp:
    """One server and a pool of connections to it. Paths are appended to `url`."""

    def __init__(self, url: str, key: str = "", ca_file: str = "") -> None:
        """Raises EngineError: `ca_file` holds no certificates."""
        import httpx

        self.url, self._key = url.rstrip("/"), key
        headers = {"user-agent": f"speclsp/{__version__}", "accept-encoding": "identity"}
        if key:
            headers["authorization"] = f"Bearer {key}"
        is_local = is_loopback_url(url)  # local traffic never goes through a proxy
        self._http = httpx.AsyncClient(
            base_url=self.url + "/",
            headers=headers,
            timeout=httpx.Timeout(5.0, connect=CONNECT_S),
            verify=tls_context(ca_file) if url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            trust_env=not is_local,
            follow_redirects=False,
            limits=httpx.Limits(max_connections=None),
        )

    async def fetch(
        self, path: str, body: Mapping[str, object] | None, timeout_s: float, *, raise_for_status: bool = False
    ) -> HttpAnswer:
        """GET, or POST `body`. Raises ConnectionLost, ResponseTimeout, InvalidResponse, and HttpRefused if asked to."""
        import httpx

        async def fetch() -> HttpAnswer:
            try:
                async with self._http.stream(
                    "GET" if body is None else "POST", path, **self._content(body)
                ) as response:
                    if raise_for_status:
                        await self._raise_for_status(response, path, body)
                    data = await read(response, MAX_ANSWER_BYTES)
                    return HttpAnswer(response.status_code, content_type_of(response), data)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise self._connection_error(error, timeout_s) from error

        try:
            return await asyncio.wait_for(fetch(), timeout_s)
        except asyncio.TimeoutError as error:
            raise ResponseTimeout(f"it has not answered within {timeout_s:g} s.") from error

    async def fetch_json(self, path: str, timeout_s: float, body: Mapping[str, object] | None = None) -> Any:
        """The JSON of a successful answer. Raises EngineError."""
        return (await self.fetch(path, body, timeout_s, raise_for_status=True)).json()

    async def post_events(
        self,
        path: str,
        body: Mapping[str, object],
        deadline_ms: int,
        is_last: Callable[[Mapping[str, Any]], bool] = lambda event: False,
        headers: Mapping[str, str] = {},
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        """POST `body`; the JSON of each server-sent event as it arrives, up to the one that `is_last`, or DONE.

        Closing the iterator closes the connection. Raises EngineError.
        """
        import httpx

        began_s, limit_s = time.monotonic(), deadline_ms / 1000 + SLACK_S
        timeout = httpx.Timeout(limit_s, connect=min(limit_s, CONNECT_S))
        content = self._content(body)
        content["headers"] |= headers
        try:
            async with self._http.stream("POST", path, timeout=timeout, **content) as response:
                await self._raise_for_status(response, path, body)
                chunks = response.aiter_raw()
                async with aclosing(self._events(response, chunks, body)) as events:
                    async for event in events:
                        if time.monotonic() - began_s > limit_s:
                            raise ResponseTimeout(f"its answer has not ended within {limit_s:g} s.")
                        if event is DONE or is_last(event):
                            with suppress(asyncio.TimeoutError):
                                await asyncio.wait_for(drain(chunks), DRAIN_S)
                            yield event
                            return
                        yield event
        except httpx.HTTPError as error:
            raise self._connection_error(error, limit_s) from error

    async def close(self) -> None:
        await self._http.aclose()

    def redacted(self, text: str, request: Mapping[str, object] = {}) -> str:
        """`text` in one short line, without the key, and without quotations of the request."""
        text = error_messages.visible(" ".join(text[: error_messages.MAX_ERROR_CHARACTERS].split()))
        text = text.replace(self._key, "***") if self._key else text
        return shortened(error_messages.without_quotes(text, request), 300)

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
            raise InvalidResponse(error_messages.not_json(kind))
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
            server_text = self.redacted(error_messages.server_error_text(data), request)
            raise HttpRefused(500, f"it failed: {server_text or 'it does not say why'}.")
        return event

    async def _raise_for_status(
        self, response: httpx.Response, path: str, request: Mapping[str, object] | None
    ) -> None:
        """Raises HttpRefused unless the status is a success."""
        status = response.status_code
        if 200 <= status < 300:
            return
        server_text = ""
        with suppress(InvalidResponse):
            body = await read(response, MAX_ERROR_BYTES)
            server_text = self.redacted(error_messages.server_error_text(body), request or {})
        wait_s = error_messages.retry_after_s(response.headers.get("retry-after", "")) if status in (429, 503) else None
        full_path = f"{urlsplit(self.url).path}/{path}"
        target = self.redacted(error_messages.redirect_target(self.url, response.headers.get("location", "")))
        message = error_messages.refusal(status, server_text, full_path, target, bool(self._key))
        raise HttpRefused(status, message, server_text, wait_s)

    def _content(self, body: Mapping[str, object] | None) -> dict[str, Any]:
        if body is None:
            return {}
        content = json.dumps(body).encode()  # ASCII: a lone surrogate from an editor survives as an escape
        return {"content": content, "headers": {"content-type": "application/json"}}

    def _connection_error(self, error: Exception, limit_s: float) -> EngineError:
        """The exception for a connection that failed."""
        import httpx

        if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout):
            return ResponseTimeout(f"it has not answered within {limit_s:g} s.")
        host = urlsplit(self.url).hostname or ""
        if isinstance(error, httpx.ConnectTimeout):
            return Unreachable(f"{host} does not answer within {CONNECT_S:g} s: is the network, or a VPN, connected?")
        if isinstance(error, httpx.ProxyError):
            return Unreachable(f"the proxy of this environment (HTTPS_PROXY) refuses: {self.redacted(str(error))}.")
        if isinstance(error, httpx.ConnectError | httpx.InvalidURL):
            return Unreachable(error_messages.unreachable(error, host))
        if isinstance(error, httpx.RemoteProtocolError) and "disconnected" not in str(error):
            if "peer closed" in str(error) or "incomplete" in str(error):
                return ConnectionLost("its answer ended in the middle.")
            return ConnectionLost("what answers there does not speak HTTP: correct remote.url.")
        return ConnectionLost(f"the connection was lost ({type(error).__name__}).")


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


async def drain(chunks: AsyncIterator[bytes]) -> None:
    async for _ in chunks:
        pass


def content_type_of(response: httpx.Response) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


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
