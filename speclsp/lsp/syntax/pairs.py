"""Pairing of brackets and markup tags in incomplete code, from the characters alone.

    `<ul>{items.map((item) => <li>`    openers without a closer: <ul> { ( <li>
    `)}</ul>`                          closers without an opener: ) } </ul>

Tags count in JSX and in markup languages. A tag that is not complete, such as `<a href=`, counts as neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from speclsp.lsp.syntax import lexical_rules
from speclsp.lsp.syntax.languages.record import LexicalRules

_TAG_START = re.compile(r"<(?P<close>/)?(?P<name>[A-Za-z][\w.:-]*|(?=>))(?=[\s/>])|/>")
_ATTRIBUTE = re.compile(
    r"\s+|[\w:@.#*$-]+(?:\s*=\s*(?:\"[^\"]*\"|'[^']*'|(?=\{)|[^\s\"'<>{}=`]+))?|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"
)
_MAX_TAG_CHARACTERS = 4_000
_VOID = frozenset(
    ("br", "hr", "img", "input", "link", "meta", "area", "base", "col", "embed", "source", "track", "wbr")
)


class Mark(NamedTuple):
    """A bracket, or a tag: "<ul" opens and "</ul" closes an element."""

    mark: str
    start: int
    end: int

    @property
    def closer(self) -> str:
        return f"</{self.mark[1:]}>" if self.mark[0] == "<" else lexical_rules.PAIRS[self.mark]

    @property
    def opens(self) -> bool:
        return self.mark in lexical_rules.PAIRS or (self.mark[0] == "<" and self.mark[:2] != "</")

    def is_closed_by(self, closer: Mark) -> bool:
        if self.mark[0] == "<":
            return closer.mark == f"</{self.mark[1:]}"
        return closer.mark == lexical_rules.PAIRS[self.mark]


@dataclass(slots=True)
class Pairing:
    """The brackets, tags and quotes of a text that have no partner."""

    openers: list[Mark] = field(default_factory=list)
    closers: list[Mark] = field(default_factory=list)
    malformed: int = 0  # tags such as `</b />`, and strings that their line ends
    open: lexical_rules.Token | None = None  # the string or comment that is open at the end of the text

    @property
    def imbalance(self) -> int:
        """The number of marks without a partner; 0 for balanced text."""
        in_string = self.open is not None and "comment" not in self.open.kind
        return len(self.openers) + len(self.closers) + self.malformed + in_string


def pair(text: str, rules: LexicalRules) -> Pairing:
    """Match the brackets, tags and quotes of `text`."""
    result = Pairing()
    for mark in marks(text, rules, result):
        if mark.opens:
            result.openers.append(mark)
        elif mark.mark[0] == "<":
            _close_tag(result, mark)
        elif result.openers and result.openers[-1].is_closed_by(mark):
            result.openers.pop()
        else:
            result.closers.append(mark)
    return result


def marks(text: str, rules: LexicalRules, result: Pairing) -> list[Mark]:
    """The brackets and tags of `text`, in order; counts malformed tags and open strings in `result`."""
    brackets: list[Mark] = []
    strings: list[tuple[int, int]] = []
    for token in lexical_rules.tokens(text, rules):
        if token.kind == "bracket":
            brackets.append(Mark(text[token.start], token.start, token.end))
        elif token.open and token.end == len(text):
            result.open = token
        elif token.open and token.kind == "string":
            result.malformed += 1
        elif not text[token.start - 1 : token.start].isalnum():  # the apostrophe of a word begins no string
            strings.append((token.start, token.end))
    if not rules.markup or "<" not in text:
        return brackets
    tags = (mark for mark in _tags(text, rules.markup, result) if not any(a < mark.start < b for a, b in strings))
    return sorted([*brackets, *tags], key=lambda mark: mark.start if mark.mark[:2] == "</" else mark.end)


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
