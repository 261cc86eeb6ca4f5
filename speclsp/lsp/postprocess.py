"""Where a suggestion ends and what of it is shown; or the reason why nothing is.

    plan      before the engine is asked: one line or a block? or not worth asking
    finished  after every round: what has been streamed holds all that will be shown; the stream is closed
    clean     once: cut there, fitted to what stands right of the cursor, in the file's own newlines and indentation

The rules are those a careful typist would keep: the line or the block that was opened gets finished and nothing more,
nothing is said twice, no bracket is closed twice, and nothing invisible slips in.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from speclsp.config import CompletionConfig
from speclsp.lsp import shape
from speclsp.lsp.document import Snapshot, newline
from speclsp.lsp.excerpt import line_end, line_start
from speclsp.lsp.syntax import Tree, grammar

_MOST_LINES = 12
_NEAR_CHARACTERS = 6000  # of the document that brackets are paired off in, before the cursor; half of it after
_LINE_CHARACTERS = 2000  # of the current line, either side
_BINARY_CHARACTERS = 8192

_MARKER = re.compile(
    r"<\|[\w./-]{1,40}\|>|<\|(?:fim|endof|file|repo|im)_?\w*$|<｜[^｜\n]{1,40}｜>|</?fim[_-]\w{3,8}>"
    r"|<(?:PRE|SUF|MID|EOT|EOM)>|\[(?:PREFIX|SUFFIX|MIDDLE)\]|<(?:file_sep|repo_name|endoftext|jupyter_\w+|issue_\w+)>"
)
_FORBIDDEN = re.compile(f"{shape.NEVER.pattern}|{shape.UNSEEN.pattern}|{_MARKER.pattern}")
_LOOP = re.compile(r"(\W{0,11}\w.{2,23}?)\1{11,}|(\w\W?)\2{39,}")  # the same few characters over and over
_AT_MARGIN = re.compile(r"(?m)^[^\s)\]}#/*]")
_COMMON = re.compile(
    r"\W*(?:end|fi|done|esac|else|try|do|then|begin|finally|pass|break|continue|return|default|public|private|protected"
    r"|@\w+)?\W*\Z"
)
_OPENER = {")": "(", "]": "[", "}": "{"}
_CLOSERS = ")]}\"'`;,>"
_CLOSING = re.compile(r"[\s)\]}>\"'`;,:.]*\Z")  # right of the cursor, and no reason against going on


class Reason(str, Enum):
    """Why nothing is shown; `meaning` says it in a line."""

    meaning: str

    INSIDE_WORD = "inside_word", "an identifier goes on right of the cursor"
    BINARY = "binary", "the file holds NUL characters"
    EMPTY = "empty", "the model had nothing to say, or blanks only"
    TRIVIAL = "trivial", "a comma or the like, that is typed as fast as read"
    REPEATS_LINE = "repeats_line", "it says what already stands right of the cursor"
    REPEATS_BELOW = "repeats_below", "it says the next line of the file again"
    REPEATS_ABOVE = "repeats_above", "it says the lines above again"
    LOOPS = "loops", "the model repeats itself from the start"
    DOES_NOT_FIT = "does_not_fit", "it begins a new line while text stands right of the cursor"
    FORBIDDEN = "forbidden", "it begins with a character or a marker that is never shown"

    def __new__(cls, value: str, meaning: str) -> Reason:
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member


@dataclass(frozen=True, slots=True)
class Nothing:
    """Nothing to ask, or to show."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Suggestion:
    """`text` in place of the document's `[start, end)`: code points, on the cursor's line, around the cursor.

    Newlines in `text` are the file's own.
    """

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What stands around the cursor, newlines as \\n."""

    document: str  # as it is
    cursor: int
    rules: shape.Rules
    kind: str  # "code" | "comment" | "string" | "prose": text in a string that spans lines
    line: str  # before the cursor; the last of it, where it is very long
    rest: str  # of the line, after it; the first of it
    above: tuple[str, ...]  # the nearest lines that are not blank, nearest last
    below: tuple[str, ...]  # the same, nearest first
    before: str  # code up to the cursor, from where brackets are likely to be balanced
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How far one suggestion may go."""

    multiline: bool
    max_tokens: int
    around: Surroundings
    floor: int = 0  # a block's lines are indented at least so far, in columns
    opener: str = ""  # how the block was opened: "bracket" | "word", "" when it was not at the cursor
    next_line: bool = True  # the current line being whole, the next one may be suggested
    verbatim: bool = False  # the echo pair: its text is evidence, and is not touched

    def finished(self, text: str) -> bool:
        """Whether the text streamed so far holds all that will be shown."""
        if self.verbatim:
            return False
        return self._cut(_normal(text))[1]

    def clean(self, text: str, *, whole: bool = True) -> Suggestion | Nothing:
        """What to show of the text the model gave; `whole`: it came to an end, and not to a limit in mid-line."""
        around = self.around
        if self.verbatim:
            return Suggestion(text, around.cursor, around.cursor) if text else Nothing(Reason.EMPTY)
        text = _normal(text)
        end, finished, reason = self._cut(text)
        if self.multiline and not whole and not finished and text[:end].strip().count("\n"):
            end = text.rindex("\n", 0, end)
        text = _trimmed(text[:end], around)
        if not text.strip():
            return Nothing(reason or Reason.EMPTY)
        text, swallowed = _fitted(text, around)
        text = _trimmed(text, around)
        if not text.strip() or text == around.rest[:swallowed]:
            return Nothing(Reason.REPEATS_LINE)
        if _is_trivial(text, around):
            return Nothing(Reason.TRIVIAL)
        if _repeats_above(text, around):
            return Nothing(Reason.REPEATS_ABOVE)
        text = _indented(text, around).replace("\n", newline(around.document))
        return Suggestion(text, around.cursor, around.cursor + swallowed)

    # ── where it ends ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _cut(self, text: str) -> tuple[int, bool, Reason | None]:
        """(how much of `text` to keep, whether more of it would change nothing, why if that leaves nothing)."""
        limit, reason = len(text), None
        for found in _FORBIDDEN.finditer(text):
            if shape.NEVER.match(found[0]) or found[0] not in self.around.document:
                limit, reason = found.start(), Reason.FORBIDDEN
                break
        end, done, why = self._block(text[:limit]) if self.multiline else self._line(text[:limit])
        return end, done or reason is not None, why or reason

    def _line(self, text: str) -> tuple[int, bool, Reason | None]:
        """The end of one line: the current one or, where that is whole already, the next."""
        start = len(text) - len(text.lstrip())
        if text.count("\n", 0, start) and not self.next_line:
            return 0, True, Reason.DOES_NOT_FIT
        end = text.find("\n", start)
        whole = end >= 0
        end = end if whole else len(text)
        rest = self.around.rest.strip()
        if len(rest) > 2 and not _CLOSING.match(rest):
            again = re.search(_as_words(rest), text[:end])
            if again:
                return again.start(), again.end() < len(text), Reason.REPEATS_LINE
        if _LOOP.search(text, 0, end):
            return 0, True, Reason.LOOPS
        line = text[:end].rpartition("\n")[2]
        if whole and self._is_below(line if "\n" in text[:end] else self.around.line + line + self.around.rest):
            return 0, True, Reason.REPEATS_BELOW
        return end, whole, None

    def _block(self, text: str) -> tuple[int, bool, Reason | None]:
        """The end of the block opened at the cursor: by bracket, by indentation, at a blank line, or long enough."""
        around, floor = self.around, self.floor
        outside, depths = _pairs(around, text)
        closing = outside[0] if outside else -1
        lines = text.split("\n")
        start = kept = 0
        body = False  # whether the block's first line has been seen
        for index, line in enumerate(lines):
            end = start + len(line)
            whole = index + 1 < len(lines)
            here = around.line + line if index == 0 else line
            if not line.strip():
                if kept and whole:
                    return start, True, None
                start = end + 1
                continue
            if _LOOP.search(line):
                return start, True, Reason.LOOPS
            if whole and self._is_below(here):
                return start, True, Reason.REPEATS_BELOW
            if start <= closing <= end:  # the bracket that opened the block is closed on this line
                leads = index > 0 and not text[start:closing].strip()
                if leads and shape.opens_block(text[closing + 1 : end], around.rules, above=False):
                    return closing + 1, True, None  # `} else {` is another block
                return end, whole, None
            if index == 0 and around.line.strip():  # the rest of the opener's own line
                if self.opener == "word":
                    return end, whole, None
            elif not body:
                body, floor = True, min(floor, shape.width(here))
            elif shape.width(here) < floor and not _depth(depths, start):
                return self._below_floor(start, end, line, whole)
            kept += 1
            first = _repeated(lines[: index + 1]) if whole else None
            if first is not None:
                return sum(len(line) + 1 for line in lines[:first]), True, Reason.LOOPS
            if kept >= _MOST_LINES:
                return end, whole, None
            start = end + 1
        return len(text), False, None

    def _below_floor(self, start: int, end: int, line: str, whole: bool) -> tuple[int, bool, Reason | None]:
        """A line indented less than the block: its end, as `end` or `fi`, or what comes after it."""
        around = self.around
        if shape.ends_block(line, around.rules):
            known = bool(around.below) and around.below[0].strip() == line.strip()
            return (start, True, None) if known else (end, whole, None)
        undecided = not whole and bool(around.rules.ends) and line.strip().isalpha() and len(line.strip()) < 6
        return start, not undecided, None

    def _is_below(self, line: str) -> bool:
        return bool(self.around.below) and _telling(line) and _same(line, self.around.below[0])


