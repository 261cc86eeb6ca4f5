"""Queries on a syntax tree: comment or code at an offset, enclosing scopes, imports, siblings, errors.

All offsets in this interface are code points of the document, as in Snapshot; tree-sitter's byte offsets stay inside.
Trees of hostile text are deep (50,000 nested parentheses). So nothing here recurses, follows `.parent` or prints a
node: tree-sitter's own query cursor, which is iterative, runs on bounded ranges of bytes and depth.
"""

from __future__ import annotations

import functools
import importlib
import re
from bisect import bisect_right
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from importlib import resources
from itertools import islice
from typing import Protocol

import tree_sitter

from speclsp.lsp.syntax import incremental_parse, text_windows
from speclsp.lsp.syntax.grammars import GRAMMARS
from speclsp.lsp.syntax.languages import BY_NAME
from speclsp.lsp.syntax.offset_map import OffsetMap

_COUNT_BUDGET_MS = 5.0
_MAX_DEPTH = 400  # levels of the tree that are searched: a query takes seconds 10,000 levels down
_HEADER_CHARACTERS = 400
_MAX_SIBLINGS = 64
_SIBLING_CHARACTERS = (2_000, 40_000)  # search range on either side of the cursor; the second if the first finds few
_MAX_MEMBERS = 2_000  # members that are examined: a minified style sheet has 20,000
_MAX_NAME = 200
_IMPORT_BYTES = 32_000  # search range for imports, from the start of the file
_WORD = re.compile(r"[\w$@#:.~-]+")
_LINE_BREAK = re.compile(r"\r\n|\r|\n")
Captures = dict[str, list[tree_sitter.Node]]


@dataclass(frozen=True, slots=True)
class Scope:
    """A class, function or section around or near the cursor. `header` is its first line(s), up to the body."""

    header: str  # as in the document, from the start of its line, without the newline after it
    start: int  # of the header's line
    end: int  # of the whole definition
    kind: str  # "class" | "function"
    name: str  # "" when it has none


@dataclass(slots=True)
class Facts:
    """The matches of a section at a node: by the names that capture exactly it, and by larger nodes around it."""

    exact: dict[str, list[Captures]] = field(default_factory=dict)
    around: list[tuple[int, int, str, tree_sitter.Node, Captures]] = field(default_factory=list)  # (size, -names, …)

    def innermost(self, *names: str) -> tuple[str, tree_sitter.Node | None, Captures]:
        """(name, node, match) of the smallest node around that one of the names captures, with most captures."""
        return next(((name, node, match) for _, _, name, node, match in self.around if name in names), ("", None, {}))


class Reparser(Protocol):
    """The parser of a tree, for trees of parts of the document and of edited versions."""

    def parse_near(self, tree: SyntaxTree, offset: int, size: int, budget_ms: float) -> SyntaxTree | None: ...
    def parse_without(self, tree: SyntaxTree, start: int, end: int, budget_ms: float) -> SyntaxTree | None: ...
    def count_errors_with(self, tree: SyntaxTree, start: int, end: int, text: str, budget_ms: float) -> int | None: ...


