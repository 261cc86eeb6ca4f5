"""Postprocessing of a suggestion: its limits before the request, its end while it streams, and its final text.

    plan            before the request: one line or a block, or no request at all
    finished        after every round: whether the text so far holds all that will be shown; then the stream is closed
    to_suggestion   once: cut the text, fit it to the text right of the cursor, apply the file's newlines and indents

A suggestion completes the current line or the block that was opened, and nothing more. It repeats no text, closes no
bracket twice, and holds no hidden character.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from speclsp.config import CompletionConfig
from speclsp.lsp.documents.document import Snapshot, newline
from speclsp.lsp.postprocess import closers, fitting, outdent, repetition, surroundings, syntax_check, whole_end
from speclsp.lsp.postprocess.cut import MAX_LINES, CutRules
from speclsp.lsp.reasons import Reason
from speclsp.lsp.syntax import lexical_rules
from speclsp.lsp.syntax.incremental_parse import parse_clock_s
from speclsp.lsp.syntax.languages import record
from speclsp.lsp.syntax.languages.record import Language
from speclsp.lsp.syntax.languages.without_grammar import UNKNOWN
from speclsp.lsp.syntax.text_windows import normal_newlines
from speclsp.lsp.syntax.tree import SyntaxTree
from speclsp.plain_text import is_word

_MAX_LINES_EAGER = 24
_BINARY_CHARACTERS = 8192  # searched for NUL at the start of the file and around the cursor
_MAX_CHARACTERS = 8192  # of generated text: no suggestion is as long, and every rule here is fast for this length
CHECK_MS = 20.0  # budget of the syntax check; it usually takes less than 1, in 3 of 100 cases more than 8
REPAIR_MS = 12.0  # additional budget to find a shorter text that does not break the syntax


@dataclass(frozen=True, slots=True)
class NoSuggestion:
    """No request is made, or nothing is shown."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Suggestion:
    """`text` in place of the document's `[start, end)`: code points, on the cursor's line, around the cursor.

    Newlines in `text` are the file's own.
    """

    text: str
    start: int
    end: int


class Ending(NamedTuple):
    """The cause of a text's end; the defaults: a rule, after which nothing of the answer is wanted."""

    by_model: bool = False
    by_limit: bool = False  # in mid-line, by the token limit or the deadline
    goes_on: bool = False  # the next suggestion continues there


