"""Syntax check of a suggestion: whether it adds syntax errors to the document.

The errors are counted with the suggestion and without it. Neither text is complete: the user is in the middle of a
line, and a good suggestion can end in the middle of a statement. So each text is parsed with several endings that could
complete it (open brackets are closed, an operand follows its operator), and the lowest count is used:

    foo(          now    foo()           0        if (x) {      with    if (x) {}       0: may be shown
    foo(a b)      with   foo(a b)        1: more than now, the suggestion breaks it

Each count is an incremental parse, about a millisecond. There is a budget of processor time for all of them; a
suggestion that is not checked within it is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from speclsp.lsp.postprocess import closers, surroundings
from speclsp.lsp.syntax import lexical_rules
from speclsp.lsp.syntax.incremental_parse import parse_clock_s
from speclsp.lsp.syntax.languages import BY_NAME
from speclsp.lsp.syntax.languages.record import C_ENDS, C_INSIDE, OPERAND, LexicalRules
from speclsp.lsp.syntax.lexical_rules import pair
from speclsp.lsp.syntax.text_windows import normal_newlines
from speclsp.lsp.syntax.tree import SyntaxTree
from speclsp.plain_text import is_word

QUICK_MS = 2.0  # enough to parse a text without errors
LONG_CHARACTERS = 50_000  # a longer text with errors takes too long
NEAR_CHARACTERS = 16_384  # of a long text, around the cursor
_ELEMENT = "<a></a>"
_TRY = re.compile(r"\btry\b")


class Verdict(Enum):
    """The result of a check."""

    CLEAN = "clean"  # the document has no error with the text
    NO_WORSE = "no worse"  # not more errors than now, or there was no time to count them
    BREAKS = "breaks"


@dataclass(slots=True)
class SyntaxCheck:
    """Counts syntax errors at one cursor. `tree`: of the document, or of the part of it around the cursor."""

    tree: SyntaxTree
    around: surroundings.Surroundings
    _errors_now: int | None = field(default=None, init=False)
    _is_window: bool = field(default=False, init=False)

    def check(self, text: str, end: int, deadline: float, *, truncated: bool = False) -> Verdict:
        """The verdict on `text` in place of `[cursor, end)`, when each text has its best ending.

        `end` is on the cursor's line. `truncated`: `text` ends where a limit cut it. NO_WORSE if not known by
        `deadline`, of parse_clock_s().
        """
        if self._is_long() and self._count(text, end, min(deadline, parse_clock_s() + QUICK_MS / 1000)) == 0:
            return Verdict.CLEAN
        if not self._use_window(deadline):
            return Verdict.NO_WORSE
        first = "" if self.tree.count_errors() else next(self._endings(text, end, truncated=truncated), "")
        if first and not first.startswith(OPERAND) and self._count(text + first, end, deadline) == 0:
            # the closers of open brackets are tried first, because a text with errors takes longer to parse
            return Verdict.NO_WORSE
        errors = self._count(text, end, deadline)
        if not errors:
            return Verdict.CLEAN if errors == 0 else Verdict.NO_WORSE
        errors_now = self._least_errors_now(deadline)
        if errors_now is None or errors <= errors_now:
            return Verdict.NO_WORSE
        least = self._least_errors(text, end, errors, errors_now, deadline, truncated=truncated)
        if errors_now and least is not None and least > errors_now:
            # an error above can add some to any text here: a text without errors of its own is the measure
            plain = self._count(_ELEMENT if text.lstrip().startswith("<") else OPERAND, end, deadline)
            errors_now = max(errors_now, plain or 0)
        return Verdict.BREAKS if least is not None and least > errors_now else Verdict.NO_WORSE

    def _is_long(self) -> bool:
        return not self._is_window and len(self.tree.text) > LONG_CHARACTERS

    def _use_window(self, deadline: float) -> bool:
        """From here on, parse only a window of a long text, because a text with errors takes longer; False: no time."""
        if self._is_long():
            near = self.tree.parse_near(self.around.cursor, NEAR_CHARACTERS, (deadline - parse_clock_s()) * 1000)
            if near is None:
                return False
            self.tree, self._is_window = near, True
        return True

    def _least_errors_now(self, deadline: float) -> int | None:
        """The fewest errors without a suggestion; None if there was no time to count."""
        if self._errors_now is None:
            around = self.around
            now = self._count("", around.cursor, deadline) if self.tree.count_errors() else 0
            if now is None:
                return None
            missing = next(closers.candidates("", around, line=True), "") if now else ""
            if missing and self._count(missing, around.cursor, deadline) == 0:
                self._errors_now = 0  # all errors come from what the line leaves open
                return 0
            line_end = around.cursor + len(around.rest)
            bare = self._count("", line_end, deadline, back=len(around.line)) if now else 0
            if bare:  # errors elsewhere, or syntax that the grammar does not know: such counts vary by chance
                least = self._least_errors("", around.cursor, now, bare, deadline, truncated=True)
                self._errors_now = max(least, bare) if least is not None else None
            elif bare == 0:
                self._errors_now = self._least_errors("", around.cursor, now, 0, deadline, truncated=True)
        return self._errors_now

    def _least_errors(
        self, text: str, end: int, errors: int, enough: int, deadline: float, *, truncated: bool
    ) -> int | None:
        """The fewest errors of `text` with one of its possible endings; None if there was no time to count.

        `errors`: the count without an ending. Counting stops at `enough` or fewer.
        """
        separator = " " if is_word((self.around.line + text)[-1:]) else ""
        for ending in self._endings(text, end, truncated=truncated):
            ending = separator + ending if ending.startswith(OPERAND) else ending  # not a part of the last word
            count = self._count(text + ending, end, deadline)
            if count is None:
                return None
            errors = min(errors, count)
            if errors <= enough:
                break
        return errors

    def _endings(self, text: str, end: int, *, truncated: bool) -> Iterator[str]:
        """Texts that could complete `text`, the likeliest first."""
        around, text = self.around, normal_newlines(text)
        language = BY_NAME[self.tree.grammar]
        rest = around.rest[end - around.cursor :]
        if rest.strip() and not truncated:  # the user would not go on writing here
            return
        closed = len(pair(rest, around.rules).closers)
        openers = pair(around.line + text, around.rules).openers[closed:]
        ending = "".join(mark.closer for mark in reversed(openers) if mark.mark[0] != "<")
        quote = _string_end(around.before, text, around.rules, truncated=truncated or not language.strings_end_on_line)
        if quote:
            yield quote + ending
            if ending:
                yield quote
        if any(mark.mark[0] == "<" for mark in openers):
            yield "".join(mark.closer for mark in reversed(openers))
        if language.has_preprocessor and (around.line + text).lstrip().startswith("#if"):
            yield "\n#endif"
        if ending:
            yield ending
        yield OPERAND + ending
        is_c_like = language.line_ends is None
        if is_c_like and _TRY.search(around.line + text):
            yield f"{ending} catch (x) {{}}"
            yield f"{ending} catch (x y) {{}}"
        if ending:
            yield from (inside + ending for inside in (C_INSIDE if is_c_like else language.line_ends_inside))
        indent = around.line[: len(around.line) - len(around.line.lstrip())]
        line_ends = C_ENDS if language.line_ends is None else language.line_ends
        yield from (ending + line_end.replace("{indent}", indent) for line_end in line_ends)
        if is_c_like:
            yield from (f"{OPERAND}{ending};", f" : {OPERAND}{ending};")

    def _count(self, text: str, end: int, deadline: float, back: int = 0) -> int | None:
        return self.tree.count_errors_with(self.around.cursor - back, end, text, (deadline - parse_clock_s()) * 1000)


def _string_end(before: str, text: str, rules: LexicalRules, *, truncated: bool) -> str:
    """The end of the string or comment that is open at the end of `text`; "" if none is, or in a one-line comment.

    A one-line string that begins in a complete `text` stays an error: nothing would close it.
    """
    last = lexical_rules.left_open(before + text, rules)
    if last is None or (last.kind == "string" and not truncated and last.start >= len(before)):
        return ""
    return lexical_rules.closing_of((before + text)[last.start :], last.kind)
