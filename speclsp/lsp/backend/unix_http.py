"""HTTP/1.1 over a Unix socket: one POST for each connection, with the answer's body as it arrives.

The engine's requests are small, and each closes its connection: an answer is left once it is long enough. httpx takes
1.9 ms of processor time for one of them, this client 0.7 ms.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

READ_BYTES = 2**16
BROKEN = (OSError, EOFError, ValueError, IndexError, asyncio.LimitOverrunError)  # of a connection or of its answer


class UnixAnswer:
    """The answer of one POST: its status, then its body."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, timeout_s: float) -> None:
        self.status = 0
        self._reader, self._writer, self._timeout_s = reader, writer, timeout_s
        self._headers: dict[bytes, bytes] = {}
        self.timed_out = False
        self._timer = asyncio.get_running_loop().call_later(timeout_s, self._expire)

    async def read_head(self) -> None:
        """Read the status and the headers. Raises one of BROKEN."""
        lines = (await self._reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        self.status = int(lines[0].split()[1])
        for line in lines[1:-2]:
            name, _, value = line.partition(b":")
            self._headers[name.strip().lower()] = value.strip().lower()
        self._restart_timer()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The parts of the body. Raises one of BROKEN where it ends too early."""
        if self._headers.get(b"transfer-encoding") != b"chunked":
            async for chunk in self._unchunked():
                yield chunk
            return
        while size := int((await self._reader.readline()).partition(b";")[0], 16):
            chunk = await self._reader.readexactly(size + 2)
            self._restart_timer()
            yield chunk[:-2]

    async def _unchunked(self) -> AsyncGenerator[bytes, None]:
        """A body of a known length, or up to the end of the connection."""
        length = self._headers.get(b"content-length")
        left = None if length is None else int(length)
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
        """Close the connection, which cancels the request."""
        self._timer.cancel()
        self._writer.close()

    def _restart_timer(self) -> None:
        self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._expire)

    def _expire(self) -> None:
        self.timed_out = True
        self._writer.transport.abort()


class UnixHttp:
    """Sends requests to one Unix socket."""

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self._open: set[Callable[[], None]] = set()  # close the requests under way
        self._closed = False

    @asynccontextmanager
    async def post(self, path: str, content: bytes, timeout_s: float, connect_s: float) -> AsyncIterator[UnixAnswer]:
        """The answer to a POST of JSON. Leave the context to cancel it.

        Args:
            timeout_s: of each wait for the answer or its next part. After it, the wait fails and `timed_out` is set.

        Raises one of BROKEN, also TimeoutError.
        """
        if self._closed:
            raise ConnectionAbortedError
        reader, writer = await asyncio.wait_for(asyncio.open_unix_connection(self._socket), connect_s)
        answer = UnixAnswer(reader, writer, timeout_s)
        self._open.add(writer.transport.abort)
        try:
            head = f"POST {path} HTTP/1.1\r\nhost: engine\r\ncontent-type: application/json\r\n"
            writer.write(head.encode() + b"content-length: %d\r\n\r\n%b" % (len(content), content))
            yield answer
        finally:
            self._open.discard(writer.transport.abort)
            answer.close()

    def close(self) -> None:
        """Break every request under way."""
        self._closed = True
        for abort in list(self._open):
            abort()