@dataclass(slots=True)
class _Answer:
    """A generated text on its way to a suggestion."""

    text: str  # what is left
    ending: Ending = field(default_factory=Ending)
    reason: Reason | None = None  # if nothing is left


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestionPlan(CutRules):
    """The limits of one suggestion, and the steps from generated text to a Suggestion."""

    max_tokens: int
    further_tokens: int = 0  # maximum length with the lines that follow the first one; 0: that is all
    trivial: bool = False  # suggestions such as a single comma are shown
    verbatim: bool = False  # the echo pair: its text is test evidence and stays unchanged
    check: syntax_check.SyntaxCheck | None = None  # None: there is no tree
    language: Language = UNKNOWN
    outdents: bool = False  # the client shows text that takes back the indentation left of the cursor

    def first_line(self) -> SuggestionPlan:
        """The plan of the first line alone; the further lines may follow it."""
        return replace(self, multiline=False, further_tokens=self.max_tokens)

    def with_further_lines(self) -> SuggestionPlan:
        """The plan of the same suggestion with the lines that follow its first one."""
        return replace(self, multiline=True, max_tokens=self.further_tokens, further_tokens=0)

    def finished(self, text: str) -> bool:
        """True if the text streamed so far holds all that will be shown."""
        if self.verbatim:
            return False
        return len(text) >= _MAX_CHARACTERS or self.cut(normal_newlines(text)).final

    def to_suggestion(self, text: str, *, complete: bool = True) -> Suggestion | NoSuggestion:
        """The suggestion for a generated text; `complete`: the model ended it, not a limit in mid-line."""
        around = self.around
        if self.verbatim:
            return Suggestion(text, around.cursor, around.cursor) if text else NoSuggestion(Reason.EMPTY)
        complete = complete and len(text) < _MAX_CHARACTERS
        answer = _Answer(normal_newlines(text[:_MAX_CHARACTERS]))
        self._end(answer, complete=complete)
        for step in (self._finish, self._remove_duplicates):
            step(answer)
            if not answer.text.strip():
                return NoSuggestion(answer.reason or Reason.EMPTY)
        blanks = outdent.blanks_of(answer.text, around, self.language)
        if blanks is not None:
            return self._outdented(answer.text.partition("\n")[0], blanks)
        self._close(answer)
        if not answer.text:
            return NoSuggestion(answer.reason or Reason.CUT_SHORT)
        return self._choose(answer.text, answer.ending)

    def _end(self, answer: _Answer, *, complete: bool) -> None:
        """Cut the text at the end of the line or block, or before what is never shown."""
        end, is_final, answer.reason = self.cut(answer.text, truncated=not complete)
        own_end = complete and end == len(answer.text) and not answer.text.endswith("\n")  # not with its line
        by_limit = not complete and not is_final
        answer.ending = Ending(by_model=own_end, by_limit=by_limit, goes_on=answer.reason is None)
        answer.text = answer.text[:end]

    def _finish(self, answer: _Answer) -> None:
        """Drop the last part that a limit cut, and the blanks at the end."""
        if answer.ending.by_limit and answer.text.strip():
            answer.reason = answer.reason or Reason.CUT_SHORT
            answer.text = answer.text[: whole_end.whole_length(answer.text, self.around)]
        answer.text = surroundings.trim(answer.text, self.around)

    def _remove_duplicates(self, answer: _Answer) -> None:
        """Drop what the document holds already."""
        around, length = self.around, len(answer.text)
        if not around.rest.strip():
            length = repetition.length_without_below(answer.text, around)
        if length < len(answer.text):
            answer.reason, answer.ending = Reason.REPEATS_BELOW, Ending()
            answer.text = surroundings.trim(answer.text[:length], self.around)

    def _close(self, answer: _Answer) -> None:
        """Drop the last lines that leave open what cannot be closed, where a rule or a limit ended the text."""
        if not answer.ending.by_model and (self.multiline or self.enclosed or answer.reason is not None):
            length = whole_end.closable_length(answer.text, self.around, goes_on=answer.ending.goes_on)
            answer.text = surroundings.trim(answer.text[:length], self.around)

    def _fit(self, text: str, choice: fitting.Choice | None = None) -> Suggestion | NoSuggestion:
        """`text` fitted to the text around the cursor; with `choice`, in this way instead of the best one."""
        around = self.around
        text, replaced = choice or fitting.fit(text, around)
        text = surroundings.trim(text, around) + closers.blank_before(text, replaced, around)
        if text.endswith(",") and around.rules.strict and closers.stands_next(around, replaced):
            text = text if closers.opens_bracket(text, replaced, around) else text[:-1]
        if not text.strip() or text == around.rest[:replaced]:
            return NoSuggestion(Reason.REPEATS_LINE)
        if (length := repetition.length_without_below(text + around.rest[replaced:], around)) < len(text):
            # a surplus bracket had hidden it from `to_suggestion`; without these lines other brackets may be surplus
            return self._fit(text[:length]) if text[:length].strip() else NoSuggestion(Reason.REPEATS_BELOW)
        if not self.trivial and surroundings.is_trivial(text, around):
            return NoSuggestion(Reason.TRIVIAL)
        if repetition.repeats_above(text, around) or repetition.repeats_near(text, around, self.language):
            return NoSuggestion(Reason.REPEATS_ABOVE)
        if not replaced and (own_line := closers.before_own_line(text, around)):
            text = text.rstrip() + own_line
            replaced = len(around.rest) - len(around.rest.lstrip())
        text = surroundings.indent_as_document(text, around).replace("\n", newline(around.document))
        return Suggestion(text, around.cursor, around.cursor + replaced)

    def _outdented(self, text: str, blanks: str) -> Suggestion | NoSuggestion:
        """The line that `text` completes, with the indentation `blanks` instead of its own."""
        around, line = self.around, blanks + self.around.line.lstrip(" \t") + text
        if around.below and repetition.is_same(line, around.below[0]):
            return NoSuggestion(Reason.REPEATS_BELOW)
        if outdent.adds_errors(line, blanks, around, self.check.tree if self.check is not None else None):
            return NoSuggestion(Reason.BREAKS)
        start = around.cursor - len(around.line)
        return Suggestion(line, start, around.cursor) if self.outdents else NoSuggestion(Reason.OUTDENTS)

    def _choose(self, text: str, ending: Ending) -> Suggestion | NoSuggestion:
        """The first candidate that breaks nothing.

        The candidates: `text` with the closers that it needs, as it is, and shorter.
        """
        around = self.around
        plain = self._fit(text)
        if isinstance(plain, NoSuggestion):
            return plain
        deadline = parse_clock_s() + CHECK_MS / 1000
        is_mid_line = bool(around.rest.strip())
        is_closed = ending.by_model or ending.by_limit or self.enclosed or self.multiline
        is_closed = is_closed or closers.leaves_open(text, around) or closers.opens_element(text, 0, around)
        line = ending.by_model or is_mid_line  # what the line opens may be closed further down
        for candidate in closers.candidates(text, around, line=line) if is_closed else ():
            closed = self._fit(candidate)
            if isinstance(closed, Suggestion) and self._is_valid(closed, deadline, ending):
                return closed
        if self._is_valid(plain, deadline, ending, truncated=ending.by_limit):
            return plain
        deadline += REPAIR_MS / 1000
        for length, choice in fitting.alternatives(text, around):
            shorter = text[:length]
            if choice is None and is_closed and text[length : length + 1] == "\n":
                if whole_end.closable_length(shorter, around, goes_on=False) < length:
                    continue
                shorter = next(closers.candidates(shorter, around, line=line), shorter)
            other = self._fit(shorter, choice)
            if isinstance(other, Suggestion) and self._is_valid(other, deadline, Ending()):
                return other if parse_clock_s() < deadline else NoSuggestion(Reason.BREAKS)
        return NoSuggestion(Reason.BREAKS)

    def _is_valid(self, suggestion: Suggestion, deadline: float, ending: Ending, *, truncated: bool = False) -> bool:
        """True if the suggestion adds no syntax error and leaves no bracket, tag or quote open where it may not."""
        around, verdict = self.around, syntax_check.Verdict.NO_WORSE
        text, replaced = normal_newlines(suggestion.text), suggestion.end - suggestion.start
        if self.check is not None:
            whole_items = suggestion.text.removesuffix(",") if around.rules.strict else suggestion.text
            verdict = self.check.check(whole_items, suggestion.end, deadline, truncated=truncated)
        if verdict is syntax_check.Verdict.BREAKS or closers.leaves_open(text, around):
            return False
        may_stay_open = "\n" not in text.strip() or (ending.goes_on and whole_end.ends_open(text, around))
        if not (may_stay_open and not around.rest.strip()) and closers.opens_bracket(text, replaced, around):
            return False
        if closers.opens_element(text, replaced, around):
            return False
        if verdict is syntax_check.Verdict.CLEAN or not around.rest.strip():
            return True
        if around.kind not in ("code", "string"):
            return True
        return surroundings.imbalance(text, replaced, around) <= surroundings.imbalance("", 0, around)


