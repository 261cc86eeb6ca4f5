"""What the model should see: the text around the cursor, and above it what the window cut off and still bears on it.

    neighbours' code │ imports, headers of the scopes around, members beside ┆ window ... line above │ the line│cursor
                     └─ only where the document is too long ─┘               └─ starts on a block boundary

A key typed must only append to the prompt, or the engine's KV cache is lost. So all but `line_prefix` follows from the
text *without* the current line: the window begins at multiples of a block, the syntax is that of the other lines, and
neighbours are chosen by text a block or more above. Sizes are estimates; the engine counts the tokens and trims.
"""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from speclsp.config import ContextConfig
from speclsp.lsp import shape
from speclsp.lsp.document import Snapshot
from speclsp.lsp.excerpt import line_end, line_start, normal_newlines
from speclsp.lsp.languages import grammar
from speclsp.lsp.paths import file_path
from speclsp.lsp.syntax import Scope, Tree

CHARACTERS_PER_TOKEN = 3.2  # of code, with the tokenizers of 2024 and later
_BLOCK_TOKENS = 256  # the window's start moves in steps of this
_PREAMBLE_SHARE = 4  # a quarter of the prefix budget may go to what the window cut off
_LINES_BELOW_SCOPE = 3
_LONGEST_ITEM = 240  # characters of one import statement or signature
_LONGEST_PATH = 160
_NEIGHBOUR_TOKENS = 192
_NEIGHBOUR_LINES = 16
_NEIGHBOURS = 4  # documents looked at
_NEIGHBOUR_CHARACTERS = 60_000
_LEAST_LIKENESS = 0.15

# Why another open document is not shown.
OTHER_LANGUAGE = "another language"
TOO_MANY = f"beyond the {_NEIGHBOURS} used last"
UNLIKE = "too little like the code at the cursor"
NO_ROOM = "no room"
NOTHING_TO_COMPARE = "too little code above the cursor to compare with"


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of code worth showing the model, and how much."""

    path: str
    text: str
    score: float
    source: str  # "neighbour"


@dataclass(frozen=True, slots=True)
class Context:
    """What the model sees, newlines as \\n. `prefix` is empty or ends with a newline; `line_prefix` has none."""

    prefix: str
    line_prefix: str
    suffix: str
    extra: tuple[Chunk, ...]
    path: str
    around: tuple[int, int] = (0, 0)  # characters of the document before the cursor and after it, shown or not
    left_out: tuple[str, ...] = ()  # for each other document that is not shown: why


@dataclass(frozen=True, slots=True)
class Window:
    """What was chosen of a document too long to show, for one line in it."""

    around: tuple[int, int, ContextConfig]  # hashes of the text above the line and below it; the budget
    prefix: str
    below: str  # from the line's end


Windows = dict[str, Window]  # by URI: the last one


def build(
    snapshot: Snapshot,
    tree: Tree | None,
    config: ContextConfig,
    root: str | None = None,
    others: Sequence[Snapshot] = (),
    windows: Windows | None = None,
) -> Context:
    """Choose what of a document, and of `others`, to show the model.

    `windows` remembers the choice: a busy machine leaves no time to parse at one key and some at the next, and that
    must not move the window while somebody types on a line.

    For a document within the budget, `prefix + line_prefix` and `suffix` are all of the text before and after the
    cursor. `root` (a path or a file URI) makes `path` relative.
    """
    text, cursor = snapshot.text, snapshot.cursor
    raw_start = line_start(text, cursor)
    view = normal_newlines(text)
    if view is not text:
        cursor -= text.count("\r\n", 0, cursor)
    start = line_start(view, cursor)
    prefix_room = int(config.prefix_tokens * CHARACTERS_PER_TOKEN)
    suffix_room = int(config.suffix_tokens * CHARACTERS_PER_TOKEN)
    room = prefix_room + suffix_room
    line = view[start:cursor]
    path = path_in(snapshot.uri, root)
    extra, left_out = _neighbours(snapshot, view[:start], others, root) if others else ((), ())
    sides = cursor, len(view) - cursor
    if len(view) - len(line) <= room and len(line) <= room:
        prefix, suffix = view[:start], view[cursor:]
    else:
        end = line_end(view, cursor)
        around = hash(view[:start]), hash(view[end:]), config
        chosen = windows.get(snapshot.uri) if windows is not None else None
        if chosen is not None and chosen.around == around:
            below = view[cursor:end] + chosen.below
            return Context(chosen.prefix, _line_tail(line, room), below, extra, path, sides, left_out)
        calm = _calm(text, tree, raw_start, config)
        probe = _end_of_text_above(text, raw_start)
        scopes = calm.enclosing(probe) if calm is not None else []  # outermost first
        prefix = view[:start]
        if start > prefix_room:
            low, room_above = _window(view, start, prefix_room)
            above = _preamble(calm, probe, scopes, low, room_above) if calm is not None else ""
            prefix = above + view[low:start]
        suffix = _suffix(text, view, cursor, suffix_room, raw_start, scopes)
        if windows is not None and len(suffix) > end - cursor:
            windows[snapshot.uri] = Window(around, prefix, suffix[end - cursor :])
    return Context(prefix, _line_tail(line, room), suffix, extra, path, sides, left_out)


def _calm(text: str, tree: Tree | None, start: int, config: ContextConfig) -> Tree | None:
    """The syntax of the document without the current line."""
    if tree is None or tree.text != text:
        return None
    return tree.without(start, line_end(text, start), config.parse_budget_ms)


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


def _preamble(calm: Tree, probe: int, scopes: list[Scope], low: int, room: int) -> str:
    """Imports, headers and members' signatures above the window (which starts at `low`), in file order."""
    text = calm.text  # the same as the document's above the current line
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

    for scope in scopes:
        if above(scope.start):
            keep("header", scope.start, normal_newlines(scope.header))
    half = room // 2
    for start, end in calm.imports():
        if above(start) and room > half:
            keep("import", start, normal_newlines(text[start:end]).rstrip())
    for scope in sorted(calm.siblings(probe), key=lambda scope: -scope.start):
        if above(scope.start) and scope.start not in kept:
            signature = _signature(scope, calm.grammar)
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
    stub = shape.rules(language).stub
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


