"""What the text around the cursor is: comment or code, inside which functions, beside which others.

The only door to tree_sitter. A parse starts from the last tree of that language when little has changed (a key takes
0.3 ms where the whole file takes 8), and has a time budget. What does not fit is looked at through a window around
the cursor, and what does not fit even then is None: completion goes on with plain text.

Outwards every position is an offset in code points, as in Snapshot; tree-sitter's byte offsets stay inside. Trees of
hostile text are deep (50,000 nested parentheses), so nothing here recurses, walks `.parent` or prints a node: it asks
tree-sitter's own query cursor, which is iterative, about bounded ranges of bytes and depth.
"""

from __future__ import annotations

import functools
import importlib
import re
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from itertools import islice
from time import perf_counter

import tree_sitter

from speclsp.lsp.syntax import incremental_parse, text_windows
from speclsp.lsp.syntax.grammars import GRAMMARS, grammar
from speclsp.lsp.syntax.incremental_parse import encode
from speclsp.lsp.syntax.offset_map import OffsetMap

_BY_INDENTATION = frozenset({"python", "yaml"})  # a blank line below a block still belongs to it

# tree-sitter-bash 0.25 asks C's isalpha() about any character, a look-up past the end of a table: an emoji may end the
# process. It is given letters in their place, as many bytes long.
_ASCII_ONLY = frozenset({"bash"})
_AS_LETTERS = bytes(range(128)) + b"x" * 128
_LARGEST_CHARS = 32_000_000  # above this not even a window is looked at
_FIRST_RATE = 5_000  # characters per ms, until parses of that language were timed (2,000 hostile .. 15,000 usual)
_SLOWEST_RATE, _FASTEST_RATE = 500, 40_000
_COUNT_BUDGET_MS = 5.0
_DEEPEST = 400  # levels of the tree that are looked at: a query takes seconds 10,000 levels down
_HEADER_CHARS = 400
_MOST_SIBLINGS = 64
_SIBLING_CHARS = (2_000, 40_000)  # looked at, either side of the cursor: further where there are few so near
_MOST_MEMBERS = 2_000  # looked at: of a minified style sheet there are 20,000
_LONGEST_NAME = 200
_PARTS = frozenset({"name", "body", "value", "declarator", "container", "init"})  # of a definition
_FUNCTIONS = {  # what a variable may hold
    "arrow_function": "function",
    "function_expression": "function",
    "generator_function": "function",
    "class": "class",
}
_IMPORT_BYTES = 32_000  # looked at, from the start of the file
_KEPT_WITHOUT = 4  # trees of documents without the line being typed


@dataclass(frozen=True, slots=True)
class Scope:
    """A class, function or section around or near the cursor: `header` is its first line(s), up to the body."""

    header: str  # as in the document, from the start of its line, without the newline after it
    start: int  # of the header's line
    end: int  # of the whole definition
    kind: str  # "class" | "function"
    name: str  # "" when it has none


@dataclass(frozen=True, slots=True)
class Definition:
    """Something that a document defines; `name` is as the grammar has it, a C declarator with its stars and parameters.

    The offsets are those of the whole of it, and where its body begins; the lines count from 0.
    """

    kind: str  # the name of the pattern in queries/*.scm
    name: str
    start: int
    end: int
    body: int
    line: int
    end_line: int
    container: str  # where it is written with the definition: Go's receiver
    init: bool  # a field, made by what __init__ or a constructor does
    callable: bool  # a declarator with parameters