def plan(
    snapshot: Snapshot,
    tree: SyntaxTree | None,
    config: CompletionConfig,
    others: Sequence[Snapshot] = (),
    *,
    verbatim: bool = False,
    outdents: bool = False,
) -> SuggestionPlan | NoSuggestion:
    """The limits of a suggestion at the cursor, or the reason not to request one.

    `verbatim` (the echo pair): always request, and change nothing. `others`: the other open documents that models may
    see. `outdents`: the client can replace white space left of the cursor.
    """
    around = surroundings.read_surroundings(snapshot, tree)
    if not verbatim and (reason := _refusal(snapshot, around, config)) is not None:
        return NoSuggestion(reason)
    high = config.eagerness == "high"
    is_at_end = not around.rest.strip()
    blank = not around.line.strip()
    opener = _opener_above(around) if blank and around.above else around.line
    opens = around.kind == "code" and lexical_rules.opens_block(opener, around.rules, above=blank)
    one_line = config.multiline == "never"
    allowed = not one_line and around.kind in ("code", "string") and is_at_end
    multiline = allowed and (opens or config.multiline == "always" or (high and blank))
    enclosed = not one_line and around.kind == "code" and closers.encloses(around)
    block_tokens = config.max_tokens * (2 if high else 1)
    language = record(snapshot.language)
    return SuggestionPlan(
        multiline=multiline,
        enclosed=enclosed,
        max_tokens=block_tokens if multiline or enclosed else config.max_tokens_single_line,
        further_tokens=block_tokens if allowed and not (multiline or enclosed or verbatim) else 0,
        around=around,
        floor=lexical_rules.indent_width(opener) + 1 if opens else lexical_rules.indent_width(around.line),
        opener=("bracket" if lexical_rules.ends_in_bracket(opener, around.rules) else "word") if opens else "",
        most_lines=_MAX_LINES_EAGER if high else MAX_LINES,
        trivial=high,
        next_line=not one_line and around.kind in ("code", "comment") and is_at_end,
        verbatim=verbatim,
        check=None if tree is None or verbatim else syntax_check.SyntaxCheck(tree, around),
        language=language,
        outdents=outdents,
        others=tuple(others),
    )


