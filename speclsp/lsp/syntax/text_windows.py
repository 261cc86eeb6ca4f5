"""Windows of a text for parsing, comparison of two texts, and detection of texts that no grammar may be fed.

All of it works on characters. Lines end with \\n, \\r\\n or \\r, as in document.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

_MAX_LINES_UP = 4000
_HEADER_CHARACTERS = 400
_HEAD_CHARACTERS = 8000
_NOISE_CHARACTERS = 1000

_TOP_LEVEL = re.compile(r"[\r\n](?=[^\s})\]#/*])")
WORD = re.compile(r"\w+")


def line_start(text: str, offset: int) -> int:
    """Start of the line around `offset`."""
    newline = text.rfind("\n", 0, offset) + 1
    return max(newline, text.rfind("\r", newline, offset) + 1)


def line_end(text: str, offset: int) -> int:
    """End of the line around `offset`, before its line break."""
    newline = text.find("\n", offset)
    newline = len(text) if newline < 0 else newline
    carriage = text.find("\r", offset, newline)
    return newline if carriage < 0 else carriage


def line_at(text: str, offset: int) -> str:
    """The line around `offset`, without the blanks around it."""
    return text[line_start(text, offset) : line_end(text, offset)].strip()


def nearest_line(text: str, line: str, offset: int) -> int | None:
    """The start of the line with this text that is nearest to an offset."""
    starts, start = list[int](), text.find(line)
    while start >= 0:
        end = start + len(line)
        is_end = text.startswith(("\n", "\r\n"), end) or end == len(text)
        if is_end and (start == 0 or text[start - 1] == "\n"):
            starts.append(start)
        start = text.find(line, end + 1)
    return min(starts, key=lambda start: max(start - offset, offset - start - len(line)), default=None)


def match_starts(
    pattern: re.Pattern[str], literal: str, text: str, low: int = 0, high: int | None = None
) -> Iterator[int]:
    """The starts of the matches that `finditer` has in `[low, high)`, if every match begins with `literal`.

    `finditer` examines each character for a pattern that begins with an assertion. `find` is many times as fast.
    """
    high = len(text) if high is None else high
    start = text.find(literal, low, high)
    while start >= 0:
        match = pattern.match(text, start, high)
        if match is not None:
            yield start
        start = text.find(literal, start + 1 if match is None else match.end(), high)


def window(text: str, near: int, size: int) -> tuple[int, list[tuple[int, int]]]:
    """(end of the file's first lines, pieces of the file around `near`): whole lines, about `size` characters.

    The window's ends move in steps, one counted from the file's start and one from its end, so that typing moves
    neither. A window that begins inside a class includes the class's own line.
    """
    size = 1 << max(size.bit_length() - 1, 8)
    step = size // 8
    low = max((near - size // 2) // step * step, 0)
    pieces = []
    if low > 0:  # begin at a line without indentation, if there is one in the first half
        margin = _TOP_LEVEL.search(text, low, low + (near - low) // 2)
        low = margin.end() if margin else line_start(text, low)
        if not margin:
            pieces = _enclosing_lines(text, low)
    high = len(text) - (len(text) - near - size // 4) // step * step
    high = len(text) if high >= len(text) else max(line_start(text, high), near)
    return line_start(text, min(size, _HEAD_CHARACTERS)), [*pieces, (low, high)]


def _enclosing_lines(text: str, low: int) -> list[tuple[int, int]]:
    """The lines above `low` with less and less indentation (headers of enclosing blocks), outermost first."""
    lines: list[tuple[int, int]] = []
    below = text[low : low + _HEADER_CHARACTERS].lstrip("\r\n")
    least = len(below) - len(below.lstrip(" \t"))
    end = low
    for _ in range(_MAX_LINES_UP):
        if end <= 0 or least == 0:
            break
        start = line_start(text, end - 1)
        line = text[start : min(end, start + _HEADER_CHARACTERS)]
        bare = line.lstrip(" \t")
        indent = len(line) - len(bare)
        if bare.strip() and indent < least and bare[0] not in "})]#/*":
            lines.append((start, end))
            least = indent
        end = start
    return lines[::-1]


def common_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """The number of equal items at the start, and of the others at the end; no item counts twice.

    Both are texts, or lists, or tuples.
    """
    head = _equal_part(min(len(old), len(new)), lambda low, high: old[low:high] == new[low:high])
    return head, common_suffix(old, new, head)


def common_suffix(old: Sequence[str], new: Sequence[str], start: int = 0) -> int:
    """The number of equal items at the end, of those from `start` on."""
    old_end, new_end = len(old), len(new)
    return _equal_part(
        min(old_end, new_end) - start,
        lambda low, high: old[old_end - high : old_end - low] == new[new_end - high : new_end - low],
    )


def is_subsequence(part: str, text: str) -> bool:
    """True if `text` holds the characters of `part` in their order."""
    characters = iter(text)
    return all(character in characters for character in part)


def _equal_part(most: int, equal: Callable[[int, int], bool]) -> int:
    """Length of the equal part of two texts, `most` at most, by bisection; `equal(low, high)` compares that range."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if equal(low, middle):
            low = middle
        else:
            high = middle - 1
    return low


def is_noise(text: str, keywords: frozenset[str] = frozenset()) -> bool:
    """True if broken text has 1,000 characters of symbols and keywords alone.

    Such a run has no named node in the tree, and the time of a query is quadratic in its length.
    """
    half = _NOISE_CHARACTERS // 2

    def has_name(start: int) -> bool:
        ends = start, start + half  # a word at either end may be incomplete
        words = (word for word in WORD.finditer(text, *ends) if word.start() not in ends and word.end() not in ends)
        return any(word[0] not in keywords for word in words) or text[start : start + half].isspace()

    return not all(map(has_name, range(0, len(text) - half + 1, half)))


def normal_newlines(text: str) -> str:
    """`text` with \\n for every line break; the same object when it has no other."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
