"""Whether a suggestion would break what the grammar makes sense of now.

Counted are the places that make no sense, with the suggestion and without it. Neither text is whole: a person is in the
middle of a line, and a good suggestion may end in the middle of a statement. So each is looked at with the ends that
would complete it (what it has opened is closed, an operand follows its operator), and the best of them counts:

    foo(          now    foo()           0        if (x) {      with    if (x) {}       0: may be shown
    foo(a b)      with   foo(a b)        1: more than now, it is broken

Each look is a parse that starts from the tree at hand, about a millisecond. There is a time budget for all of them;
what is not known by then is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import perf_counter

from speclsp.lsp.postprocess import surroundings
from speclsp.lsp.syntax import lexical_rules
from speclsp.lsp.syntax.languages import BY_NAME, C_ENDS, C_INSIDE, OPERAND, LexicalRules
from speclsp.lsp.syntax.text_windows import normal_newlines
from speclsp.lsp.syntax.tree import SyntaxTree

_QUICK_MS = 2.0  # a text without errors is seen to be one by then
_LONG_CHARACTERS = 50_000  # of a text with errors more than this takes too long
_NEAR_CHARACTERS = 16_384  # around the cursor, of a long one
_TAG = re.compile(r"<(/?)([A-Za-z][\w.-]*)?(?:\s[^<>]*?)?(/?)>")
_VOID = frozenset(
    ("br", "hr", "img", "input", "link", "meta", "area", "base", "col", "embed", "source", "track", "wbr")
)
_TRY = re.compile(r"\btry\b")


@dataclass(slots=True)
class SyntaxCheck:
    """Counts for one place in one document. `tree`: of the document, or the part of it around the cursor."""

    tree: SyntaxTree
    around: surroundings.Surroundings
    _least: int | None = field(default=None, init=False)
    _closer: bool = field(default=False, init=False)

    def breaks(self, text: str, end: int, deadline: float, *, torn: bool = False) -> bool:
        """Whether more is broken with `text` in place of `[cursor, end)` than is now, each completed as well as can be.

        `end` is on the cursor's line. `torn`: `text` ends where a limit cut it. False where that cannot be known by
        `deadline`, of perf_counter().
        """
        if self._is_long() and self._count(text, end, min(deadline, perf_counter() + _QUICK_MS / 1000)) == 0:
            return False
        if not self._look_closer(deadline):
            return False
        first = "" if self.tree.count_errors() else next(self._ends(text, end, torn=torn), "")
        if first and not first.startswith(OPERAND) and self._count(text + first, end, deadline) == 0:
            return False  # it leaves something open: what closes it is tried first, for errors are what takes its time
        faults = self._count(text, end, deadline)
        if not faults:
            return False
        least = self._least_now(deadline)
        if least is None or faults <= least:
            return False
        found = self._completed(text, end, faults, least, deadline, torn=torn)
        return found is not None and found > least

    def _is_long(self) -> bool:
        return not self._closer and len(self.tree.text) > _LONG_CHARACTERS

    def _look_closer(self, deadline: float) -> bool:
        """Look at the part of a long text around the cursor from here on: what has errors takes its time."""
        if self._is_long():
            left_ms = (deadline - perf_counter()) * 1000
            near = self.tree.parse_near(self.around.cursor, _NEAR_CHARACTERS, left_ms) if left_ms > 0 else None
            if near is None:
                return False
            self.tree, self._closer = near, True
        return True

    def _least_now(self, deadline: float) -> int | None:
        """How many there are without a suggestion; None: there was no time to look."""
        if self._least is None:
            around = self.around
            now = self._count("", around.cursor, deadline) if self.tree.count_errors() else 0
            if now is None:
                return None
            line_end = around.cursor + len(around.rest)
            bare = self._count("", line_end, deadline, back=len(around.line)) if now else 0
            if bare:  # what the grammar does not know, or is broken elsewhere: its count goes up and down by chance
                self._least = max(now, bare)
            elif bare == 0:
                self._least = self._completed("", around.cursor, now, 0, deadline, torn=True)
        return self._least

    def _completed(self, text: str, end: int, faults: int, enough: int, deadline: float, *, torn: bool) -> int | None:
        """The fewest faults of `text` with one of the ends that could complete it; None: there was no time to look."""
        word = (self.around.line + text)[-1:]
        apart = " " if word.isalnum() or word == "_" else ""
        for tail in self._ends(text, end, torn=torn):
            tail = apart + tail if tail.startswith(OPERAND) else tail  # and is no part of that word
            found = self._count(text + tail, end, deadline)
            if found is None:
                return None
            faults = min(faults, found)
            if faults <= enough:
                break
        return faults

    def _ends(self, text: str, end: int, *, torn: bool) -> Iterator[str]:
        around, text = self.around, normal_newlines(text)
        language = BY_NAME[self.tree.grammar]
        rest = around.rest[end - around.cursor :]
        if rest.strip() and not torn:  # nobody would go on writing here
            return
        here = lexical_rules.balance(around.line + text, around.rules)
        closers = "".join(lexical_rules.PAIRS[bracket] for bracket, _at in reversed(here.stack))
        closers = closers[: max(0, len(closers) - len(lexical_rules.balance(rest, around.rules).unmatched_closers))]
        quote = _open_end(around.before, text, around.rules, torn=torn or not language.strings_end_on_line)
        if quote:
            yield quote + closers
            if closers:
                yield quote
        tags = _open_tags(around.line + text) if language.has_tags else ""
        if tags:
            yield tags + closers
        if language.has_preprocessor and (around.line + text).lstrip().startswith("#if"):
            yield "\n#endif"
        if closers:
            yield closers
        yield OPERAND + closers
        is_c_like = language.line_ends is None
        if is_c_like and _TRY.search(around.line + text):
            yield f"{closers} catch (x) {{}}"
            yield f"{closers} catch (x y) {{}}"
        if closers:
            yield from (inside + closers for inside in (C_INSIDE if is_c_like else language.line_ends_inside))
        indent = around.line[: len(around.line) - len(around.line.lstrip())]
        line_ends = C_ENDS if language.line_ends is None else language.line_ends
        yield from (closers + line_end.replace("{indent}", indent) for line_end in line_ends)
        if is_c_like:
            yield from (f"{OPERAND}{closers};", f" : {OPERAND}{closers};")

    def _count(self, text: str, end: int, deadline: float, back: int = 0) -> int | None:
        left_ms = (deadline - perf_counter()) * 1000
        return self.tree.count_errors_with(self.around.cursor - back, end, text, left_ms) if left_ms > 0 else None


def _open_end(before: str, text: str, rules: LexicalRules, *, torn: bool) -> str:
    """What closes the string or comment that `text` ends in; "" outside of them, and in a comment of one line.

    A string of one line that was begun in `text`, which came to its own end, is one that nobody would close.
    """
    last = lexical_rules.left_open(before + text, rules)
    if last is None or (last.kind == "string" and not torn and last.start >= len(before)):
        return ""
    return lexical_rules.closing_of((before + text)[last.start :], last.kind)


def _open_tags(text: str) -> str:
    """The tags that close what `text` has opened."""
    stack: list[str] = []
    for close, name, itself in _TAG.findall(text):
        if close:
            if name in stack:
                del stack[len(stack) - 1 - stack[::-1].index(name) :]
        elif not itself and name not in _VOID:
            stack.append(name)
    return "".join(f"</{name}>" for name in reversed(stack))
