"""Walks through next edits over the wire: one of each file of tests/unit/lsp/next_edit/walks that is listed here.

The same walks go through the text store in tests/unit/lsp/next_edit/test_walks.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.lsp.edit_walks import Span, Walker, walks
from support.lsp.edited_document import EditPage, edit_server
from support.lsp.editor_client import Editor

FILES = (
    *("images/resize.py", "src/http/router.ts", "src/components/Accordion.tsx"),
    *("lib/table.js", "src/users.rs", "internal/words/table.go", "src/clamp.cpp"),
)
WALKS = {walk.file: walk for walk in walks() if walk.file in FILES}


class WalkPage(EditPage):
    """A page as a walk needs it."""

    def change(self, start: int, end: int, text: str) -> None:
        self.edit(start, end, text)

    def request(self, cursor: int) -> tuple[Span, str] | None:
        edit = self.offer(cursor)
        self.shown = edit
        return None if edit is None else ((*self.span(edit), edit["text"]), "")

    def accepted(self, edit_id: str) -> None:
        assert self.shown is not None
        self.editor.notify("workspace/executeCommand", self.shown["command"])


@pytest.fixture(scope="module")
def editor() -> Iterator[Editor]:
    with edit_server() as shared:
        yield shared
        assert shared.popups() == [] and shared.stray == b""


@pytest.mark.parametrize("file", FILES)
def test_a_walk_over_the_wire_is_the_walk_of_the_text_store(editor: Editor, file: str):
    walk = WALKS[file]
    page = WalkPage(editor, walk.text, walk.file)
    Walker(walk, page, by_key=True).go()
    page.close()
