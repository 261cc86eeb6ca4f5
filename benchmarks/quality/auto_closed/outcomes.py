"""Outcome of one place: the whole document with the suggestion, compared with the author's text.

    shown       a suggestion is shown
    exact       the document is the author's, blanks at line ends aside
    unbalanced  the document has more syntax errors, or more unmatched brackets and quotes, than the author's
    closable    nothing is shown because the text breaks the syntax, and with closers behind it it would not

The author's text may have a `;` or `,` behind the closers that the editor does not hold: with it and without it is
exact. Without closers right of the cursor, a block's body alone is exact too.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.quality.auto_closed.editor_pairs import Place
from benchmarks.quality.auto_closed.places import BLOCKS, errors_of
from benchmarks.quality.run_task import Row
from benchmarks.quality.tasks.tasks import Task
from speclsp.lsp.reasons import Reason
from speclsp.lsp.syntax import lexical_rules
from speclsp.lsp.syntax.grammars import grammar
from speclsp.lsp.syntax.text_windows import normal_newlines

MAX_CLOSERS = 6


@dataclass(frozen=True, slots=True)
class Outcome:
    """The scores of one place."""

    shown: bool = False
    exact: bool = False
    unbalanced: bool = False
    more_errors: bool = False  # by the syntax tree
    more_brackets: bool = False  # by brackets and quotes
    closable: bool = False
    reason: str = ""  # why nothing is shown


def outcome(text: str, place: Place, task: Task, row: Row) -> Outcome:
    """The outcome of a place of the file `text`. `task` has closers right of the cursor, or nothing."""
    author = place.author_text(text)
    if not row.text:
        is_closable = row.reason == Reason.BREAKS.value and can_be_closed(author, task, row.said)
        return Outcome(closable=is_closable, reason=row.reason)
    result = task.text[: task.cursor] + normal_newlines(row.text) + task.text[task.cursor + row.replaced :]
    more_errors, more_brackets = worse(task.language, result, author)
    return Outcome(
        shown=True,
        exact=without_blanks(result) in map(without_blanks, right_texts(text, place, task)),
        unbalanced=more_errors or more_brackets,
        more_errors=more_errors,
        more_brackets=more_brackets,
    )


def right_texts(text: str, place: Place, task: Task) -> list[str]:
    """The documents that count as exact."""
    above, below = text[: place.cursor], text[place.end :]
    right = [above + place.answer + place.rest + mark + below for mark in {"", place.mark}]
    if task.text == above + below:  # nothing is right of the cursor
        if place.rest[-1:] in (";", ","):
            right.append(above + place.answer + place.rest[:-1] + below)
        if place.kind in BLOCKS:
            right.append(above + place.answer.rstrip() + below)
    return right


def worse(language: str, result: str, author: str) -> tuple[bool, bool]:
    """(more syntax errors than the author's text, more brackets and quotes without partner)."""
    errors, allowed = errors_of(language, result), errors_of(language, author)
    return errors is not None and allowed is not None and errors > allowed, imbalance(language, result) > imbalance(
        language, author
    )


def imbalance(language: str, text: str) -> int:
    """Brackets and strings without a partner."""
    return lexical_rules.balance(text, lexical_rules.rules_of(grammar(language))).imbalance


def can_be_closed(author: str, task: Task, generated: str) -> bool:
    """True if the generated text, or its first line, is right by the tree and by balance with closers behind it."""
    above, below = task.text[: task.cursor], task.text[task.cursor :]
    rules = lexical_rules.rules_of(grammar(task.language))
    line = above[above.rfind("\n") + 1 :]
    for text in dict.fromkeys((generated.rstrip(), generated.split("\n")[0].rstrip())):
        stack = lexical_rules.balance(line + text, rules).stack
        closers = "".join(lexical_rules.PAIRS[bracket] for bracket, _ in reversed(stack))[:MAX_CLOSERS]
        quote = '"""' if task.kind == "docstring" else line[-1:] if line[-1:] in "\"'`" else ""
        for added in {closers[:count] for count in range(1, len(closers) + 1)} | ({quote} - {""}):
            if text.strip() and worse(task.language, above + text + added + below, author) == (False, False):
                return True
    return False


def without_blanks(text: str) -> str:
    """The text without blanks at the ends of lines."""
    return "\n".join(line.rstrip() for line in text.split("\n"))
