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
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

from speclsp.config import CompletionConfig
from speclsp.lsp.documents.document import Snapshot, newline
from speclsp.lsp.postprocess import prose, surroundings, syntax_check
from speclsp.lsp.reasons import BLANKS, BLOCK_END, LINE_END, SOONER, STANDS_THERE, UNFINISHED, Cuts, Reason
from speclsp.lsp.syntax import hidden_characters, lexical_rules
from speclsp.lsp.syntax.text_windows import normal_newlines
from speclsp.lsp.syntax.tree import SyntaxTree
from speclsp.lsp.visibility import secret_text

_MOST_LINES = 12
_MOST_LINES_EAGER = 24
_BINARY_CHARACTERS = 8192
_MOST_CHARACTERS = 8192  # of what a model says: no suggestion is as long, and no rule here takes long for so many
_CHECK_MS = 20.0  # to see what a suggestion does to the syntax; usually less than 1, of 3 in 100 more than 8
_MEND_MS = 12.0  # more, to find an end that does less
_LOOKED_BACK = 400  # characters of the line before the cursor in which a marker or a key may have begun

_LOOP = re.compile(r"(\W{0,11}\w.{2,23}?)\1{11,}|(\w\W?)\2{39,}")  # the same few characters over and over


@dataclass(frozen=True, slots=True)
class NoSuggestion:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestionPlan:
    """How far one suggestion may go."""

    multiline: bool
    max_tokens: int
    around: surroundings.Surroundings
    floor: int = 0  # a block's lines are indented at least so far, in columns
    opener: str = ""  # how the block was opened: "bracket" | "word", "" when it was not at the cursor
    most_lines: int = _MOST_LINES
    trivial: bool = False  # a comma or the like is worth showing
    next_line: bool = True  # the current line being whole, the next one may be suggested
    verbatim: bool = False  # the echo pair: its text is evidence, and is not touched
    check: syntax_check.SyntaxCheck | None = (
        None  # whether a text would break the file's syntax; None: there is no tree
    )
    others: tuple[Snapshot, ...] = ()  # what stands in them may be said, as what stands in the document

    def finished(self, text: str) -> bool:
        """Whether the text streamed so far holds all that will be shown."""
        if self.verbatim:
            return False
        return len(text) >= _MOST_CHARACTERS or self._cut(normal_newlines(text))[1]

    def clean(self, text: str, *, whole: bool = True, cuts: Cuts | None = None) -> Suggestion | NoSuggestion:
        """What to show of the text the model gave; `whole`: it came to an end, and not to a limit in mid-line.

        `cuts` is told what was cut from it.
        """
        around, cuts = self.around, cuts if cuts is not None else []
        if self.verbatim:
            return Suggestion(text, around.cursor, around.cursor) if text else NoSuggestion(Reason.EMPTY)
        whole = whole and len(text) < _MOST_CHARACTERS
        text = normal_newlines(text[:_MOST_CHARACTERS])
        end, finished, reason = self._cut(text, torn=not whole)
        cuts.append((reason.value if reason else BLOCK_END if self.multiline else LINE_END, len(text) - end))
        if self.multiline and not whole and not finished and text[:end].strip().count("\n"):
            cuts.append((UNFINISHED, end - text.rindex("\n", 0, end)))
            end = text.rindex("\n", 0, end)
        text = surroundings.trimmed(text[:end], around)
        cuts.append((BLANKS, end - len(text)))
        if not text.strip():
            return NoSuggestion(reason or Reason.EMPTY)
        if not around.rest.strip() and (said := surroundings.without_below(text, around)) < len(text):
            cuts.append((Reason.REPEATS_BELOW.value, len(text) - said))
            text = surroundings.trimmed(text[:said], around)
            if not text.strip():
                return NoSuggestion(Reason.REPEATS_BELOW)
        made, length = self._fitted(text), len(text)
        if self.check is not None and isinstance(made, Suggestion):
            made, length = self._unbroken(self.check, text, made, torn=not whole)
        cuts.append((SOONER, len(text) - length))
        if isinstance(made, Suggestion):
            cuts.append((STANDS_THERE, max(0, length - len(normal_newlines(made.text)))))
        return made

    def _fitted(self, text: str, choice: tuple[str, int] | None = None) -> Suggestion | NoSuggestion:
        """`text` as it goes with what stands around it; `choice`: in this way, and not in the one that seems best."""
        around = self.around
        text, swallowed = choice or surroundings.fitted(text, around)
        text = surroundings.trimmed(text, around)
        if text.endswith(",") and around.rules.strict and around.below and around.below[0][:1] in ("}", "]"):
            text = text[:-1]
        if not text.strip() or text == around.rest[:swallowed]:
            return NoSuggestion(Reason.REPEATS_LINE)
        if (said := surroundings.without_below(text + around.rest[swallowed:], around)) < len(text):
            # a bracket too many had hidden it from `clean`; without these lines other brackets may be too many
            return self._fitted(text[:said]) if text[:said].strip() else NoSuggestion(Reason.REPEATS_BELOW)
        if not self.trivial and surroundings.is_trivial(text, around):
            return NoSuggestion(Reason.TRIVIAL)
        if surroundings.repeats_above(text, around):
            return NoSuggestion(Reason.REPEATS_ABOVE)
        text = surroundings.indented(text, around).replace("\n", newline(around.document))
        return Suggestion(text, around.cursor, around.cursor + swallowed)

    def _unbroken(
        self, check: syntax_check.SyntaxCheck, text: str, made: Suggestion, *, torn: bool
    ) -> tuple[Suggestion | NoSuggestion, int]:
        """(`made`, or what it can be mended to where it would break the file's syntax; how much of `text` that is)."""
        deadline = perf_counter() + _CHECK_MS / 1000
        if not check.breaks(made.text, made.end, deadline, torn=torn):
            return made, len(text)
        deadline += _MEND_MS / 1000
        for length, choice in surroundings.mended(text, self.around):
            other = self._fitted(text[:length], choice)
            if isinstance(other, Suggestion) and not check.breaks(other.text, other.end, deadline):
                return (other, length) if perf_counter() < deadline else (NoSuggestion(Reason.BREAKS), 0)
        return NoSuggestion(Reason.BREAKS), 0

    # ── where it ends ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _cut(self, text: str, *, torn: bool = False) -> tuple[int, bool, Reason | None]:
        """(how much of `text` to keep, whether more of it would change nothing, why if that leaves nothing).

        `torn`: it ends in mid-line, and nothing more will come.
        """
        limit, reason, undecided = len(text), None, False
        line = self.around.line[-_LOOKED_BACK:]
        for found in secret_text.FORBIDDEN.finditer(line + text):
            if found.end() > len(line) and (
                hidden_characters.NEVER.match(found[0]) or found[0] not in self.around.document
            ):
                limit, reason = max(0, found.start() - len(line)), Reason.FORBIDDEN
                undecided = found["begun"] is not None  # it may turn out to be something else
                break
        last = self._last_words(text[:limit])
        if last is not None:
            (limit, reason), undecided = last, False
        end, done, why = self._block(text[:limit]) if self.multiline else self._line(text[:limit])
        at, foreign = self._foreign(text[:end], torn=torn and not done)
        if foreign is not None:
            return at, done or "\n" in text[at:end] or (reason is not None and not undecided), foreign
        return end, done or (reason is not None and not undecided), why or reason

    def _last_words(self, text: str) -> tuple[int, Reason | None] | None:
        """(where what the cursor is in ends: a comment, a docstring, a fence; why if that leaves nothing)."""
        around = self.around
        if around.fences != "text":
            found = prose.FENCE.search(around.line[-_LOOKED_BACK:] + text)
            at = found.end() - len(around.line[-_LOOKED_BACK:]) if found else 0
            if found and at > 0:
                ends = around.fences == "ends" and not around.closed
                return (
                    (at, None)
                    if ends
                    else (max(0, at - len(found[0])), Reason.REPEATS_BELOW if around.closed else Reason.FORBIDDEN)
                )
        at = text.find(around.closing) if around.closing and around.closed else -1
        return (at, Reason.REPEATS_BELOW) if at >= 0 else None

    def _foreign(self, text: str, *, torn: bool) -> tuple[int, Reason | None]:
        """(where the first line begins that holds somebody's key or licence, which); (len(text), None) without one."""
        head = self.around.line[-_LOOKED_BACK:]
        above = [line for line in self.around.above if "-----" in line]
        known = [self.around.document, *(other.text for other in self.others)]
        start = 0
        before = head if head.strip() else continued(self.around.above[-1]) if self.around.above else ""
        for line in text.split("\n"):
            last = start + len(line) == len(text)
            found = secret_text.hidden_in(before + line, len(before), known, torn=torn and last, above=above)
            if found:
                reason = Reason.SECRET if found == secret_text.SECRET else Reason.LICENCE
                return (start if any(map(str.isalnum, text[:start])) else 0), reason
            above += [before + line] if "-----" in line else []
            before = continued(before + line)
            start += len(line) + 1
        return len(text), None

    def _line(self, text: str) -> tuple[int, bool, Reason | None]:
        """The end of one line: the current one or, where that is whole already, the next."""
        start = len(text) - len(text.lstrip())
        if text.count("\n", 0, start) and not self.next_line:
            return 0, True, Reason.DOES_NOT_FIT
        starless = start < len(text) and text[start] != "*" and self.around.closing == "*/"
        if starless and "\n" in text[:start] and prose.is_starred(self.around.line):
            return 0, True, Reason.DOES_NOT_FIT  # it is no comment any more, but code
        end = text.find("\n", start)
        whole = end >= 0
        end = end if whole else len(text)
        rest = self.around.rest.strip()
        if len(rest) > 2 and not surroundings.CLOSING.match(rest):
            again = surroundings.said_again(rest, text[:end])
            if again >= 0:
                return again, again + len(rest) < len(text), Reason.REPEATS_LINE
        if _LOOP.search(text, 0, end):
            return 0, True, Reason.LOOPS
        line = text[:end].rpartition("\n")[2]
        if whole and self._is_below(line if "\n" in text[:end] else self.around.line + line + self.around.rest):
            return 0, True, Reason.REPEATS_BELOW
        return end, whole, None

    def _block(self, text: str) -> tuple[int, bool, Reason | None]:
        """The end of the block opened at the cursor: by bracket, by indentation, at a blank line, or long enough."""
        around, floor = self.around, self.floor
        outside, depths = surroundings.pairs(around, text)
        closing = outside[0] if outside else -1
        lines = text.split("\n")
        start = kept = 0
        level, left = -1, False  # how far the block's first line is indented; whether one like it leaves the block
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
            if index and lexical_rules.indent_width(line) < floor and self._closes_below(line):
                return start, whole, Reason.REPEATS_BELOW
            if start <= closing <= end:  # the bracket that opened the block is closed on this line
                leads = index > 0 and not text[start:closing].strip()
                if leads and lexical_rules.opens_block(text[closing + 1 : end], around.rules, above=False):
                    return closing + 1, True, None  # `} else {` is another block
                return end, whole, None
            if index == 0 and around.line.strip():  # the rest of the opener's own line
                if self.opener == "word":
                    return end, whole, None
            elif level < 0:
                level = lexical_rules.indent_width(here)
                floor = min(floor, level)
            elif lexical_rules.indent_width(here) < floor and not _depth(depths, start):
                return self._below_floor(start, end, line, whole)
            if (
                left
                and lexical_rules.indent_width(here) == level
                and not lexical_rules.may_be_reached(here)
                and not _depth(depths, start)
            ):
                return start, whole, None
            kept += 1
            left = (
                around.kind == "code"
                and lexical_rules.indent_width(here) == level
                and lexical_rules.is_jump(here, around.rules)
            )
            first = surroundings.repeated([around.line + lines[0], *lines[1 : index + 1]]) if whole else None
            if first is not None:
                return sum(len(line) + 1 for line in lines[:first]), True, Reason.LOOPS
            if kept >= self.most_lines:
                return end, whole, None
            start = end + 1
        return len(text), False, None

    def _below_floor(self, start: int, end: int, line: str, whole: bool) -> tuple[int, bool, Reason | None]:
        """A line indented less than the block: its end, as `end` or `fi`, or what comes after it."""
        around = self.around
        if lexical_rules.ends_block(line, around.rules):
            known = bool(around.below) and around.below[0].strip() == line.strip()
            return (start, True, None) if known else (end, whole, None)
        undecided = not whole and bool(around.rules.ends) and line.strip().isalpha() and len(line.strip()) < 6
        return start, not undecided, None

    def _closes_below(self, line: str) -> bool:
        """Whether it is the block's end, which stands there."""
        return (
            bool(self.around.below)
            and lexical_rules.ends_block(line, self.around.rules)
            and surroundings.is_same(line, self.around.below[0])
        )

    def _is_below(self, line: str) -> bool:
        return (
            bool(self.around.below)
            and surroundings.is_telling(line)
            and surroundings.is_same(line, self.around.below[0])
        )