def _refusal(snapshot: Snapshot, around: surroundings.Surroundings, config: CompletionConfig) -> Reason | None:
    """The reason not to request a suggestion at the cursor."""
    near = snapshot.text[max(0, snapshot.cursor - _BINARY_CHARACTERS) : snapshot.cursor + _BINARY_CHARACTERS]
    if "\0" in near or "\0" in snapshot.text[:_BINARY_CHARACTERS]:
        return Reason.BINARY
    right = around.rest[:1]
    if config.eagerness != "high" and right and (is_word(right) or unicodedata.category(right)[0] == "M"):
        return Reason.INSIDE_WORD
    if config.eagerness == "low" and not surroundings.CLOSING.match(around.rest.strip()):
        return Reason.MID_LINE  # text right of the cursor; brackets that the editor closed by itself do not count
    return None


def _opener_above(around: surroundings.Surroundings) -> str:
    """The line above a blank one, or the block header above a docstring or comments.

    A body that holds only its documentation is still to be written.
    """
    at = len(around.above) - 1
    while at > 0 and not lexical_rules.code_of(around.above[at], around.rules).strip():
        at -= 1
    quotes = around.above[at].rstrip()[-3:]
    if around.rules.colon_opens and quotes in ('"""', "'''"):
        last = at if around.above[at].count(quotes) > 1 else at - 1  # the last line that can begin the docstring
        first = next((i for i in range(last, 0, -1) if re.match(rf"\s*[rRuU]?{quotes}", around.above[i])), 0)
        at = first - 1 if first else at
    is_header = at < len(around.above) - 1 and lexical_rules.opens_block(around.above[at], around.rules, above=True)
    is_deeper = lexical_rules.indent_width(around.line) > lexical_rules.indent_width(around.above[at])
    return around.above[at] if is_header and is_deeper else around.above[-1]
