"""Where a place is in the document, in the part of it that was parsed, and in that part's bytes."""

from __future__ import annotations

from bisect import bisect_right

from speclsp.lsp.syntax.incremental_parse import encode

_BLOCK = 512  # characters


class OffsetMap:
    """What was parsed of a document: the pieces of it, put together."""

    __slots__ = ("_byte_marks", "_is_ascii", "_starts", "pieces", "text")

    def __init__(self, text: str, is_ascii: bool, pieces: list[tuple[int, int]]) -> None:
        """`text`: what the pieces are together."""
        self.text = text
        self.pieces = pieces
        self._is_ascii = is_ascii
        self._starts = [0]  # of each piece in the text
        for start, end in pieces:
            self._starts.append(self._starts[-1] + end - start)
        self._byte_marks: list[int] = []

    def to_view(self, offset: int) -> int:
        """Where a place in the document is in `text`."""
        for (start, end), at in zip(self.pieces, self._starts, strict=False):
            if offset <= end:
                return at + max(offset - start, 0)
        return len(self.text)

    def to_byte(self, position: int) -> int:
        """The byte of a place in `text`."""
        if self._is_ascii:
            return position
        block = position // _BLOCK
        return self._marks()[block] + len(encode(self.text[block * _BLOCK : position]))

    def to_document(self, byte: int, end: bool = False) -> int:
        """Where a byte is in the document; `end`: of something that ends there."""
        position = self.characters(byte)
        piece = max(bisect_right(self._starts, position - (1 if end and position else 0)) - 1, 0)
        piece = min(piece, len(self.pieces) - 1)
        return self.pieces[piece][0] + position - self._starts[piece]

    def characters(self, byte: int) -> int:
        """Where a byte is in `text`."""
        if self._is_ascii:
            return byte
        block = bisect_right(self._marks(), byte) - 1
        rest = encode(self.text[block * _BLOCK : (block + 1) * _BLOCK])
        return block * _BLOCK + len(rest[: byte - self._marks()[block]].decode("utf-8", "ignore"))

    def _marks(self) -> list[int]:
        """The byte at which each block of characters begins, so that an offset is found without encoding all."""
        if not self._byte_marks:
            at = 0
            for start in range(0, len(self.text) + 1, _BLOCK):
                self._byte_marks.append(at)
                at += len(encode(self.text[start : start + _BLOCK]))
        return self._byte_marks
