"""HTTP client of the local engine, and the server-sent events parser of all backends. The only importer of httpx
besides remote/remote_http.py.

One connection pool, JSON, server-sent events. httpx is imported when a backend starts: by then the editor has its
reply to `initialize`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import ssl
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, suppress
from typing import Any
from urllib.parse import urlsplit

from speclsp.daemon import endpoint
from speclsp.errors import MAX_MESSAGE, EngineError, shortened
from speclsp.lsp.backend.unix_http import BROKEN, UnixHttp

SLACK_S = 2.0  # time after a request's deadline before its connection is closed


class ConnectionLost(EngineError):
    """No server answers, or the connection broke in the middle of an answer."""


class ResponseTimeout(EngineError):
    """The server is connected and has not answered in time."""


class InvalidResponse(EngineError):
    """The server does not speak the expected protocol."""


class EventParser:
    """Splits a server-sent event stream into the data of its events, wherever the network cuts it into chunks.

    With `longest_line_bytes` and `longest_stream_bytes`, a longer stream raises InvalidResponse. Lines are split here:
    httpx would also split at U+2028, which stands in JSON strings.
    """

    def __init__(self, longest_line_bytes: int | None = None, longest_stream_bytes: int | None = None) -> None:
        self._longest_line_bytes, self._longest_stream_bytes = longest_line_bytes, longest_stream_bytes
        self._rest = b""  # the beginning of the next line
        self._stream_bytes = 0

    def feed(self, chunk: bytes) -> Iterator[bytes | None]:
        """The data of each `data:` line that `chunk` completes, stripped; None for a comment (a keep-alive)."""
        self._stream_bytes += len(chunk)
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line.removeprefix(b"data:").strip()
            elif line.startswith(b":"):
                yield None
        too_long = self._longest_line_bytes is not None and len(self._rest) > self._longest_line_bytes
        if too_long or (self._longest_stream_bytes is not None and self._stream_bytes > self._longest_stream_bytes):
            raise InvalidResponse("its answer has no end.")


class EngineHttp:
    """HTTP to one server: over a Unix socket when `socket` is given, else to `url`. Redirects are not followed."""

    def __init__(self, url: str = "http://engine", socket: str | None = None, headers: Mapping[str, str] = {}) -> None:
        import httpx

        self._unix = UnixHttp(socket) if socket else None
        limits = httpx.Limits(max_connections=None)
        no_authorities = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # no TLS here: loading the authorities takes 20 ms
        transport = httpx.AsyncHTTPTransport(uds=socket, limits=limits, verify=no_authorities) if socket else None
        is_local = socket is not None or is_loopback_url(url)  # local traffic never goes through a proxy
        self._http = httpx.AsyncClient(
            transport=transport,
            base_url=url,
            headers=dict(headers),
            timeout=5.0,
            trust_env=not is_local,
            limits=limits,
            verify=no_authorities,
        )

    async def get(self, path: str, timeout_s: float | None = 5.0) -> Any:
        """The JSON at `path`, whatever the HTTP status; None waits without a limit.

        Raises ConnectionLost, InvalidResponse.
        """
        import httpx

        try:
            return (await self._http.get(path, timeout=timeout_s)).json()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ConnectionLost(f"the connection failed ({type(error).__name__})") from error
        except ValueError as error:
            raise InvalidResponse("the server's answer is not JSON.") from error

    async def post(self, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        """POST `body`; the JSON of the answer. Raises ConnectionLost, InvalidResponse."""
        import httpx

        try:
            return parse_object((await self._http.post(path, json=dict(body))).content)
        except httpx.HTTPError as error:
            raise ConnectionLost(f"the connection failed ({type(error).__name__})") from error

    async def post_events(
        self, path: str, body: Mapping[str, object], deadline_ms: int, is_last: Callable[[Mapping[str, Any]], bool]
    ) -> AsyncGenerator[dict[str, Any], None]:
        """POST `body`; the JSON of each server-sent event as it arrives, up to the one that `is_last`.

        Close the iterator to cancel the request. Raises EngineError, also when the stream ends before the last event.
        """
        content = json.dumps(body).encode()  # ASCII: a lone surrogate from an editor survives as an escape
        post = self._post_over_unix if self._unix is not None else self._post_over_tcp
        parser = EventParser()
        async with aclosing(post(path, content, deadline_ms / 1000 + SLACK_S)) as chunks:
            async for chunk in chunks:
                for data in parser.feed(chunk):
                    if data is None or data == b"[DONE]":
                        continue
                    event = parse_object(data)
                    if "error" in event:
                        raise EngineError(error_text(500, data))
                    yield event
                    if is_last(event):
                        return
        raise ConnectionLost("the answer is incomplete")

    async def _post_over_unix(self, path: str, content: bytes, timeout_s: float) -> AsyncGenerator[bytes, None]:
        """The body of the answer as it arrives. Raises EngineError."""
        assert self._unix is not None
        answer = None
        try:
            async with self._unix.post(path, content, timeout_s, SLACK_S) as answer:
                await answer.read_head()
                async with aclosing(answer.chunks()) as chunks:
                    if answer.status != 200:
                        raise EngineError(error_text(answer.status, b"".join([chunk async for chunk in chunks])))
                    async for chunk in chunks:
                        yield chunk
        except (*BROKEN, asyncio.TimeoutError) as error:
            if answer is not None and answer.timed_out:
                raise ResponseTimeout(f"no answer within {timeout_s} s") from error
            raise ConnectionLost(f"the connection was lost ({type(error).__name__})") from error

    async def _post_over_tcp(self, path: str, content: bytes, timeout_s: float) -> AsyncGenerator[bytes, None]:
        import httpx

        limit, kind = httpx.Timeout(timeout_s, connect=SLACK_S), {"content-type": "application/json"}
        try:
            async with self._http.stream("POST", path, content=content, headers=kind, timeout=limit) as response:
                if response.status_code != 200:
                    raise EngineError(error_text(response.status_code, await response.aread()))
                async for chunk in response.aiter_bytes():
                    yield chunk
        except httpx.ReadTimeout as error:
            raise ResponseTimeout(f"no answer within {limit.read} s") from error
        except httpx.HTTPError as error:
            raise ConnectionLost(f"the connection was lost ({type(error).__name__})") from error

    async def get_events(self, path: str) -> AsyncGenerator[dict[str, Any], None]:
        """GET an endless stream; the JSON of each server-sent event, errors included, and {} for a comment.

        Silence has no time limit. Ends when the server closes the stream in order. Raises ConnectionLost,
        InvalidResponse.
        """
        import httpx

        limit = httpx.Timeout(None, connect=SLACK_S)
        parser = EventParser()
        try:
            async with self._http.stream("GET", path, timeout=limit) as response:
                stream = response.extensions.get("network_stream")
                connection = stream.get_extra_info("socket") if stream is not None else None
                if connection is not None and not endpoint.is_own_peer(connection):
                    raise InvalidResponse("it runs as another user.")
                if response.status_code == 503:
                    raise ConnectionLost("it is shutting down")
                if not response.headers.get("content-type", "").startswith("text/event-stream"):
                    raise InvalidResponse("it has no event stream.")
                async for chunk in response.aiter_bytes():
                    for data in parser.feed(chunk):
                        yield {} if data is None else parse_object(data)
        except httpx.HTTPError as error:
            raise ConnectionLost(f"the connection was lost ({type(error).__name__})") from error

    async def close(self) -> None:
        if self._unix is not None:
            self._unix.close()
        await self._http.aclose()


def parse_object(data: bytes) -> dict[str, Any]:
    """A JSON object. Raises InvalidResponse."""
    try:
        value = json.loads(data)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise InvalidResponse("the server's answer is not a JSON object for each event.")
    return value


def error_text(status: int, body: bytes) -> str:
    """The message of an error answer, in one line."""
    with suppress(ValueError, LookupError, TypeError):
        error = json.loads(body)["error"]
        return shortened(str(error.get("message") if isinstance(error, dict) else error), MAX_MESSAGE)
    return f"the server answered with HTTP status {status}."


def is_loopback_url(url: str) -> bool:
    """True if `url` stays on this machine."""
    host = urlsplit(url).hostname or ""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")