def plan(
    snapshot: Snapshot,
    tree: SyntaxTree | None,
    config: CompletionConfig,
    others: Sequence[Snapshot] = (),
    *,
    verbatim: bool = False,
) -> SuggestionPlan | NoSuggestion:
    """Whether to ask at all, and for one line or a block. `verbatim` (the echo pair): always, and touch nothing.

    `others`: what else is open, and not kept from models.
    """
    around = surroundings.read_surroundings(snapshot, tree)
    low, high = config.eagerness == "low", config.eagerness == "high"
    right = around.rest.strip()
    if not verbatim:
        near = snapshot.text[max(0, snapshot.cursor - _BINARY_CHARACTERS) : snapshot.cursor + _BINARY_CHARACTERS]
        if "\0" in near or "\0" in snapshot.text[:_BINARY_CHARACTERS]:
            return NoSuggestion(Reason.BINARY)
        if not high and _goes_on(around.rest[:1]):
            return NoSuggestion(Reason.INSIDE_WORD)
        if low and not surroundings.CLOSING.match(right):  # a bracket that the editor closed by itself is no text
            return NoSuggestion(Reason.MID_LINE)
    blank = not around.line.strip()
    opener = _opener_above(around) if blank and around.above else around.line
    opens = around.kind == "code" and lexical_rules.opens_block(opener, around.rules, above=blank)
    one_line = low or config.multiline == "never"
    allowed = not one_line and around.kind in ("code", "string") and not right
    multiline = allowed and (opens or config.multiline == "always" or (high and blank))
    return SuggestionPlan(
        multiline=multiline,
        max_tokens=(config.max_tokens * (2 if high else 1)) if multiline else config.max_tokens_single_line,
        around=around,
        floor=lexical_rules.indent_width(opener) + 1 if opens else lexical_rules.indent_width(around.line),
        opener=("bracket" if lexical_rules.ends_in_bracket(opener, around.rules) else "word") if opens else "",
        most_lines=_MOST_LINES_EAGER if high else _MOST_LINES,
        trivial=high,
        next_line=not one_line and around.kind in ("code", "comment") and not right,
        verbatim=verbatim,
        check=None if tree is None or verbatim else syntax_check.SyntaxCheck(tree, around),
        others=tuple(others),
    )


