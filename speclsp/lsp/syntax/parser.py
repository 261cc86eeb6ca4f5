"""Parses documents with tree-sitter, incrementally and within a time budget.

A parse starts from the last tree of the same language when the text has changed little (0.3 ms for a keystroke, where
the whole file takes 8). If the whole text does not fit into the budget, a window around the cursor is parsed. If that
does not fit either, there is no tree, and completion works on plain text.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict

import tree_sitter

from speclsp.lsp.syntax import incremental_parse, text_windows
from speclsp.lsp.syntax.grammars import grammar
from speclsp.lsp.syntax.incremental_parse import encode
from speclsp.lsp.syntax.languages import BY_NAME
from speclsp.lsp.syntax.offset_map import OffsetMap
from speclsp.lsp.syntax.tree import SyntaxTree, load_grammar

# tree-sitter-bash 0.25 calls C's isalpha() with any character, which reads past the end of a table: an emoji can end
# the process. Such a grammar gets letters instead, as many bytes long.
_AS_LETTERS = bytes(range(128)) + b"x" * 128
_MAX_CHARACTERS = 32_000_000  # of a larger text not even a window is parsed
FIRST_RATE = 5_000  # characters per ms, until parses of that language were timed (2,000 hostile .. 15,000 usual)
_SLOWEST_RATE, _FASTEST_RATE = 500, 40_000
_LONG_CHARACTERS = 4000  # the time of a shorter text measures the overhead, not the rate
_CACHED_WITHOUT = 4  # trees of documents without the line being typed


class SyntaxParser:
    """Parses within a budget, and measures how fast it parses each language. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parsers: dict[str, tree_sitter.Parser] = {}
        self._last: dict[str, tuple[str, tree_sitter.Tree, bool]] = {}  # grammar -> (view, its tree, is whole text)
        self._whole: dict[str, SyntaxTree | None] = {}  # grammar -> that tree of a whole text; None for noise
        self._rate: dict[str, float] = {}  # grammar -> characters per ms, a running average
        self._head: SyntaxTree | None = None
        self._without: OrderedDict[tuple[object, ...], SyntaxTree | None] = OrderedDict()

    def parse(self, language: str, text: str, budget_ms: float, near: int | None = None) -> SyntaxTree | None:
        """The tree of `text`, or of a window around `near` if the whole text would take longer than `budget_ms`.

        None for a language without grammar, binary or too large text, or when the budget ran out. When a whole file
        was expected to fit and did not, one window is tried with half the budget.
        """
        name = grammar(language)
        if name is None or budget_ms <= 0 or len(text) > _MAX_CHARACTERS:
            return None
        with self._lock:
            last_view, _tree, is_whole = self._last.get(name, ("", None, False))
            if is_whole and last_view == text:
                return self._whole[name]
            edited = self._edited(name, text)
            is_edit = is_whole and edited is not None
            if is_edit or len(text) <= self._rate.get(name, FIRST_RATE) * budget_ms * 0.9:
                tree = self._parse_pieces(name, text, [(0, len(text))], budget_ms, edited)
                if tree is not None:
                    return tree
                budget_ms /= 2
            if near is None:
                return None
            size = int(self._rate.get(name, FIRST_RATE) * budget_ms * 0.6)
            head_end, pieces = text_windows.window(text, near, size)
            if sum(end - start for start, end in pieces) > _FASTEST_RATE * budget_ms:  # the text is one long line
                return None
            edited = self._edited(name, joined(text, pieces))
            tree = self._parse_pieces(name, text, pieces, budget_ms, edited)
            if tree is not None and pieces[0][0] > 0:
                tree.head = self._parse_head(name, text[:head_end], budget_ms)
            return tree

    # ── called by SyntaxTree ──────────────────────────────────────────────────────────────────────────────────────────

    def parse_near(self, tree: SyntaxTree, offset: int, size: int, budget_ms: float) -> SyntaxTree | None:
        """The tree of about `size` characters of the same document, around `offset`."""
        with self._lock:
            pieces = text_windows.window(tree.text, offset, size)[1]
            return self._parse_pieces(tree.grammar, tree.text, pieces, budget_ms, aside=True)

    def parse_without(self, tree: SyntaxTree, start: int, end: int, budget_ms: float) -> SyntaxTree | None:
        """The tree of the document without `[start, end)`; the last few are cached."""
        key = (tree.grammar, start, *tree.view_without(start, end))
        with self._lock:
            if key in self._without:
                self._without.move_to_end(key)
                return self._without[key]
        shorter = self.parse(tree.grammar, tree.text[:start] + tree.text[end:], budget_ms, near=start)
        with self._lock:
            self._without[key] = shorter
            while len(self._without) > _CACHED_WITHOUT:
                self._without.popitem(last=False)
        return shorter

    def count_errors_with(self, tree: SyntaxTree, start: int, end: int, text: str, budget_ms: float) -> int | None:
        """Syntax errors with `text` in place of `[start, end)` of the document; None if the budget ran out."""
        deadline = incremental_parse.parse_clock_s() + budget_ms / 1000
        low, high = tree.view.to_view(start), tree.view.to_view(end)
        view = tree.view.text[:low] + text + tree.view.text[high:]
        if "\0" in text or BY_NAME[tree.grammar].is_dangerous(view):
            return None
        with self._lock:
            edited = incremental_parse.edited(tree.view.text, tree.raw, view)
            raw = incremental_parse.run(
                self._parsers[tree.grammar], _scanner_input(tree.grammar, view), edited, deadline
            )
        return None if raw is None else incremental_parse.count_errors(raw, deadline)

    def _edited(self, name: str, view: str) -> tree_sitter.Tree | None:
        """The last tree of a grammar with the edits that make its text `view`; None if they are too large."""
        last = self._last.get(name)
        return incremental_parse.edited(last[0], last[1], view) if last else None

    def _parse_pieces(
        self,
        name: str,
        text: str,
        pieces: list[tuple[int, int]],
        budget_ms: float,
        edited: tree_sitter.Tree | None = None,
        aside: bool = False,
    ) -> SyntaxTree | None:
        """The tree of these pieces, starting from the tree `edited`. `aside`: it is not kept as the last tree."""
        is_whole, view = pieces == [(0, len(text))], joined(text, pieces)
        if "\0" in view or BY_NAME[name].is_dangerous(view):
            return None
        data = _scanner_input(name, view)
        if name not in self._parsers:  # loading a grammar takes 1 to 8 ms, once, outside the budget
            self._parsers[name] = tree_sitter.Parser(load_grammar(name))
        started_s = incremental_parse.parse_clock_s()
        raw = incremental_parse.run(self._parsers[name], data, edited, started_s + budget_ms / 1000)
        elapsed_ms = max((incremental_parse.parse_clock_s() - started_s) * 1000, 0.01)
        if raw is None:
            if edited is None:  # a scanner can overrun the budget by far: it reads on and never checks the time
                slower = 0.6 if elapsed_ms < 3 * budget_ms else 0.3
                self._rate[name] = max(_SLOWEST_RATE, self._rate.get(name, FIRST_RATE) * slower)
            return None
        if edited is None and len(view) > _LONG_CHARACTERS:
            rate = min(max(len(view) / elapsed_ms, _SLOWEST_RATE), _FASTEST_RATE)
            self._rate[name] = 0.5 * self._rate.get(name, FIRST_RATE) + 0.5 * rate
        is_noise = raw.root_node.has_error and text_windows.is_noise(view, _keywords(name))
        tree = None if is_noise else SyntaxTree(self, name, text, OffsetMap(view, len(data) == len(view), pieces), raw)
        if not aside:
            self._last[name] = view, raw, is_whole
            self._whole[name] = tree if is_whole else None
        return tree

    def _parse_head(self, name: str, text: str, budget_ms: float) -> SyntaxTree | None:
        """The tree of a large file's first lines, for its imports. Typing further down does not change it."""
        if self._head is None or self._head.text != text or self._head.grammar != name:
            self._head = self._parse_pieces(name, text, [(0, len(text))], budget_ms / 4, aside=True)
        return self._head


