"""Detects repetition in a suggestion: of the lines above and below it, of the rest of its line, and of itself."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice

from speclsp.lsp.postprocess.surroundings import Surroundings
from speclsp.lsp.syntax import lexical_rules
from speclsp.lsp.syntax.languages import BY_NAME
from speclsp.lsp.syntax.languages.record import Language
from speclsp.plain_text import is_inside_word

_WORD = re.compile(r"\w+")
_NEAR_LINES = 3
_COMMENT_OR_ANNOTATION = re.compile(r"\s*(?://|/?\*|#|--|@|\[)")
_PROSE_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff][。！？，；：]?|[^\s\u3040-\u30ff\u3400-\u9fff]+"
)  # Chinese: one character
_MAX_PERIOD = 24  # words of a loop
_MAX_WORDS = 400  # of a text, in which a loop is searched
_MIN_LETTERS = 8  # of a loop in prose; a Chinese character counts as two
_LOGICAL = frozenset(("and", "or", "&&", "||", "elif"))
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


def second_repetition(text: str, *, prose: bool) -> int | None:
    """The offset where a clause or sentence that loops begins for the second time; None without a loop.

    A loop is 2 to 24 words in a row, for the third time; of 4 words or more in prose, the third time begun. In prose
    the words hold at least 8 letters together: a table of numbers is no loop. In code one of them is a logical
    operator: the entries of a list may well be equal, the operands of `or` may not. A last word without a blank after
    it may still grow and is not counted: a longer text has the same loop.
    """
    matches = islice(_PROSE_WORD.finditer(text), _MAX_WORDS)
    words = [
        (match[0].casefold() if prose else match[0], match.start()) for match in matches if match.end() < len(text)
    ]
    runs = dict[int, int]()  # period -> words so far that equal the one a period before
    places: defaultdict[str, list[int]] = defaultdict(list)  # word -> its indices
    for index, (word, _at) in enumerate(words):
        periods = [index - place for place in places[word] if 1 < index - place <= _MAX_PERIOD]
        runs = {period: runs.get(period, 0) + 1 for period in reversed(periods)}
        places[word].append(index)
        for period in runs:
            least = period + 1 if prose and period > 3 else 2 * period - (not prose)
            loop = [word for word, _at in words[index - period + 1 : index + 1]]
            if runs[period] >= least and _may_loop(loop, prose=prose):
                second = index - runs[period] + 1
                return words[_clause_start(words, second, period, prose=prose)][1]
    return None


def _may_loop(words: Sequence[str], *, prose: bool) -> bool:
    """True if a person would not write these words three times in a row."""
    if not prose:
        return not _LOGICAL.isdisjoint(words)
    letters = sum(1 + (character > "\u2fff") for word in words for character in word if character.isalpha())
    return letters >= _MIN_LETTERS and len(set(words)) > 1


def _clause_start(words: Sequence[tuple[str, int]], second: int, period: int, *, prose: bool) -> int:
    """The index near `second` at which a sentence begins, else a clause, else `second`; in code, a logical operator."""
    nearest = sorted(range(second - period + 1, second + period), key=lambda index: (abs(index - second), index))
    inside = [index for index in nearest if 0 < index < len(words)]
    if not prose:
        return next((index for index in inside if index >= second and words[index][0] in _LOGICAL), second)
    for ends in (tuple(".!?。！？"), tuple(",;:，；：")):
        for index in inside:
            if words[index - 1][0].rstrip("\"')").endswith(ends):
                return index
    return second


def passages(before: str, line: str, around: Surroundings) -> Iterator[tuple[int, int, bool]]:
    """The parts of a line that may hold a loop: (start, end, True for prose), in comments, strings and code.

    `before` is the part of the line before the suggestion.
    """
    whole = before + line
    if around.kind in ("comment", "prose"):
        yield 0, len(whole), True
        return
    code_end = len(whole)
    for token in lexical_rules.tokens(whole, around.rules):
        if token.kind == "bracket":
            continue
        if "comment" in token.kind or whole.count(" ", token.start, token.end) > 1:
            code_end = min(code_end, token.start)
        if token.end > len(before):
            yield token.start, token.end, True
    if around.kind == "code" and code_end > len(before):
        yield 0, code_end, False
