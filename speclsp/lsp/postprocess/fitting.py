"""Fitting a suggestion into its line: which of its brackets and quotes stand right of the cursor already.

A bracket is surplus only together with the code around it. So the brackets of that code are matched with the suggestion
in it, once for each choice of cutting the suggestion or replacing brackets that the editor has closed by itself. The
choice that leaves the fewest unmatched brackets and quotes wins. Each rule below yields choices of one kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from speclsp.lsp.postprocess.surroundings import Surroundings, imbalance, pairs, trim
from speclsp.lsp.syntax import lexical_rules
from speclsp.lsp.syntax.lexical_rules import pair
from speclsp.lsp.syntax.text_windows import is_subsequence
from speclsp.plain_text import is_inside_word

_OPENER = {")": "(", "]": "[", "}": "{"}
_MAX_CHOICES = 4  # that are tried for a text that breaks the syntax
_MAX_REPEATED = 4  # characters of the rest that may occur in a text; twice as many in a comment
_MAX_CLOSED = 40  # unmatched closers in a text; behind them a model repeats ")" for ever
_OWN_CLOSERS = {**_OPENER, ">": "<"}  # in a text whose brackets are not matched: a comment, and type arguments
_CLOSERS = ")]}\"'`;,>"
_UNFINISHED = re.compile(r"(?:[=\-]>|[-=+*/%&|^<~.:({\[\\])\s*\Z")  # at the end of a text
Choice = tuple[str, int]  # (text to insert, characters of the rest of the line that it replaces)
# Behind a line break: what cannot begin a line.
_GOES_ON = re.compile(r"\s*\n\s*(?:[.?:{]|=>|->|&&|\|\||(?:and|or|else)\b)")


def fit(text: str, around: Surroundings) -> Choice:
    """The best choice for `text`, so that nothing right of the cursor is repeated or closed twice."""
    outside = pairs(around, text)[0][_MAX_CLOSED:]
    text = trim(text[: outside[0]], around) if outside else text
    while True:
        choices = list(_choices(text, around))  # the first of equally balanced ones wins
        if len(choices) == 1:
            return text, 0
        best = choices[0]
        if around.kind in ("code", "string"):
            best = min(choices, key=lambda choice: imbalance(choice[0], choice[1], around))
        if best[0] == text or best[1]:
            return best
        text = trim(best[0], around)


def alternatives(text: str, around: Surroundings) -> Iterator[tuple[int, Choice | None]]:
    """Candidates for a text that breaks the syntax: (length of the text, choice; None for that of `fit`).

    The whole text with other choices, then fewer lines.
    """
    choices = _choices(text, around)
    ranked = sorted(choices, key=lambda choice: imbalance(choice[0], choice[1], around))
    yield from ((len(text), choice) for choice in ranked[:_MAX_CHOICES] if len(ranked) > 1)
    lines = [match.start() for match in re.finditer(r"\n", text) if text[: match.start()].strip()]
    yield from ((at, None) for at in reversed(lines) if not _goes_on(text, at, around))


def _goes_on(text: str, at: int, around: Surroundings) -> bool:
    """True if the line that ends at `at` goes on in the next line, or in the rest of the cursor's line."""
    if around.kind != "code" or text[at - 1 : at] == ";":
        return False
    is_mid_line = bool(around.rest.strip())
    return bool((is_mid_line and _UNFINISHED.search(text[:at])) or _GOES_ON.match(text, at))


@dataclass(frozen=True, slots=True)
class _Meeting:
    """A text, and the rest of the line that it meets."""

    text: str
    rest: str  # without blanks at its end
    around: Surroundings
    has_brackets: bool  # the text is code or a string, whose brackets are matched
    closers: int  # at the start of the rest, that the text may replace
    outside: list[int]  # offsets at which the text closes what it has not opened

    @classmethod
    def of(cls, text: str, around: Surroundings) -> _Meeting:
        rest = around.rest.rstrip()
        has_brackets = around.kind in ("code", "string")
        closers = min(len(rest) - len(rest.lstrip(_CLOSERS)), 8) if has_brackets else 0
        return cls(text, rest, around, has_brackets, closers, pairs(around, text)[0] if closers else [])


def _before_the_rest(meeting: _Meeting) -> Iterator[Choice]:
    """The text up to the place where it begins to write the rest again."""
    characters = _MAX_REPEATED if meeting.has_brackets else 2 * _MAX_REPEATED
    again = _find_beginning(meeting.rest, meeting.text, characters)
    if again > 0:
        yield trim(meeting.text[:again], meeting.around), 0