class SyntaxParser:
    """Parses within a budget and remembers how fast each language goes. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parsers: dict[str, tree_sitter.Parser] = {}
        self._last: dict[str, tuple[str, tree_sitter.Tree, bool]] = {}  # grammar -> what was parsed, whether all of it
        self._rate: dict[str, float] = {}  # grammar -> characters per ms, lately
        self._head: SyntaxTree | None = None
        self._without: OrderedDict[tuple[object, ...], SyntaxTree | None] = OrderedDict()

    def parse(self, language: str, text: str, budget_ms: float, near: int | None = None) -> SyntaxTree | None:
        """The tree of `text`, or of a window of it around `near` when all of it would take longer than `budget_ms`.

        None for a language without grammar, binary or too large text, or when the budget ran out. A whole file that
        was expected to fit and did not is followed by one try at a window, with half the budget.
        """
        name = grammar(language)
        if name is None or budget_ms <= 0 or len(text) > _LARGEST_CHARS:
            return None
        with self._lock:
            last, _tree, whole = self._last.get(name, ("", None, False))
            known = whole and text_windows.difference(last, text) is not None
            if known or len(text) <= self._rate.get(name, _FIRST_RATE) * budget_ms * 0.9:
                tree = self._parse_pieces(name, text, [(0, len(text))], budget_ms)
                if tree is not None:
                    return tree
                budget_ms /= 2
            if near is None:
                return None
            size = int(self._rate.get(name, _FIRST_RATE) * budget_ms * 0.6)
            head, pieces = text_windows.window(text, near, size)
            if sum(end - start for start, end in pieces) > _FASTEST_RATE * budget_ms:  # one line, all of it
                return None
            tree = self._parse_pieces(name, text, pieces, budget_ms)
            if tree is not None and pieces[0][0] > 0:
                tree.head = self._parse_head(name, text[:head], budget_ms)
            return tree

    def parse_once(self, language: str, text: str, budget_ms: float) -> SyntaxTree | None:
        """The tree of all of `text`, which is seen once: no earlier tree has a part in it, and none is kept."""
        name = grammar(language)
        if name is None or len(text) > _LARGEST_CHARS:
            return None
        with self._lock:
            self._last.pop(name, None)
            tree = self._parse_pieces(name, text, [(0, len(text))], budget_ms)
            self._last.pop(name, None)
            return tree

    def _parse_pieces(self, name: str, text: str, pieces: list[tuple[int, int]], budget_ms: float) -> SyntaxTree | None:
        whole = pieces == [(0, len(text))]
        view = text if whole else "".join(text[start:end] for start, end in pieces)
        if "\0" in view or (name == "yaml" and text_windows.nests_deeply(view)):
            return None
        data = encode(incremental_parse.lines_fed(view))
        read = data.translate(_AS_LETTERS) if name in _ASCII_ONLY else data
        if name not in self._parsers:  # loading a grammar takes 1 to 8 ms, once, outside the budget
            self._parsers[name] = tree_sitter.Parser(_language(name))
        started = perf_counter()
        last = self._last.get(name)
        edited = incremental_parse.edited(last[0], last[1], view) if last else None
        raw = incremental_parse.run(self._parsers[name], read, edited, started + budget_ms / 1000)
        elapsed_ms = max((perf_counter() - started) * 1000, 0.01)
        if raw is None:
            if edited is None:  # a scanner may overrun the budget by far: it reads on and is not asked how late it is
                slower = 0.6 if elapsed_ms < 3 * budget_ms else 0.3
                self._rate[name] = max(_SLOWEST_RATE, self._rate.get(name, _FIRST_RATE) * slower)
            return None
        self._last[name] = view, raw, whole
        if edited is None and len(view) > 4000:  # shorter ones say more about overhead than about the rate
            seen = min(max(len(view) / elapsed_ms, _SLOWEST_RATE), _FASTEST_RATE)
            self._rate[name] = 0.5 * self._rate.get(name, _FIRST_RATE) + 0.5 * seen
        if raw.root_node.has_error and text_windows.is_noise(view, _keywords(name)):
            return None
        return SyntaxTree(self, name, text, OffsetMap(view, len(data) == len(view), pieces), raw)

    def _parse_head(self, name: str, text: str, budget_ms: float) -> SyntaxTree | None:
        """The tree of a large file's first lines, for its imports. Typing further down does not change them."""
        if self._head is None or self._head.text != text or self._head.grammar != name:
            last = self._last.pop(name, None)
            self._head = self._parse_pieces(name, text, [(0, len(text))], budget_ms / 4)
            if last is not None:
                self._last[name] = last
        return self._head

    def _parse_near(self, tree: SyntaxTree, offset: int, size: int, budget_ms: float) -> SyntaxTree | None:
        with self._lock:
            last = self._last.pop(tree.grammar, None)
            found = self._parse_pieces(
                tree.grammar, tree.text, text_windows.window(tree.text, offset, size)[1], budget_ms
            )
            self._last.pop(tree.grammar, None)
            if last is not None:
                self._last[tree.grammar] = last
        return found

    def _errors_with(self, tree: SyntaxTree, start: int, end: int, text: str, budget_ms: float) -> int | None:
        deadline = perf_counter() + budget_ms / 1000
        low, high = tree.view.to_view(start), tree.view.to_view(end)
        view = tree.view.text[:low] + text + tree.view.text[high:]
        if "\0" in text or (tree.grammar == "yaml" and text_windows.nests_deeply(view)):
            return None
        with self._lock:
            data = encode(incremental_parse.lines_fed(view))
            read = data.translate(_AS_LETTERS) if tree.grammar in _ASCII_ONLY else data
            raw = incremental_parse.run(
                self._parsers[tree.grammar], read, incremental_parse.edited(tree.view.text, tree._raw, view), deadline
            )
        return None if raw is None else incremental_parse.errors(raw, deadline)

    def _parse_without(self, tree: SyntaxTree, start: int, end: int, budget_ms: float) -> SyntaxTree | None:
        key = (tree.grammar, start, *tree.view_without(start, end))
        with self._lock:
            if key in self._without:
                self._without.move_to_end(key)
                return self._without[key]
        found = self.parse(tree.grammar, tree.text[:start] + tree.text[end:], budget_ms, near=start)
        with self._lock:
            self._without[key] = found
            while len(self._without) > _KEPT_WITHOUT:
                self._without.popitem(last=False)
        return found


