"""Truncation: decides where a streamed suggestion ends, by line, by block, or before text that is never shown.

`CutRules.cut` runs after every round on the text so far. Its result states the end, whether more text could still
change it, and the reason if nothing remains.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.postprocess import closers, repetition, surroundings
from speclsp.lsp.reasons import Reason
from speclsp.lsp.syntax import hidden_characters, lexical_rules
from speclsp.lsp.visibility import secret_text
from speclsp.plain_text import is_word

MAX_LINES = 12
LOOK_BACK = 400  # characters of the line before the cursor in which a marker or a key may have begun
_LOOP = re.compile(r"(\W{0,11}\w.{2,23}?)\1{11,}|(\w\W?)\2{39,}")  # the same few characters over and over
_FENCE = re.compile(r"(?m)^[ \t]*(?:```|~~~)")  # of Markdown
_NEXT_LINE = re.compile(r"\n(?:[ \t]*\S|[ \t]*\n)")  # a line that has begun, or a blank one


class Cut(NamedTuple):
    """The end of a suggestion in the text so far."""

    end: int  # characters to keep
    final: bool  # more text would not change `end`
    reason: Reason | None = None  # if nothing remains before `end`

    @classmethod
    def rejecting(cls, start: int, reason: Reason) -> Cut:
        """The text from `start` on is not shown, whatever follows."""
        return cls(start, True, reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class CutRules:
    """The limits of one suggestion."""

    multiline: bool
    around: surroundings.Surroundings
    floor: int = 0  # minimum indentation of a block's lines, in columns
    opener: str = ""  # the end of the line that opens the block: "bracket" | "word"; "": not at the cursor
    most_lines: int = MAX_LINES
    next_line: bool = True  # after a complete current line, the next one may be suggested
    enclosed: bool = False  # closers stand right of the cursor: a block may be suggested between them and the line
    others: tuple[Snapshot, ...] = ()  # a key or licence that stands in one of these may be suggested

    def cut(self, text: str, *, truncated: bool = False) -> Cut:
        """The end of the suggestion in `text`. `truncated`: it ends in mid-line, and nothing more will come."""
        limit, kept = None, text
        rules = (self._forbidden, self._end_of_prose, self._end_of_string, self._clause_loop)
        for rule in rules:
            limit = rule(kept) or limit
            kept = text[: limit.end] if limit is not None else text
        cut = self._block(kept) if self.multiline else self._enclosed(kept) if self.enclosed else self._line(kept)
        if cut.final and not cut.reason:
            blocks_end = closers.end_of_blocks(kept, cut.end, self.around)
            cut = Cut(blocks_end, _NEXT_LINE.match(kept, blocks_end) is not None) if blocks_end >= 0 else cut
        is_final = cut.final or (limit is not None and limit.final)
        secret = self._secret(text[: cut.end], truncated=truncated and not cut.final)
        if secret is not None:
            return Cut(secret.end, is_final or "\n" in text[secret.end : cut.end], secret.reason)
        return Cut(cut.end, is_final, cut.reason or (limit.reason if limit is not None else None))

    def _forbidden(self, text: str) -> Cut | None:
        """The first hidden character or marker of a model that the document does not hold itself."""
        line = self.around.line[-LOOK_BACK:]
        for match in secret_text.FORBIDDEN.finditer(line + text):
            is_known = not hidden_characters.NEVER.match(match[0]) and match[0] in self.around.document
            if match.end() > len(line) and not is_known:
                is_whole = match["begun"] is None  # the beginning of a marker may turn out to be something else
                return Cut(max(0, match.start() - len(line)), is_whole, Reason.FORBIDDEN)
        return None

    def _end_of_prose(self, text: str) -> Cut | None:
        """The end of the comment or docstring around the cursor, or the fence behind code, if `text` holds it."""
        around, line = self.around, self.around.line[-LOOK_BACK:]
        fence = _FENCE.search(line + text) if around.kind == "code" else None
        if fence and fence.end() > len(line):
            return Cut.rejecting(max(0, fence.start() - len(line)), Reason.FORBIDDEN)
        start = text.find(around.closing) if around.closing and around.closed else -1
        return Cut.rejecting(start, Reason.REPEATS_BELOW) if start >= 0 else None

    def _end_of_string(self, text: str) -> Cut | None:
        """The quote in `text` that ends the string around the cursor, which is closed right of the cursor too."""
        end = min((end for string in self.around.strings if (end := string.end_in(text)) >= 0), default=-1)
        if end < 0:
            is_escape = (
                self.around.strings and len(text) - len(text.rstrip("\\")) & 1 and not is_word(self.around.rest[:1])
            )
            return Cut(len(text) - 1, False, Reason.REPEATS_LINE) if is_escape else None
        if text[:end][-1:].isalnum() and text[end + 1 : end + 2].isalnum():  # the apostrophe of a word
            return Cut.rejecting(0, Reason.BREAKS)
        return Cut(end, end + 1 < len(text), Reason.REPEATS_LINE)

    def _clause_loop(self, text: str) -> Cut | None:
        """The end of a clause or sentence that follows twice more in a line of prose."""
        start, before = 0, self.around.line[-LOOK_BACK:]
        for line in text.splitlines(keepends=True) if self.around.kind != "code" else ():
            end = repetition.clause_loop(before + line, len(before))
            if end is not None:
                return Cut.rejecting(start + max(0, end - len(before)), Reason.LOOPS)
            start, before = start + len(line), ""
        return None

    def _secret(self, text: str, *, truncated: bool) -> Cut | None:
        """The first line with a key or a licence text that no known document holds."""
        head = self.around.line[-LOOK_BACK:]
        above = [line for line in self.around.above if "-----" in line]
        known = [self.around.document, *(other.text for other in self.others)]
        start = 0
        before = head if head.strip() else continued(self.around.above[-1]) if self.around.above else ""
        for line in text.split("\n"):
            is_last = start + len(line) == len(text)
            kind = secret_text.hidden_in(before + line, len(before), known, torn=truncated and is_last, above=above)
            if kind:
                reason = Reason.SECRET if kind == secret_text.SECRET else Reason.LICENCE
                return Cut.rejecting(start if any(map(str.isalnum, text[:start])) else 0, reason)
            above += [before + line] if "-----" in line else []
            before = continued(before + line)
            start += len(line) + 1
        return None

    def _line(self, text: str) -> Cut:
        """The end of one line: the current one or, if that is complete already, the next."""
        around = self.around
        start = len(text) - len(text.lstrip())
        if text.count("\n", 0, start) and not self.next_line:
            return Cut.rejecting(0, Reason.DOES_NOT_FIT)
        is_starred = around.closing == "*/" and around.line.lstrip().startswith(("/**", "*"))
        if is_starred and "\n" in text[:start] and start < len(text) and text[start] != "*":
            return Cut.rejecting(0, Reason.DOES_NOT_FIT)  # code, not a line of the comment
        end = text.find("\n", start)
        is_whole = end >= 0
        end = end if is_whole else len(text)
        rest = around.rest.strip()
        if len(rest) > 2 and not surroundings.CLOSING.match(rest):
            again = repetition.find_words(rest, text[:end])
            if again >= 0:
                return Cut(again, again + len(rest) < len(text), Reason.REPEATS_LINE)
        if _LOOP.search(text, 0, end):
            return Cut.rejecting(0, Reason.LOOPS)
        if self.next_line and around.kind == "code" and (spanning := self._spanning(text, end)) is not None:
            return spanning
        line = text[:end].rpartition("\n")[2]
        if is_whole and self._is_below(line if "\n" in text[:end] else around.line + line + around.rest):
            return Cut.rejecting(0, Reason.REPEATS_BELOW)
        return Cut(end, is_whole)

    def _spanning(self, text: str, end: int) -> Cut | None:
        """The end of the comment or string of several lines that begins in the line up to `end`."""
        opened = closers.opened_by(text[:end], self.around)
        if opened is None or opened[0] < 0:
            return None
        lines = 1
        for start in (match.end() for match in re.finditer("\n", text) if match.start() >= end):
            is_whole = (line_end := text.find("\n", start)) >= 0
            line_end = line_end if is_whole else len(text)
            if closers.opened_by(text[:line_end], self.around) != opened or lines >= self.most_lines:
                return Cut(line_end, is_whole)
            if _LOOP.search(text, start, line_end):
                return Cut.rejecting(start, Reason.LOOPS)
            lines += 1
        return Cut(len(text), False)

    def _enclosed(self, text: str) -> Cut:
        """The end of a text before closers: one line, more while it has open brackets, or a block on its own lines."""
        around = self.around
        start = len(text) - len(text.lstrip())
        if "\n" in text[:start]:
            return self._block(text) if closers.opens_at_cursor(around) else Cut.rejecting(0, Reason.DOES_NOT_FIT)
        outside, depths = surroundings.pairs(around, text)
        closing = outside[0] if outside else len(text)
        lines = text.split("\n")
        start = kept = 0
        by_word = bool(around.rules.ends) and lexical_rules.opens_block(
            around.line + lines[0], around.rules, above=False
        )
        width = lexical_rules.indent_width(around.line)
        for index, line in enumerate(lines):
            end = start + len(line)
            is_whole = index + 1 < len(lines)
            is_deeper = lexical_rules.indent_width(line) > width
            by_word &= not index or is_deeper or not lexical_rules.ends_block(line, around.rules)
            if index and (rejected := self._rejected_line(line, line, start, is_whole, 0)) is not None:
                return rejected
            is_open = _depth(depths, end) or line.rstrip().endswith(",") or by_word
            if closing <= end or not is_open:
                return Cut(end, is_whole) if index else self._line(text)
            kept += bool(line.strip())
            loop = repetition.third_repetition([around.line + lines[0], *lines[1 : index + 1]]) if is_whole else None
            if loop is not None:
                return Cut.rejecting(sum(len(line) + 1 for line in lines[:loop]), Reason.LOOPS)
            ends_blank = index + 2 < len(lines) and not line.strip() and not lines[index + 1].strip()
            if kept >= self.most_lines or ends_blank:  # two blank lines
                return Cut(end, is_whole)
            start = end + 1
        return Cut(len(text), False) if len(lines) > 1 else self._line(text)

    def _block(self, text: str) -> Cut:
        """The end of the block opened at the cursor: by bracket, by indentation, at a blank line, or at its maximum."""
        around, floor = self.around, self.floor
        outside, depths = surroundings.pairs(around, text)
        closing = outside[0] if outside else -1  # the bracket that closes the block
        lines = text.split("\n")
        start = kept = 0
        level, after_jump = -1, False  # indentation of the block's first line; whether its last line was a jump
        for index, line in enumerate(lines):
            end = start + len(line)
            is_whole = index + 1 < len(lines)
            here = around.line + line if index == 0 else line
            width = lexical_rules.indent_width(here)
            if not line.strip():
                if kept and is_whole:
                    return Cut(start, True)
                start = end + 1
                continue
            rejected = self._rejected_line(line, here, start, is_whole, floor if index else 0)
            if rejected is not None:
                return rejected
            if start <= closing <= end:
                is_leading = index > 0 and not text[start:closing].strip()
                if is_leading and lexical_rules.opens_block(text[closing + 1 : end], around.rules, above=False):
                    return Cut(closing + 1, True)  # `} else {` is another block
                return Cut(end, is_whole)
            is_nested = _depth(depths, start) > 0
            if index == 0 and around.line.strip():  # the rest of the opener's own line
                if self.opener == "word":
                    return Cut(end, is_whole)
            elif level < 0:
                level = width
                floor = min(floor, level)
            elif width < floor and not is_nested:
                return self._below_floor(start, end, line, is_whole)
            if after_jump and width == level and not is_nested and not lexical_rules.may_be_reached(here, around.rules):
                return Cut(start, is_whole)
            kept += 1
            after_jump = around.kind == "code" and width == level and lexical_rules.is_jump(here, around.rules)
            loop = repetition.third_repetition([around.line + lines[0], *lines[1 : index + 1]]) if is_whole else None
            if loop is not None:
                return Cut.rejecting(sum(len(line) + 1 for line in lines[:loop]), Reason.LOOPS)
            if kept >= self.most_lines:
                return Cut(end, is_whole)
            start = end + 1
        return Cut(len(text), False)

    def _rejected_line(self, line: str, here: str, start: int, is_whole: bool, floor: int) -> Cut | None:
        """A line that ends the block and is not shown: a loop, or a line that stands below already."""
        if _LOOP.search(line):
            return Cut.rejecting(start, Reason.LOOPS)
        if is_whole and self._is_below(here):
            return Cut.rejecting(start, Reason.REPEATS_BELOW)
        below = self.around.below
        is_end = lexical_rules.indent_width(line) < floor and lexical_rules.ends_block(line, self.around.rules)
        if is_end and below and repetition.is_same(line, below[0]):
            return Cut(start, is_whole, Reason.REPEATS_BELOW)
        return None

    def _below_floor(self, start: int, end: int, line: str, is_whole: bool) -> Cut:
        """A line indented less than the block: its last line, as `end` or `fi`, or the first line after it."""
        around = self.around
        if lexical_rules.ends_block(line, around.rules):
            stands_below = bool(around.below) and around.below[0].strip() == line.strip()
            return Cut(start, True) if stands_below else Cut(end, is_whole)
        may_become_end = not is_whole and bool(around.rules.ends) and line.strip().isalpha() and len(line.strip()) < 6
        return Cut(start, not may_become_end)

    def _is_below(self, line: str) -> bool:
        """True if the line is the next line of the document."""
        below = self.around.below
        return bool(below) and repetition.is_distinctive(line) and repetition.is_same(line, below[0])


def continued(line: str) -> str:
    """The end of a line that belongs to the next one too: a name that gets its value there."""
    bare = line.strip()[-LOOK_BACK:]
    return bare + " " if bare.endswith(("=", ":", "(", "\\")) else ""


def _depth(steps: list[tuple[int, int]], offset: int) -> int:
    return next((depth for at, depth in reversed(steps) if at < offset), 0)
