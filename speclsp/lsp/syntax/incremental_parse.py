"""One incremental parse: starts from the last tree of a similar text, stays within its time, and frees its memory.

The tree-sitter objects come from parser.py and tree.py, the entry points to that library. Positions are bytes here.
"""

from __future__ import annotations

import ctypes
import re
import sys
from time import perf_counter, thread_time
from typing import TYPE_CHECKING

from speclsp.lsp.syntax import text_windows

if TYPE_CHECKING:
    import tree_sitter

_READ_BYTES = 8192  # tree-sitter reads the text in pieces; between them other threads run
_MAX_EDIT_BYTES = 4000  # a parse reuses the last tree for an edit up to this length
_MAX_DEPTH = 400  # levels of the tree that are visited
_LONE_CARRIAGE_RETURN = re.compile(r"\r(?!\n)")
# Budgets count the time that the thread computed: with a wall clock, a busy machine would leave suggestions unchecked.
# Windows counts that time in steps of 16 ms.
parse_clock_s = perf_counter if sys.platform == "win32" else thread_time
_decrease_refcount = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_DecRef", ctypes.pythonapi))


def with_line_feeds(text: str) -> str:
    """`text` with \\n for each lone \\r, which grammars take for a blank. The number of characters stays the same."""
    return _LONE_CARRIAGE_RETURN.sub("\n", text) if text.count("\r") != text.count("\r\n") else text


def encode(text: str) -> bytes:
    return text.encode("utf-8", "replace")  # a lone surrogate becomes "?": still one character, valid UTF-8


def run(
    parser: tree_sitter.Parser, data: bytes, old: tree_sitter.Tree | None, deadline: float
) -> tree_sitter.Tree | None:
    """The tree of `data`, starting from the edited tree `old`; None after `deadline`, of parse_clock_s()."""
    end, longer = len(data), data + b"\0"  # so that no piece is all of it, which would not be copied
    pieces = [longer[:2]]  # this one is never read: see _free_pieces

    def read(offset: int, _point: object) -> bytes:
        # the text continues even after the deadline: scanners crash on a truncated text
        piece = longer[offset : min(offset + _READ_BYTES, end)]
        pieces.append(piece)
        return piece

    def is_late(_offset: int, _has_error: bool) -> bool:
        return parse_clock_s() > deadline

    try:
        # A callable source: with a bytes source tree-sitter never calls the progress callback.
        if old is None:
            return parser.parse(read, progress_callback=is_late)
        return parser.parse(read, old, progress_callback=is_late)
    except ValueError:
        parser.reset()  # or the next parse would resume this one
        return None
    finally:
        _free_pieces(pieces)


def _free_pieces(pieces: list[bytes]) -> None:
    """Free the text of a parse: py-tree-sitter (0.26.1) leaks one reference to every piece that it has read.

    `pieces[0]` was not read, so its reference count is the correct one. Python shares objects shorter than two bytes.
    """
    counts = [sys.getrefcount(piece) for piece in pieces]
    for piece, count in zip(pieces, counts, strict=True):
        if count > counts[0] and len(piece) > 1:
            _decrease_refcount(piece)


def edited(old: str, tree: tree_sitter.Tree, new: str) -> tree_sitter.Tree | None:
    """A copy of the tree of `old`, with the edit that makes it `new` applied; None when that is too large."""
    old, new = with_line_feeds(old), with_line_feeds(new)
    head, tail = text_windows.common_ends(old, new)
    removed, added = encode(old[head : len(old) - tail]), encode(new[head : len(new) - tail])
    if max(len(removed), len(added)) > _MAX_EDIT_BYTES:
        return None
    copy = tree.copy()
    if removed or added:
        before = encode(old[:head])
        byte, point = len(before), _advance((0, 0), before)
        end_points = _advance(point, removed), _advance(point, added)
        copy.edit(byte, byte + len(removed), byte + len(added), point, *end_points)
    return copy


def _advance(point: tuple[int, int], data: bytes) -> tuple[int, int]:
    """(row, column in bytes) after `data`."""
    rows = data.count(b"\n")
    return point[0] + rows, len(data) - data.rfind(b"\n") - 1 if rows else point[1] + len(data)


def count_errors(tree: tree_sitter.Tree, deadline: float) -> int | None:
    """The number of ERROR and MISSING nodes; None if not counted by `deadline`, of parse_clock_s().

    Only nodes that contain an error are visited: none in most trees. A missing token can be a hidden node, as Python's
    end of a line is: then the node around it counts instead.
    """
    if not tree.root_node.has_error:
        return 0
    cursor, count, steps = tree.walk(), 0, 0
    found_below = [False]  # for each level down to this one: whether an error was found in it
    while True:
        node = cursor.node
        steps += 1
        if node is not None and node.has_error:
            is_error = node.is_error or node.is_missing
            count += is_error
            found_below[-1] = True
            if len(found_below) < _MAX_DEPTH and cursor.goto_first_child():
                found_below.append(is_error)
                continue
            count += not is_error
        if steps % 64 == 0 and parse_clock_s() > deadline:
            return None
        while not cursor.goto_next_sibling():
            if len(found_below) == 1 or not cursor.goto_parent():
                return max(count, 1)
            count += not found_below.pop()