def _neighbours(
    snapshot: Snapshot, before: str, others: Iterable[Snapshot], root: str | None
) -> tuple[tuple[Chunk, ...], tuple[str, ...]]:
    """The pieces of other open documents in this language most like the code above the cursor; why the others not."""
    block = int(_BLOCK_TOKENS * CHARACTERS_PER_TOKEN)
    end = len(before) // block * block
    wanted = _words(before[max(0, end - 2 * block) : end])
    others = [other for other in others if other.uri != snapshot.uri]
    if not wanted:
        return (), (NOTHING_TO_COMPARE,) * len(others)
    language = grammar(snapshot.language) or snapshot.language
    found: list[Chunk] = []
    alike = [other for other in others if (grammar(other.language) or other.language) == language]
    left_out = [OTHER_LANGUAGE] * (len(others) - len(alike)) + [TOO_MANY] * max(0, len(alike) - _NEIGHBOURS)
    for other in alike[:_NEIGHBOURS]:
        best = 0.0
        best_piece = ""
        for words, piece in _pieces(other.text[:_NEIGHBOUR_CHARACTERS]):
            score = len(words & wanted) / (len(words | wanted) or 1)
            if score > best:
                best, best_piece = score, piece
        if best >= _LEAST_LIKENESS:
            found.append(Chunk(path_in(other.uri, root), best_piece, round(best, 4), "neighbour"))
        else:
            left_out.append(UNLIKE)
    found.sort(key=lambda chunk: (-chunk.score, chunk.path))
    room = int(_NEIGHBOUR_TOKENS * CHARACTERS_PER_TOKEN)
    kept = []
    for chunk in found:
        if len(chunk.text) <= room:
            kept.append(chunk)
            room -= len(chunk.text)
    left_out += [NO_ROOM] * (len(found) - len(kept))
    return tuple(kept), tuple(left_out)


@functools.lru_cache(maxsize=8)
def _pieces(text: str) -> list[tuple[frozenset[str], str]]:
    """A document in overlapping pieces of some lines, each with its words; nothing invisible is left in them."""
    lines = shape.visible(normal_newlines(text)).split("\n")
    found = []
    for start in range(0, len(lines), _NEIGHBOUR_LINES // 2):
        piece = "\n".join(lines[start : start + _NEIGHBOUR_LINES]).strip("\n") + "\n"
        found.append((_words(piece), piece))
    return found


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text)) - _SAYS_LITTLE


def path_in(uri: str, root: str | None) -> str:
    """The document's path inside `root`, else its name alone: never a home directory."""
    path = file_path(uri)
    base = file_path(root).rstrip("/") if root else ""
    inside = path.removeprefix(base + "/") if base else path
    shown = posixpath.basename(path) if inside == path else inside
    shown = shape.visible(shown).replace("\n", " ").replace("\t", " ")
    while len(shown) > _LONGEST_PATH and "/" in shown:
        shown = shown.partition("/")[2]
    return shown[-_LONGEST_PATH:]


_KEYWORDS = """
and async await break case class const continue def else end export False false for from func function if import int
let new nil None none not null public return self static string struct this True true type use var void while with
"""
_SAYS_LITTLE = frozenset(_KEYWORDS.split())
_WORD = re.compile(r"[^\W\d]\w{2,}")
