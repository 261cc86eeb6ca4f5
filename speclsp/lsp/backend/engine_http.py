"""HTTP client of the local engine, and the server-sent events parser of all backends.

HTTP/1.1 over a Unix socket, or a port of this machine: one connection for each request, and the body as it arrives. The
engine's requests are small, and an answer is left once it is long enough, which closes its connection. httpx takes
1.9 ms of processor time for one of them, this client 0.7 ms.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from speclsp.daemon.engine_files import EngineEndpoint, check_socket, is_own_peer
from speclsp.errors import MAX_MESSAGE, EngineError, shortened

ANSWER_S = 5.0  # of each wait for a small answer
READ_BYTES = 2**16
BROKEN = (OSError, EOFError, ValueError, IndexError, asyncio.LimitOverrunError)  # of a connection or of its answer
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


class EngineAnswer:
    """The answer to one request: its status and headers, then its body. Each method raises one of BROKEN."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, timeout_s: float | None) -> None:
        self.status, self.timed_out = 0, False
        self.peer = writer.get_extra_info("socket")
        self._headers: dict[str, str] = {}
        self._reader, self._writer, self._timeout_s = reader, writer, timeout_s
        self._timer: asyncio.TimerHandle | None = None
        self._restart_timer()

    async def read_head(self) -> None:
        """Read the status and the headers."""
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        self.status = int(lines[0].split()[1])
        for line in lines[1:-2]:
            name, _, value = line.partition(":")
            self._headers[name.strip().lower()] = value.strip().lower()
        self._restart_timer()

    def header(self, name: str) -> str:
        """The value of a header in lower case; "" for none."""
        return self._headers.get(name, "")

    async def body(self) -> bytes:
        """The whole body."""
        return b"".join([chunk async for chunk in self.chunks()])

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The parts of the body as they arrive."""
        if self.header("transfer-encoding") != "chunked":
            async for chunk in self._unchunked():
                yield chunk
            return
        while size := int((await self._reader.readline()).partition(b";")[0], 16):
            chunk = await self._reader.readexactly(size + 2)
            self._restart_timer()
            yield chunk[:-2]

    async def _unchunked(self) -> AsyncGenerator[bytes, None]:
        """A body of a known length, or up to the end of the connection."""
        length = self.header("content-length")
        left = int(length) if length else None
        while left is None or left:
            chunk = await self._reader.read(READ_BYTES if left is None else min(left, READ_BYTES))
            if not chunk and (left or self.timed_out):
                raise EOFError
            if not chunk:
                return
            left = None if left is None else left - len(chunk)
            self._restart_timer()
            yield chunk

    def close(self) -> None:
        """Break the connection, which cancels the request."""
        self._stop_timer()
        self._writer.transport.abort()

    def _restart_timer(self) -> None:
        self._stop_timer()
        if self._timeout_s is not None:
            self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._expire)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self) -> None:
        self.timed_out = True
        self._writer.transport.abort()


class EngineHttp:
    """HTTP to one engine: over a Unix socket when `socket` is given, else over a port of this machine, with `token`."""

    def __init__(self, socket: str = "", port: int = 0, token: str = "") -> None:
        self._socket, self._port = socket, port
        self._headers = "host: engine\r\n" if socket else f"host: 127.0.0.1:{port}\r\n"
        self._headers += f"authorization: Bearer {token}\r\n" if token else ""
        self._answers: set[EngineAnswer] = set()  # to the requests under way
        self._closed = False

    @asynccontextmanager
    async def request(
        self, method: str, path: str, content: bytes, timeout_s: float | None, connect_s: float | None = SLACK_S
    ) -> AsyncIterator[EngineAnswer]:
        """The answer to a request, with its head read; `content` is JSON. Leave the context to cancel it.

        Args:
            timeout_s: of each wait for the answer or its next part; None waits without a limit.

        Raises ResponseTimeout, and ConnectionLost for every other fault of the connection, also inside the context.
        """
        answer = None
        try:
            if self._closed:
                raise ConnectionAbortedError
            if sys.platform != "win32" and self._socket:
                connecting = asyncio.open_unix_connection(self._socket)
            else:
                connecting = asyncio.open_connection("127.0.0.1", self._port)
            reader, writer = await asyncio.wait_for(connecting, connect_s)
            answer = EngineAnswer(reader, writer, timeout_s)
            self._answers.add(answer)
            if self._closed:  # during the connect
                raise ConnectionAbortedError
            head = f"{method} {path} HTTP/1.1\r\n{self._headers}content-type: application/json\r\n"
            writer.write(head.encode() + b"content-length: %d\r\n\r\n%b" % (len(content), content))
            await answer.read_head()
            yield answer
        except (*BROKEN, asyncio.TimeoutError) as error:
            if answer is not None and answer.timed_out:
                raise ResponseTimeout(f"no answer within {timeout_s} s") from error
            raise ConnectionLost(f"the connection was lost ({type(error).__name__})") from error
        finally:
            if answer is not None:
                self._answers.discard(answer)
                answer.close()

    async def get(self, path: str, timeout_s: float | None = ANSWER_S) -> Any:
        """The JSON at `path`, whatever the HTTP status; None waits without a limit.

        Raises ConnectionLost, InvalidResponse.
        """
        try:
            return json.loads(await self._fetch("GET", path, b"", timeout_s))
        except ValueError as error:
            raise InvalidResponse("the server's answer is not JSON.") from error

    async def post(self, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        """POST `body`; the JSON of the answer. Raises ConnectionLost, InvalidResponse."""
        return parse_object(await self._fetch("POST", path, json.dumps(body).encode(), ANSWER_S))

    async def _fetch(self, method: str, path: str, content: bytes, timeout_s: float | None) -> bytes:
        """The body of an answer, whatever its HTTP status. Raises ConnectionLost, also when it takes too long."""
        try:
            async with self.request(method, path, content, timeout_s, connect_s=timeout_s) as answer:
                return await answer.body()
        except ResponseTimeout as error:
            raise ConnectionLost(str(error)) from error

    async def post_events(
        self, path: str, body: Mapping[str, object], deadline_ms: int, is_last: Callable[[Mapping[str, Any]], bool]
    ) -> AsyncGenerator[dict[str, Any], None]:
        """POST `body`; the JSON of each server-sent event as it arrives, up to the one that `is_last`.

        Close the iterator to cancel the request. Raises EngineError, also when the stream ends before the last event.
        """
        content = json.dumps(body).encode()  # ASCII: a lone surrogate from an editor survives as an escape
        parser = EventParser()
        async with self.request("POST", path, content, deadline_ms / 1000 + SLACK_S) as answer:
            if answer.status != 200:
                raise EngineError(error_text(answer.status, await answer.body()))
            async with aclosing(answer.chunks()) as chunks:
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

    async def get_events(self, path: str) -> AsyncGenerator[dict[str, Any], None]:
        """GET an endless stream; the JSON of each server-sent event, errors included, and {} for a comment.

        Silence has no time limit. Ends when the server closes the stream in order. Raises ConnectionLost,
        InvalidResponse.
        """
        parser = EventParser()
        async with self.request("GET", path, b"", timeout_s=None) as answer:
            if not is_own_peer(answer.peer):
                raise InvalidResponse("it runs as another user.")
            if answer.status == 503:
                raise ConnectionLost("it is shutting down")
            if not answer.header("content-type").startswith("text/event-stream"):
                raise InvalidResponse("it has no event stream.")
            async with aclosing(answer.chunks()) as chunks:
                async for chunk in chunks:
                    for data in parser.feed(chunk):
                        yield {} if data is None else parse_object(data)

    async def close(self) -> None:
        """Break every request under way."""
        self._closed = True
        for answer in list(self._answers):
            answer.close()


def http_to(engine: EngineEndpoint) -> EngineHttp:
    """HTTP to the engine at `engine`. Raises ConnectionLost; EngineError when the socket is not this user's."""
    if engine.socket:
        if not os.path.lexists(engine.socket):
            raise ConnectionLost("its socket does not exist")
        check_socket(Path(engine.socket))
        return EngineHttp(socket=engine.socket)
    return EngineHttp(port=engine.port, token=engine.token)


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
