"""Context of one completion: the text around the cursor, and above it the chunks of other files.

    other files │ imports, headers of the enclosing scopes, sibling members ┆ window ... line above │ the line│cursor
    cross_file.py     └──── only where the document is too long ────┘            └─ starts on a block boundary

A typed key must only append to the prompt, or the engine's KV cache is lost. So everything but `line_prefix` follows
from the text *without* the current line: the window begins at multiples of a block, and the syntax tree is that of the
other lines. The chunks of other files stay from line to line: cross_file.py. Sizes are estimates; the engine counts the
tokens and trims.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from speclsp.config import ContextConfig
from speclsp.lsp.context import cross_file, token_count
from speclsp.lsp.context.chunk import Chunk, ChunkPlace, path_in
from speclsp.lsp.context.selection import Selection, Selections
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.syntax import lexical_rules
from speclsp.lsp.syntax.grammars import grammar
from speclsp.lsp.syntax.text_windows import common_suffix, line_end, line_start, normal_newlines
from speclsp.lsp.syntax.tree import Scope, SyntaxTree

_BLOCK_TOKENS = 256  # the window's start moves in steps of this
_PREAMBLE_SHARE = 4  # a quarter of the prefix budget may go to code above the window
_LINES_BELOW_SCOPE = 3
_MAX_ITEM = 240  # characters of one import statement or signature
_MAX_WINDOWS = 8  # for the cursor's line, the new line below it and the one behind a prepared suggestion
REGION_LINES = 12  # the cursor is in another region if it moved by more lines since the last prompt


@dataclass(frozen=True, slots=True)
class Context:
    """Input of a prompt, newlines as \\n. `prefix` is empty or ends with a newline; `line_prefix` has none."""

    prefix: str
    line_prefix: str
    suffix: str
    extra: tuple[Chunk, ...]
    path: str


# The shown part of a document that is too long, above the current line and below it, for the last lines.
# By the URI, the hashes of the text above the line and below it, and the budget.
Windows = dict[tuple[str, int, int, ContextConfig], tuple[str, str]]


def build(
    snapshot: Snapshot,
    tree: SyntaxTree | None,
    config: ContextConfig,
    root: str | None = None,
    others: Sequence[Snapshot] = (),
    windows: Windows | None = None,
    *,
    selections: Selections | None = None,
    sources: cross_file.CrossFileSources = cross_file.NO_SOURCES,
    better: bool = False,
) -> Context:
    """Choose the parts of a document, of `others` and of the workspace to show the model.

    For a document within the budget, `prefix + line_prefix` and `suffix` are all of the text before and after the
    cursor. `root` (a path or a file URI) makes `path` relative.

    `windows` remembers the windows: a busy machine has time to parse at one key and none at the next, and that must not
    move the window while the user types on a line. `selections` does the same for the chunks of other files, and keeps
    them for longer. `better`: search for a better selection of chunks, and show it if there is one.
    """
    document = _SplitDocument.of(snapshot)
    syntax = _StableSyntax(snapshot.text, tree, document.raw_start, config)
    key = snapshot.uri, hash(document.above), hash(document.below), config
    if document.fits(config):
        prefix, suffix = document.above, document.text[document.cursor :]
    elif windows and key in windows:
        prefix, below = windows[key]
        suffix = document.line_suffix + below
    else:
        prefix, suffix = _cut_text(snapshot.text, document, syntax, config)
        if windows is not None and len(suffix) > len(document.line_suffix):
            if len(windows) >= _MAX_WINDOWS:
                del windows[next(iter(windows))]
            windows[key] = prefix, suffix[len(document.line_suffix) :]
    selection = selections.setdefault(snapshot.uri, Selection()) if selections is not None else Selection()
    path = path_in(snapshot.uri, root)
    basis = config, frozenset(other.uri for other in others)
    texts = cross_file.open_texts(path, document.text, (other for other in others if other.uri != snapshot.uri), root)
    allowed = [chunk for chunk in selection.chosen if sources.allow(chunk, texts)]
    if not all(sources.allow(chunk, texts) for chunk in selection.better):
        selection.better, selection.place = (), None
    line = document.above.count("\n")
    is_elsewhere = abs(line - selection.line) > REGION_LINES
    is_valid = selection.basis == basis and len(allowed) == len(selection.chosen) and not is_elsewhere
    if not is_valid or better:
        below = suffix[len(document.line_suffix) :]
        place = _place(snapshot, root, path, document, (prefix, below), syntax)
        if not is_valid:
            kept = () if is_elsewhere else allowed
            cross_file.select_anew(selection, place, config, others, sources, kept=kept, allowed=allowed)
        else:
            cross_file.look_for_better(selection, place, config, others, sources)
    selection.basis, selection.line = basis, line
    chunks = selection.better if better and selection.better else selection.chosen
    line_prefix = _line_tail(document.line_prefix, token_count.units(config.prefix_tokens + config.suffix_tokens))
    return Context(prefix, line_prefix, suffix, chunks, path)


@dataclass(frozen=True, slots=True)
class _SplitDocument:
    """A document split at the current line, newlines as \\n."""

    text: str
    cursor: int  # offset in `text`
    above: str  # before the current line
    line_prefix: str  # the current line before the cursor
    line_suffix: str  # the current line after the cursor
    below: str  # from the current line's end
    raw_start: int  # offset of the current line in the document's own text

    @classmethod
    def of(cls, snapshot: Snapshot) -> _SplitDocument:
        text, cursor = normal_newlines(snapshot.text), snapshot.cursor
        if text is not snapshot.text:
            cursor -= snapshot.text.count("\r\n", 0, cursor)
        start, end = line_start(text, cursor), line_end(text, cursor)
        raw_start = line_start(snapshot.text, snapshot.cursor)
        return cls(text, cursor, text[:start], text[start:cursor], text[cursor:end], text[end:], raw_start)

    def fits(self, config: ContextConfig) -> bool:
        """True if the whole document is within the budget."""
        room = token_count.units(config.prefix_tokens + config.suffix_tokens)
        others = self.above, self.line_suffix, self.below
        return token_count.fits(others, room) and token_count.fits([self.line_prefix], room)


class _StableSyntax:
    """Syntax of the document without the current line, parsed when it is first needed."""

    def __init__(self, text: str, tree: SyntaxTree | None, start: int, config: ContextConfig) -> None:
        self._text, self._full_tree, self._start, self._budget_ms = text, tree, start, config.parse_budget_ms
        self.probe = _end_of_text_above(text, start)

    @functools.cached_property
    def tree(self) -> SyntaxTree | None:
        """The tree, None without a grammar or in lack of time."""
        full, start = self._full_tree, self._start
        if full is None or full.text != self._text:
            return None
        return full.parse_without(start, line_end(self._text, start), self._budget_ms)

    @functools.cached_property
    def scopes(self) -> list[Scope]:
        """Scopes around the cursor, outermost first."""
        return self.tree.enclosing(self.probe) if self.tree is not None else []


def _cut_text(text: str, document: _SplitDocument, syntax: _StableSyntax, config: ContextConfig) -> tuple[str, str]:
    """(prefix without the current line, suffix from the cursor) within the budget. `text` has its own newlines."""
    prefix, start, room = document.above, len(document.above), token_count.units(config.prefix_tokens)
    if not token_count.fits([prefix], room):
        low, room_above = _window(document.text, start, room)
        prefix = _preamble(syntax, low, room_above) + document.text[low:start]
    return prefix, _suffix(text, document, token_count.units(config.suffix_tokens), syntax.scopes)


def _place(
    snapshot: Snapshot,
    root: str | None,
    path: str,
    document: _SplitDocument,
    shown: tuple[str, str],
    syntax: _StableSyntax,
) -> ChunkPlace:
    """Input of the cross-file sources. `shown` are the parts of the text above and below the line in the prompt."""
    prefix, below = shown
    tree = syntax.tree
    imports = tuple(normal_newlines(tree.text[low:high]) for low, high in tree.imports()) if tree is not None else ()
    headers = tuple(normal_newlines(scope.header) for scope in syntax.scopes)
    language = grammar(snapshot.language) or snapshot.language
    cut_off = (
        document.above[: len(document.above) - common_suffix(document.above, prefix)],
        document.below[len(below) :],
    )
    return ChunkPlace(
        snapshot.uri, path, root, language, document.above, document.below, imports, headers, prefix + below, cut_off
    )


def _end_of_text_above(text: str, start: int) -> int:
    """End of the last line before `start` that is not blank."""
    tail = text[max(0, start - 4096) : start]
    return start - len(tail) + len(tail.rstrip())


def _window(text: str, start: int, room: int) -> tuple[int, int]:
    """(start of the window of lines above the current one, units left for code above the window)."""
    above = room // _PREAMBLE_SHARE
    block = max(min(token_count.units(_BLOCK_TOKENS), (room - above) // 2), 1)
    size = token_count.size(text[:start])
    cut = -(-(size - room + above) // block) * block  # units before the window
    low = token_count.start_of_last(text, start, size - cut)
    if text[low - 1] != "\n":
        low = text.find("\n", low, start) + 1 or low  # a line longer than the window is cut
    return low, above


def _preamble(syntax: _StableSyntax, low: int, room: int) -> str:
    """Imports, headers and members' signatures above the window (which starts at `low`), in file order."""
    tree = syntax.tree
    if tree is None:
        return ""
    text = tree.text  # the same as the document's above the current line
    kept: dict[int, tuple[str, str]] = {}  # start -> (kind, text)

    def keep(kind: str, start: int, item: str) -> bool:
        nonlocal room
        size = token_count.size(item + "\n")
        fits = size <= room and len(item) <= _MAX_ITEM
        if fits and start not in kept and item.strip():
            kept[start] = kind, item
            room -= size
        return fits

    has_crlf = "\r\n" in text

    def is_above(start: int) -> bool:
        return start - (text.count("\r\n", 0, start) if has_crlf else 0) < low

    for scope in syntax.scopes:
        if is_above(scope.start):
            keep("header", scope.start, normal_newlines(scope.header))
    half = room // 2
    for start, end in tree.imports():
        if is_above(start) and room > half:
            keep("import", start, normal_newlines(text[start:end]).rstrip())
    for scope in sorted(tree.siblings(syntax.probe), key=lambda scope: -scope.start):
        if is_above(scope.start) and scope.start not in kept:
            signature = _signature(scope, tree.grammar)
            if signature and not keep("sibling", scope.start, signature):
                break
    return _join_items([kept[start] for start in sorted(kept)])


