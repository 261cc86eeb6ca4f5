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
from dataclasses import dataclass, replace

from speclsp.config import CompletionConfig
from speclsp.lsp.documents.document import Snapshot, newline
from speclsp.lsp.postprocess import closers, outdent, repetition, surroundings, syntax_check, whole_end
from speclsp.lsp.postprocess.cut import MAX_LINES, CutRules
from speclsp.lsp.postprocess.duplicates import Duplicates
from speclsp.lsp.reasons import BLANKS, BLOCK_END, LINE_END, SOONER, STANDS_THERE, UNFINISHED, Cuts, Reason
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestionPlan(CutRules):
    """The limits of one suggestion, and the steps from generated text to a Suggestion."""

    max_tokens: int
    further_tokens: int = 0  # maximum length with the lines that follow the first one; 0: that is all
    trivial: bool = False  # suggestions such as a single comma are shown
    verbatim: bool = False  # the echo pair: its text is test evidence and stays unchanged
    check: syntax_check.SyntaxCheck | None = None  # None: there is no tree
    duplicates: Duplicates | None = None
    language: Language = UNKNOWN
    outdents: bool = False  # the client shows text that takes back the indentation left of the cursor

    def with_further_lines(self) -> SuggestionPlan:
        """The plan of the same suggestion with the lines that follow its first one."""
        return replace(self, multiline=True, max_tokens=self.further_tokens, further_tokens=0)

    def finished(self, text: str) -> bool:
        """True if the text streamed so far holds all that will be shown."""
        if self.verbatim:
            return False
        return len(text) >= _MAX_CHARACTERS or self.cut(normal_newlines(text)).final

    def prepare(self) -> None:
        """Do the part of the syntax check that no generated text is needed for, while the model generates it."""
        if self.check is not None:
            self.check.prepare(parse_clock_s() + CHECK_MS / 1000)

    def to_suggestion(self, text: str, *, complete: bool = True, cuts: Cuts | None = None) -> Suggestion | NoSuggestion:
        """The suggestion for a generated text; `complete`: the model ended it, not a limit in mid-line.

        Appends to `cuts` each part that was removed.
        """
        around, cuts = self.around, cuts if cuts is not None else []
        if self.verbatim:
            return Suggestion(text, around.cursor, around.cursor) if text else NoSuggestion(Reason.EMPTY)
        complete = complete and len(text) < _MAX_CHARACTERS
        text = normal_newlines(text[:_MAX_CHARACTERS])
        end, is_final, reason = self.cut(text, truncated=not complete)
        is_cut_short = not complete and not is_final
        is_ended = complete and end == len(text) and not text.endswith("\n")  # by the model, and not with its line
        cuts.append((reason.value if reason else BLOCK_END if self.multiline else LINE_END, len(text) - end))
        if is_cut_short and text[:end].strip():
            whole = self._whole_length(text[:end])
            cuts.append((UNFINISHED, end - whole))
            end, reason = whole, reason or Reason.CUT_SHORT
        text = surroundings.trim(text[:end], around)
        cuts.append((BLANKS, end - len(text)))
        if not text.strip():
            return NoSuggestion(reason or Reason.EMPTY)
        if not around.rest.strip() and (length := repetition.length_without_below(text, around)) < len(text):
            cuts.append((Reason.REPEATS_BELOW.value, len(text) - length))
            text = surroundings.trim(text[:length], around)
            if not text.strip():
                return NoSuggestion(Reason.REPEATS_BELOW)
        length, duplicate = self.duplicates.length_without(text) if self.duplicates is not None else (len(text), None)
        if duplicate is not None:
            cuts.append((duplicate.value, len(text) - length))
            text = surroundings.trim(text[:length], around)
            if not text.strip():
                return NoSuggestion(duplicate)
        blanks = outdent.blanks_of(text, around, self.language)
        if blanks is not None:
            return self._outdented(text.partition("\n")[0], blanks)
        text = text if is_ended else closers.without_openers(text, around)
        suggestion, length = self._choose(text, is_ended=is_ended, is_cut_short=is_cut_short)
        cuts.append((SOONER, len(text) - length))
        if isinstance(suggestion, Suggestion):
            cuts.append((STANDS_THERE, max(0, length - len(normal_newlines(suggestion.text)))))
        return suggestion

    def _whole_length(self, text: str) -> int:
        """The length of a text that a limit cut in mid-line, up to its last whole line, statement or word."""
        last_line = text.rfind("\n")
        if not text[: max(last_line, 0)].strip():
            return last_line + 1 + whole_end.whole_length(text[last_line + 1 :], self.around)
        if not closers.leaves_open(text, self.around):
            return last_line
        return last_line + 1 + whole_end.prose_length(text[last_line + 1 :])

    def _fit(self, text: str, choice: surroundings.Choice | None = None) -> Suggestion | NoSuggestion:
        """`text` fitted to the text around the cursor; with `choice`, in this way instead of the best one."""
        around = self.around
        text, replaced = choice or surroundings.fit(text, around)
        text = surroundings.trim(text, around) + closers.blank_before(text, replaced, around)
        if text.endswith(",") and around.rules.strict and closers.stands_next(around, replaced):
            text = text[:-1]
        if not text.strip() or text == around.rest[:replaced]:
            return NoSuggestion(Reason.REPEATS_LINE)
        if (length := repetition.length_without_below(text + around.rest[replaced:], around)) < len(text):
            # a surplus bracket had hidden it from `to_suggestion`; without these lines other brackets may be surplus
            return self._fit(text[:length]) if text[:length].strip() else NoSuggestion(Reason.REPEATS_BELOW)
        if not self.trivial and surroundings.is_trivial(text, around):
            return NoSuggestion(Reason.TRIVIAL)
        if repetition.repeats_above(text, around):
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

    def _choose(self, text: str, *, is_ended: bool, is_cut_short: bool) -> tuple[Suggestion | NoSuggestion, int]:
        """(the first candidate that breaks nothing, the length of `text` that it uses).

        The candidates: `text` with the closers that it needs, as it is, and shorter. `is_ended`: by the model itself.
        """
        around = self.around
        plain = self._fit(text)
        if isinstance(plain, NoSuggestion):
            return plain, len(text)
        deadline = parse_clock_s() + CHECK_MS / 1000
        is_mid_line = bool(around.rest.strip())
        is_closed = is_ended or is_cut_short or self.enclosed or self.multiline or closers.leaves_open(text, around)
        line = is_ended or is_mid_line  # what the line opens may be closed further down
        for candidate in closers.candidates(text, around, line=line) if is_closed else ():
            closed = self._fit(candidate)
            if isinstance(closed, Suggestion) and self._is_valid(closed, deadline):
                return closed, len(text)
        if self._is_valid(plain, deadline, truncated=is_cut_short):
            return plain, len(text)
        deadline += REPAIR_MS / 1000
        for length, choice in surroundings.alternatives(text, around):
            shorter = text[:length]
            if choice is None and is_closed and text[length : length + 1] == "\n":
                shorter = next(closers.candidates(shorter, around, line=line), shorter)
            other = self._fit(shorter, choice)
            if isinstance(other, Suggestion) and self._is_valid(other, deadline):
                return (other, length) if parse_clock_s() < deadline else (NoSuggestion(Reason.BREAKS), 0)
        return NoSuggestion(Reason.BREAKS), 0

    def _is_valid(self, suggestion: Suggestion, deadline: float, *, truncated: bool = False) -> bool:
        """True if the suggestion adds no syntax error and, before text, leaves no bracket, tag or quote open."""
        around, verdict = self.around, syntax_check.Verdict.NO_WORSE
        if self.check is not None:
            verdict = self.check.check(suggestion.text, suggestion.end, deadline, truncated=truncated)
        if verdict is syntax_check.Verdict.BREAKS or closers.leaves_open(normal_newlines(suggestion.text), around):
            return False
        if verdict is syntax_check.Verdict.CLEAN or not around.rest.strip():
            return True
        if around.kind not in ("code", "string"):
            return True
        replaced = suggestion.end - suggestion.start
        imbalance = surroundings.imbalance(normal_newlines(suggestion.text), replaced, around)
        return imbalance <= surroundings.imbalance("", 0, around)


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
        duplicates=Duplicates(around, language, tree),
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
