"""Text store of the open documents, edited in place, with positions in the units that the editor uses.

Lines end with \\n, \\r\\n or \\r only (str.splitlines breaks at form feeds and U+2028 too). A document is a list of its
lines, ends included, so a keystroke in a 10 MB file changes one line. Offsets are code points; columns come in UTF-8,
UTF-16 or UTF-32 units. Text may hold lone surrogates; two that meet become one character, as they do in the editor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from speclsp.lsp.syntax.text_windows import common_ends

NOT_LINE_ENDS = "\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # str.splitlines breaks at these; editors do not
LINE = re.compile(r"[^\r\n]+(?:\r\n?|\n)?|\r\n?|\n")
PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")  # two lone surrogates that encode one character
ASTRAL = re.compile("[\U00010000-\U0010ffff]")  # two UTF-16 units each
SAMPLED_CHARACTERS = 65_536  # read by `newline`

Place = tuple[int, int]  # line, column in the client's units
Edit = tuple[Place | None, Place | None, str]  # start and end, None for the full text; the new text
Follow = Callable[["Document", int, Sequence[str], int], None]  # first line, removed lines, number of inserted lines


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A document at one version, with the cursor as a code-point offset."""

    uri: str
    language: str
    version: int
    text: str
    cursor: int


class Document:
    """One open document. Positions are LSP's `{"line": int, "character": int}`, both counted from 0."""

    def __init__(self, uri: str, language: str, version: int, text: str) -> None:
        self.uri = uri
        self.language = language
        self.version = version
        self._text: str | None = _paired(text)  # the lines joined, until the next edit
        self.characters = len(self._text)
        self._lines: list[str] | None = None  # split at the first use of a position: some clients send full texts only
        self.follow: Follow | None = None  # called after each edit
        self.lines_at_once = 0  # at which the changes of the last didChange begin
        self._near = (0, 0)  # a line and its start offset: edits stay near it, so 10 MB of lines are not summed up

    @property
    def text(self) -> str:
        """The full text with its own newlines."""
        if self._text is None:
            self._text = "".join(self._split())
        return self._text

    def apply(self, changes: Sequence[Mapping[str, object]], encoding: str) -> None:
        """Apply the contentChanges of one didChange in order, all of them or (ValueError) none."""
        parsed = [_parse_change(change) for change in changes]
        self.lines_at_once = len({start[0] for start, _, _ in parsed if start is not None})
        for start, end, text in parsed:
            if start is None or end is None:
                before = self.text if self.follow is not None else ""
                self._text, self._lines, self._near = _paired(text), None, (0, 0)
                self.characters = len(self._text)
                self._notify_follower(before, self._text)
            else:
                self._replace(*self._locate(start, encoding), *self._locate(end, encoding), _paired(text))

    def snapshot_at(self, offset: int) -> Snapshot:
        """The document as it is now, with the cursor at a code-point offset."""
        return Snapshot(self.uri, self.language, self.version, self.text, offset)

    def offset(self, position: Mapping[str, object], encoding: str) -> int:
        """The code-point offset of a position, clamped to the end of its line, or of the text past the last line."""
        return self.locate(position, encoding)[1]

    def locate(self, position: Mapping[str, object], encoding: str) -> tuple[int, int]:
        """The line and the code-point offset of a position, both clamped into the text."""
        line, index = self._locate(_parse_position(position), encoding)
        return line, self._start_of(line) + index

    def position(self, offset: int, encoding: str) -> dict[str, int]:
        """The position of a code-point offset. An offset between \\r and \\n counts as before both."""
        line, start = self._line_at(offset)
        content = self._split()[line].rstrip("\r\n")
        return {"line": line, "character": column_units(content[: max(0, offset - start)], encoding)}

    def piece(self, start: int, end: int) -> str:
        """The text between two offsets, without joining all the lines."""
        lines = self._split()
        line, begins = self._line_at(start)
        parts, length = [], begins - start
        while line < len(lines) and length < end - start:
            parts.append(lines[line])
            length += len(lines[line])
            line += 1
        return "".join(parts)[start - begins : end - begins]

    def lines(self, first: int, end: int) -> list[str]:
        """The lines from `first` to before `end`, with their ends."""
        return self._split()[max(0, first) : max(0, end)]

    def _line_at(self, offset: int) -> Place:
        """The line an offset lies in, and the offset it starts at."""
        lines = self._split()
        line, start = self._near
        while line + 1 < len(lines) and offset >= start + len(lines[line]):
            start += len(lines[line])
            line += 1
        while line > 0 and offset < start:
            line -= 1
            start -= len(lines[line])
        self._near = line, start
        return line, start

    def _split(self) -> list[str]:
        if self._lines is None:
            self._lines = split_lines(self._text or "")
        return self._lines

    def _locate(self, place: Place, encoding: str) -> tuple[int, int]:
        """(line, column in units) -> (line, index in code points), clamped into the text."""
        lines = self._split()
        line, column = place
        if line >= len(lines):
            return len(lines) - 1, len(lines[-1])
        return line, _index(lines[line].rstrip("\r\n"), column, encoding)

    def _start_of(self, line: int) -> int:
        lines = self._split()
        near, start = self._near
        if line >= near:
            start += sum(map(len, lines[near:line]))
        elif line > near // 2:
            start -= sum(map(len, lines[line:near]))
        else:
            start = sum(map(len, lines[:line]))
        self._near = line, start
        return start

    def _replace(self, first: int, head: int, last: int, tail: int, text: str) -> None:
        """Replace everything from index `head` of line `first` to index `tail` of line `last` by `text`."""
        if (first, head) > (last, tail):
            first, head, last, tail = last, tail, first, head
        lines = self._split()
        merged = _glue(_glue(lines[first][:head], text), lines[last][tail:])
        if first and merged[:1] == "\n" and lines[first - 1][-1] == "\r":  # the two form one line end
            first -= 1
            merged = lines[first] + merged
        self._start_of(first)  # leaves `_near` at a line whose start the edit does not move
        parts = split_lines(merged)
        if last + 1 < len(lines):
            parts.pop()  # the "" after the newline: here the next line follows
        removed_lines = lines[first : last + 1]
        self.characters += sum(map(len, parts)) - sum(map(len, removed_lines))
        lines[first : last + 1] = parts
        self._text = None
        if self.follow is not None:
            self.follow(self, first, removed_lines, len(parts))

    def _notify_follower(self, old: str, new: str) -> None:
        """Report the lines that differ after the full text was replaced."""
        if self.follow is None or old == new:
            return
        head, tail = common_ends(old, new)
        start = old.rfind("\n", 0, head) + 1
        ends = (text.find("\n", len(text) - tail) + 1 or None for text in (old, new))
        removed, inserted = (split_lines(text[start:end]) for text, end in zip((old, new), ends, strict=True))
        if "\n" in new[len(new) - tail :]:  # the "" after the newline: here the next line follows
            removed, inserted = removed[:-1], inserted[:-1]
        self.follow(self, old.count("\n", 0, start), removed, len(inserted))


