"""Maps offsets between a document, the parsed part of it (the view), and the UTF-8 bytes of that view."""

from __future__ import annotations

from bisect import bisect_right

from speclsp.lsp.syntax.incremental_parse import encode

_BLOCK_CHARACTERS = 512


class OffsetMap:
    """The view of a document: the pieces of it that were parsed, joined, with offsets in code points and in bytes."""

    __slots__ = ("_byte_marks", "_is_ascii", "_starts", "pieces", "text")

    def __init__(self, text: str, is_ascii: bool, pieces: list[tuple[int, int]]) -> None:
        """`text`: the view, all pieces joined. `pieces`: [start, end) of each in the document."""
        self.text = text
        self.pieces = pieces
        self._is_ascii = is_ascii
        self._starts = [0]  # of each piece in the view
        for start, end in pieces:
            self._starts.append(self._starts[-1] + end - start)
        self._byte_marks: list[int] = []

    def to_view(self, offset: int) -> int:
        """Document offset -> offset in the view."""
        for (start, end), piece_start in zip(self.pieces, self._starts, strict=False):
            if offset <= end:
                return piece_start + max(offset - start, 0)
        return len(self.text)

    def to_byte(self, position: int) -> int:
        """Offset in the view -> byte of the view."""
        if self._is_ascii:
            return position
        block = position // _BLOCK_CHARACTERS
        return self._marks()[block] + len(encode(self.text[block * _BLOCK_CHARACTERS : position]))

    def to_document(self, byte: int, end: bool = False) -> int:
        """Byte of the view -> document offset; `end`: the byte is the end of a range."""
        position = self.from_byte(byte)
        piece = max(bisect_right(self._starts, position - (1 if end and position else 0)) - 1, 0)
        piece = min(piece, len(self.pieces) - 1)
        return self.pieces[piece][0] + position - self._starts[piece]

    def byte_of(self, offset: int) -> int:
        """The byte of the view at an offset of the document."""
        return self.to_byte(self.to_view(offset))

    def from_byte(self, byte: int) -> int:
        """Byte of the view -> offset in the view."""
        if self._is_ascii:
            return byte
        block = bisect_right(self._marks(), byte) - 1
        rest = encode(self.text[block * _BLOCK_CHARACTERS : (block + 1) * _BLOCK_CHARACTERS])
        return block * _BLOCK_CHARACTERS + len(rest[: byte - self._marks()[block]].decode("utf-8", "ignore"))

    def _marks(self) -> list[int]:
        """The first byte of each block of characters, so that an offset is found without encoding the whole view."""
        if not self._byte_marks:
            byte = 0
            for start in range(0, len(self.text) + 1, _BLOCK_CHARACTERS):
                self._byte_marks.append(byte)
                byte += len(encode(self.text[start : start + _BLOCK_CHARACTERS]))
        return self._byte_marks
