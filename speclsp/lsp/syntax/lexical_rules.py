"""Lexical analysis of incomplete code: brackets, strings, comments, blocks and indentation, from the characters alone.

A parser needs complete programs. At the cursor the line is incomplete, and a suggestion is only what has been streamed
so far. These rules need neither a tree nor a complete line. They cost microseconds and can be wrong about an unusual
line: callers compare two texts by the same rules, or use a tree as well.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from speclsp.lsp.syntax.languages import BY_NAME
from speclsp.lsp.syntax.languages.record import UNKNOWN_RULES, LexicalRules

PAIRS: Mapping[str, str] = {"(": ")", "[": "]", "{": "}"}
_TAB_COLUMNS = 4
_OPENER = re.compile(r"[@\w]*(\"\"\"|'''|[\"'`]|\[=*\[)")
_JUMP = re.compile(r"\s*(?:return|raise|throw|break|continue)\b(?!.*\b(?:if|unless)\b)(?!.*[,\\(\[{+=&|]\s*$)")
_LABEL = re.compile(r"(?:(?:case|default|el|elif|else|elsif|except|rescue|ensure|finally|when|catch)\b|\w+:\s*$|\W)")


@dataclass(frozen=True, slots=True)
class Token:
    """A bracket, a string or a comment. `open`: the line or the text ended before it was closed."""

    kind: str  # "bracket" | "string" | "long_string" | "comment" | "block_comment"
    start: int
    end: int
    open: bool


@dataclass(slots=True)
class Balance:
    """The brackets and quotes of a text that have no partner."""

    stack: list[tuple[str, int]] = field(default_factory=list)  # (opener without closer, its offset)
    unmatched_closers: list[int] = field(default_factory=list)  # offsets of closers without opener
    unterminated_strings: int = 0  # strings that are open at the end of their line
    inside: str = "code"  # at the end of the text: "code" | "string" | "comment"

    @property
    def imbalance(self) -> int:
        """The number of brackets and strings without a partner; 0 for balanced text."""
        unmatched = len(self.stack) + len(self.unmatched_closers)
        return unmatched + self.unterminated_strings + (self.inside == "string")


def rules_of(grammar: str | None) -> LexicalRules:
    """The rules for a grammar name; conservative ones for None."""
    language = BY_NAME.get(grammar or "")
    return language.rules if language is not None else UNKNOWN_RULES


def tokens(text: str, rules: LexicalRules) -> Iterator[Token]:
    """The brackets, strings and comments of `text`, in order; brackets inside strings and comments are left out."""
    for match in _lexer(rules).finditer(text):
        kind = match.lastgroup or ""
        token = match.group(kind)
        is_open = False
        if kind == "string":
            is_open = len(token) == 1 or token[-1] != token[0] or _ends_escaped(token)
        elif kind in ("long_string", "block_comment"):
            is_open = match.end() == len(text) and not _is_closed(token, kind)
        elif kind == "comment":
            is_open = True
        yield Token(kind, match.start(), match.end(), is_open)


def balance(text: str, rules: LexicalRules) -> Balance:
    """Match the brackets and quotes of `text`."""
    result = Balance()
    for token in tokens(text, rules):
        if token.kind == "bracket":
            character = text[token.start]
            if character in PAIRS:
                result.stack.append((character, token.start))
            elif result.stack and PAIRS[result.stack[-1][0]] == character:
                result.stack.pop()
            else:
                result.unmatched_closers.append(token.start)
        elif token.open and token.end == len(text):
            result.inside = "comment" if "comment" in token.kind else "string"
        elif token.open and token.kind == "string":
            result.unterminated_strings += 1
    return result


def left_open(text: str, rules: LexicalRules) -> Token | None:
    """The string or comment that is open at the end of `text`."""
    *_, last = (None, *tokens(text, rules))
    return last if last is not None and last.open and last.end == len(text) else None


def closing_of(token: str, kind: str) -> str:
    """The end of a string or comment that begins like `token`; "" for a comment of one line."""
    if kind == "block_comment":
        if token.startswith("<!--"):
            return "-->"
        return f"]{token[3:].split('[')[0]}]" if token[:1] == "-" else "*/"
    opener = _OPENER.match(token)
    return opener[1].replace("[", "]") if opener and kind != "comment" else ""


def code_of(line: str, rules: LexicalRules) -> str:
    """A line without the comment at its end."""
    for token in tokens(line, rules):
        if "comment" in token.kind and (token.open or not line[token.end :].strip()):
            return line[: token.start].rstrip()
    return line


def opens_block(line: str, rules: LexicalRules, *, above: bool) -> bool:
    """True if a block begins after `line`: the line `above` a blank one, or the current line up to the cursor."""
    code = code_of(line, rules)
    pattern = (rules.opens_below if above else "") or rules.opens_here
    if rules.colon_opens and code.endswith(":") and balance(code, rules).unmatched_closers:
        return True
    return bool(code.strip()) and re.search(pattern, code) is not None


def ends_in_bracket(line: str, rules: LexicalRules) -> bool:
    return code_of(line, rules).rstrip()[-1:] in ("(", "[", "{")


def is_jump(line: str, rules: LexicalRules) -> bool:
    """True if the line always jumps (return, break), so that no code after it on its level is reached."""
    return _JUMP.match(code_of(line, rules)) is not None


def may_be_reached(line: str) -> bool:
    """True if a line can be reached after a jump: a label, another branch, a comment."""
    return _LABEL.match(line.lstrip()) is not None


def ends_block(line: str, rules: LexicalRules) -> bool:
    """True if a line closes a block by its first word or bracket, like `end`, `fi` or `})`."""
    bare = line.strip()
    return bare[:1] in (")", "]", "}") or bool(rules.ends and re.match(rules.ends, bare))


def indent_width(line: str) -> int:
    """The column of a line's first non-blank character, with a tab stop every 4; the width of a blank line."""
    blank = line[: len(line) - len(line.lstrip(" \t"))]
    return len(blank.expandtabs(_TAB_COLUMNS))