@dataclass(frozen=True, slots=True)
class CursorContext:
    """A cursor in an open document, and the text around it at one version."""

    document: Document
    snapshot: Snapshot  # in a notebook it begins with the cells above, so its cursor is not the document's
    line: int  # of the document
    before: int  # characters of the snapshot that belong to the cells above


class Documents:
    """The open documents by URI, as exact strings. `DocumentSync.unify_spelling` replaces other spellings of a URI."""

    def __init__(self) -> None:
        self._follow: Follow | None = None  # called for edits in every document
        self._by_uri: dict[str, Document] = {}

    def __iter__(self) -> Iterator[Document]:
        return iter(list(self._by_uri.values()))

    def get(self, uri: str) -> Document | None:
        """The document, or None when it is not open. Nothing is ever read from disk."""
        return self._by_uri.get(uri)

    def open(self, uri: str, language: str, version: int, text: str) -> Document:
        """Open a document, or open it again with another text."""
        document = self._by_uri[uri] = Document(uri, language, version, text)
        document.follow = self._follow
        return document

    def move_to_end(self, uri: str) -> None:
        """Make an open document the last one of the order, in which they are used."""
        self._by_uri[uri] = self._by_uri.pop(uri)

    def follow_edits(self, follow: Follow | None) -> None:
        """Call `follow` for every edit, in documents that are open and in those opened later; None stops it."""
        self._follow = follow
        for document in self._by_uri.values():
            document.follow = follow

    def change(self, uri: str, version: int | None, changes: Sequence[Mapping[str, object]], encoding: str) -> bool:
        """Apply edits; False when the document is not open, ValueError when they are malformed."""
        document = self._by_uri.get(uri)
        if document is None:
            return False
        document.apply(changes, encoding)
        document.version = document.version + 1 if version is None else version
        return True

    def close(self, uri: str) -> bool:
        """Forget a document; False when it was not open."""
        return self._by_uri.pop(uri, None) is not None


