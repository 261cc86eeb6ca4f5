"""Last point at which a text is whole, for texts that a token limit or a deadline ends in mid-line.

# Returns the sum of all va|              the last sentence, or the last word
[1, 2, 3, 4|                              the last item of a literal; its closers are added later
self.total = price * qua|                 none: nothing of the expression is shown
"""

from __future__ import annotations

import re

from speclsp.lsp.postprocess.surroundings import Surroundings
from speclsp.lsp.syntax import lexical_rules
from speclsp.lsp.syntax.lexical_rules import pair

_SENTENCE_END = re.compile(r"[.!?](?=\s)|[。！？]")
_LAST_WORD = re.compile(r"(?:^|(?<=\s))\S+\Z")
_BETWEEN = " \t,;:-–—("
_NEITHER_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]\Z")  # scripts without blanks between words


def whole_length(text: str, around: Surroundings) -> int:
    """The length of the part of one line that is whole; 0 if there is none."""
    if around.kind != "code":
        return prose_length(text)
    head = len(around.line)
    token = lexical_rules.left_open(around.line + text, around.rules)
    if token is None or token.start < head:
        return _expression_length(text, around) if token is None else prose_length(text)
    start = token.start - head
    mark = re.match(r"\W*", text[start:])
    begin = start + (mark.end() if mark else 0)
    length = prose_length(text[begin:])
    if length:
        return begin + length
    return len(text[:start].rstrip()) if "comment" in token.kind else _expression_length(text[:start], around)


def prose_length(text: str) -> int:
    """The length up to the last sentence or, without one, up to the last word."""
    sentences = [match.end() for match in _SENTENCE_END.finditer(text)]
    if sentences:
        return sentences[-1]
    if _NEITHER_WORD.search(text):
        return len(text)
    last_word = _LAST_WORD.search(text.rstrip())
    return len(text[: last_word.start()].rstrip(_BETWEEN)) if last_word and text[-1:].strip() else len(text.rstrip())


def _expression_length(text: str, around: Surroundings) -> int:
    """The length up to the last statement, argument, or item of a literal that is whole."""
    head = len(around.line)
    whole = around.line + text
    is_inside = bool(pair(around.before, around.rules).openers)
    skipped = [
        (token.start, token.end) for token in lexical_rules.tokens(whole, around.rules) if token.kind != "bracket"
    ]
    openers: list[str] = []
    length = 0
    for at, character in enumerate(text):
        if any(start <= at + head < end for start, end in skipped):
            continue
        if character in lexical_rules.PAIRS:
            openers.append(character)
        elif character in ")]}" and openers:
            openers.pop()
        elif character == ";" and not openers:
            length = at + 1
        elif character == "," and (openers[-1] in "[{" if openers else is_inside):
            length = at
    return length