def _join_items(items: Sequence[tuple[str, str]]) -> str:
    """(kind, text) items as lines, with a blank line between imports and other items, and after the last."""
    lines = []
    last_kind = ""
    for kind, item in items:
        if last_kind and (kind == "import") != (last_kind == "import"):
            lines.append("")
        lines.append(item)
        last_kind = kind
    return "\n".join([*lines, "", ""]) if lines else ""


def _signature(scope: Scope, language: str) -> str:
    """A member's header on one line, with a stub of a body; "" in languages without stubs."""
    stub = lexical_rules.rules_of(language).stub
    if stub is None:
        return ""
    header = normal_newlines(scope.header)
    line = header[: len(header) - len(header.lstrip())] + " ".join(header.split())
    if line.endswith(("{", ":")):
        return line[:-1].rstrip() + stub
    return line + stub if stub.endswith("end") and not line.endswith("end") else line


def _suffix(text: str, document: _SplitDocument, room: int, scopes: Sequence[Scope]) -> str:
    """The text after the cursor, to a line's end within `room`: a few lines below the innermost scope, if it ends."""
    view, cursor = document.text, document.cursor
    limit = token_count.end_of_first(view, cursor, room)
    if limit == len(view):
        return view[cursor:]
    if scopes:  # their offsets lack the current line
        raw_start = document.raw_start
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
    size = token_count.size(line)
    if size <= room:
        return line
    block = max(room // 4, 1)
    cut = -(-(size - room) // block) * block  # units before it
    return line[token_count.start_of_last(line, len(line), size - cut) :]