def newline(text: str) -> str:
    """The most frequent line end near the start of a text; \\n if there is none."""
    sample = text[:SAMPLED_CHARACTERS]
    crlf = sample.count("\r\n")
    counts = {"\n": sample.count("\n") - crlf, "\r\n": crlf, "\r": sample.count("\r") - crlf}
    return max(counts, key=lambda end: counts[end])


def _parse_position(position: object) -> Place:
    if isinstance(position, Mapping):
        line, column = position.get("line"), position.get("character")
        if type(line) is int and type(column) is int and line >= 0 and column >= 0:
            return line, column
    raise ValueError("a position needs a line and a character, both integers from 0")


def _parse_change(change: object) -> Edit:
    if not isinstance(change, Mapping) or not isinstance(text := change.get("text"), str):
        raise ValueError("a content change needs a text")
    span = change.get("range")
    if span is None:
        return None, None, text
    if not isinstance(span, Mapping):
        raise ValueError("the range of a content change needs a start and an end")
    return _parse_position(span.get("start")), _parse_position(span.get("end")), text


def split_lines(text: str) -> list[str]:
    """Lines with their ends; the last one has none, so there is always a last one ("" after a final newline)."""
    if any(character in text for character in NOT_LINE_ENDS):
        lines: list[str] = LINE.findall(text)
    else:
        lines = text.splitlines(keepends=True)  # 5 times as fast
    if not lines or lines[-1][-1] in "\r\n":
        lines.append("")
    return lines


def _paired(text: str) -> str:
    """The text with each surrogate pair replaced by the character it encodes."""
    if text.isascii() or PAIR.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _glue(left: str, right: str) -> str:
    if "\ud800" <= left[-1:] <= "\udbff" and "\udc00" <= right[:1] <= "\udfff":
        return left[:-1] + _paired(left[-1] + right[0]) + right[1:]
    return left + right


def column_units(text: str, encoding: str) -> int:
    """Number of units that a text takes in a position encoding."""
    if encoding == "utf-32" or text.isascii():
        return len(text)
    if encoding == "utf-8":
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text) + len(ASTRAL.findall(text))


def _index(content: str, column: int, encoding: str) -> int:
    """The code-point index of a column; inside a character counts as before it, past the end as the end."""
    if encoding == "utf-32" or content.isascii():
        return min(column, len(content))
    head = content[:column]  # a character takes one unit or more, so the answer is in here
    if encoding == "utf-16" and ASTRAL.search(head) is None:
        return len(head)  # encoding lone surrogates takes 300 ns each
    if encoding == "utf-8":
        data = head.encode("utf-8", "surrogatepass")
        while column < len(data) and data[column] & 0xC0 == 0x80:
            column -= 1
        return len(data[:column].decode("utf-8", "surrogatepass"))
    data = head.encode("utf-16-le", "surrogatepass")
    inside = data[2 * column + 1 : 2 * column + 2]  # the high byte of the unit at the column
    if inside and 0xDC <= inside[0] <= 0xDF and 0xD8 <= data[2 * column - 1] <= 0xDB:
        column -= 1
    return len(data[: 2 * column].decode("utf-16-le", "surrogatepass"))
