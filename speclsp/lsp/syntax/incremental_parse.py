"""One parse: from the last tree of a text that is much the same, within its time, and with what it leaves behind.

tree-sitter's own objects come from syntax.py, which is the door to it, and go back there. Positions are bytes here.
"""

from __future__ import annotations

import ctypes
import re
import sys
from time import perf_counter
from typing import TYPE_CHECKING

from speclsp.lsp.syntax import text_windows

if TYPE_CHECKING:
    import tree_sitter

_READ_BYTES = 8192  # tree-sitter asks for the text in pieces; between them other threads run
_DEEPEST = 400  # levels of the tree that are looked at
_LONE = re.compile(r"\r(?!\n)")
_decrease = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_DecRef", ctypes.pythonapi))


def lines_fed(text: str) -> str:
    """`text` with \\n for each \\r that stands alone: grammars take that for a blank. As many characters as before."""
    return _LONE.sub("\n", text) if text.count("\r") != text.count("\r\n") else text


def encode(text: str) -> bytes:
    return text.encode("utf-8", "replace")  # a lone surrogate becomes "?": one character still, valid UTF-8


def run(
    parser: tree_sitter.Parser, data: bytes, old: tree_sitter.Tree | None, deadline: float
) -> tree_sitter.Tree | None:
    end, longer = len(data), data + b"\0"  # so that no piece is all of it, which would not be copied
    read_so_far = [longer[:2]]  # this one is never read: see _give_back

    def read(offset: int, _point: object) -> bytes:
        piece = longer[offset : min(offset + _READ_BYTES, end)]  # late or not: a text cut short here crashes scanners
        read_so_far.append(piece)
        return piece

    def late(_offset: int, _has_error: bool) -> bool:
        return perf_counter() > deadline

    try:
        # A callable source: with a bytes source tree-sitter never looks at the progress callback.
        if old is None:
            return parser.parse(read, progress_callback=late)
        return parser.parse(read, old, progress_callback=late)
    except ValueError:
        parser.reset()  # or the next parse would resume this one
        return None
    finally:
        _give_back(read_so_far)


def _give_back(read: list[bytes]) -> None:
    """Let go of the text of a parse: py-tree-sitter (0.26.1) keeps a reference to every piece that it has read.

    `read[0]` was not read: it has as many references as there should be. What is shorter than two is Python's own.
    """
    counts = [sys.getrefcount(piece) for piece in read]
    for piece, count in zip(read, counts, strict=True):
        if count > counts[0] and len(piece) > 1:
            _decrease(piece)


def edited(old: str, tree: tree_sitter.Tree, new: str) -> tree_sitter.Tree | None:
    """A copy of the tree of `old` that knows what was changed to make it `new`, None when that is too much."""
    old, new = lines_fed(old), lines_fed(new)
    same = text_windows.difference(old, new)
    if same is None:
        return None
    start, end = same
    before = encode(new[:start])
    removed, added = encode(old[start : len(old) - end]), encode(new[start : len(new) - end])
    at = _advance((0, 0), before)
    copy = tree.copy()
    byte = len(before)
    ends = _advance(at, removed), _advance(at, added)
    copy.edit(byte, byte + len(removed), byte + len(added), at, *ends)
    return copy


def _advance(point: tuple[int, int], data: bytes) -> tuple[int, int]:
    """(row, column in bytes) after `data`."""
    rows = data.count(b"\n")
    return point[0] + rows, len(data) - data.rfind(b"\n") - 1 if rows else point[1] + len(data)


def errors(tree: tree_sitter.Tree, deadline: float) -> int | None:
    """How many places are errors, or miss something; None: not counted by `deadline`.

    Only what holds one is walked into: of most trees nothing. What is missing may be a node that is not shown, as
    Python's end of a line: the one around it counts for it.
    """
    if not tree.root_node.has_error:
        return 0
    cursor, count, steps = tree.walk(), 0, 0
    held = [False]  # for each level down to here: whether an error was met in it
    while True:
        node = cursor.node
        steps += 1
        if node is not None and node.has_error:
            itself = node.is_error or node.is_missing
            count += itself
            held[-1] = True
            if len(held) < _DEEPEST and cursor.goto_first_child():
                held.append(itself)
                continue
            count += not itself
        if steps % 64 == 0 and perf_counter() > deadline:
            return None
        while not cursor.goto_next_sibling():
            if len(held) == 1 or not cursor.goto_parent():
                return max(count, 1)
            count += not held.pop()
