"""Which part of a text is worth parsing, what has changed since the last time, and what no parser should be given.

Only characters are looked at here. Lines end with \\n, \\r\\n or \\r, as in document.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice

_LONGEST_EDIT = 4000  # characters between two texts of which one's tree serves the other
_MOST_LINES_UP = 4000
_HEADER_CHARACTERS = 400
_HEAD_CHARACTERS = 8000
_NOISE_CHARACTERS = 1000
_MOST_DOCUMENTS = 1000

_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_TOP_LEVEL = re.compile(r"[\r\n](?=[^\s})\]#/*])")
_WORD = re.compile(r"\w+")
_YAML_DOCUMENT = re.compile(r"(?:^|[\r\n])(?:---|\.\.\.)")
_YAML_INDICATOR = re.compile(r"[-?:](?=\s|$)")


def line_start(text: str, offset: int) -> int:
    """Where the line that `offset` is in begins."""
    newline = text.rfind("\n", 0, offset) + 1
    return max(newline, text.rfind("\r", newline, offset) + 1)


def line_end(text: str, offset: int) -> int:
    """Where the text of the line that `offset` is in ends, before its line break."""
    newline = text.find("\n", offset)
    newline = len(text) if newline < 0 else newline
    carriage = text.find("\r", offset, newline)
    return newline if carriage < 0 else carriage


def window(text: str, near: int, size: int) -> tuple[int, list[tuple[int, int]]]:
    """(end of the file's first lines, pieces of it around `near`), whole lines, about `size` characters.

    Its ends move in steps, one counted from the file's start and one from its end, so that typing changes neither.
    Where it begins inside a class, the class's own line comes along.
    """
    size = 1 << max(size.bit_length() - 1, 8)
    step = size // 8
    low = max((near - size // 2) // step * step, 0)
    pieces = []
    if low > 0:  # begin at something that begins at the margin, if there is one in the first half
        margin = _TOP_LEVEL.search(text, low, low + (near - low) // 2)
        low = margin.end() if margin else line_start(text, low)
        if not margin:
            pieces = _lines_around(text, low)
    high = len(text) - (len(text) - near - size // 4) // step * step
    high = len(text) if high >= len(text) else max(line_start(text, high), near)
    return line_start(text, min(size, _HEAD_CHARACTERS)), [*pieces, (low, high)]


def _lines_around(text: str, low: int) -> list[tuple[int, int]]:
    """The lines above `low` that text there is indented under, outermost first."""
    found: list[tuple[int, int]] = []
    below = text[low : low + _HEADER_CHARACTERS].lstrip("\r\n")
    least = len(below) - len(below.lstrip(" \t"))
    end = low
    for _ in range(_MOST_LINES_UP):
        if end <= 0 or least == 0:
            break
        start = line_start(text, end - 1)
        line = text[start : min(end, start + _HEADER_CHARACTERS)]
        bare = line.lstrip(" \t")
        indent = len(line) - len(bare)
        if bare.strip() and indent < least and bare[0] not in "})]#/*":
            found.append((start, end))
            least = indent
        end = start
    return found[::-1]


def difference(old: str, new: str) -> tuple[int, int] | None:
    """(characters the same at the start, and at the end), None when what lies between is more than an edit."""
    most = min(len(old), len(new))
    if abs(len(old) - len(new)) > _LONGEST_EDIT:
        return None
    start = _same(most, lambda low, high: old[low:high] == new[low:high])
    rest = most - start
    end = _same(rest, lambda low, high: old[len(old) - high : len(old) - low] == new[len(new) - high : len(new) - low])
    return (start, end) if max(len(old), len(new)) - start - end <= _LONGEST_EDIT else None


def _same(most: int, equal: Callable[[int, int], bool]) -> int:
    """How far two texts agree, at most `most`; `equal(low, high)` compares that part of them."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if equal(low, middle):
            low = middle
        else:
            high = middle - 1
    return low


def nests_deeply(text: str) -> bool:
    """Whether YAML could hold more than 200 levels: at about 256 the grammar's scanner overruns its buffer and
    the process dies. Each level takes a column, or an indicator on the line. Nor may it be a thousand documents: the
    time of a query is quadratic in them."""
    if sum(1 for _ in islice(_YAML_DOCUMENT.finditer(text), _MOST_DOCUMENTS)) == _MOST_DOCUMENTS:
        return True
    for line in _LINE_BREAK.split(text):
        if len(line) - len(line.lstrip(" \t")) > 80 or len(_YAML_INDICATOR.findall(line)) > 24:
            return True
    return False


def is_noise(text: str, keywords: frozenset[str] = frozenset()) -> bool:
    """Whether broken text has 1,000 characters of symbols and keywords alone: a query's time is quadratic in such a
    run, which in a tree has no node with a name."""
    half = _NOISE_CHARACTERS // 2

    def tells(start: int) -> bool:
        cut = start, start + half  # a word at either end may be half of one
        found = (word for word in _WORD.finditer(text, *cut) if word.start() not in cut and word.end() not in cut)
        return any(word[0] not in keywords for word in found) or text[start : start + half].isspace()

    return not all(map(tells, range(0, len(text) - half + 1, half)))


def words(text: str) -> list[str]:
    """The words of a text, as `is_noise` tells them."""
    return _WORD.findall(text)


def normal_newlines(text: str) -> str:
    """`text` with \\n for every line break; the same object when it has no other."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