def joined(text: str, pieces: list[tuple[int, int]]) -> str:
    """The view that consists of these pieces of a text."""
    return text if pieces == [(0, len(text))] else "".join(text[start:end] for start, end in pieces)


def _scanner_input(name: str, view: str) -> bytes:
    """The bytes that are parsed in place of `view`."""
    data = encode(incremental_parse.with_line_feeds(view))
    return data.translate(_AS_LETTERS) if BY_NAME[name].ascii_only else data


@functools.cache
def _keywords(name: str) -> frozenset[str]:
    """The words of a grammar's anonymous tokens: the language's keywords."""
    language = load_grammar(name)
    visible = filter(language.node_kind_is_visible, range(language.node_kind_count))
    kinds = [language.node_kind_for_id(kind) or "" for kind in visible if not language.node_kind_is_named(kind)]
    return frozenset(text_windows.WORD.findall("\n".join(kinds)))


@functools.cache
def is_reserved(name: str, word: str) -> bool:
    """True for a word that cannot be an identifier: `class` and C's `int`, and not Python's `type`.

    A word with an upper-case letter is none: of it a grammar may make another kind of node.
    """
    parser = tree_sitter.Parser(load_grammar(name))
    texts = (f"{text} = 1;\n".encode() for text in (word, "speclsp"))
    leaf, identifier = (parser.parse(text).root_node.descendant_for_byte_range(0, 1) for text in texts)
    if not word.islower() or leaf is None or identifier is None:
        return False
    # A keyword of other contexts is a leaf of an identifier: C#'s `from`.
    return identifier.type not in (leaf.type, leaf.parent and leaf.parent.type)
