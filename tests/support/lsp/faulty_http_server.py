"""A completion server with scripted faults: plain sockets, optional TLS, in a thread of its own.

Each request gets the next behaviour of `then`, or `always` when `then` is empty. A behaviour gets the request and the
connection and may do anything. The server records every request, and the time when the client closed a connection
before the answer was complete.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

MODEL = "Qwen/Qwen2.5-Coder-7B"
WORDS = ["a", " +", " b"]


@dataclass
class HttpRequest:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    closed_at: float | None = None  # time at which the client closed it before the answer was complete


class Ends(Exception):
    """The server ends the connection."""


class Connection:
    """The connection to one client, with writers for HTTP messages."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self, status: int = 200, kind: str = "text/event-stream", **headers: str) -> None:
        """Send the head of a response. A chunked body follows."""
        lines = [f"HTTP/1.1 {status} -", f"content-type: {kind}", "transfer-encoding: chunked"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.send("\r\n".join([*lines, "", ""]).encode())

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def event(self, event: object) -> None:
        await self.chunk(b"data: %b\n\n" % json.dumps(event).encode())

    async def end(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def whole(self, status: int, body: bytes, kind: str = "application/json", **headers: str) -> None:
        await self.head(status, kind, **headers)
        if body:
            await self.chunk(body)
        await self.end()


Behaviour = Callable[[HttpRequest, Connection], Awaitable[None]]


class FaultyServer:
    """`with FaultyServer() as server:` listens on `server.url`."""

    def __init__(
        self,
        tls: ssl.SSLContext | None = None,
        models: list[str] | None = None,
        owner: str = "vllm",
        always: Behaviour | None = None,
        paths: Mapping[str, Behaviour] | None = None,
    ) -> None:
        """`paths`: the behaviour of each path; every other path then answers with HTTP status 404."""
        self.requests: list[HttpRequest] = []
        self.then: deque[Behaviour] = deque()
        self.always = always or good
        self.listed: Behaviour = listing(models or [MODEL], owner)  # GET /v1/models
        self.everywhere: Behaviour | None = by_path(paths) if paths is not None else None  # instead of those three
        self.connections = 0
        self.url = ""
        self.port = 0
        self._tls = tls
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> FaultyServer:
        self._thread.start()
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def listen(self) -> None:
        """Listen, on the same port as before."""

        async def begin() -> None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._tls)
            self.port = self._server.sockets[0].getsockname()[1]

        self._run(begin())
        self.url = f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}"

    def stop(self) -> None:
        """Stop listening, and break every connection."""

        async def end() -> None:
            if self._server is not None:
                self._server.close()
            for writer in list(self._writers):
                writer.transport.abort()
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self._run(end())

    def _run(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def wait(self, true: Callable[[], bool], seconds: float = 20.0) -> None:
        """Wait until the records make `true` true. Fails after `seconds`."""
        with self._changed:
            assert self._changed.wait_for(true, seconds), f"waited in vain: {self.requests}"

    def completions(self) -> list[HttpRequest]:
        """The completion requests: those that cost the server work."""
        return [request for request in list(self.requests) if request.method == "POST" and request.body]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.connections += 1
        try:
            while True:
                request = await read_request(reader)
                self._note(lambda request=request: self.requests.append(request))
                await self._answer(request, Connection(reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, ssl.SSLError, Ends):
            pass
        finally:
            self._writers.discard(writer)
            with suppress(RuntimeError):
                writer.close()

    async def _answer(self, request: HttpRequest, connection: Connection) -> None:
        """Run the behaviour, and stop it when the client closes the connection."""
        if self.everywhere is not None:
            behave = self.everywhere
        elif request.method == "POST" and request.body:
            behave = self.then.popleft() if self.then else self.always
        else:
            behave = self.listed if request.path == "/v1/models" else nothing_here
        work = asyncio.ensure_future(behave(request, connection))
        disconnect = asyncio.ensure_future(connection.reader.read(1))  # a client sends nothing before it has its answer
        try:
            await asyncio.wait([work, disconnect], return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise ConnectionError
            work.result()
        except ConnectionError:
            self._note(lambda: setattr(request, "closed_at", time.monotonic()))
            raise
        finally:
            for task in (work, disconnect):
                task.cancel()
            with suppress(asyncio.CancelledError, ConnectionError):
                await disconnect

    def _note(self, what: Callable[[], object]) -> None:
        with self._changed:
            what()
            self._changed.notify_all()


async def read_request(reader: asyncio.StreamReader) -> HttpRequest:
    start = await reader.readexactly(1)
    if start == b"\x16":  # a TLS handshake on a plain connection
        raise Ends
    first, *lines = (start + await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, path, _ = first.split(" ", 2)
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return HttpRequest(method, path, headers, json.loads(body) if body else None)


# ── behaviours ────────────────────────────────────────────────────────────────────────────────────────────────────────


def listing(models: list[str], owner: str) -> Behaviour:
    """The answer to GET /v1/models."""

    async def behave(request: HttpRequest, connection: Connection) -> None:
        data = [{"id": model, "object": "model", "owned_by": owner} for model in models]
        await connection.whole(200, json.dumps({"object": "list", "data": data}).encode())

    return behave


async def nothing_here(request: HttpRequest, connection: Connection) -> None:
    await connection.whole(404, b'{"error": {"message": "not found"}}')


def by_path(paths: Mapping[str, Behaviour]) -> Behaviour:
    async def behave(request: HttpRequest, connection: Connection) -> None:
        await paths.get(request.path, nothing_here)(request, connection)

    return behave


def choice(text: str, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": text, "finish_reason": finish}]}


def says(*words: str) -> Behaviour:
    """A complete answer of these words."""

    async def behave(request: HttpRequest, connection: Connection) -> None:
        await connection.head()
        for word in words:
            await connection.event(choice(word))
        await connection.event(choice("", "stop"))
        await connection.chunk(b"data: [DONE]\n\n")
        await connection.end()

    return behave


good = says(*WORDS)


def says_when(signal: threading.Event, *words: str) -> Behaviour:
    """A complete answer that sends its last word only after a signal."""

    async def behave(request: HttpRequest, connection: Connection) -> None:
        await connection.head()
        for word in words[:-1]:
            await connection.event(choice(word))
        while not signal.is_set():
            await asyncio.sleep(0.01)
        await connection.event(choice(words[-1], "stop"))
        await connection.end()

    return behave


def refuses(status: int, message: str = "", **headers: str) -> Behaviour:
    """An HTTP error."""

    async def behave(request: HttpRequest, connection: Connection) -> None:
        body = json.dumps({"error": {"message": message}}).encode() if message else b""
        await connection.whole(status, body, **headers)

    return behave


def raw(data: bytes) -> Behaviour:
    """Unframed bytes, then the end of the connection."""

    async def behave(request: HttpRequest, connection: Connection) -> None:
        await connection.send(data)
        raise Ends

    return behave


def body_of(kind: str, body: bytes, **headers: str) -> Behaviour:
    """A body of one content type, with HTTP status 200."""

    async def behave(request: HttpRequest, connection: Connection) -> None:
        await connection.whole(200, body, kind, **headers)

    return behave


async def silent(request: HttpRequest, connection: Connection) -> None:
    """Reads the request and never answers."""
    await asyncio.Event().wait()


def drips(pause_s: float) -> Behaviour:
    """Text without an end, one statement at a time: the part received by a deadline is whole, so it is shown."""

    async def behave(request: HttpRequest, connection: Connection) -> None:
        await connection.head()
        for number in range(1, 1_000_000):
            await connection.event(choice(f" w{number}();"))
            await asyncio.sleep(pause_s)

    return behave


async def stuck(request: HttpRequest, connection: Connection) -> None:
    """The head of a good answer, then nothing."""
    await connection.head()
    await asyncio.Event().wait()


async def cut(request: HttpRequest, connection: Connection) -> None:
    """Half an answer, then the end of the connection."""
    await connection.head()
    await connection.event(choice("a"))
    raise Ends


async def one_long_line(request: HttpRequest, connection: Connection) -> None:
    """A line that never ends."""
    await connection.head()
    while True:
        await connection.chunk(b"data: " + b"x" * 65536)


async def comments(request: HttpRequest, connection: Connection) -> None:
    """Comment lines without meaning, as fast as the client reads them."""
    await connection.head()
    while True:
        await connection.chunk(b": nothing\n\n" * 8192)
