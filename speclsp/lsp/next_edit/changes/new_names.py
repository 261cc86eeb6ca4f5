"""Names that an edit adds beside their siblings: a parameter, a field, an enum member, an imported name.

    def draw(self, width, height, depth):       depth; above it height, width
        self.depth = depth                      below self.height = height
    BLUE = 3,                                   below GREEN = 2

A name is new if no line of the edit had it before. Siblings are the items around it in which another name stands at its
place.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from speclsp.lsp.next_edit.changes.list_items import NO_ITEM, items_above, items_below
from speclsp.lsp.next_edit.changes.substitutions import MAX_LINE_CHARACTERS, NAME, TOKEN, RecentEdit, indentation

MAX_NEW_LINES = 12
MAX_NEW_NAMES = 4
KEYWORDS = frozenset({
    "if", "else", "elif", "for", "while", "return", "def", "class", "case", "default", "break", "continue", "import",
    "from", "const", "let", "var", "function", "async", "await", "try", "except", "finally", "with", "pass", "raise",
    "throw", "switch", "match", "enum", "struct", "fn", "pub", "use", "self", "this", "None", "True", "False", "null",
    "undefined", "new", "in", "is", "not", "and", "or", "type", "interface", "export", "public", "private", "protected",
    "readonly", "static",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class NewNames:
    """Names in their order, and those of their siblings, the nearest first. `[first, end)`: the lines of the list."""

    names: tuple[str, ...]
    above: tuple[str, ...]
    below: tuple[str, ...]
    first: int
    end: int
    lines: tuple[int, ...]  # with the names
    left: str = ""  # the tokens before a name in its line
    right: str = ""  # the token after it


def new_names(edit: RecentEdit, lines: Sequence[str], near: int) -> Iterator[NewNames]:
    """The names that an edit has added to lists. `near`: a line, if the edit's lines stand in the document twice."""
    base = _line_of(edit.after, lines, near)
    if base is None:
        return
    known = set(TOKEN.findall("\n".join(edit.before)))
    matcher = difflib.SequenceMatcher(None, edit.before, edit.after, autojunk=False)
    for kind, low, high, start, end in matcher.get_opcodes():
        old, new = edit.before[low:high], edit.after[start:end]
        if kind == "replace" and len(old) == len(new):
            for number, pair in enumerate(zip(old, new, strict=True), base + start):
                yield from _in_line(*pair, number)
        elif kind == "insert" or (kind == "replace" and _grew(old, new)):
            yield from _in_lines(lines, base + start + len(old), base + end, known)


def _line_of(block: Sequence[str], lines: Sequence[str], near: int) -> int | None:
    """The first line of the nearest such lines."""
    if not block:
        return None
    size = len(block)
    starts = [at for at, line in enumerate(lines) if line == block[0] and [*lines[at : at + size]] == [*block]]
    return min(starts, key=lambda at: abs(at - near), default=None)


def _grew(old: Sequence[str], new: Sequence[str]) -> bool:
    """True if lines were added below others, which got no more than a comma."""
    return [line.rstrip(", ") for line in old] == [line.rstrip(", ") for line in new[: len(old)]]


# ── one name a line ───────────────────────────────────────────────────────────────────────────────────────────────────


def _in_lines(lines: Sequence[str], first: int, end: int, known: set[str]) -> Iterator[NewNames]:
    """The names of inserted lines `[first, end)`."""
    if not 0 < end - first <= MAX_NEW_LINES or not lines[first].strip():
        return
    indent = indentation(lines[first])
    own = list(items_below(lines[:end], first, indent))
    above, below = list(items_above(lines, first, indent)), list(items_below(lines, end, indent))
    if not 0 < len(own) <= MAX_NEW_NAMES or not above + below:
        return
    sibling = lines[(above or below)[0]]
    matches = [names_at(lines[number], sibling) for number in own]
    names = tuple(match[0] for match in matches if match is not None)
    if len(names) < len(own) or not known.isdisjoint(names) or matches[0] is None:
        return
    left, right = matches[0][2:]
    names_above, names_below = (tuple(_siblings(lines, numbers, lines[own[0]], left)) for numbers in (above, below))
    span = (above or own)[-1 if above else 0], (below or own)[-1] + 1
    yield NewNames(names, names_above, names_below, *span, tuple(own), left, right)


def _siblings(lines: Sequence[str], numbers: Sequence[int], item: str, left: str) -> Iterator[str]:
    """The names of items like this one, as far as they are."""
    for number in numbers:
        names = names_at(lines[number], item)
        if names is None or names[2] != left:
            return
        yield names[0]


def names_at(line: str, other: str) -> tuple[str, str, str, str] | None:
    """(name, name of the other line, tokens before both, the token after the name) where two lines begin to differ."""
    if max(len(line), len(other)) > MAX_LINE_CHARACTERS:
        return None
    tokens, others = TOKEN.findall(line.strip()), TOKEN.findall(other.strip())
    for at, (token, sibling) in enumerate(zip(tokens, others, strict=False)):
        if token != sibling:
            if not (is_new_name(token) and is_new_name(sibling)):
                return None
            return token, sibling, "".join(tokens[:at]), "".join(tokens[at + 1 : at + 2])
    return None


def is_new_name(token: str) -> bool:
    return len(token) > 1 and NAME.match(token) is not None and token not in KEYWORDS


# ── names in one line ─────────────────────────────────────────────────────────────────────────────────────────────────


def _in_line(old: str, new: str, number: int) -> Iterator[NewNames]:
    """The names that were added to a line, between brackets and commas."""
    before, tokens = TOKEN.findall(old), TOKEN.findall(new)
    matcher = difflib.SequenceMatcher(None, before, tokens, autojunk=False)
    codes = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    if len(codes) != 1 or codes[0][0] != "insert" or NO_ITEM.match(new) or len(new) > MAX_LINE_CHARACTERS:
        return
    start, end = codes[0][3:]
    opening = opening_bracket(tokens, start)
    if opening is None:
        return
    items = [
        (first, last) for first, last in comma_items(tokens, opening + 1) if any(map(NAME.match, tokens[first:last]))
    ]
    places = [next(at for at in range(*item) if NAME.match(tokens[at])) for item in items]
    added = [number for number, at in enumerate(places) if start <= at < end]
    if not 0 < len(added) <= MAX_NEW_NAMES:
        return
    names = [tokens[at] for at in places]
    inserted = names[added[0] : added[-1] + 1]
    if len(added) == len(inserted) and all(map(is_new_name, inserted)) and not {*inserted} & {*before}:
        above, below = tuple(names[: added[0]][::-1]), tuple(names[added[-1] + 1 :])
        yield NewNames(tuple(inserted), above, below, number, number + 1, (number,), right=",")


def opening_bracket(tokens: Sequence[str], at: int) -> int | None:
    """The index of the innermost bracket that is open before a token."""
    depth = 0
    for index in range(at - 1, -1, -1):
        if tokens[index] in ")]}":
            depth += 1
        elif tokens[index] in "([{":
            if depth == 0:
                return index
            depth -= 1
    return None


def comma_items(tokens: Sequence[str], start: int) -> Iterator[tuple[int, int]]:
    """The tokens `[first, last)` of each item in the brackets that open before `start`."""
    depth, first = 0, start
    for index in range(start, len(tokens)):
        token = tokens[index]
        if token in "([{":
            depth += 1
        elif token in ")]}" and depth:
            depth -= 1
        elif token in ")]}" or (token == "," and not depth):
            yield first, index
            first = index + 1
            if token != ",":
                return
    yield first, len(tokens)
