"""A next edit goes before ghost text on its line, where text stands right of the cursor."""

from __future__ import annotations

import asyncio

import pytest

from speclsp.lsp.documents.document import Document, Documents
from speclsp.lsp.next_edit import next_edits
from speclsp.lsp.next_edit.next_edits import NextEdits
from speclsp.lsp.next_edit.offers import Offers
from speclsp.lsp.next_edit.recent_activity import RecentActivity

URI = "file:///work/app.py"
TEXT = "count = 0\ncount += 1\nprint(count, 1)\nfirst(count)\nother(thing, 2)\n"


class Desk:
    """One document with `count` renamed to `total` on its first lines."""

    def __init__(self, changed: int) -> None:
        self.activity: RecentActivity | None = RecentActivity(lambda uri: False, clock=lambda: 0.0)
        documents = Documents()
        documents.follow_edits(self.activity.edited)
        self.document: Document = documents.open(URI, "python", 1, TEXT)
        for line in range(changed):
            span = {"start": {"line": line, "character": 0}, "end": {"line": line, "character": 5}}
            self.document.apply([{"range": span, "text": "total"}], "utf-32")
        self.next_edits = NextEdits(
            Offers(lambda language, counts: None),
            self.eligible,
            lambda: False,
            lambda outcome: None,
            lambda: self.activity,
        )

    async def eligible(self, document: Document) -> str:
        return ""

    def warm_up(self) -> None:
        """One request loads the grammar."""
        asyncio.run(self.next_edits.answer(self.document, 0, 0))

    def precedes(self, line: int, character: int) -> bool:
        return self.next_edits.precedes(self.document, {"line": line, "character": character}, "utf-32")


@pytest.fixture(autouse=True)
def time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_edits, "PRECEDES_MS", 10_000.0)


@pytest.mark.parametrize("changed", [1, 2])
def test_a_rename_on_the_cursors_line_precedes_ghost_text_in_mid_line(changed: int):
    desk = Desk(changed)
    desk.warm_up()
    assert desk.precedes(2, 6)


@pytest.mark.parametrize(
    ("changed", "line", "character", "why"),
    [
        (2, 2, 15, "nothing stands right of the cursor"),
        (2, 2, 14, "only a bracket stands right of the cursor"),
        (2, 4, 6, "the edit is on another line"),
        (0, 2, 6, "there was no edit"),
    ],
)
def test_elsewhere_ghost_text_is_shown(changed: int, line: int, character: int, why: str):
    desk = Desk(changed)
    desk.warm_up()
    assert not desk.precedes(line, character), why


def test_ghost_text_waits_for_no_grammar_and_for_no_setting():
    desk = Desk(changed=2)
    assert not desk.precedes(2, 6), "the grammar is loaded by the first request for an edit"
    desk.warm_up()
    desk.activity = None
    assert not desk.precedes(2, 6), "next_edit.enabled is off"
