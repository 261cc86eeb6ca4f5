"""Detects repetition in a suggestion: of the lines above and below it, of the rest of its line, and of itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

from speclsp.lsp.postprocess.surroundings import Surroundings
from speclsp.lsp.syntax import lexical_rules

_WORD = re.compile(r"\w+")
_COMMON = frozenset(
    (
        *("end", "fi", "done", "esac", "else", "try", "do", "then", "begin", "finally", "pass", "break", "continue"),
        *("return", "default", "public", "private", "protected"),
    )
)


def is_distinctive(line: str) -> bool:
    """True if a line is long enough that the same line elsewhere is a repetition: not `}`, `end` or `else:`."""
    words = list(islice(_WORD.finditer(line), 2))  # one pattern for all this would take quadratic time in symbols
    if len(words) != 1:
        return bool(words)
    start = words[0].start()
    return words[0][0] not in _COMMON and line[start - 1 : start] != "@"


def is_same(line: str, other: str) -> bool:
    return line.strip() == other.strip() and lexical_rules.indent_width(line) == lexical_rules.indent_width(other)


def repeats_above(text: str, around: Surroundings) -> bool:
    """True if the lines of `text` are those just above it, one or several."""
    first, *more = text.split("\n")
    lines = [around.line + first, *more] if first.strip() else more
    above = around.above if first.strip() else (*around.above, around.line)
    lines = [line for line in lines if line.strip()]
    if not lines or not any(map(is_distinctive, lines)):
        return False
    nearest = above[-len(lines) :]
    return len(nearest) == len(lines) and all(map(is_same, lines, nearest))


def length_without_below(text: str, around: Surroundings) -> int:
    """The length of `text` without those last lines that follow in the document, at any indentation."""
    lines = [(around.line + line if index == 0 else line).strip() for index, line in enumerate(text.split("\n"))]
    filled = [index for index, line in enumerate(lines) if line]
    below = [line.strip() for line in around.below]
    for count in range(min(len(filled), len(below)), 0, -1):
        last = [lines[index] for index in filled[-count:]]
        if last == below[:count] and any(map(is_distinctive, last)):
            return sum(len(line) + 1 for line in text.split("\n")[: filled[-count]])
    return len(text)


def third_repetition(lines: Sequence[str]) -> int | None:
    """The first line to drop when the last one to three lines occur for the third time in a row."""
    filled = [(index, line.rstrip()) for index, line in enumerate(lines) if line.strip()]
    for period in (1, 2, 3):
        tail = [line for _index, line in filled[-3 * period :]]
        if len(tail) == 3 * period and tail[:period] * 3 == tail and any(map(is_distinctive, tail)):
            return filled[-2 * period][0]
    return None


def find_words(words: str, text: str) -> int:
    """Offset of `words` in `text`, not as a part of longer words; -1 if absent. Compiling a pattern takes longer."""
    start = text.find(words)
    while start >= 0:
        end = start + len(words)
        cuts_word = _is_word(text[max(0, start - 1) : start] + words[0]) or _is_word(words[-1] + text[end : end + 1])
        if not cuts_word:
            break
        start = text.find(words, start + 1)
    return start


def _is_word(two: str) -> bool:
    """True if two characters belong to one word."""
    return len(two) == 2 and all(character.isalnum() or character == "_" for character in two)
