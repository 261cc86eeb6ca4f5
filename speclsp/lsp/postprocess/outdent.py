"""Outdent: a line that ends its block, as `else:`, `}` or `end`, takes back the indentation of the blank line.

    if x:                                     if x:
        a()                                       a()
        ‸           the model: "else:"        else:‸          the range begins at the line's start

The editor indents a new line as deep as the one above. A line that ends the block stands as deep as the line that
opened it. The suggestion then replaces white space left of the cursor, which not every editor can show.
"""

from __future__ import annotations

import re

from speclsp.lsp.postprocess.surroundings import Surroundings
from speclsp.lsp.syntax import lexical_rules
from speclsp.lsp.syntax.incremental_parse import parse_clock_s
from speclsp.lsp.syntax.languages.record import Language
from speclsp.lsp.syntax.lexical_rules import pair
from speclsp.lsp.syntax.tree import SyntaxTree

_CHECK_MS = 20.0
_FIRST_WORD = re.compile(r"[a-z]+\b")
_ENDINGS = ("", "\n{blanks}    pass", "\n{blanks}end", "\n{blanks}fi")  # they may complete the line


def blanks_of(text: str, around: Surroundings, language: Language) -> str | None:
    """The indentation of the line that `text` completes, where it is less than the line has now; None elsewhere."""
    bare, now = around.line.lstrip(" \t"), lexical_rules.indent_width(around.line)
    line = bare + text.partition("\n")[0]
    if around.kind != "code" or around.rest.strip() or not now or not line.strip() or "\n" in text[:1]:
        return None
    if line[0] in ")]}":
        header = _opener_line(around)
    elif (word := _FIRST_WORD.match(line)) and word[0] in language.branches and ":" in line:
        header = _branch_header(around, language.branches[word[0]], now)
    elif language.branch_words and re.match(rf"(?:{language.branch_words})\b", line):
        shallower = (above for above in reversed(around.above) if lexical_rules.indent_width(above) < now)
        header = next(shallower, None)
        if header is not None and not re.match(rf"\s*(?:{language.branch_words})\b", header):
            header = header if lexical_rules.opens_block(header, around.rules, above=True) else None
    else:
        return None
    if header is None or lexical_rules.indent_width(header) >= now:
        return None
    return lexical_rules.indent_of(header)


def _opener_line(around: Surroundings) -> str | None:
    """The line above with the bracket that the first character of the cursor's line closes."""
    above = around.before[: len(around.before) - len(around.line)]
    openers = pair(above, around.rules, tags=False).openers
    if not openers:
        return None
    at = openers[-1].start
    line = above[above.rfind("\n", 0, at) + 1 : above.find("\n", at)]
    return line if line in around.above else None  # `before` may begin with openers of its own


def _branch_header(around: Surroundings, words: str, now: int) -> str | None:
    """The innermost header above that a branch may follow; None if the line stands right, or if there is no header."""
    limit = now + 1
    for line in reversed(around.above):
        width = lexical_rules.indent_width(line)
        if width < limit and lexical_rules.code_of(line, around.rules).strip():
            if re.match(rf"\s*(?:{words})\b", line):
                return line if width < now else None
            limit = min(limit, width)
    return None


def adds_errors(line: str, blanks: str, around: Surroundings, tree: SyntaxTree | None) -> bool:
    """True if `line`, in place of the cursor's line, adds errors however it goes on: by the tree, or by brackets."""
    if line.lstrip()[:1] in ")]}":
        without = pair(around.before + around.after, around.rules, tags=False).imbalance
        if pair(around.before + line.lstrip() + around.after, around.rules, tags=False).imbalance > without:
            return True
    if tree is None:
        return False
    start, end = around.cursor - len(around.line), around.cursor + len(around.rest)
    deadline = parse_clock_s() + _CHECK_MS / 1000

    def count(text: str) -> int | None:
        return tree.count_errors_with(start, end, text, (deadline - parse_clock_s()) * 1000)

    now = count("")
    if now is None:
        return False
    counts = (count(line + ending.format(blanks=blanks)) for ending in _ENDINGS)
    return not any(errors is None or errors <= now for errors in counts)
