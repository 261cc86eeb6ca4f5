"""Lexical analysis of incomplete code: brackets, tags, strings, comments, blocks, indentation, by characters alone.

    `<ul>{items.map((item) => <li>`    openers without a closer: <ul> { ( <li>
    `)}</ul>`                          closers without an opener: ) } </ul>

A parser needs complete programs. At the cursor the line is incomplete, and a suggestion is only what has been streamed
so far. These rules need neither a tree nor a complete line. They cost microseconds and can be wrong about an unusual
line: callers compare two texts by the same rules, or use a tree as well. Tags count in JSX and in markup languages. A
tag that is not complete, such as `<a href=`, counts as neither opener nor closer.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from speclsp.lsp.syntax.languages import BY_NAME
from speclsp.lsp.syntax.languages.record import UNKNOWN_RULES, LexicalRules

PAIRS: Mapping[str, str] = {"(": ")", "[": "]", "{": "}"}
_TAB_COLUMNS = 4
_OPENER = re.compile(r"[@\w]*(\"\"\"|'''|[\"'`]|\[=*\[)")
_TAG_START = re.compile(r"<(?P<close>/)?(?P<name>[A-Za-z][\w.:-]*|(?=>))(?=[\s/>])|/>")
_ATTRIBUTE = re.compile(
    r"\s+|[\w:@.#*$-]+(?:\s*=\s*(?:\"[^\"]*\"|'[^']*'|(?=\{)|[^\s\"'<>{}=`]+))?|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"
)
_MAX_TAG_CHARACTERS = 4_000
_VOID = frozenset(
    ("br", "hr", "img", "input", "link", "meta", "area", "base", "col", "embed", "source", "track", "wbr")
)


@dataclass(frozen=True, slots=True)
class Token:
    """A bracket, a string or a comment. `open`: the line or the text ended before it was closed."""

    kind: str  # "bracket" | "string" | "long_string" | "comment" | "block_comment"
    start: int
    end: int
    open: bool


class Mark(NamedTuple):
    """A bracket, or a tag: "<ul" opens and "</ul" closes an element."""

    mark: str
    start: int
    end: int

    @property
    def closer(self) -> str:
        return f"</{self.mark[1:]}>" if self.mark[0] == "<" else PAIRS[self.mark]

    @property
    def opens(self) -> bool:
        return self.mark in PAIRS or (self.mark[0] == "<" and self.mark[:2] != "</")

    def is_closed_by(self, closer: Mark) -> bool:
        if self.mark[0] == "<":
            return closer.mark == f"</{self.mark[1:]}"
        return closer.mark == PAIRS[self.mark]


@dataclass(slots=True)
class Pairing:
    """The brackets, tags and quotes of a text that have no partner."""

    openers: list[Mark] = field(default_factory=list)
    closers: list[Mark] = field(default_factory=list)
    malformed: int = 0  # tags such as `</b />`, and strings that their line ends
    open: Token | None = None  # the string or comment that is open at the end of the text

    @property
    def inside(self) -> str:
        """The kind of text at the end: "code", "string" or "comment"."""
        return "code" if self.open is None else "comment" if "comment" in self.open.kind else "string"

    @property
    def imbalance(self) -> int:
        """The number of marks without a partner; 0 for balanced text."""
        return len(self.openers) + len(self.closers) + self.malformed + (self.inside == "string")


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


def pair(text: str, rules: LexicalRules, *, tags: bool = True) -> Pairing:
    """Match the brackets, tags and quotes of `text`."""
    result = Pairing()
    for mark in marks(text, rules, result, tags=tags):
        if mark.opens:
            result.openers.append(mark)
        elif mark.mark[0] == "<":
            _close_tag(result, mark)
        elif result.openers and result.openers[-1].is_closed_by(mark):
            result.openers.pop()
        elif (at := _block_of(result.openers, mark, text)) >= 0:
            del result.openers[at]
        else:
            result.closers.append(mark)
    return result


def _block_of(openers: list[Mark], closer: Mark, text: str) -> int:
    """The index of the block that a brace on a line of its own closes by its indentation; -1 for none."""
    indent = text[text.rfind("\n", 0, closer.start) + 1 : closer.start]
    if closer.mark != "}" or indent.strip():
        return -1
    for at in reversed(range(len(openers))):
        start = openers[at].start
        if openers[at].mark == "{" and indent_of(text[text.rfind("\n", 0, start) + 1 : start]) == indent:
            return at
    return -1


def marks(text: str, rules: LexicalRules, result: Pairing, *, tags: bool = True) -> list[Mark]:
    """The brackets and tags of `text`, in order; counts malformed tags and open strings in `result`."""
    brackets: list[Mark] = []
    strings: list[tuple[int, int]] = []
    for token in tokens(text, rules):
        if token.kind == "bracket":
            brackets.append(Mark(text[token.start], token.start, token.end))
        elif token.open and token.end == len(text):
            result.open = token
        elif token.open and token.kind == "string":
            result.malformed += 1
        elif not text[token.start - 1 : token.start].isalnum():  # the apostrophe of a word begins no string
            strings.append((token.start, token.end))
    if not tags or not rules.markup or "<" not in text:
        return brackets
    code = (mark for mark in _tags(text, rules.markup, result) if not any(a < mark.start < b for a, b in strings))
    return sorted([*brackets, *code], key=lambda mark: mark.start if mark.mark[:2] == "</" else mark.end)


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
    if rules.colon_opens and code.endswith(":") and pair(code, rules, tags=False).closers:
        return True
    return bool(code.strip()) and re.search(pattern, code) is not None


def ends_in_bracket(line: str, rules: LexicalRules) -> bool:
    return code_of(line, rules).rstrip()[-1:] in ("(", "[", "{")


def is_jump(line: str, rules: LexicalRules) -> bool:
    """True if the line always jumps (return, break), so that no code after it on its level is reached."""
    return re.match(rules.jump, code_of(line, rules)) is not None


def may_be_reached(line: str, rules: LexicalRules) -> bool:
    """True if a line can be reached after a jump: a label, another branch, a comment."""
    return re.match(rules.label, line.lstrip()) is not None


def ends_block(line: str, rules: LexicalRules) -> bool:
    """True if a line closes a block by its first word or bracket, like `end`, `fi` or `})`."""
    bare = line.strip()
    return bare[:1] in (")", "]", "}") or bool(rules.ends and re.match(rules.ends, bare))


def indent_of(line: str) -> str:
    """The blanks and tabs that a line begins with."""
    return line[: len(line) - len(line.lstrip(" \t"))]


def indent_width(line: str) -> int:
    """The column of a line's first non-blank character, with a tab stop every 4; the width of a blank line."""
    return len(indent_of(line).expandtabs(_TAB_COLUMNS))


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


