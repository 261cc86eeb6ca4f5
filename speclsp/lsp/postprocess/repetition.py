"""Detects repetition in a suggestion: of the lines above and below it, of the rest of its line, and of itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

from speclsp.lsp.postprocess.surroundings import Surroundings
from speclsp.lsp.syntax import lexical_rules
from speclsp.lsp.syntax.languages import BY_NAME
from speclsp.lsp.syntax.languages.record import Language
from speclsp.plain_text import is_inside_word

_WORD = re.compile(r"\w+")
_NEAR_LINES = 3
_COMMENT_OR_ANNOTATION = re.compile(r"\s*(?://|/?\*|#|--|@|\[)")
_CLAUSE_LOOP = re.compile(r"(\w[^\n]{4,118}?\S)(?:\s*\1){2}(?=\W)", re.IGNORECASE)
_LOOP_CHARACTERS = 1000  # of a line, in which a loop is searched
_LETTER_BYTES = 8  # of the letters in a loop: a table of numbers is none, and a Chinese character counts as three
_COMMON = frozenset(
    (
        *("end", "fi", "done", "esac", "else", "try", "do", "then", "begin", "finally", "pass", "break", "continue"),
        *("return", "default", "public", "private", "protected"),
    )
)


def is_distinctive(line: str) -> bool:
    """True if a line is long enough that the same line elsewhere is a repetition: not `}`, `</p>`, `end` or `else:`."""
    words = list(islice(_WORD.finditer(line), 2))  # one pattern for all this would take quadratic time in symbols
    if len(words) != 1:
        return bool(words)
    start = words[0].start()
    return words[0][0] not in _COMMON and line[start - 1 : start] not in ("@", "/")


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


def repeats_near(text: str, around: Surroundings, language: Language) -> bool:
    """True if the first line of `text` is a statement that equals one of the three lines above it, in the same block.

    Lines of data, jumps, headers of blocks, comments and annotations may repeat.
    """
    if around.kind != "code" or around.rest.strip() or language.is_data or language.name not in BY_NAME:
        return False
    first, *more = text.split("\n")
    line = around.line + first if first.strip() else next(filter(str.strip, more), "")
    above = around.above if first.strip() or not around.line.strip() else (*around.above, around.line)
    may_repeat = (
        _COMMENT_OR_ANNOTATION.match(line)
        or lexical_rules.is_jump(line, around.rules)
        or lexical_rules.opens_block(line, around.rules, above=True)
    )
    if may_repeat or not is_distinctive(line):
        return False
    width = lexical_rules.indent_width(line)
    for other in reversed(above[-_NEAR_LINES:]):
        if is_same(line, other):
            return True
        if lexical_rules.indent_width(other) < width:  # the line above belongs to another block
            return False
    return False


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
        if not is_inside_word(text, start) and not is_inside_word(text, end):
            break
        start = text.find(words, start + 1)
    return start


def clause_loop(text: str, since: int = 0) -> int | None:
    """The end of a clause or sentence that follows twice more, up to an end behind `since`; None without one.

    The loop that is complete first counts, so a longer text has the same one.
    """
    starts = (word.start() for word in _WORD.finditer(text, 0, _LOOP_CHARACTERS))
    matches = [match for start in starts if (match := _CLAUSE_LOOP.match(text, start)) and match.end() > since]
    loops = [match for match in matches if len("".join(filter(str.isalpha, match[1])).encode()) >= _LETTER_BYTES]
    return min(loops, key=re.Match.end).end(1) if loops else None