@dataclass(slots=True, eq=False, repr=False)
class SyntaxTree:
    """The syntax of one document, or of the part of it around the cursor. Offsets are the document's."""

    _parser: Reparser
    grammar: str
    text: str
    view: OffsetMap  # the part of `text` that was parsed
    raw: tree_sitter.Tree
    head: SyntaxTree | None = None  # of the file's first lines, if this tree begins further down
    _errors: int | None = None  # once they were counted

    def kind_at(self, offset: int) -> str:
        """The kind of text that typing at `offset` would extend: "code", "comment" or "string"."""
        position = self.view.to_view(offset)
        byte = self.view.to_byte(position)
        kind, size = "code", len(self.view.text) * 4 + 1
        for captures in self.matches("text", max(byte - 1, 0), byte + 1):
            for name, nodes in captures.items():
                for node in nodes:
                    is_inside = node.start_byte < byte < node.end_byte
                    if name == "comment" and node.end_byte == byte > node.start_byte:
                        is_inside = self._ends_open(node)
                    if is_inside and node.end_byte - node.start_byte < size:
                        kind, size = name, node.end_byte - node.start_byte
        return kind

    def is_type(self, offset: int) -> bool:
        """True if the character at `offset` belongs to a type: of an annotation, or of a declaration."""
        byte = self.view.byte_of(offset)
        return any(
            node.start_byte <= byte < node.end_byte
            for captures in self.matches("types", byte, byte + 1)
            for node in captures["type"]
        )

    def enclosing(self, offset: int) -> list[Scope]:
        """The scopes around `offset`, outermost first.

        In a language with blocks by indentation, a scope reaches to where text after its last line would still belong
        to it. For a blank line, pass the end of the text above.
        """
        byte = self.view.byte_of(offset)
        past_end = 1 if BY_NAME[self.grammar].by_indentation else 0
        scopes: dict[int, Scope] = {}
        for captures in self.matches("scopes", max(byte - 1, 0), byte + 1):
            scope, body, start, end = self._scope(captures)
            if start < byte < end + past_end:
                scopes.setdefault(body, scope)  # the first pattern of a body is the one with a name
        return sorted(scopes.values(), key=lambda scope: (scope.start, -scope.end))

    def imports(self) -> list[tuple[int, int]]:
        """Ranges of the file's top-level imports, includes and package lines, in file order."""
        if self.head is not None:
            return self.head.imports()
        ranges = set()
        for captures in self.matches("imports", 0, _IMPORT_BYTES, depth=4):
            for node in captures["import"]:
                if node.start_point.column == 0:
                    ranges.add(self._range(node))
        return sorted(ranges)

    def siblings(self, offset: int) -> list[Scope]:
        """Members of the innermost class around `offset`, or of the file, except those around `offset`."""
        classes = [scope for scope in self.enclosing(offset) if scope.kind == "class"]
        start, end = (classes[-1].start, classes[-1].end) if classes else (0, len(self.text))
        members = list[Scope]()
        for reach in _SIBLING_CHARACTERS:
            low = self.view.byte_of(max(start, offset - reach))
            high = self.view.byte_of(min(end, offset + reach))
            scopes = (self._scope(captures)[0] for captures in self.matches("scopes", low, high))
            inside = (scope for scope in scopes if scope.end <= end and (not classes or scope.start > start))
            members = [scope for scope in islice(inside, _MAX_MEMBERS) if scope.name]
            if len(members) >= 2 * _MAX_SIBLINGS:
                break
        members.sort(key=lambda scope: (scope.start, -scope.end))
        siblings: list[Scope] = []
        last_end = -1
        for scope in members:
            if scope.start >= last_end:  # not nested in the member before
                last_end = scope.end
                if not scope.start <= offset <= scope.end:
                    siblings.append(scope)
        middle = bisect_right([scope.start for scope in siblings], offset)
        return siblings[max(0, middle - _MAX_SIBLINGS) : middle + _MAX_SIBLINGS]

    def count_errors(self) -> int:
        """The number of places that the grammar cannot parse; 1 if they are too many to count within the budget.

        0 for a language with dialects that the grammar lacks.
        """
        if BY_NAME[self.grammar].has_dialects:
            return 0
        if self._errors is None:
            deadline_s = incremental_parse.parse_clock_s() + _COUNT_BUDGET_MS / 1000
            self._errors = incremental_parse.count_errors(self.raw, deadline_s)
        return 1 if self._errors is None else self._errors

    def count_errors_with(self, start: int, end: int, text: str, budget_ms: float) -> int | None:
        """The number with `text` in place of `[start, end)`; None if the budget ran out, or was spent before."""
        if budget_ms <= 0:
            return None
        if BY_NAME[self.grammar].has_dialects:
            return 0
        return self._parser.count_errors_with(self, start, end, text, budget_ms)

    def parse_near(self, offset: int, size: int, budget_ms: float) -> SyntaxTree | None:
        """The tree of about `size` characters of the document, around `offset`; None if the budget ran out."""
        return self._parser.parse_near(self, offset, size, budget_ms) if budget_ms > 0 else None

    def parse_without(self, start: int, end: int, budget_ms: float) -> SyntaxTree | None:
        """The tree of the document without `[start, end)`; offsets after it are smaller by its length.

        The line being typed is incomplete most of the time, and its errors change with every keystroke. Without that
        line the tree stays the same from keystroke to keystroke, and is parsed only once.
        """
        return self._parser.parse_without(self, start, end, budget_ms)

    def view_without(self, start: int, end: int) -> tuple[str, tuple[int, ...]]:
        """The view without `[start, end)`, and the start of each of its pieces: equal results mean equal trees."""
        low, high = self.view.to_view(start), self.view.to_view(end)
        return self.view.text[:low] + self.view.text[high:], tuple(piece[0] for piece in self.view.pieces)

    def has_section(self, section: str) -> bool:
        """True if the queries of the tree's language have a section."""
        return load_query(self.grammar, section) is not None

    def matches(self, section: str, low: int, high: int, depth: int = _MAX_DEPTH) -> Iterator[Captures]:
        """The matches of a section of queries/*.scm in the bytes `[low, high)` of the view."""
        query = load_query(self.grammar, section)
        if query is None:
            return
        cursor = tree_sitter.QueryCursor(query, match_limit=4096)
        cursor.set_byte_range(low, high)
        cursor.set_max_start_depth(depth)
        # No progress callback here: with one, py-tree-sitter 0.26.1 crashes the process. The byte range is the bound.
        for _pattern, captures in cursor.matches(self.raw.root_node):
            yield captures

    def facts(self, section: str, low: int, high: int, names: Container[str]) -> Facts:
        """The matches of a section at the bytes `[low, high)`, and those with the names around them."""
        facts = Facts()
        for captures in self.matches(section, low, high):
            for name, nodes in captures.items():
                for node in nodes:
                    start, end = node.start_byte, node.end_byte
                    if start == low and end == high:
                        facts.exact.setdefault(name, []).append(captures)
                    elif name in names and start <= low and high <= end:
                        facts.around.append((end - start, -len(captures), name, node, captures))
        facts.around.sort(key=lambda level: level[:2])
        return facts

    def _scope(self, captures: Captures) -> tuple[Scope, int, int, int]:
        """(scope, first byte of its body, first and last byte of the whole)."""
        kind = "class" if "class" in captures else "function"
        node = captures[kind][0]
        body = captures["body"][0] if captures.get("body") else None
        first, end = self._range(node)
        start = text_windows.line_start(self.text, first)
        name = self._scope_name(captures["name"][0]) if captures.get("name") else ""
        scope = Scope(self._header(node, body)[:_HEADER_CHARACTERS], start, end, kind, name)
        return scope, body.start_byte if body is not None else node.start_byte, node.start_byte, node.end_byte

    def _header(self, node: tree_sitter.Node, body: tree_sitter.Node | None) -> str:
        """The first line(s) of a scope, up to its body, and the bracket that opens the body."""
        position = self.view.from_byte(node.start_byte)  # in the view: there a window's class line is not at its body
        line = text_windows.line_start(self.view.text, position)
        longest = line + _HEADER_CHARACTERS
        if body is None:
            ends = min(self.view.from_byte(node.end_byte), longest)
            return _LINE_BREAK.split(self.view.text[line:ends], maxsplit=1)[0]
        head_end = self.view.from_byte(body.end_byte if BY_NAME[self.grammar].header_is_body else body.start_byte)
        if self.view.text[head_end : head_end + 1] in ("{", "(", "["):
            head_end += 1
        lines = _LINE_BREAK.split(self.view.text[line : min(head_end, longest)].rstrip())
        while len(lines) > 1 and lines[-1].lstrip().startswith("#"):  # a comment before Python's first statement
            lines.pop()
        return "\n".join(lines)

    def _scope_name(self, node: tree_sitter.Node) -> str:
        """The last word of a name node, before any parameters."""
        words = _WORD.findall(re.split(r"[(<]", self.node_text(node))[0])
        return words[-1] if words else ""

    def node_text(self, node: tree_sitter.Node) -> str:
        """The text of a node, truncated."""
        low = self.view.from_byte(node.start_byte)
        return self.view.text[low : min(self.view.from_byte(node.end_byte), low + _MAX_NAME)]

    def _ends_open(self, node: tree_sitter.Node) -> bool:
        """True if text typed right after this comment belongs to it."""
        low, high = self._range(node)
        comment = self.text[max(low, high - 3) : high]
        return not comment.endswith(("*/", "-->", "]]", "=end", "\n"))

    def _range(self, node: tree_sitter.Node) -> tuple[int, int]:
        return self.view.to_document(node.start_byte), self.view.to_document(node.end_byte, end=True)


@functools.cache
def load_grammar(name: str) -> tree_sitter.Language:
    module, function = GRAMMARS[name]
    pointer: Callable[[], object] = getattr(importlib.import_module(module), function)
    return tree_sitter.Language(pointer())


@functools.cache  # compiling the queries of C# and C++ takes 20 ms, and a section `locals` up to 250
def load_query(name: str, section: str) -> tree_sitter.Query | None:
    """A section of a grammar's queries/*.scm file, if it has that section."""
    source = query_sections(name).get(section)
    return tree_sitter.Query(load_grammar(name), source) if source is not None else None


def query_sections(name: str) -> dict[str, str]:
    """The sections of queries/NAME.scm by their names, each after that of the file named by `; inherits: OTHER`."""
    source = (resources.files("speclsp.lsp.syntax") / "queries" / f"{name}.scm").read_text("utf-8")
    head, *parts = re.split(r"(?m)^;; (\w+)$", source)
    parent = re.search(r"(?m)^; inherits: (\w+)$", head)
    sections = query_sections(parent[1]) if parent else {}
    for section, text in zip(parts[::2], parts[1::2], strict=True):
        sections[section] = sections.get(section, "") + text
    return sections
