"""Where text that is no code ends: comments, docstrings, Markdown and the code in its fences.

Prose goes to the end of its line. What closes a comment or a docstring is said once in a file, by the model or by what
stands below; and in a comment whose lines begin with a star no line begins without. In Markdown the lines between two
fences are code of the language that the first one names, and everything else is prose.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from speclsp.lsp.syntax import lexical_rules
from speclsp.lsp.syntax.languages import LexicalRules

_MARKDOWN = frozenset(("markdown", "mdx", "quarto", "rmd"))
_FENCE = re.compile(r"(?m)^[ \t>]*(?P<marks>`{3,}|~{3,})[ \t]*(?P<info>[^`\n]*)$")
FENCE = re.compile(r"(?m)^[ \t]*(?:```|~~~)")  # a line that begins like this
_LOOKED_AHEAD = 20_000  # characters in which a comment or docstring is closed


@dataclass(frozen=True, slots=True)
class Fenced:
    """Code in Markdown: offsets of its lines, without the fences."""

    language: str
    start: int
    end: int
    closed: bool


def is_markdown(language: str) -> bool:
    return language.strip().lower() in _MARKDOWN


def fenced(text: str, cursor: int) -> Fenced | None:
    """The code of a Markdown text that `cursor` is in."""
    opened: re.Match[str] | None = None
    for found in _FENCE.finditer(text):
        marks, info = found["marks"], found["info"].strip()
        if opened is None:
            if found.end() >= cursor:
                return None
            opened = found
        elif marks[0] == opened["marks"][0] and len(marks) >= len(opened["marks"]) and not info:
            if found.start() > cursor:
                return _code(opened, found.start(), closed=True)
            opened = None
    return _code(opened, len(text), closed=False) if opened is not None else None


def _code(opened: re.Match[str], end: int, *, closed: bool) -> Fenced:
    language = re.match(r"[{.\s]*([\w+#-]*)", opened["info"])
    return Fenced(language[1] if language else "", opened.end() + 1, end, closed)


def closer(before: str, kind: str, rules: LexicalRules) -> str:
    """What ends the comment or the string of several lines that the cursor is in; "" where its line does."""
    last = lexical_rules.left_open(before, rules)
    if last is not None and last.kind in ("block_comment", "long_string"):
        found = lexical_rules.closing_of(before[last.start :], last.kind)
        return found if len(found) > 1 else ""  # a template's "`" may be an inner one's
    if last is None and kind == "prose" and rules.colon_opens:  # begun further up than was looked at
        return max('"""', "'''", key=before.rfind)
    return ""


def is_closed(after: str, closing: str) -> bool:
    """Whether what the cursor is in is closed in the text after it."""
    after = after[:_LOOKED_AHEAD]
    at = after.find(closing)
    if at < 0:
        return False
    opening = {"*/": "/*", "-->": "<!--"}.get(closing, "")
    if opening:
        return opening not in after[:at]
    return closing[0] == "]" or after.count(closing) % 2 == 1


def is_starred(line: str) -> bool:
    """Whether the next line of the comment that `line` belongs to begins with a star."""
    return line.lstrip().startswith(("/**", "*"))
