"""Notebooks: a cell's text includes the cells above it after every edit and move, and positions stay the cell's own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp.lsp.documents.document import Documents
from speclsp.lsp.documents.notebook import NotebookChanges, Notebooks

BOOK = "file:///n.ipynb"
CODE, MARKUP = 2, 1


class Book:
    """A notebook on the editor's side, and the notebook store that follows it."""

    def __init__(self, *cells: tuple[str, str] | tuple[str, str, int]) -> None:
        self.documents = Documents()
        self.notebooks = Notebooks(self.documents)
        self.cells = [self.made(number, *cell) for number, cell in enumerate(cells)]
        self.count = len(cells)
        opened = {"notebookDocument": {"uri": BOOK, "cells": [cell(item) for item in self.cells]}}
        self.notebooks.opened({**opened, "cellTextDocuments": [document(item) for item in self.cells]})

    def made(self, number: int, language: str, text: str, kind: int = CODE) -> dict[str, Any]:
        return {"uri": f"cell:/n#{number}", "language": language, "text": text, "kind": kind}

    def change(self, **cells: object) -> Any:
        params = {"notebookDocument": {"uri": BOOK, "version": 2}, "change": {"cells": cells}}
        return self.notebooks.changed(params, "utf-16")

    def splice(self, start: int, count: int, new: list[dict[str, Any]]) -> None:
        """Replace some cells with `new`. Cells in `new` that exist already are moved."""
        removed = self.cells[start : start + count]
        old_uris = [item["uri"] for item in self.cells]
        self.cells[start : start + count] = new
        array = {"start": start, "deleteCount": count, "cells": [cell(item) for item in new]}
        added = [document(item) for item in new if item["uri"] not in old_uris]
        closed = [{"uri": item["uri"]} for item in removed if item not in new]
        changes = self.change(structure={"array": array, "didOpen": added, "didClose": closed})
        assert changes == NotebookChanges(closed=[item["uri"] for item in closed])

    def text_at_end(self, index: int) -> str:
        """The text for the model of a cell, with the cursor at its end."""
        document = self.documents.get(self.cells[index]["uri"])
        snapshot = self.notebooks.snapshot(document, document.characters)
        assert snapshot.cursor == len(snapshot.text) and snapshot.uri == document.uri
        return snapshot.text

    def expected(self, index: int) -> str:
        current = self.cells[index]
        above = [item for item in self.cells[:index] if item["language"] == current["language"]]
        return "".join(item["text"].rstrip("\r\n") + "\n\n" for item in above if item["text"].strip()) + current["text"]

    def check(self) -> None:
        assert [self.text_at_end(index) for index in range(len(self.cells))] == [
            self.expected(index) for index in range(len(self.cells))
        ]
        assert {document.uri for document in self.documents} == {item["uri"] for item in self.cells}


def cell(one: dict[str, Any]) -> dict[str, Any]:
    return {"kind": one["kind"], "document": one["uri"], "metadata": {}}


def document(one: dict[str, Any]) -> dict[str, Any]:
    return {"uri": one["uri"], "languageId": one["language"], "version": 1, "text": one["text"]}


def test_edits_are_applied_in_the_editors_columns_and_reported():
    book = Book(("python", "a = '𝒙é'"), ("python", "b"))
    position = {"line": 0, "character": 7}
    changes = [{"range": {"start": position, "end": position}, "text": "!"}]
    result = book.change(textContent=[{"document": {"uri": "cell:/n#0", "version": 5}, "changes": changes}])
    assert result == NotebookChanges(edited=[("cell:/n#0", changes)])
    assert book.documents.get("cell:/n#0").version == 5
    assert book.text_at_end(1) == "a = '𝒙!é'\n\nb"


def test_a_cell_may_change_its_language():
    book = Book(("python", "a"), ("python", "b"))
    book.cells[0] = {**book.cells[0], "language": "r"}
    array = {"start": 0, "deleteCount": 1, "cells": [cell(book.cells[0])]}
    closed = [{"uri": book.cells[0]["uri"]}]
    book.change(structure={"array": array, "didOpen": [document(book.cells[0])], "didClose": closed})
    book.check()
    assert book.documents.get("cell:/n#0").language == "r"


def test_an_execution_changes_nothing():
    book = Book(("python", "a"), ("python", "b"))
    assert book.change(data=[{**cell(book.cells[0]), "executionSummary": {"executionOrder": 3}}]) == NotebookChanges()
    only_metadata = {"notebookDocument": {"uri": BOOK}, "change": {"metadata": {"x": 1}}}
    assert book.notebooks.changed(only_metadata, "utf-8") == NotebookChanges()
    book.check()


steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "delete", "move", "swap"]),
        st.integers(0, 9),
        st.integers(0, 9),
        st.text("ab\n", max_size=4),
    ),
    max_size=12,
)


@given(steps)
def test_after_any_additions_deletions_and_moves_every_cell_includes_the_cells_above_it(
    work: list[tuple[str, int, int, str]],
):
    book = Book(("python", "a"), ("markdown", "m", MARKUP), ("python", "b"))
    for action, first, second, text in work:
        size = len(book.cells)
        if action == "add":
            book.count += 1
            kind, language = (MARKUP, "markdown") if second % 3 == 0 else (CODE, "python")
            book.splice(first % (size + 1), 0, [book.made(book.count, language, text, kind)])
        elif action == "delete" and size:
            book.splice(first % size, 1 + second % 2, [])
        elif action == "move" and size > 1:  # as VS Code sends it: a run of cells in another order
            start = first % (size - 1)
            run = book.cells[start:]
            book.splice(start, len(run), [*run[1:], run[0]])
        elif action == "swap" and size:
            index = first % size
            book.count += 1
            book.splice(index, 1, [book.made(book.count, "python", text)])
        book.check()


def test_a_closed_notebook_leaves_no_state_and_a_reopened_one_starts_afresh():
    book = Book(("python", "a"), ("python", "b"))
    assert book.notebooks.closed({"notebookDocument": {"uri": BOOK}}) == NotebookChanges(
        closed=["cell:/n#0", "cell:/n#1"]
    )
    assert not list(book.documents) and book.notebooks.of("cell:/n#1") is None
    assert book.notebooks.closed({"notebookDocument": {"uri": BOOK}}) is None
    assert book.change() is None
    reopened_book = Book(("python", "a"))
    fresh = {"notebookDocument": {"uri": BOOK, "cells": [cell(reopened_book.made(7, "python", "z"))]}}
    opened = reopened_book.notebooks.opened(
        {**fresh, "cellTextDocuments": [document(reopened_book.made(7, "python", "z"))]}
    )
    assert opened == NotebookChanges(closed=["cell:/n#0"])
    assert [reopened_document.uri for reopened_document in reopened_book.documents] == ["cell:/n#7"]


@pytest.mark.parametrize(
    "structure",
    [
        {"array": {"start": -1, "deleteCount": 0}},
        {"array": {"start": 0, "deleteCount": "1"}},
        {"array": {"start": 0, "deleteCount": 0, "cells": [{"kind": 2}]}},
        {"array": {"start": 0, "deleteCount": 0}, "didOpen": [{"uri": 3, "text": ""}]},
        {},
        {"array": None},
    ],
)
def test_a_malformed_change_is_refused_and_changes_nothing(structure: dict[str, Any]):
    book = Book(("python", "a"), ("python", "b"))
    if structure:
        with pytest.raises((KeyError, TypeError, ValueError)):
            book.change(structure=structure)
    else:
        book.change(structure=structure)
    book.check()