class SyntaxTree:
    """The syntax of one document, or of the part of it around the cursor. Offsets are the document's."""

    __slots__ = ("_parser", "_raw", "grammar", "head", "text", "view")

    def __init__(self, parser: SyntaxParser, name: str, text: str, view: OffsetMap, raw: tree_sitter.Tree) -> None:
        self.grammar = name
        self.text = text
        self.view = view  # what of `text` was parsed
        self.head: SyntaxTree | None = None  # of the file's first lines, where this one begins further down
        self._parser = parser
        self._raw = raw

    def kind_at(self, offset: int) -> str:
        """What text typed at `offset` would be part of: "code", "comment" or "string"."""
        position = self.view.to_view(offset)
        byte = self.view.to_byte(position)
        found, size = "code", len(self.view.text) * 4 + 1
        for captures in self._matches("text", max(byte - 1, 0), byte + 1):
            for name, nodes in captures.items():
                for node in nodes:
                    inside = node.start_byte < byte < node.end_byte
                    if name == "comment" and node.end_byte == byte > node.start_byte:
                        inside = self._ends_open(node)
                    if inside and node.end_byte - node.start_byte < size:
                        found, size = name, node.end_byte - node.start_byte
        return found

    def enclosing(self, offset: int) -> list[Scope]:
        """The scopes `offset` lies in, outermost first. By indentation, a scope reaches to where text after its
        last line would still belong to it; a caller on a blank line asks at the end of the text above."""
        byte = self.view.to_byte(self.view.to_view(offset))
        last = 1 if self.grammar in _BY_INDENTATION else 0
        scopes: dict[int, Scope] = {}
        for captures in self._matches("scopes", max(byte - 1, 0), byte + 1):
            scope, body, start, end = self._scope(captures)
            if start < byte < end + last:
                scopes.setdefault(body, scope)  # the first pattern of a body is the one with a name
        return sorted(scopes.values(), key=lambda scope: (scope.start, -scope.end))

    def imports(self) -> list[tuple[int, int]]:
        """Where the file's imports, includes and package lines are, in file order; top level only."""
        if self.head is not None:
            return self.head.imports()
        found = set()
        for captures in self._matches("imports", 0, _IMPORT_BYTES, depth=4):
            for node in captures["import"]:
                if node.start_point.column == 0:
                    found.add(self._range(node))
        return sorted(found)

    def definitions(self, most: int) -> list[Definition]:
        """What the document defines, in order, `most` at most; what is local to a function is among it."""
        found: dict[tuple[int, int, int], Definition] = {}
        for captures in self._matches("definitions", 0, self._raw.root_node.end_byte, match_limit=16384):
            if len(found) >= most:
                break
            kind, node = next((name, nodes[0]) for name, nodes in captures.items() if name not in _PARTS)
            named = (captures.get("name") or captures.get("declarator") or captures["container"])[0]
            key = node.start_byte, -node.end_byte, named.start_byte
            if key in found and (found[key].body < found[key].end or "body" not in captures):
                continue
            body = captures["body"][0].start_byte if captures.get("body") else node.end_byte
            if captures.get("value"):
                value = captures["value"][0]
                if value.type in _FUNCTIONS:
                    kind, inner = _FUNCTIONS[value.type], value.child_by_field_name("body")
                    body = inner.start_byte if inner is not None else body
            init = "init" in captures
            if init and self._words(captures["init"][0]) not in ("__init__", "constructor"):
                continue
            called = named.type in ("function_declarator", "method_signature")
            receiver = self._words(captures["container"][0]) if captures.get("container") else ""
            ends = self.view.to_document(node.start_byte), self.view.to_document(node.end_byte, end=True)
            lines = node.start_point.row, node.end_point.row
            at = *ends, self.view.to_document(body)
            found[key] = Definition(kind, self._words(named), *at, *lines, receiver, init, called)
        return [found[key] for key in sorted(found)]

    def _words(self, node: tree_sitter.Node) -> str:
        """The text of a name, which is short."""
        low = self.view.characters(node.start_byte)
        return self.view.text[low : min(self.view.characters(node.end_byte), low + _LONGEST_NAME)]

    def siblings(self, offset: int) -> list[Scope]:
        """The members of the innermost class around `offset`, or of the file, that `offset` does not lie in."""
        around = [scope for scope in self.enclosing(offset) if scope.kind == "class"]
        start, end = (around[-1].start, around[-1].end) if around else (0, len(self.text))
        members = list[Scope]()
        for far in _SIBLING_CHARS:
            low = self.view.to_byte(self.view.to_view(max(start, offset - far)))
            high = self.view.to_byte(self.view.to_view(min(end, offset + far)))
            scopes = (self._scope(captures)[0] for captures in self._matches("scopes", low, high))
            inside = (scope for scope in scopes if scope.end <= end and (not around or scope.start > start))
            members = [scope for scope in islice(inside, _MOST_MEMBERS) if scope.name]
            if len(members) >= 2 * _MOST_SIBLINGS:
                break
        members.sort(key=lambda scope: (scope.start, -scope.end))
        found: list[Scope] = []
        reach = -1
        for scope in members:
            if scope.start >= reach:
                reach = scope.end
                if not scope.start <= offset <= scope.end:
                    found.append(scope)
        middle = bisect_right([scope.start for scope in found], offset)
        return found[max(0, middle - _MOST_SIBLINGS) : middle + _MOST_SIBLINGS]

    def block_at(self, offset: int) -> tuple[int, int] | None:
        """The innermost block (statements, members, a literal's items) around `offset`; None at top level."""
        byte = self.view.to_byte(self.view.to_view(offset))
        last = 1 if self.grammar in _BY_INDENTATION else 0
        best = None
        for captures in self._matches("blocks", max(byte - 1, 0), byte + 1):
            for node in captures["block"]:
                inside = node.start_byte < byte < node.end_byte + last
                if inside and (best is None or node.end_byte - node.start_byte < best.end_byte - best.start_byte):
                    best = node
        return None if best is None else self._range(best)

    def errors(self) -> int:
        """How many places the grammar could not make sense of; counted within a budget, so at least so many."""
        found = incremental_parse.errors(self._raw, perf_counter() + _COUNT_BUDGET_MS / 1000)
        return 1 if found is None else found

    def errors_with(self, start: int, end: int, text: str, budget_ms: float) -> int | None:
        """How many there would be with `text` in place of `[start, end)`; None where that takes longer."""
        return self._parser._errors_with(self, start, end, text, budget_ms)

    def near(self, offset: int, size: int, budget_ms: float) -> SyntaxTree | None:
        """The tree of about `size` characters of the document, around `offset`."""
        return self._parser._parse_near(self, offset, size, budget_ms)

    def without(self, start: int, end: int, budget_ms: float) -> SyntaxTree | None:
        """The tree of the document with `[start, end)` taken out; offsets after it are smaller by its length.

        The line being typed is half a line most of the time, and what it breaks changes with every key. Without
        it the tree stays the same from key to key, and is parsed only once.
        """
        return self._parser._parse_without(self, start, end, budget_ms)

    def view_without(self, start: int, end: int) -> tuple[str, tuple[int, ...]]:
        """What was parsed, less `[start, end)`, and where its pieces begin: two equal ones give equal trees."""
        low, high = self.view.to_view(start), self.view.to_view(end)
        return self.view.text[:low] + self.view.text[high:], tuple(piece[0] for piece in self.view.pieces)

    def _matches(
        self, section: str, low: int, high: int, depth: int = _DEEPEST, match_limit: int = 4096
    ) -> Iterator[_Captures]:
        query = _queries(self.grammar).get(section)
        if query is None:
            return
        cursor = tree_sitter.QueryCursor(query, match_limit=match_limit)
        cursor.set_byte_range(low, high)
        cursor.set_max_start_depth(depth)
        # No progress callback here: with one, py-tree-sitter 0.26.1 crashes the process. The byte range is the bound.
        for _pattern, captures in cursor.matches(self._raw.root_node):
            yield captures

    def _scope(self, captures: _Captures) -> tuple[Scope, int, int, int]:
        """-> scope, where its body starts, its first and last byte."""
        kind = "class" if "class" in captures else "function"
        node = captures[kind][0]
        body = captures["body"][0] if captures.get("body") else None
        first, end = self._range(node)
        start = text_windows.line_start(self.text, first)
        at = self.view.characters(node.start_byte)  # in what was parsed: a window's class line has its body elsewhere
        margin = text_windows.line_start(self.view.text, at)
        if body is None:
            ends = min(self.view.characters(node.end_byte), margin + _HEADER_CHARS)
            header = _LINE_BREAK.split(self.view.text[margin:ends], maxsplit=1)[0]
        else:
            head_end = self.view.characters(body.end_byte if self.grammar == "html" else body.start_byte)
            if self.view.text[head_end : head_end + 1] in ("{", "(", "["):
                head_end += 1
            lines = _LINE_BREAK.split(self.view.text[margin : min(head_end, margin + _HEADER_CHARS)].rstrip())
            while len(lines) > 1 and lines[-1].lstrip().startswith("#"):  # a comment before Python's first statement
                lines.pop()
            header = "\n".join(lines)
        name = ""
        if captures.get("name"):
            named = captures["name"][0]
            low, high = self.view.characters(named.start_byte), self.view.characters(named.end_byte)
            words = _WORD.findall(re.split(r"[(<]", self.view.text[low : min(high, low + 200)])[0])
            name = words[-1] if words else ""
        scope = Scope(header[:_HEADER_CHARS], start, end, kind, name)
        return scope, body.start_byte if body is not None else node.start_byte, node.start_byte, node.end_byte

    def _ends_open(self, node: tree_sitter.Node) -> bool:
        """Whether text typed right after this comment belongs to it."""
        low, high = self._range(node)
        comment = self.text[max(low, high - 3) : high]
        return not comment.endswith(("*/", "-->", "]]", "=end", "\n"))

    def _range(self, node: tree_sitter.Node) -> tuple[int, int]:
        return self.view.to_document(node.start_byte), self.view.to_document(node.end_byte, end=True)


