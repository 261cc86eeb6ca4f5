"""How a suggestion goes with what stands around it: brackets, quotes, repetitions, indentation.

Whether a bracket is one too many is not asked of the suggestion alone. The code around the cursor is paired off with
the suggestion in it, once for each way it could be cut or could replace what an editor has closed by itself; the way
that leaves the fewest brackets and quotes over is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.postprocess import prose
from speclsp.lsp.syntax import lexical_rules
from speclsp.lsp.syntax.grammars import grammar
from speclsp.lsp.syntax.languages import LexicalRules
from speclsp.lsp.syntax.text_windows import line_end, line_start, normal_newlines
from speclsp.lsp.syntax.tree import SyntaxTree

_MOST_LINES_ABOVE = 60  # a docstring and more
_MOST_LINES_BELOW = 12
_NEAR_CHARACTERS = 6000  # of the document that brackets are paired off in, before the cursor; half of it after
_LINE_CHARACTERS = 2000  # of the current line, either side
_MOST_WAYS = 4  # in which a text that breaks something is tried
_MOST_ENDS = 12  # of its first line
_MOST_CLOSED = 40  # brackets that a text closes and has not opened: what follows is a model that says ")" for ever
_AT_MARGIN = re.compile(r"(?m)^[^\s)\]}#/*]")
_COMMON = frozenset(
    (
        *("end", "fi", "done", "esac", "else", "try", "do", "then", "begin", "finally", "pass", "break", "continue"),
        *("return", "default", "public", "private", "protected"),
    )
)
_WORD = re.compile(r"\w+")
_OPENER = {")": "(", "]": "[", "}": "{"}
_CLOSERS = ")]}\"'`;,>"
CLOSING = re.compile(r"[\s)\]}>\"'`;,:.]*\Z")  # right of the cursor, and no reason against going on


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What stands around the cursor, newlines as \\n."""

    document: str  # as it is
    cursor: int
    rules: LexicalRules
    kind: str  # "code" | "comment" | "string" | "prose": text in a string that spans lines
    line: str  # before the cursor; the last of it, where it is very long
    rest: str  # of the line, after it; the first of it
    above: tuple[str, ...]  # the nearest lines that are not blank, nearest last
    below: tuple[str, ...]  # the same, nearest first
    before: str  # code up to the cursor, from where brackets are likely to be balanced
    after: str
    closing: str = ""  # what ends the comment or long string that the cursor is in
    closed: bool = False  # it stands below; or the fence does that ends this code in Markdown
    fences: str = "never"  # a line like "```" is "never" part of it, "ends" it, or is "text"


def read_surroundings(snapshot: Snapshot, tree: SyntaxTree | None) -> Surroundings:
    text, cursor = snapshot.text, snapshot.cursor
    start, end = line_start(text, cursor), line_end(text, cursor)
    line = text[max(start, cursor - _LINE_CHARACTERS) : cursor]
    rest = text[cursor : min(end, cursor + _LINE_CHARACTERS)]
    markdown = prose.is_markdown(snapshot.language)
    code = prose.fenced(text, cursor) if markdown else None
    rules = lexical_rules.rules_of(grammar(code.language if code else snapshot.language))
    low, high = max(0, start - _NEAR_CHARACTERS), end + _NEAR_CHARACTERS // 2
    if code is not None:
        low, high = max(low, min(code.start, start)), min(high, max(code.end, end))
    above, below = normal_newlines(text[low:start]), normal_newlines(text[end:high])
    above = above.partition("\n")[2] if low and (code is None or low > code.start) else above
    starts = [found.start() for found in _AT_MARGIN.finditer(above)]  # there, every bracket is closed
    margin = len(above) if _AT_MARGIN.match(line + rest) else starts[-1] if starts else 0
    before = above[margin:] + line
    next_margin = _AT_MARGIN.search(below, 1)
    after = below[: next_margin.start()] if next_margin else below
    if low and not starts and margin == 0:  # begun somewhere inside: what is closed below was opened further up
        whole = above + after
        surplus = lexical_rules.balance(whole, rules).unmatched_closers
        before = "".join(_OPENER[whole[at]] for at in reversed(surplus)) + before
    kind = tree.kind_at(cursor) if tree is not None else lexical_rules.balance(before, rules).inside
    by_line = lexical_rules.balance(line, rules).inside  # sees the string or comment that makes no sense yet
    kind = by_line if kind == "code" else "prose" if kind == "string" != by_line else kind
    if markdown and code is None:
        kind = "comment"  # goes on like one: to the end of the line, no brackets paired off
    closing = prose.closer(before, kind, rules) if kind != "code" and not markdown else ""
    return Surroundings(
        document=text,
        cursor=cursor,
        rules=rules,
        kind=kind,
        line=line,
        rest=rest,
        above=tuple(line for line in above.split("\n") if line.strip())[-_MOST_LINES_ABOVE:],
        below=tuple(line for line in below.split("\n") if line.strip())[:_MOST_LINES_BELOW],
        before=before,
        after=after,
        closing=closing,
        closed=code.closed if code is not None else bool(closing) and prose.is_closed(text[cursor:], closing),
        fences="text" if kind != "code" else "ends" if code is not None else "never",
    )