def plan(snapshot: Snapshot, tree: Tree | None, config: CompletionConfig, *, verbatim: bool = False) -> Plan | Nothing:
    """Whether to ask at all, and for one line or a block. `verbatim` (the echo pair): always, and touch nothing."""
    around = _surroundings(snapshot, tree)
    if not verbatim:
        near = snapshot.text[max(0, snapshot.cursor - _BINARY_CHARACTERS) : snapshot.cursor + _BINARY_CHARACTERS]
        if "\0" in near or "\0" in snapshot.text[:_BINARY_CHARACTERS]:
            return Nothing(Reason.BINARY)
        right = around.rest[:1]
        if right and (right.isalnum() or right == "_" or unicodedata.category(right)[0] == "M"):
            return Nothing(Reason.INSIDE_WORD)
    blank = not around.line.strip()
    opener = _opener_above(around) if blank and around.above else around.line
    opens = around.kind == "code" and shape.opens_block(opener, around.rules, above=blank)
    allowed = config.multiline != "never" and around.kind in ("code", "string") and not around.rest.strip()
    multiline = allowed and (opens or config.multiline == "always")
    return Plan(
        multiline=multiline,
        max_tokens=config.max_tokens if multiline else config.max_tokens_single_line,
        around=around,
        floor=shape.width(opener) + 1 if opens else shape.width(around.line),
        opener=("bracket" if _ends_in_bracket(opener, around.rules) else "word") if opens else "",
        next_line=config.multiline != "never" and around.kind in ("code", "comment") and not around.rest.strip(),
        verbatim=verbatim,
    )