_Captures = dict[str, list[tree_sitter.Node]]
_WORD = re.compile(r"[\w$@#:.~-]+")
_LINE_BREAK = re.compile(r"\r\n|\r|\n")


@functools.cache
def _language(name: str) -> tree_sitter.Language:
    module, function = GRAMMARS[name]
    hand_out: Callable[[], object] = getattr(importlib.import_module(module), function)
    return tree_sitter.Language(hand_out())


@functools.cache
def _keywords(name: str) -> frozenset[str]:
    """The words that a grammar has no name for, being its own."""
    language = _language(name)
    visible = filter(language.node_kind_is_visible, range(language.node_kind_count))
    kinds = [language.node_kind_for_id(kind) or "" for kind in visible if not language.node_kind_is_named(kind)]
    return frozenset(text_windows.words("\n".join(kinds)))


@functools.cache
def _queries(name: str) -> _Sections:
    source = (resources.files("speclsp.lsp.syntax") / "queries" / f"{name}.scm").read_text("utf-8")
    return _Sections(_language(name), source)


class _Sections:
    """The named parts of a queries/*.scm file, each compiled when first asked for (C# and C++ take 20 ms)."""

    def __init__(self, language: tree_sitter.Language, source: str) -> None:
        parts = re.split(r"(?m)^;; (\w+)$", source)
        self._sources = dict(zip(parts[1::2], parts[2::2], strict=True))
        self._language = language
        self._compiled: dict[str, tree_sitter.Query] = {}

    def get(self, section: str) -> tree_sitter.Query | None:
        if section not in self._compiled and section in self._sources:
            self._compiled[section] = tree_sitter.Query(self._language, self._sources[section])
        return self._compiled.get(section)
