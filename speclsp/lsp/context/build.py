"""What the model should see: the text around the cursor, and above it what the window cut off and still bears on it.

    other files │ imports, headers of the scopes around, members beside ┆ window ... line above │ the line│cursor
     elsewhere.py     └─ only where the document is too long ─┘            └─ starts on a block boundary

A key typed must only append to the prompt, or the engine's KV cache is lost. So all but `line_prefix` follows from the
text *without* the current line: the window begins at multiples of a block, the syntax is that of the other lines, and
so do the pieces of other files. Sizes are estimates; the engine counts the tokens and trims.
"""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from speclsp.config import ContextConfig
from speclsp.lsp.context import cross_file
from speclsp.lsp.context.chunk import Chunk, ChunkPlace
from speclsp.lsp.context.selection import CHARACTERS_PER_TOKEN, Selection, Selections
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.documents.uri_paths import file_path
from speclsp.lsp.syntax import hidden_characters, lexical_rules
from speclsp.lsp.syntax.grammars import grammar
from speclsp.lsp.syntax.text_windows import line_end, line_start, normal_newlines
from speclsp.lsp.syntax.tree import Scope, SyntaxTree

_BLOCK_TOKENS = 256  # the window's start moves in steps of this
_PREAMBLE_SHARE = 4  # a quarter of the prefix budget may go to what the window cut off
_LINES_BELOW_SCOPE = 3
_LONGEST_ITEM = 240  # characters of one import statement or signature
_LONGEST_PATH = 160


@dataclass(frozen=True, slots=True)
class Context:
    """What the model sees, newlines as \\n. `prefix` is empty or ends with a newline; `line_prefix` has none."""

    prefix: str
    line_prefix: str
    suffix: str
    extra: tuple[Chunk, ...]
    path: str
    around: tuple[int, int] = (0, 0)  # characters of the document before the cursor and after it, shown or not
    left_out: tuple[str, ...] = ()  # for each other open document and each piece that is not shown: why


@dataclass(frozen=True, slots=True)
class Window:
    """What was chosen of a document too long to show, for one line in it."""

    around: tuple[int, int, ContextConfig]  # hashes of the text above the line and below it; the budget
    prefix: str
    below: str  # from the line's end


Windows = dict[str, Window]  # by URI: the last one


def build(
    snapshot: Snapshot,
    tree: SyntaxTree | None,
    config: ContextConfig,
    root: str | None = None,
    others: Sequence[Snapshot] = (),
    windows: Windows | None = None,
    *,
    shelves: Selections | None = None,
    sources: cross_file.CrossFileSources = cross_file.NOTHING_MORE,
) -> Context:
    """Choose what of a document, of `others` and of the workspace to show the model.

    `windows` remembers the choice: a busy machine leaves no time to parse at one key and some at the next, and that
    must not move the window while somebody types on a line. `shelves` does the same for what other files say, and
    keeps it for longer.

    For a document within the budget, `prefix + line_prefix` and `suffix` are all of the text before and after the
    cursor. `root` (a path or a file URI) makes `path` relative.
    """
    text, cursor = snapshot.text, snapshot.cursor
    raw_start = line_start(text, cursor)
    view = normal_newlines(text)
    if view is not text:
        cursor -= text.count("\r\n", 0, cursor)
    start, end = line_start(view, cursor), line_end(view, cursor)
    prefix_room = int(config.prefix_tokens * CHARACTERS_PER_TOKEN)
    suffix_room = int(config.suffix_tokens * CHARACTERS_PER_TOKEN)
    room = prefix_room + suffix_room
    line = view[start:cursor]
    path = path_in(snapshot.uri, root)
    around = hash(view[:start]), hash(view[end:]), config
    calm = _StableSyntax(text, tree, raw_start, config)
    chosen = windows.get(snapshot.uri) if windows is not None else None
    if len(view) - len(line) <= room and len(line) <= room:
        prefix, suffix = view[:start], view[cursor:]
    elif chosen is not None and chosen.around == around:
        prefix, suffix = chosen.prefix, view[cursor:end] + chosen.below
    else:
        prefix = view[:start]
        if start > prefix_room:
            low, room_above = _window(view, start, prefix_room)
            prefix = _preamble(calm, low, room_above) + view[low:start]
        suffix = _suffix(text, view, cursor, suffix_room, raw_start, calm.scopes)
        if windows is not None and len(suffix) > end - cursor:
            windows[snapshot.uri] = Window(around, prefix, suffix[end - cursor :])
    shelf = shelves.setdefault(snapshot.uri, Selection()) if shelves is not None else Selection()
    at = around, frozenset(other.uri for other in others)
    if shelf.place != at or any(map(sources.hides, shelf.chosen)):
        place = _place(snapshot, root, path, (view[:start], view[end:]), (prefix, suffix[end - cursor :]), calm)
        cross_file.fill(shelf, place, config, others, sources)
        shelf.place = at
    sides = cursor, len(view) - cursor
    return Context(prefix, _line_tail(line, room), suffix, shelf.chosen, path, sides, shelf.left_out)


class _StableSyntax:
    """The syntax of the document without the current line, made when it is asked for."""

    def __init__(self, text: str, tree: SyntaxTree | None, start: int, config: ContextConfig) -> None:
        self._text, self._given, self._start, self._budget_ms = text, tree, start, config.parse_budget_ms
        self.probe = _end_of_text_above(text, start)

    @functools.cached_property
    def tree(self) -> SyntaxTree | None:
        given, start = self._given, self._start
        if given is None or given.text != self._text:
            return None
        return given.parse_without(start, line_end(self._text, start), self._budget_ms)

    @functools.cached_property
    def scopes(self) -> list[Scope]:
        """Around the cursor, outermost first."""
        return self.tree.enclosing(self.probe) if self.tree is not None else []


