"""Detects repetition in a suggestion: of the lines above and below it, of the rest of its line, and of itself."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice

from speclsp.lsp.postprocess.surroundings import Surroundings
from speclsp.lsp.syntax import lexical_rules
from speclsp.plain_text import is_inside_word

_WORD = re.compile(r"\w+")
_PROSE_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff][。！？，；：]?|[^\s\u3040-\u30ff\u3400-\u9fff]+"
)  # Chinese: one character
_MAX_PERIOD = 24  # words of a loop
_MAX_WORDS = 400  # of a text, in which a loop is searched
_MIN_LETTERS = 8  # of a loop in prose; a Chinese character counts as two
_COUNTER = re.compile(r"([^\W\d]*)(\d{1,9})([^\W\d]*)\Z")  # a number, a name or a size with one
_COUNTED_CHARACTERS = 400  # of the line before the cursor
_MAX_COUNTING_PERIOD = 4  # words from one item of a sequence to the next
_FEW_STEPS = 3  # of a sequence
_MARK = re.compile(r"[^\w\s]|\n")
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


def counting_end(text: str, around: Surroundings) -> int | None:
    """The end of the first item of a sequence such as `b, c, d, ...` that a limit cut at the end of `text`.

    The items hold letters, numbers, or names that end with numbers, and count up. None without such a sequence, if the
    text continues past it, or if the document has three of the names, or three items in a row.
    """
    head = around.line[-_COUNTED_CHARACTERS:]
    whole = head + text
    words = list(_WORD.finditer(whole))
    first = next((index for index, word in enumerate(words) if word.end() > len(head)), len(words))
    for period in range(1, min(_MAX_COUNTING_PERIOD + 1, len(words))):
        start = len(words)
        while start > period and _goes_on(whole, words, start - 1, period):
            start -= 1
        items = [words[at][0] for at in range(max(start, first), len(words)) if words[at][0] != words[at - period][0]]
        rest, marks = _MARK.findall(whole[words[-1].end() :]), _MARK.findall(_between(whole, words, -period))
        if len(items) >= _FEW_STEPS and rest == marks[: len(rest)] and not _is_known(items, head, around):
            last = next((at for at in range(start - 1, len(words), period) if at >= first), len(words) - 1)
            return _item_end(whole, words, last, period, comma=not around.rest.strip()) - len(head)
    return None


def _item_end(whole: str, words: Sequence[re.Match[str]], last: int, period: int, *, comma: bool) -> int:
    """The end of the item that the word with the index `last` belongs to, with call, closing marks and `comma`."""
    ends = (re.search(r"[,;\n]", _between(whole, words, at + 1)) for at in range(last, len(words) - 1))
    last += next((shift for shift, end in enumerate(islice(ends, period)) if end), 0)
    closer = re.match(r"(?:\([^()\n]*\))?[\"')\]};]*" + ",?" * comma, whole[words[last].end() :])
    return words[last].end() + (closer.end() if closer else 0)


def _goes_on(whole: str, words: Sequence[re.Match[str]], index: int, period: int) -> bool:
    """True if a word is that of a period before or the next one, behind the same marks; at the end, it may grow."""
    word, other = words[index][0], words[index - period][0]
    if index > period and _between(whole, words, index).split() != _between(whole, words, index - period).split():
        return False
    may_grow = words[index].end() == len(whole)
    return any(next_word == word or (may_grow and next_word.startswith(word)) for next_word in (other, _after(other)))


def _between(whole: str, words: Sequence[re.Match[str]], index: int) -> str:
    """The text before a word, from the end of the one before."""
    return whole[words[index - 1].end() : words[index].start()]


def _after(word: str) -> str:
    """The letter after a letter, a name with the number after its own; "" for any other word."""
    if len(word) == 1 and word.isalpha():
        return chr(ord(word) + 1)
    counter = _COUNTER.match(word)
    return f"{counter[1]}{int(counter[2]) + 1:0{len(counter[2])}}{counter[3]}" if counter else ""


def _is_known(items: Sequence[str], head: str, around: Surroundings) -> bool:
    """True if the document has three names of the items, or three items in a row that count up."""
    words = _WORD.findall("\n".join((*around.above, head, *around.below)))
    triples = zip(words, words[1:], words[2:], strict=False)
    counts = any(_after(first) == second and _after(second) == third for first, second, third in triples)
    return counts or len({item for item in items if not item.isdecimal()}.intersection(words)) >= _FEW_STEPS


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