def _opener_above(around: Surroundings) -> str:
    """The line above a blank one, past a docstring or comments that stand between it and a block's header.

    A body that holds nothing but its documentation is still to be written.
    """
    at = len(around.above) - 1
    while at > 0 and not shape.code_of(around.above[at], around.rules).strip():
        at -= 1
    quotes = around.above[at].rstrip()[-3:]
    if around.rules.colon_opens and quotes in ('"""', "'''"):
        first = next((i for i in range(at, 0, -1) if re.match(rf"\s*[rRuU]?{quotes}", around.above[i])), 0)
        at = first - 1 if first else at
    documented = at < len(around.above) - 1 and shape.opens_block(around.above[at], around.rules, above=True)
    deeper = shape.width(around.line) > shape.width(around.above[at])
    return around.above[at] if documented and deeper else around.above[-1]


def _surroundings(snapshot: Snapshot, tree: Tree | None) -> Surroundings:
    text, cursor = snapshot.text, snapshot.cursor
    start, end = line_start(text, cursor), line_end(text, cursor)
    line = text[max(start, cursor - _LINE_CHARACTERS) : cursor]
    rest = text[cursor : min(end, cursor + _LINE_CHARACTERS)]
    rules = shape.rules(grammar(snapshot.language))
    low, high = max(0, start - _NEAR_CHARACTERS), end + _NEAR_CHARACTERS // 2
    above, below = _normal(text[low:start]), _normal(text[end:high])
    above = above.partition("\n")[2] if low else above
    starts = [found.start() for found in _AT_MARGIN.finditer(above)]  # there, every bracket is closed
    margin = len(above) if _AT_MARGIN.match(line + rest) else starts[-1] if starts else 0
    before = above[margin:] + line
    next_margin = _AT_MARGIN.search(below, 1)
    after = below[: next_margin.start()] if next_margin else below
    if low and not starts and margin == 0:  # begun somewhere inside: what is closed below was opened further up
        whole = above + after
        surplus = shape.balance(whole, rules).surplus
        before = "".join(_OPENER[whole[at]] for at in reversed(surplus)) + before
    kind = tree.kind_at(cursor) if tree is not None else shape.balance(before, rules).inside
    by_line = shape.balance(line, rules).inside  # sees the string or comment that makes no sense yet
    kind = by_line if kind == "code" else "prose" if kind == "string" != by_line else kind
    return Surroundings(
        document=text,
        cursor=cursor,
        rules=rules,
        kind=kind,
        line=line,
        rest=rest,
        above=tuple(line for line in above.split("\n") if line.strip())[-_MOST_LINES:],
        below=tuple(line for line in below.split("\n") if line.strip())[:2],
        before=before,
        after=after,
    )