def continued(line: str) -> str:
    """What of a line belongs to the next one too: a name that is given its value there."""
    bare = line.strip()[-_LOOKED_BACK:]
    return bare + " " if bare.endswith(("=", ":", "(", "\\")) else ""


def _goes_on(right: str) -> bool:
    """Whether a character continues an identifier."""
    return bool(right) and (right.isalnum() or right == "_" or unicodedata.category(right)[0] == "M")


def _opener_above(around: surroundings.Surroundings) -> str:
    """The line above a blank one, past a docstring or comments that stand between it and a block's header.

    A body that holds nothing but its documentation is still to be written.
    """
    at = len(around.above) - 1
    while at > 0 and not lexical_rules.code_of(around.above[at], around.rules).strip():
        at -= 1
    quotes = around.above[at].rstrip()[-3:]
    if around.rules.colon_opens and quotes in ('"""', "'''"):
        last = at if around.above[at].count(quotes) > 1 else at - 1  # where its first line is at the latest
        first = next((i for i in range(last, 0, -1) if re.match(rf"\s*[rRuU]?{quotes}", around.above[i])), 0)
        at = first - 1 if first else at
    documented = at < len(around.above) - 1 and lexical_rules.opens_block(around.above[at], around.rules, above=True)
    deeper = lexical_rules.indent_width(around.line) > lexical_rules.indent_width(around.above[at])
    return around.above[at] if documented and deeper else around.above[-1]


def _depth(steps: list[tuple[int, int]], offset: int) -> int:
    return next((depth for at, depth in reversed(steps) if at < offset), 0)
