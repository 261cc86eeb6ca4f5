"""Ends of text that is not code: strings, comments and docstrings.

Prose is completed to the end of its line. The end mark of a comment or docstring occurs once, in the suggestion or in
the text below. If the lines of a comment begin with a star, every line does. Inside a string that is closed right of
the cursor, a suggestion ends before the quote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from speclsp.lsp.syntax import lexical_rules
from speclsp.lsp.syntax.languages.record import UNKNOWN_RULES, LexicalRules

_LOOK_AHEAD = 20_000  # characters that are searched for the end mark
_QUOTES = LexicalRules(  # in text of any kind; the apostrophe of a word and a quoted list of Lisp begin no string
    string=r"""(?<![\w)])(?P<quote>["'`])(?![(\[])(?:\\.|(?!(?P=quote))[^\\\n])*(?P=quote)""", brackets=""
)
_STRING_END = re.compile(r"(?:\"\"\"|'''|\]=*\]|[\"'`/]#*)\Z")
_HOLE = re.compile(r"[$#]\{|\$\(|\\\(")  # interpolated code begins


def closing_of(before: str, kind: str, rules: LexicalRules) -> str:
    """The end mark of the block comment or multi-line string around the cursor; "" if the line ends it."""
    last = lexical_rules.left_open(before, rules)
    if last is not None and last.kind in ("block_comment", "long_string"):
        closing = lexical_rules.closing_of(before[last.start :], last.kind)
        return closing if len(closing) > 1 else ""  # a "`" can belong to an inner template string
    if last is None and kind == "prose" and rules.colon_opens:  # its beginning is further up than `before`
        return max('"""', "'''", key=before.rfind)
    return ""


def is_closed(after: str, closing: str) -> bool:
    """True if the end mark of the text around the cursor follows in `after`."""
    after = after[:_LOOK_AHEAD]
    at = after.find(closing)
    if at < 0:
        return False
    opening = {"*/": "/*", "-->": "<!--"}.get(closing, "")
    if opening:
        return opening not in after[:at]
    return closing[0] == "]" or after.count(closing) % 2 == 1


class ClosedString(NamedTuple):
    """A string around the cursor that is closed right of it: its text up to the cursor, and the rules that end it."""

    head: str
    rules: LexicalRules
    has_braces: bool  # a brace in it begins interpolated code

    def end_in(self, text: str) -> int:
        """The offset of the quote in `text` that ends the string; -1 without one."""
        whole = self.head + text
        token = next(lexical_rules.tokens(whole, self.rules), None)
        if token is None or token.start or token.open or token.end > len(whole):
            return -1
        mark = _STRING_END.search(whole, 0, token.end)
        end = mark.start() if mark else token.end - 1
        holes = [match.end() - 1 for match in _HOLE.finditer(whole, 0, end)]
        start = whole.rfind("{", 0, end) if self.has_braces else max(holes, default=-1)
        is_in_hole = start >= 0 and lexical_rules.PAIRS[whole[start]] not in whole[start:end]
        return -1 if is_in_hole else end - len(self.head)


def strings_around(before: str, rest: str, after: str, kind: str, rules: LexicalRules) -> Iterator[ClosedString]:
    """The strings around the cursor that are closed right of it: of the language, then quotes inside any text."""
    line = before.rpartition("\n")[2]
    string = _string_around(before, rest, after, rules)
    if string is not None:
        yield string
        line = string.head[1:].rpartition("\n")[2]
    is_empty = line[-1:] in ("'", "`") and rest[:1] == line[-1]
    if kind != "code" or rules.string == UNKNOWN_RULES.string or is_empty:
        inner = _string_around(line, rest, "", _QUOTES)
        if inner is not None:
            yield inner


def _string_around(before: str, rest: str, after: str, rules: LexicalRules) -> ClosedString | None:
    """The string that spans the cursor and leaves no quote open behind it."""
    whole, cursor = before + rest + after, len(before)
    for token in lexical_rules.tokens(whole, rules):
        if token.start >= cursor:
            break
        if token.kind not in ("string", "long_string") or token.open or not token.start < cursor < token.end:
            continue
        behind = rest[max(0, token.end - cursor) :] if token.kind == "string" else ""
        quote = whole[token.end - 1]
        if (behind.count(quote) - behind.count("\\" + quote)) % 2:
            return None
        return ClosedString(before[token.start :], rules, before[token.start - 1 : token.start] in ("f", "F", "$"))
    return None