def _pairs(around: Surroundings, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    """(where `text` closes brackets that it has not opened, (offset, depth in its own brackets from there on)...)."""
    head = len(around.line)
    whole = around.line + text
    depth = 0
    outside: list[int] = []
    steps: list[tuple[int, int]] = []
    for token in shape.tokens(whole, around.rules):
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


def _depth(steps: list[tuple[int, int]], offset: int) -> int:
    return next((depth for at, depth in reversed(steps) if at < offset), 0)


def _fitted(text: str, around: Surroundings) -> tuple[str, int]:
    """`text` so that nothing right of the cursor is said or closed twice: (text, characters of the rest replaced)."""
    rest = around.rest.rstrip()
    while True:
        choices = list(_choices(text, rest, around))  # of equally balanced ones the first is taken
        if len(choices) == 1:
            return text, 0
        best = choices[0]
        if around.kind in ("code", "string"):
            best = min(choices, key=lambda choice: _faults(choice[0], choice[1], around))
        if best[0] == text or best[1]:
            return best
        text = _trimmed(best[0], around)


def _choices(text: str, rest: str, around: Surroundings) -> Iterator[tuple[str, int]]:
    """The ways in which `text` could go with the rest of the line: its end cut off, or the rest's start replaced."""
    balanced = around.kind in ("code", "string")
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
        opened = len(shape.balance(around.line, around.rules).stack)
        needed = max(0, opened - len(shape.balance(rest, around.rules).surplus))
        at_margin = not around.line and not (around.below and around.below[0][0] in _CLOSERS)
        outside = _pairs(around, text)[0][needed:]
        yield from ((text[:at], 0) for at in outside[:-9:-1] if at or not at_margin)


def _faults(text: str, swallowed: int, around: Surroundings) -> int:
    """How far from balanced the code around the cursor is with `text` in it."""
    whole = around.before + text + around.rest[swallowed:] + around.after
    return shape.balance(whole, around.rules).faults


def _is_trivial(text: str, around: Surroundings) -> bool:
    bare = text.strip()
    if any(character.isalnum() or character == "_" for character in bare):
        return False
    if len(bare) > 1 and bare.strip(",;.:)]}"):
        return False
    closes = _faults(text, 0, around) < _faults("", 0, around)
    return not closes and not shape.opens_block(around.line + text, around.rules, above=False)


def _repeats_above(text: str, around: Surroundings) -> bool:
    """Whether the lines of `text` are those just above it, one or several."""
    first, *more = text.split("\n")
    lines = [around.line + first, *more] if first.strip() else more
    above = around.above if first.strip() else (*around.above, around.line)
    lines = [line for line in lines if line.strip()]
    if not lines or not any(map(_telling, lines)):
        return False
    nearest = above[-len(lines) :]
    return len(nearest) == len(lines) and all(map(_same, lines, nearest))


def _repeated(lines: Sequence[str]) -> int | None:
    """The first line to drop when the last ones say the same thing for the third time."""
    said = [(index, line.rstrip()) for index, line in enumerate(lines) if line.strip()]
    for period in (1, 2, 3):
        tail = [line for _index, line in said[-3 * period :]]
        if len(tail) == 3 * period and tail[:period] * 3 == tail and any(map(_telling, tail)):
            return said[-2 * period][0]
    return None


def _indented(text: str, around: Surroundings) -> str:
    """`text` with tabs for spaces or spaces for tabs where all lines around are indented that way."""
    if "\n" not in text:
        return text
    style, step = shape.indent_style(around.before + around.after)
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


def _trimmed(text: str, around: Surroundings) -> str:
    """`text` without blanks at the ends of its lines and blank lines at its end. Inside a line one may be meant."""
    inside = bool(around.rest) and not around.rest[0].isspace() and not _CLOSING.match(around.rest)
    *lines, last = text.split("\n")
    if inside and last.strip():
        return "\n".join([*(line.rstrip(" \t") for line in lines), last])
    return "\n".join(line.rstrip(" \t") for line in [*lines, last]).rstrip("\n")


def _ends_in_bracket(line: str, rules: shape.Rules) -> bool:
    return shape.code_of(line, rules).rstrip()[-1:] in ("(", "[", "{")


def _as_words(text: str) -> str:
    """A regular expression for `text`, not as a part of longer words."""
    head = r"(?<!\w)" if text[0].isalnum() or text[0] == "_" else ""
    tail = r"(?!\w)" if text[-1].isalnum() or text[-1] == "_" else ""
    return head + re.escape(text) + tail


def _telling(line: str) -> bool:
    """Whether a line says enough for its repetition to be one: not `}`, `end` or `else:`."""
    return _COMMON.match(line) is None


def _same(line: str, other: str) -> bool:
    return line.strip() == other.strip() and shape.width(line) == shape.width(other)


def _is_subsequence(part: str, text: str) -> bool:
    characters = iter(text)
    return all(character in characters for character in part)


def _normal(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
