"""Walks through next edits over the wire: `speclsp lsp` as a process, didChange, speclsp/nextEdit and its answers.

The walks are those of tests/unit/lsp/next_edit/walks, one of some languages each. The same walks go through the text
store in tests/unit/lsp/next_edit/test_walks.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.lsp.edit_walks import Span, Walk, Walker, walks
from support.lsp.editor_client import Editor, Page
from support.waiting import wait_until

from speclsp.lsp.documents.document import Document
from speclsp.lsp.next_edit import wire
from speclsp.lsp.syntax.grammars import known_id

FOLDER = "file:///project/"
FILES = (
    *("images/resize.py", "src/http/router.ts", "src/components/Accordion.tsx"),
    *("lib/table.js", "src/users.rs", "internal/words/table.go", "src/clamp.cpp"),
)
WALKS = {walk.file: walk for walk in walks() if walk.file in FILES}


class WirePage(Page):
    """A page in the language of its file."""

    def __init__(self, editor: Editor, walk: Walk) -> None:
        self.editor, self.text, self.encoding, self.version = editor, walk.text, "utf-16", 1
        self.uri = FOLDER + walk.file
        editor.open(self.uri, walk.text, language=known_id(walk.file))

    def change(self, start: int, end: int, text: str) -> None:
        self.edit(start, end, text)

    def request(self, cursor: int) -> tuple[Span, str] | None:
        document = {"uri": self.uri, "version": self.version}
        params = {"textDocument": document, "position": self.place(cursor), "trigger": "edit"}
        edits: list[dict[str, Any]] = self.editor.call(wire.NEXT_EDIT, params)["edits"]
        if not edits:
            return None
        (edit,) = edits
        assert edit["textDocument"] == document
        copy = Document(self.uri, "", self.version, self.text)
        start, end = (copy.offset(edit["range"][name], self.encoding) for name in ("start", "end"))
        return (start, end, edit["text"]), edit["id"]

    def accepted(self, edit_id: str) -> None:
        self.editor.notify(wire.SHOWN, {"id": edit_id})
        self.editor.notify(wire.ACCEPTED, {"id": edit_id})


@pytest.fixture(scope="module")
def editor() -> Iterator[Editor]:
    """A server that answers requests for next edits."""
    with Editor("--set", "completion.enabled=false") as editor:
        editor.initialize({}, workspaceFolders=[{"uri": FOLDER.rstrip("/"), "name": "project"}])
        page = WirePage(editor, Walk("", "first.py", "", "x = 1\n", ()))

        def answers() -> bool:
            page.request(0)
            return "next_edit" in editor.call("speclsp/explain", {})

        wait_until(answers)
        yield editor
        assert editor.popups() == [] and editor.stray == b""


@pytest.mark.parametrize("file", FILES)
def test_a_walk_over_the_wire_is_the_walk_of_the_text_store(editor: Editor, file: str):
    walk = WALKS[file]
    page = WirePage(editor, walk)
    page.request(0)  # the first request of a document reads its ignore files
    result = Walker(walk, page, by_key=True).go()
    editor.notify("textDocument/didClose", {"textDocument": {"uri": page.uri}})
    assert not result.wrong, str(result)
    assert result.is_met or walk.missing, str(result)