def pairs(around: Surroundings, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    """(where `text` closes brackets that it has not opened, (offset, depth in its own brackets from there on)...)."""
    head = len(around.line)
    whole = around.line + text
    depth = 0
    outside: list[int] = []
    steps: list[tuple[int, int]] = []
    for token in lexical_rules.tokens(whole, around.rules):
        at = token.start - head
        if token.kind == "bracket" and at >= 0:
            if text[at] in "([{":
                depth += 1
            elif depth:
                depth -= 1
            else:
                outside.append(at)
            steps.append((at, depth))
    return outside, steps


def fitted(text: str, around: Surroundings) -> tuple[str, int]:
    """`text` so that nothing right of the cursor is said or closed twice: (text, characters of the rest replaced)."""
    rest = around.rest.rstrip()
    outside = pairs(around, text)[0][_MOST_CLOSED:]
    text = trimmed(text[: outside[0]], around) if outside else text
    while True:
        choices = list(_choices(text, rest, around))  # of equally balanced ones the first is taken
        if len(choices) == 1:
            return text, 0
        best = choices[0]
        if around.kind in ("code", "string"):
            best = min(choices, key=lambda choice: _faults(choice[0], choice[1], around))
        if best[0] == text or best[1]:
            return best
        text = trimmed(best[0], around)


def mended(text: str, around: Surroundings) -> Iterator[tuple[int, tuple[str, int] | None]]:
    """What could be shown of a text that breaks something: (how much of it, in which way if not as `fitted` says).

    All of it in another way, then whole lines, then the last line up to something that may be its end.
    """
    ways = sorted(_choices(text, around.rest.rstrip(), around), key=lambda way: _faults(way[0], way[1], around))
    yield from ((len(text), way) for way in ways[:_MOST_WAYS] if len(ways) > 1)
    lines = [found.start() for found in re.finditer(r"\n", text) if text[: found.start()].strip()]
    yield from ((at, None) for at in reversed(lines))
    first = lines[0] if lines else len(text)
    whole, head = around.line + text[:first], len(around.line)
    ends = [
        (token.start if token.kind == "comment" else token.end) - head
        for token in lexical_rules.tokens(whole, around.rules)
        if token.kind != "bracket" or whole[token.start] not in _OPENER.values()
    ]
    ends += [found.start() for found in re.finditer(r"(?<=;)|\*/|-->|\"\"\"|'''", text[:first])]
    ends.append(len(text[:first].rstrip().rstrip(")]}\"'`")))
    yield from ((at, None) for at in sorted({at for at in ends if 0 < at < first}, reverse=True)[:_MOST_ENDS])


def _choices(text: str, rest: str, around: Surroundings) -> Iterator[tuple[str, int]]:
    """The ways in which `text` could go with the rest of the line: its end cut off, or the rest's start replaced."""
    balanced = around.kind in ("code", "string")
    if around.kind == "string" and rest[:1] == "}" and _closes_brace(text):  # `${name} and more`
        yield text, 1
    closers = min(len(rest) - len(rest.lstrip(_CLOSERS)), 8) if balanced else 0
    for swallowed in range(closers + 1):
        if swallowed and not _is_subsequence(rest[:swallowed], text):  # VS Code shows nothing then
            break
        left = rest[swallowed:]
        for length in range(len(left), 0, -1):
            part = left[:length]
            said = part.strip() and text.endswith(part) and (length == len(left) or not part.strip(_CLOSERS))
            if said and _is_subsequence(rest[:swallowed], text[:-length]):
                yield text[:-length], swallowed
        yield text, swallowed
    if balanced:
        # A bracket opened on this line and not closed right of the cursor may be closed by the text, and so may what
        # is closed at the margin (a namespace, say): its opener can be anywhere.
        opened = len(lexical_rules.balance(around.line, around.rules).stack)
        needed = max(0, opened - len(lexical_rules.balance(rest, around.rules).unmatched_closers))
        at_margin = not around.line and not (around.below and around.below[0][0] in _CLOSERS)
        outside = pairs(around, text)[0][needed:]
        yield from ((text[:at], 0) for at in outside[:-9:-1] if at or not at_margin)


def _closes_brace(text: str) -> bool:
    """Whether a "}" comes before its "{"."""
    depth = 0
    for character in text:
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return True
    return False


def _faults(text: str, swallowed: int, around: Surroundings) -> int:
    """How far from balanced the code around the cursor is with `text` in it."""
    whole = around.before + text + around.rest[swallowed:] + around.after
    return lexical_rules.balance(whole, around.rules).imbalance


def is_trivial(text: str, around: Surroundings) -> bool:
    bare = text.strip()
    if any(character.isalnum() or character == "_" for character in bare):
        return False
    if len(bare) > 1 and bare.strip(",;.:)]}"):
        return False
    closes = _faults(text, 0, around) < _faults("", 0, around)
    return not closes and not lexical_rules.opens_block(around.line + text, around.rules, above=False)


def repeats_above(text: str, around: Surroundings) -> bool:
    """Whether the lines of `text` are those just above it, one or several."""
    first, *more = text.split("\n")
    lines = [around.line + first, *more] if first.strip() else more
    above = around.above if first.strip() else (*around.above, around.line)
    lines = [line for line in lines if line.strip()]
    if not lines or not any(map(is_telling, lines)):
        return False
    nearest = above[-len(lines) :]
    return len(nearest) == len(lines) and all(map(is_same, lines, nearest))


def indented(text: str, around: Surroundings) -> str:
    """`text` with tabs for spaces or spaces for tabs where all lines around are indented that way."""
    if "\n" not in text:
        return text
    style, step = lexical_rules.indent_style(around.before + around.after)
    first, *more = text.split("\n")
    blanks = [line[: len(line) - len(line.lstrip(" \t"))] for line in more]
    if style == "tabs":
        unit = next(
            (unit for unit in (4, 2) if all(len(blank) % unit == 0 for blank in blanks if "\t" not in blank)), 0
        )
        if unit:
            blanks = [blank if "\t" in blank else "\t" * (len(blank) // unit) for blank in blanks]
    elif style == "spaces":
        blanks = [blank.replace("\t", " " * step) for blank in blanks]
    return "\n".join([first, *(blank + line.lstrip(" \t") for blank, line in zip(blanks, more, strict=True))])


def trimmed(text: str, around: Surroundings) -> str:
    """`text` without blanks at the ends of its lines and blank lines at its end. Inside a line one may be meant."""
    inside = bool(around.rest) and not around.rest[0].isspace() and not CLOSING.match(around.rest)
    *lines, last = text.split("\n")
    if inside and last.strip():
        return "\n".join([*(line.rstrip(" \t") for line in lines), last])
    return "\n".join(line.rstrip(" \t") for line in [*lines, last]).rstrip("\n")


def is_telling(line: str) -> bool:
    """Whether a line says enough for its repetition to be one: not `}`, `end` or `else:`."""
    words = list(islice(_WORD.finditer(line), 2))  # no one pattern for it all: its time would be quadratic in symbols
    if len(words) != 1:
        return bool(words)
    start = words[0].start()
    return words[0][0] not in _COMMON and line[start - 1 : start] != "@"


def is_same(line: str, other: str) -> bool:
    return line.strip() == other.strip() and lexical_rules.indent_width(line) == lexical_rules.indent_width(other)


def without_below(text: str, around: Surroundings) -> int:
    """How much of `text` is left without last lines that stand below already, at whatever indentation."""
    lines = [(around.line + line if index == 0 else line).strip() for index, line in enumerate(text.split("\n"))]
    told = [index for index, line in enumerate(lines) if line]
    below = [line.strip() for line in around.below]
    for count in range(min(len(told), len(below)), 0, -1):
        last = [lines[index] for index in told[-count:]]
        if last == below[:count] and any(map(is_telling, last)):
            return sum(len(line) + 1 for line in text.split("\n")[: told[-count]])
    return len(text)


def repeated(lines: Sequence[str]) -> int | None:
    """The first line to drop when the last ones say the same thing for the third time."""
    said = [(index, line.rstrip()) for index, line in enumerate(lines) if line.strip()]
    for period in (1, 2, 3):
        tail = [line for _index, line in said[-3 * period :]]
        if len(tail) == 3 * period and tail[:period] * 3 == tail and any(map(is_telling, tail)):
            return said[-2 * period][0]
    return None


def said_again(words: str, text: str) -> int:
    """Where `text` says `words`, not as a part of longer words; -1 for nowhere. No pattern: making one takes longer."""
    at = text.find(words)
    while at >= 0:
        end = at + len(words)
        cut = _is_word(text[max(0, at - 1) : at] + words[0]) or _is_word(words[-1] + text[end : end + 1])
        if not cut:
            break
        at = text.find(words, at + 1)
    return at


def _is_word(two: str) -> bool:
    """Whether two characters belong to one word."""
    return len(two) == 2 and all(character.isalnum() or character == "_" for character in two)


def _is_subsequence(part: str, text: str) -> bool:
    characters = iter(text)
    return all(character in characters for character in part)