def _place(
    snapshot: Snapshot, root: str | None, path: str, sides: tuple[str, str], shown: tuple[str, str], calm: _StableSyntax
) -> ChunkPlace:
    """What the sources of code from elsewhere are told. `sides` of the current line, and what is shown of them."""
    (above, below), (prefix, suffix) = sides, shown
    tree = calm.tree
    imports = tuple(normal_newlines(tree.text[low:high]) for low, high in tree.imports()) if tree is not None else ()
    headers = tuple(normal_newlines(scope.header) for scope in calm.scopes)
    language = grammar(snapshot.language) or snapshot.language
    cut_off = above[: len(above) - _shared_end(above, prefix)], below[len(suffix) :]
    return ChunkPlace(snapshot.uri, path, root, language, above, below, imports, headers, prefix + suffix, cut_off)


def _shared_end(one: str, other: str) -> int:
    """How many characters two texts have in common at their ends."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one.endswith(other[len(other) - middle :]) else (low, middle - 1)
    return low


def _end_of_text_above(text: str, start: int) -> int:
    """Where the last line before `start` that is not blank ends."""
    tail = text[max(0, start - 4096) : start]
    return start - len(tail) + len(tail.rstrip())


def _window(view: str, start: int, room: int) -> tuple[int, int]:
    """Where the window of lines above the current one begins, and the characters left for what is above that."""
    above = room // _PREAMBLE_SHARE
    block = max(min(int(_BLOCK_TOKENS * CHARACTERS_PER_TOKEN), (room - above) // 2), 1)
    low = -(-(start - room + above) // block) * block
    if view[low - 1] != "\n":
        low = view.find("\n", low, start) + 1 or low  # one line longer than the window is cut
    return low, above


def _preamble(calm: _StableSyntax, low: int, room: int) -> str:
    """Imports, headers and members' signatures above the window (which starts at `low`), in file order."""
    tree = calm.tree
    if tree is None:
        return ""
    text = tree.text  # the same as the document's above the current line
    kept: dict[int, tuple[str, str]] = {}  # start -> (kind, text)

    def keep(kind: str, start: int, piece: str) -> bool:
        nonlocal room
        fits = len(piece) + 1 <= room and len(piece) <= _LONGEST_ITEM
        if fits and start not in kept and piece.strip():
            kept[start] = kind, piece
            room -= len(piece) + 1
        return fits

    pairs = "\r\n" in text

    def above(start: int) -> bool:
        return start - (text.count("\r\n", 0, start) if pairs else 0) < low

    for scope in calm.scopes:
        if above(scope.start):
            keep("header", scope.start, normal_newlines(scope.header))
    half = room // 2
    for start, end in tree.imports():
        if above(start) and room > half:
            keep("import", start, normal_newlines(text[start:end]).rstrip())
    for scope in sorted(tree.siblings(calm.probe), key=lambda scope: -scope.start):
        if above(scope.start) and scope.start not in kept:
            signature = _signature(scope, tree.grammar)
            if signature and not keep("sibling", scope.start, signature):
                break
    pieces = []
    last = ""
    for _start, (kind, piece) in sorted(kept.items()):
        if last and (kind == "import") != (last == "import"):
            pieces.append("")
        pieces.append(piece)
        last = kind
    return "\n".join([*pieces, "", ""]) if pieces else ""


def _signature(scope: Scope, language: str) -> str:
    """A member's header on one line, with as much of a body as makes it look whole; "" where members say little."""
    stub = lexical_rules.rules_of(language).stub
    if stub is None:
        return ""
    header = normal_newlines(scope.header)
    line = header[: len(header) - len(header.lstrip())] + " ".join(header.split())
    if line.endswith(("{", ":")):
        return line[:-1].rstrip() + stub
    return line + stub if stub.endswith("end") and not line.endswith("end") else line


def _suffix(text: str, view: str, cursor: int, room: int, raw_start: int, scopes: list[Scope]) -> str:
    """The text after the cursor, to a line's end within `room`: a few lines below the innermost scope, if it ends."""
    if len(view) - cursor <= room:
        return view[cursor:]
    limit = cursor + room
    if scopes:  # their offsets lack the current line
        end = scopes[-1].end + (line_end(text, raw_start) - raw_start if scopes[-1].end > raw_start else 0)
        end -= text.count("\r\n", 0, end)
        if cursor < end < limit:
            for _ in range(_LINES_BELOW_SCOPE + 1):
                end = view.find("\n", end, limit) + 1 or limit
            limit = min(limit, end)
    cut = view.rfind("\n", cursor, limit) + 1
    return view[cursor : cut or limit]


def _line_tail(line: str, room: int) -> str:
    """The current line, or its end where it is too long (minified code), cut at steps that typing seldom crosses."""
    if len(line) <= room:
        return line
    block = max(room // 4, 1)
    return line[-(-(len(line) - room) // block) * block :]


def path_in(uri: str, root: str | None) -> str:
    """The document's path inside `root`, else its name alone: never a home directory."""
    path = file_path(uri)
    base = file_path(root).rstrip("/") if root else ""
    inside = path.removeprefix(base + "/") if base else path
    shown = posixpath.basename(path) if inside == path else inside
    shown = hidden_characters.visible(shown).replace("\n", " ").replace("\t", " ")
    while len(shown) > _LONGEST_PATH and "/" in shown:
        shown = shown.partition("/")[2]
    return shown[-_LONGEST_PATH:]
