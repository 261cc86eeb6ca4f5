"""Parser of LSP messages in a byte stream. It recovers from bad framing, and a large Content-Length costs no memory."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

MAX_MESSAGE_BYTES = 64 * 2**20
MAX_HEADER_BYTES = 8192  # of a header block
READ_BYTES = 65_536

PARSE_ERROR = -32700
INVALID_REQUEST = -32600

HEADER = re.compile(rb"ontent-[Ll]ength[ \t]*:[ \t]*(\d+)[ \t]*\r?\n")  # a literal first: the search is fast
BLOCK_END = re.compile(rb"\r?\n\r?\n")


@dataclass(frozen=True, slots=True)
class FramingFault:
    """Input that is not a message, as a JSON-RPC error."""

    code: int
    reason: str


class MessageReader:
    """Iterates over the JSON values in a byte stream, with a FramingFault for each invalid one, until the stream ends.

    Bytes that belong to no message are skipped up to the next `Content-Length: N`. JSON strings hold no raw line ends,
    so a header in the middle of a body is a real header: it shows that the length was wrong.
    """

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read  # up to n bytes, b"" at the end
        self._buffer = bytearray()
        self.message_bytes = 0  # of the last one

    def __iter__(self) -> Iterator[object]:
        while (length := self._next_length()) is not None:
            if length > MAX_MESSAGE_BYTES:
                yield FramingFault(
                    INVALID_REQUEST, f"a message of {length} bytes is over the limit of {MAX_MESSAGE_BYTES}"
                )
                continue
            body = self._body(length)
            if body is None:
                return
            self.message_bytes = len(body)
            try:
                yield json.loads(body.decode("utf-8", "surrogatepass"))
            except (ValueError, RecursionError):
                self._buffer[:0] = body  # the next header may begin in it
                yield FramingFault(PARSE_ERROR, f"a message of {len(body)} bytes is not valid JSON")

    def _fill(self) -> bool:
        data = self._read(READ_BYTES)
        self._buffer += data
        return bool(data)

    def _next_length(self) -> int | None:
        """Skip to the next header block and past it; its last Content-Length, or None at the end of the stream."""
        while True:
            header = HEADER.search(self._buffer)
            if header is None:
                del self._buffer[:-MAX_HEADER_BYTES]  # a header may have arrived in part
                if not self._fill():
                    return None
                continue
            end = BLOCK_END.search(self._buffer, header.end() - 2)
            if end is None and len(self._buffer) - header.start() < MAX_HEADER_BYTES:
                if not self._fill():
                    return None
                continue
            lengths = HEADER.findall(self._buffer, header.start(), end.end() if end is not None else header.end())
            del self._buffer[: end.end() if end is not None else header.end()]
            if end is not None:
                digits = lengths[-1].lstrip(b"0") or b"0"
                return int(digits) if len(digits) < 30 else 10**30

    def _body(self, length: int) -> bytes | None:
        """The next `length` bytes; fewer if a header among them shows that the length is wrong; None at the end."""
        searched = 0
        while len(self._buffer) < length:
            header = HEADER.search(self._buffer, searched)
            if header is not None:  # the rest may never arrive, and the client waits for an answer to this part
                length = header.start() - 1
                break
            searched = max(0, len(self._buffer) - MAX_HEADER_BYTES)
            if not self._fill():
                return None
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        return body


def framed(body: bytes) -> bytes:
    """A message with its header."""
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
