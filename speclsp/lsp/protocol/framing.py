"""Messages out of a stream of bytes, whatever these are: bad framing is survived, mere promises cost no memory."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

MAX_MESSAGE_BYTES = 64 * 2**20
MAX_HEADER_LINE_BYTES = 8192
MAX_HEADER_BYTES = 256  # of a Content-Length
READ_BYTES = 65_536

PARSE_ERROR = -32700
INVALID_REQUEST = -32600

HEADER = re.compile(rb"content-length[ \t]*:[ \t]*(\d+)[ \t]*\r?\n", re.IGNORECASE)
FIELD = re.compile(rb"[\w-]+[ \t]*:")
HEADER_NAME = b"content-length:"
HEADER_REST = re.compile(rb"-[lL][eE][nN][gG][tT][hH][ \t]*:[ \t]*\d")  # found in an eighth of the time


@dataclass(frozen=True, slots=True)
class FramingFault:
    """What came in instead of a message, as a JSON-RPC error."""

    code: int
    reason: str


class MessageReader:
    """The JSON values in a byte stream, a Fault for each that cannot be had; ends when the stream does.

    Whatever does not belong to a message is skipped up to the next `Content-Length: N`. JSON has no raw line ends
    inside its strings, so a header found in the middle of a body is one: that is how a wrong length is survived.
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
            yield self._parse(body)

    def _fill(self) -> bool:
        data = self._read(READ_BYTES)
        self._buffer += data
        return bool(data)

    def _next_length(self) -> int | None:
        """Skip to a header block and over it; its last Content-Length, None at the end of the stream."""
        length: int | None = None
        while True:
            if length is None:
                found = _find_header(self._buffer)
                if found is not None:
                    digits = found[1].lstrip(b"0") or b"0"
                    length = int(digits) if len(digits) < 30 else 10**30
                    del self._buffer[: found.end()]
                else:
                    del self._buffer[:-MAX_HEADER_BYTES]  # a header may have come in half
                    if not self._fill():
                        return None
                continue
            line = self._line()
            if line is None:
                return None
            if line.isspace():
                del self._buffer[: len(line)]
                return length
            if FIELD.match(line) and not HEADER.search(line):
                del self._buffer[: len(line)]  # Content-Type and its like
            else:
                length = None  # a newer length, or no header block at all

    def _body(self, length: int) -> bytes | None:
        """So many bytes; fewer where a header among them shows that the length is wrong; None at the end."""
        searched = 0
        while len(self._buffer) < length:
            found = _find_header(self._buffer, searched)
            if found is not None:  # the rest may never come, and whoever sent what came waits for an answer
                length = found.start()
                break
            searched = max(0, len(self._buffer) - MAX_HEADER_BYTES)
            if not self._fill():
                return None
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        return body

    def _line(self) -> bytes | None:
        """The next header line, left in the buffer; b"" when it is too long to be one, None at the end."""
        while b"\n" not in self._buffer and len(self._buffer) < MAX_HEADER_LINE_BYTES:
            if not self._fill():
                return None
        return bytes(self._buffer[: self._buffer.find(b"\n") + 1])

    def _parse(self, body: bytes) -> object:
        try:
            return _loads(body)
        except (ValueError, RecursionError):
            cut = _next_header(body)
            self._buffer[:0] = body[cut:]
            with contextlib.suppress(ValueError, RecursionError):
                return _loads(body[:cut])
            return FramingFault(PARSE_ERROR, f"a message of {len(body)} bytes is not valid JSON")


def _loads(body: bytes) -> object:
    return json.loads(body.decode("utf-8", "surrogatepass"))


def _find_header(data: bytearray, start: int = 0) -> re.Match[bytes] | None:
    """The first HEADER from there on."""
    rest = HEADER_REST.search(data, start)
    while rest is not None:
        found = HEADER.match(data, max(0, rest.start() - len("content")))
        if found is not None:
            return found
        rest = HEADER_REST.search(data, rest.end())
    return None


def _next_header(body: bytes) -> int:
    """Where in a body that is not JSON the next message's header may begin; the body's length for nowhere."""
    lower = body.lower()
    found = lower.find(HEADER_NAME[:-1])
    if found >= 0:
        return found
    cut_off = (n for n in range(len(HEADER_NAME) - 1, 0, -1) if lower.endswith(HEADER_NAME[:n]))
    return len(body) - next(cut_off, 0)
