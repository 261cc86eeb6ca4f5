"""A next edit goes before ghost text on its line, where text stands right of the cursor, and behind a new name."""

from __future__ import annotations

import asyncio

import pytest
from support.lsp.edited_document import EditDesk

from speclsp.lsp.next_edit import next_edits

TEXT = "count = 0\ncount += 1\nprint(count, 1)\nfirst(count)\nother(thing, 2)\n"


class Desk(EditDesk):
    """One document with `count` renamed to `total` on its first lines."""

    def __init__(self, changed: int) -> None:
        super().__init__(TEXT)
        for line in range(changed):
            self.replace(self.offset(line), self.offset(line, 5), "total")
        self.edits = self.next_edits()

    def warm_up(self) -> None:
        """One request loads the grammar."""
        asyncio.run(self.edits.answer(self.document, 0, 0))

    def precedes(self, line: int, character: int) -> bool:
        return self.edits.precedes(self.document, {"line": line, "character": character}, "utf-32")


@pytest.fixture(autouse=True)
def time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_edits, "PRECEDES_MS", 10_000.0)


@pytest.mark.parametrize(
    ("changed", "line", "character", "precedes", "why"),
    [
        (1, 2, 6, True, "the rename has a use on the cursor's line"),
        (2, 2, 6, True, "the same after two changes"),
        (1, 0, 5, True, "the cursor is behind the new name, and the rename goes on elsewhere"),
        (2, 1, 5, True, "the same after two changes"),
        (1, 0, 8, False, "the cursor is behind another word"),
        (2, 2, 15, False, "nothing stands right of the cursor"),
        (2, 2, 14, False, "only a bracket stands right of the cursor"),
        (2, 4, 6, False, "the edit is on another line"),
        (0, 2, 6, False, "there was no edit"),
    ],
)
def test_a_next_edit_precedes_ghost_text_on_its_line_and_behind_a_new_name(
    changed: int, line: int, character: int, precedes: bool, why: str
):
    desk = Desk(changed)
    desk.warm_up()
    assert desk.precedes(line, character) == precedes, why


def test_ghost_text_waits_for_no_grammar_and_for_no_setting():
    desk = Desk(changed=2)
    assert not desk.precedes(2, 6), "the grammar is loaded by the first request for an edit"
    desk.warm_up()
    desk.activity = None
    assert not desk.precedes(2, 6), "next_edit.enabled is off"
