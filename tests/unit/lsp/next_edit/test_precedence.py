"""A next edit goes before ghost text on its line, where text stands right of the cursor."""

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


@pytest.mark.parametrize("changed", [1, 2])
def test_a_rename_on_the_cursors_line_precedes_ghost_text_in_mid_line(changed: int):
    desk = Desk(changed)
    desk.warm_up()
    assert desk.precedes(2, 6)


@pytest.mark.parametrize(("changed", "line"), [(1, 0), (2, 1)])
def test_a_rename_goes_on_before_ghost_text_behind_the_new_name(changed: int, line: int):
    desk = Desk(changed)
    desk.warm_up()
    assert desk.precedes(line, len("total"))
    assert not desk.precedes(line, len("total = ")), "the cursor is behind another word"


def test_a_rename_goes_on_before_ghost_text_at_a_line_end():
    desk = Desk(changed=1)
    desk.replace(desk.offset(3, len("first(")), desk.offset(3, len("first(count")), "total")
    desk.warm_up()
    assert desk.precedes(3, len("first(total"))


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