def indent_style(text: str) -> tuple[str, int]:
    """("tabs" | "spaces" | "", step in columns): the indentation of the lines of `text`, "" when they do not agree."""
    tabs = spaces = 0
    step = 8
    for line in text.split("\n"):
        if line[:1] == "\t":
            tabs += 1
        elif line[:2] == "  " and line.strip() and line.lstrip(" ")[:1] != "*":
            spaces += 1
            step = min(step, indent_width(line))
    if tabs and not spaces:
        return "tabs", _TAB_COLUMNS
    if spaces > 1 and not tabs:
        return "spaces", step
    return "", _TAB_COLUMNS


def _ends_escaped(literal: str) -> bool:
    """True if a string's last quote is escaped, and does not close the string."""
    body = literal[:-1]
    return (len(body) - len(body.rstrip("\\"))) % 2 == 1


def _is_closed(token: str, kind: str) -> bool:
    if kind == "block_comment":
        return len(token) > 3 and token.endswith(("*/", "-->", "]"))
    for quote in ('"""', "'''"):
        if token.startswith(quote):
            return len(token) >= 6 and token.endswith(quote) and not _ends_escaped(token)
    return len(token) > 1 and token.endswith(("`", '"', "]"))


@functools.cache
def _lexer(rules: LexicalRules) -> re.Pattern[str]:
    parts = [
        f"(?P<{kind}>{pattern})"
        for kind, pattern in (
            ("block_comment", rules.block_comment),
            ("long_string", rules.long_string),
            ("comment", rules.comment),
            ("string", rules.string),
            ("bracket", rules.brackets),
        )
        if pattern
    ]
    return re.compile("|".join(parts), re.DOTALL | re.MULTILINE)