# ── tags ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _close_tag(result: Pairing, mark: Mark) -> None:
    """A closing tag closes the nearest element of its name; HTML may omit the closing tags of elements in it."""
    for at in range(len(result.openers) - 1, -1, -1):
        opener = result.openers[at]
        if opener.mark[0] != "<":
            break
        if opener.is_closed_by(mark):
            result.malformed += len(result.openers) - 1 - at
            del result.openers[at:]
            return
    result.closers.append(mark)


def _tags(text: str, markup: str, result: Pairing) -> Iterator[Mark]:
    """The complete tags of `text`."""
    at = 0
    while (match := _TAG_START.search(text, at)) is not None:
        at = match.end()
        if match[0] == "/>":
            result.malformed += 1
            continue
        before = text[match.start() - 1 : match.start()] if match.start() else ""
        if markup == "in code" and not match["close"] and (before.isalnum() or before in ("_", ")", "]")):
            continue  # a type argument or a comparison
        end = _tag_end(text, match.end())
        if end <= 0:
            at = at if end == 0 else len(text)
            continue
        at, is_empty = end, text[end - 2] == "/"
        if match["close"]:
            result.malformed += is_empty
            yield Mark(f"</{match['name']}", match.start(), end)
        elif not is_empty and match["name"].lower() not in _VOID:
            yield Mark(f"<{match['name']}", match.start(), end)


def _tag_end(text: str, at: int) -> int:
    """The end of the tag with attributes from `at` on; 0: this is no tag; -1: it is not complete."""
    last = min(len(text), at + _MAX_TAG_CHARACTERS)
    while at < last:
        if text[at] == ">":
            return at + 1
        if text[at] == "/":
            at += 1
        elif text[at] == "{":
            at = _brace_end(text, at, last)
        elif match := _ATTRIBUTE.match(text, at):
            at = match.end()
        else:
            return 0
    return -1


def _brace_end(text: str, at: int, last: int) -> int:
    depth = 0
    while at < last:
        depth += (text[at] == "{") - (text[at] == "}")
        at += 1
        if not depth:
            break
    return at
