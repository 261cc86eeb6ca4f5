"""Walks through next edits in eight languages, through the text store and the next edits as the server has them.

The walks are files in the folder `walks`; tests/support/lsp/edit_walks.py describes their format. A walk must be met
unless its file says "not offered yet". Nothing wrong is offered in any of them.
"""

from __future__ import annotations

import asyncio

import pytest
from support.lsp.edit_walks import Span, Walk, Walker, walks
from support.lsp.edited_document import EditDesk

from speclsp.config import Config
from speclsp.lsp.documents.document import Document
from speclsp.lsp.syntax.grammars import known_id
from speclsp.lsp.visibility.eligibility import exclusion

WALKS = walks()


class StoreDesk(EditDesk):
    """One document in the text store, and the next edits with ample time."""

    def __init__(self, walk: Walk) -> None:
        super().__init__(walk.text, known_id(walk.file), f"file:///work/{walk.file}")
        self.edits = self.next_edits(eligible=self.eligible)

    async def eligible(self, document: Document) -> str:
        return exclusion(document.uri, document.language, document.characters, Config(), None)[0]

    @property
    def text(self) -> str:
        return self.document.text

    def change(self, start: int, end: int, text: str) -> None:
        self.replace(start, end, text)

    def request(self, cursor: int) -> tuple[Span, str] | None:
        line = self.document.position(cursor, "utf-16")["line"]
        offer = asyncio.run(self.edits.answer(self.document, line, cursor))
        return None if offer is None else ((offer.start, offer.end, offer.text), offer.id)

    def accepted(self, edit_id: str) -> None:
        self.edits.offers.shown(edit_id)
        self.edits.offers.accepted(edit_id)


@pytest.mark.parametrize("by_key", [False, True], ids=["replaced", "typed"])
@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: f"{known_id(walk.file)}: {walk.title}")
def test_a_walk_is_offered_edit_by_edit_and_nothing_else_is(walk: Walk, by_key: bool):
    Walker(walk, StoreDesk(walk), by_key).go()
