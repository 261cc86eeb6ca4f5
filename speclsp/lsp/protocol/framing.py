"""Parser of LSP messages in a byte stream. It recovers from bad framing, and a large Content-Length costs no memory."""

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
HEADER_REST = re.compile(rb"-[lL][eE][nN][gG][tT][hH][ \t]*:[ \t]*\d")  # eight times as fast to search for


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
            yield self._parse(body)

    def _fill(self) -> bool:
        data = self._read(READ_BYTES)
        self._buffer += data
        return bool(data)

    def _next_length(self) -> int | None:
        """Skip to the next header block and past it; its last Content-Length, or None at the end of the stream."""
        length: int | None = None
        while True:
            if length is None:
                header = _find_header(self._buffer)
                if header is not None:
                    digits = header[1].lstrip(b"0") or b"0"
                    length = int(digits) if len(digits) < 30 else 10**30
                    del self._buffer[: header.end()]
                else:
                    del self._buffer[:-MAX_HEADER_BYTES]  # a header may have arrived in part
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
                del self._buffer[: len(line)]  # Content-Type and the like
            else:
                length = None  # a newer length, or no header block at all

    def _body(self, length: int) -> bytes | None:
        """The next `length` bytes; fewer if a header among them shows that the length is wrong; None at the end."""
        searched = 0
        while len(self._buffer) < length:
            header = _find_header(self._buffer, searched)
            if header is not None:  # the rest may never arrive, and the client waits for an answer to this part
                length = header.start()
                break
            searched = max(0, len(self._buffer) - MAX_HEADER_BYTES)
            if not self._fill():
                return None
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        return body

    def _line(self) -> bytes | None:
        """The next header line, not removed from the buffer; b"" if it is too long, None at the end."""
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


def framed(body: bytes) -> bytes:
    """A message with its header."""
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def _loads(body: bytes) -> object:
    return json.loads(body.decode("utf-8", "surrogatepass"))


def _find_header(data: bytearray, start: int = 0) -> re.Match[bytes] | None:
    """The first match of HEADER from `start` on."""
    rest = HEADER_REST.search(data, start)
    while rest is not None:
        header = HEADER.match(data, max(0, rest.start() - len("content")))
        if header is not None:
            return header
        rest = HEADER_REST.search(data, rest.end())
    return None


def _next_header(body: bytes) -> int:
    """Index of the next message's header in a body that is not JSON; the body's length if there is none."""
    lower = body.lower()
    start = lower.find(HEADER_NAME[:-1])
    if start >= 0:
        return start
    cut_off = (n for n in range(len(HEADER_NAME) - 1, 0, -1) if lower.endswith(HEADER_NAME[:n]))
    return len(body) - next(cut_off, 0)
