"""Walks through next edits, written as text files: a document, the user's edits, and the expected next edits in order.

    === A parameter is renamed and its uses follow          a walk begins with its title
    file: images/resize.py                                  the name gives the language
    not offered yet: docstrings are no code                 only where the product does not reach the end yet
    source: anyio 4.16.0, MIT, anyio/to_thread.py           only of real code: the order of the next edits is free
    row: rename                                             only of real code: the row of the table of figures
    offers wrong: a dictionary of another function          only until the product offers no wrong edit here

    def resize(image, width):                               the document, behind a blank line
        return image.scaled(width)

    --- edit 1                                              the user's edit, at line 1 of the document as it is then
    - def resize(image, width):
    + def resize(image, breadth):
    --- next 2                                              the edit to offer now; it is accepted
    -     return image.scaled(width)
    +     return image.scaled(breadth)
    --- reject 2                                            the same, and the user rejects it
    --- nothing                                             no edit may be offered now

`--- undo` takes back the last change. `--- perhaps 7` is an edit that may be offered, and silence is right too.
`--- edit 7 x10000` makes the inserted lines so often; `{n}` is the number. Lines that are only inserted have no `-`.

A request is made as editors make it: after the change, and once more when the cursor has left the changed line.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

from speclsp.config import Config
from speclsp.lsp.documents.document import Document
from speclsp.lsp.next_edit.offers import Offer
from speclsp.lsp.syntax.grammars import known_id
from speclsp.lsp.syntax.text_windows import common_ends
from speclsp.lsp.visibility.eligibility import exclusion
from speclsp.plain_text import is_inside_word
from support.lsp.edited_document import EditDesk

FOLDER = Path(__file__).parents[2] / "unit" / "lsp" / "next_edit" / "walks"
HEAD = re.compile(r"--- (edit|next|reject|perhaps|undo|nothing)(?: (\d+))?(?: x(\d+))?")
EDIT, NEXT, REJECT, PERHAPS, UNDO, NOTHING = "edit", "next", "reject", "perhaps", "undo", "nothing"
MEMBERS = {"file": "file", "not offered yet": "missing", "offers wrong": "wrong", "source": "source", "row": "row"}
MAX_TYPED = 80  # characters of a change that is typed key by key

Span = tuple[int, int, str]  # offsets of the replaced text, and the new text


@dataclass(frozen=True)
class Step:
    """One step of a walk. `line`: the first line that changes, from 1."""

    action: str
    line: int = 0
    old: tuple[str, ...] = ()
    new: tuple[str, ...] = ()

    def span(self, text: str) -> Span | None:
        """The change as the smallest replacement of whole words; None if the old lines do not stand at the line."""
        lines = text.split("\n")
        first, end = self.line - 1, self.line - 1 + len(self.old)
        if tuple(lines[first:end]) != self.old or not 0 <= first < len(lines):
            return None
        after = "\n".join([*lines[:first], *self.new, *lines[end:]])
        head = common_ends(text, after)[0]
        while is_inside_word(text, head) or is_inside_word(after, head):
            head -= 1
        tail = common_ends(text[head:][::-1], after[head:][::-1])[0]
        while tail and (is_inside_word(text, len(text) - tail) or is_inside_word(after, len(after) - tail)):
            tail -= 1
        return head, len(text) - tail, after[head : len(after) - tail]

    def __str__(self) -> str:
        shown = [f"- {line}" for line in self.old[:3]] + [f"+ {line}" for line in self.new[:3]]
        return "\n".join([f"{self.action} {self.line}", *shown])


@dataclass(frozen=True)
class Walk:
    """One walk. `missing`: the reason why the product does not offer all of it yet; "" where it must.

    `wrong`: the wrong edit that it offers. `source` and `row`: of real code, whose next edits come in any order.
    """

    title: str
    file: str
    text: str
    steps: tuple[Step, ...]
    missing: str = ""
    wrong: str = ""
    source: str = ""
    row: str = ""


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def walks() -> list[Walk]:
    """All walks, by file."""
    return [walk for path in sorted(FOLDER.glob("*.txt")) for walk in parsed(path.read_text("utf-8"))]


def parsed(text: str) -> Iterator[Walk]:
    """The walks of a file."""
    for part in re.split(r"(?m)^=== ", text)[1:]:
        top, *steps = re.split(r"(?m)^(?=--- )", part)
        title, _, rest = top.partition("\n")
        members, _, code = rest.partition("\n\n")
        values = {MEMBERS[name]: value for name, value in (line.split(": ", 1) for line in members.split("\n"))}
        yield Walk(title, text=code.rstrip("\n") + "\n", steps=tuple(map(parsed_step, steps)), **values)


def parsed_step(text: str) -> Step:
    """A step from its lines."""
    head, *lines = text.rstrip("\n").split("\n")
    match = HEAD.fullmatch(head)
    if match is None or any(line[:2].rstrip() not in ("-", "+") for line in lines):
        raise ValueError(f"no step: {text}")
    old, new = ([line[2:] for line in lines if line[0] == mark] for mark in "-+")
    if match[3]:
        new = [line.replace("{n}", str(n)) for n in range(int(match[3])) for line in new]
    return Step(match[1], int(match[2] or 0), tuple(old), tuple(new))


def span_of(walk: Walk, step: Step, text: str) -> Span:
    """The change of a step. Raises ValueError if the old lines do not stand at the line."""
    span = step.span(text)
    if span is None:
        present = text.split("\n")[step.line - 1 : step.line - 1 + max(1, len(step.old))]
        raise ValueError(f"{walk.title}: the document has {present} at\n{step}")
    return span


def after(text: str, span: Span) -> str:
    """The text after a change."""
    return text[: span[0]] + span[2] + text[span[1] :]


def is_part(text: str, result: str, goal: str) -> bool:
    """True if `result` has some of the words by which `goal` differs from `text`, and nothing else."""
    words = [re.findall(r"\w+|\W", version) for version in (text, result, goal)]
    return len({*map(len, words)}) == 1 and all(word in (old, new) for old, word, new in zip(*words, strict=True))


# ── walking ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def eligible(document: Document) -> str:
    return exclusion(document.uri, document.language, document.characters, Config(), None)[0]


class Walker(EditDesk):
    """Walks through one document in the text store. `by_key`: the user's edits are typed key by key.

    `offered`: for each expected edit in turn, whether it was offered.
    """

    def __init__(self, walk: Walk, by_key: bool = False) -> None:
        super().__init__(walk.text, known_id(walk.file), f"file:///project/{walk.file}")
        self.walk, self.by_key, self.edits = walk, by_key, self.next_edits(eligible=eligible)
        self._undo: list[Span] = []
        self.offered: list[bool] = []

    def go(self) -> None:
        """Make all steps. Raises AssertionError at the first one with another offer than the expected one."""
        left = [*self.walk.steps]
        while left:
            if left[0].action == EDIT:
                self._edit(span_of(self.walk, left.pop(0), self.document.text))
            elif left[0].action == UNDO:
                self._make(self._undo.pop())
                self._undo.pop()  # the change back is none that an undo takes back
                left.pop(0)
            else:
                self._compare(left, self._request())

    def _compare(self, left: list[Step], offer: Offer | None) -> None:
        """Accept the expected offer. Where the product does not offer it yet, the user makes the edit by hand."""
        if offer is None:
            step = left.pop(0)
            if step.action in (NEXT, REJECT):
                self.offered.append(False)
                assert self.walk.missing, f"not offered:\n{step}"
                self._edit(span_of(self.walk, step, self.document.text))
            return
        step = left[0]
        self._take(left, self.applied(offer), f"offered: {offer}, expected:\n{step}")
        self.offered.append(True)
        if step.action == REJECT:
            self.edits.offers.rejected(offer.id)
            return
        self._make((offer.start, offer.end, offer.text))
        self.edits.offers.accepted(offer.id)

    def _take(self, left: list[Step], result: str, complaint: str) -> None:
        """Take the step that leads to `result` out of `left`. In real code it may be a later one, or a part of one."""
        text = self.document.text
        group = [*takewhile(lambda step: step.action in (NEXT, PERHAPS), left)] or left[:1]
        for place, step in enumerate(group if self.walk.source else left[:1]):
            span = step.span(text) if step.action != NOTHING else None
            goal = text if span is None else after(text, span)
            if result == goal:
                del left[place]
                return
            if self.walk.source and is_part(text, result, goal):
                first = step.line - 1
                left[place] = replace(step, old=tuple(result.split("\n")[first : first + len(step.old)]))
                return
        raise AssertionError(complaint)

    def _request(self) -> Offer | None:
        """The edit offered at the cursor, or else on the line below or above it."""
        text = self.document.text
        below = text.find("\n", self.cursor) + 1
        other = below if 0 < below < len(text) else text.rfind("\n", 0, self.cursor)
        return self._offer(self.cursor) or self._offer(other)

    def _offer(self, cursor: int) -> Offer | None:
        line = self.document.position(cursor, "utf-16")["line"]
        return asyncio.run(self.edits.answer(self.document, line, cursor))

    def _edit(self, span: Span) -> None:
        """The user's own edit, in one change or key by key."""
        start, end, new = span
        if self.by_key and len(new) <= MAX_TYPED:
            self._undo.append((start, start + len(new), self.document.text[start:end]))
            if start < end:
                self.replace(start, end, "")
            for number, key in enumerate(new):
                self.replace(start + number, start + number, key)
        else:
            self._make(span)

    def _make(self, span: Span) -> None:
        """One change, with the cursor behind the new text."""
        start, end, new = span
        self._undo.append((start, start + len(new), self.document.text[start:end]))
        self.replace(start, end, new)
