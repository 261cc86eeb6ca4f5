"""Ends of text that is not code: comments, docstrings, Markdown, and the code in Markdown's fences.

Prose is completed to the end of its line. The end mark of a comment or docstring occurs once, in the suggestion or in
the text below. If the lines of a comment begin with a star, every line does. In Markdown, the lines between two fences
are code in the language that the first fence names; all other text is prose.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from speclsp.lsp.syntax import lexical_rules
from speclsp.lsp.syntax.languages.record import LexicalRules

_FENCE = re.compile(r"(?m)^[ \t>]*(?P<marks>`{3,}|~{3,})[ \t]*(?P<info>[^`\n]*)$")
FENCE = re.compile(r"(?m)^[ \t]*(?:```|~~~)")  # the beginning of a fence line
_LOOK_AHEAD = 20_000  # characters that are searched for the end mark


@dataclass(frozen=True, slots=True)
class Fenced:
    """Code in Markdown: offsets of its lines, without the fences."""

    language: str
    start: int
    end: int
    closed: bool


def fenced(text: str, cursor: int) -> Fenced | None:
    """The fenced code around `cursor` in a Markdown text."""
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        marks, info = fence["marks"], fence["info"].strip()
        if opened is None:
            if fence.end() >= cursor:
                return None
            opened = fence
        elif marks[0] == opened["marks"][0] and len(marks) >= len(opened["marks"]) and not info:
            if fence.start() > cursor:
                return _code(opened, fence.start(), closed=True)
            opened = None
    return _code(opened, len(text), closed=False) if opened is not None else None


def _code(opened: re.Match[str], end: int, *, closed: bool) -> Fenced:
    language = re.match(r"[{.\s]*([\w+#-]*)", opened["info"])
    return Fenced(language[1] if language else "", opened.end() + 1, end, closed)


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