def _closing_an_interpolation(meeting: _Meeting) -> Iterator[Choice]:
    """In a string, text that closes the interpolated code itself: `${name} and more`."""
    text, rest = meeting.text, meeting.rest
    if meeting.around.kind != "string" or rest[:1] != "}" or text.count("}") <= text.count("{"):
        return
    yield from ((text[:-length], 0) for length in range(len(rest), 0, -1) if _is_repeated(text, rest, length))
    behind = rest[1:]
    yield from ((text[:-length], 1) for length in range(len(behind), 0, -1) if _is_repeated(text, behind, length))
    yield text, 1


def _without_a_reopened_bracket(meeting: _Meeting) -> Iterator[Choice]:
    """The text without a bracket that it closes only to open another one before the rest."""
    text, outside = meeting.text, meeting.outside
    is_last = bool(outside) and outside[-1] == len(text) - 2
    if is_last and lexical_rules.PAIRS.get(text[-1]) == meeting.rest[0] == text[-2]:
        yield text[:-2], 0


def _replacing_closers(meeting: _Meeting) -> Iterator[Choice]:
    """The text in place of more and more closers of the rest, whole or without an end that the rest repeats."""
    text, rest, outside = meeting.text, meeting.rest, meeting.outside
    for replaced in range(meeting.closers + 1):
        part, left = rest[:replaced], rest[replaced:]
        if part and not (is_subsequence(part, text) and _closes(text, outside, part)):  # VS Code needs the first
            return
        if part and text.endswith(";") and left.strip() and left.strip()[0] not in _CLOSERS:
            return  # the text ends a statement in which the rest goes on
        for length in range(len(left), 0, -1):
            shorter = text[:-length]
            own = left[0] if length == 1 and not (meeting.has_brackets and left[0] in _OPENER) else ""
            if own in _OWN_CLOSERS and text.count(_OWN_CLOSERS[own]) >= text.count(own):
                continue  # the closer of a bracket in the text
            if _is_repeated(text, left, length) and is_subsequence(part, shorter) and _closes(shorter, outside, part):
                yield shorter, replaced
        yield text, replaced


def _before_a_surplus_closer(meeting: _Meeting) -> Iterator[Choice]:
    """The text up to a bracket that it closes although nothing opened it.

    It may close a bracket that was opened on this line and is not closed right of the cursor. It may also close one at
    the margin, a namespace for example: its opener can be anywhere.
    """
    around, text = meeting.around, meeting.text
    if not meeting.has_brackets:
        return
    line = around.code or around.line
    needed = max(0, len(pair(line, around.rules).openers) - len(pair(meeting.rest, around.rules).closers))
    at_margin = not around.line and not (around.below and around.below[0][0] in _CLOSERS)
    surplus = pairs(around, text)[0][needed:]
    yield from ((text[:at], 0) for at in surplus[:-9:-1] if at or not at_margin)


_RULES = (
    _before_the_rest,
    _closing_an_interpolation,
    _without_a_reopened_bracket,
    _replacing_closers,
    _before_a_surplus_closer,
)


def _choices(text: str, around: Surroundings) -> Iterator[Choice]:
    """The choices for `text` and the rest of the line, the preferred ones first."""
    meeting = _Meeting.of(text, around)
    for rule in _RULES:
        yield from rule(meeting)


def _find_beginning(rest: str, text: str, characters: int) -> int:
    """The offset in `text` of the first words or marks of `rest`, at least `characters` without blanks; -1 for none."""
    length = next((at for at in range(len(rest) + 1) if len("".join(rest[:at].split())) >= characters), 0)
    while is_inside_word(rest, length):
        length += 1
    beginning = rest[:length]
    return text.find(beginning) if beginning.strip(_CLOSERS + " \t") else -1


def _closes(text: str, outside: list[int], part: str) -> bool:
    """True if `text` itself closes the brackets that the closers in `part` of the rest close."""
    brackets = "".join(character for character in part if character in _OPENER)
    return not brackets or is_subsequence(brackets, "".join(text[at] for at in outside if at < len(text)))


def _is_repeated(text: str, rest: str, length: int) -> bool:
    """True if `text` ends with the first `length` characters of `rest`, and neither is in the middle of a word."""
    part = rest[:length]
    if not part.strip() or not text.endswith(part):
        return False
    return not is_inside_word(text, len(text) - len(part)) and not is_inside_word(rest, len(part))
