"""A cell sees the cells above it, whatever was moved, added, deleted or edited; and positions stay the cell's own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp.lsp.documents.document import Documents
from speclsp.lsp.documents.notebook import NotebookChanges, Notebooks, language_of

BOOK = "file:///n.ipynb"
CODE, MARKUP = 2, 1


class Book:
    """A notebook as an editor has it, and as we follow it."""

    def __init__(self, *cells: tuple[str, str] | tuple[str, str, int]) -> None:
        self.documents = Documents()
        self.notebooks = Notebooks(self.documents)
        self.cells = [self.made(number, *cell) for number, cell in enumerate(cells)]
        self.count = len(cells)
        opened = {"notebookDocument": {"uri": BOOK, "cells": [cell(one) for one in self.cells]}}
        self.notebooks.opened({**opened, "cellTextDocuments": [document(one) for one in self.cells]})

    def made(self, number: int, language: str, text: str, kind: int = CODE) -> dict[str, Any]:
        return {"uri": f"cell:/n#{number}", "language": language, "text": text, "kind": kind}

    def change(self, **cells: object) -> Any:
        params = {"notebookDocument": {"uri": BOOK, "version": 2}, "change": {"cells": cells}}
        return self.notebooks.changed(params, "utf-16")

    def splice(self, start: int, count: int, new: list[dict[str, Any]]) -> None:
        """Put `new` in the place of some cells; those that were here already are moved."""
        gone = self.cells[start : start + count]
        old = [one["uri"] for one in self.cells]
        self.cells[start : start + count] = new
        array = {"start": start, "deleteCount": count, "cells": [cell(one) for one in new]}
        added = [document(one) for one in new if one["uri"] not in old]
        left = [{"uri": one["uri"]} for one in gone if one not in new]
        news = self.change(structure={"array": array, "didOpen": added, "didClose": left})
        assert news == NotebookChanges(closed=[one["uri"] for one in left])

    def seen(self, index: int) -> str:
        """What the model sees of a cell, with the cursor at its end."""
        found = self.documents.get(self.cells[index]["uri"])
        snapshot = self.notebooks.snapshot(found, found.characters)
        assert snapshot.cursor == len(snapshot.text) and snapshot.uri == found.uri
        return snapshot.text

    def expected(self, index: int) -> str:
        here = self.cells[index]
        above = [
            one for one in self.cells[:index] if (one["language"], one["kind"]) == (here["language"], here["kind"])
        ]
        return "".join(one["text"].rstrip("\r\n") + "\n\n" for one in above if one["text"].strip()) + here["text"]

    def check(self) -> None:
        assert [self.seen(index) for index in range(len(self.cells))] == [
            self.expected(index) for index in range(len(self.cells))
        ]
        assert {found.uri for found in self.documents} == {one["uri"] for one in self.cells}


def cell(one: dict[str, Any]) -> dict[str, Any]:
    return {"kind": one["kind"], "document": one["uri"], "metadata": {}}


def document(one: dict[str, Any]) -> dict[str, Any]:
    return {"uri": one["uri"], "languageId": one["language"], "version": 1, "text": one["text"]}


def test_a_cell_sees_the_code_above_it_in_its_language_and_nothing_else():
    book = Book(("python", "import math\n"), ("markdown", "# Circles", MARKUP), ("r", "x <- 1"), ("python", "math."))
    assert book.seen(3) == "import math\n\nmath."
    assert book.seen(2) == "x <- 1"
    assert book.seen(0) == "import math\n"
    book.check()


def test_text_sees_text():
    book = Book(("markdown", "# One", MARKUP), ("python", "x"), ("markdown", "# Two", MARKUP))
    assert book.seen(2) == "# One\n\n# Two"


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("%%bash\necho", "shellscript"),
        ("\n%%script bash\necho", "shellscript"),
        ("%%script python3\nx", "python"),
        ("%%sql\nSELECT", "sql"),
        ("%%html\n<p>", "html"),
        ("%%writefile a/b.yaml\na: 1", "yaml"),
        ("%%writefile -a x.sh\nls", "shellscript"),
        ("%%writefile x.py\na", "python"),
        ("%%time\nf()", "python"),
        ("%matplotlib inline", "python"),
        ("x = 1\n%%bash", "python"),
    ],
)
def test_a_cell_magic_says_which_language_its_cell_holds(text: str, language: str):
    book = Book(("python", text))
    document = book.documents.get("cell:/n#0")
    assert book.notebooks.snapshot(document, 0).language == language
    assert language_of("r", text) == "r", "a kernel of another language has no such magics"


def test_a_cell_of_a_magic_sees_its_like_and_python_does_not_see_it():
    book = Book(
        ("python", "import os"), ("python", "%%bash\ncd x"), ("python", "%%bash\nls"), ("python", "%%time\nos.")
    )
    assert book.seen(2) == "%%bash\ncd x\n\n%%bash\nls"
    assert book.seen(3) == "import os\n\n%%time\nos."
    assert book.seen(1) == "%%bash\ncd x"


def test_empty_cells_leave_no_gap():
    assert Book(("python", ""), ("python", " \n"), ("python", "a\n\n\n"), ("python", "b")).seen(3) == "a\n\nb"


def test_edits_are_applied_in_the_columns_of_the_editor_and_named():
    book = Book(("python", "a = '𝒙é'"), ("python", "b"))
    place = {"line": 0, "character": 7}
    changes = [{"range": {"start": place, "end": place}, "text": "!"}]
    news = book.change(textContent=[{"document": {"uri": "cell:/n#0", "version": 5}, "changes": changes}])
    assert news == NotebookChanges(edited=[("cell:/n#0", changes)])
    assert book.documents.get("cell:/n#0").version == 5
    assert book.seen(1) == "a = '𝒙!é'\n\nb"


def test_a_cell_becomes_text_or_another_language():
    book = Book(("python", "a"), ("python", "b"))
    book.cells[0]["kind"] = MARKUP
    book.change(data=[cell(book.cells[0])])
    assert book.seen(1) == "b"
    book.cells[0] = {**book.cells[0], "kind": CODE, "language": "r"}
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
def test_whatever_is_added_deleted_and_moved_every_cell_sees_what_stands_above_it_now(
    work: list[tuple[str, int, int, str]],
):
    book = Book(("python", "a"), ("markdown", "m", MARKUP), ("python", "b"))
    for what, first, second, text in work:
        size = len(book.cells)
        if what == "add":
            book.count += 1
            kind, language = (MARKUP, "markdown") if second % 3 == 0 else (CODE, "python")
            book.splice(first % (size + 1), 0, [book.made(book.count, language, text, kind)])
        elif what == "delete" and size:
            book.splice(first % size, 1 + second % 2, [])
        elif what == "move" and size > 1:  # as VS Code says it: a run of cells in another order
            start = first % (size - 1)
            run = book.cells[start:]
            book.splice(start, len(run), [*run[1:], run[0]])
        elif what == "swap" and size:
            at = first % size
            book.count += 1
            book.splice(at, 1, [book.made(book.count, "python", text)])
        book.check()


def test_a_closed_notebook_leaves_nothing_and_a_reopened_one_starts_afresh():
    book = Book(("python", "a"), ("python", "b"))
    assert book.notebooks.closed({"notebookDocument": {"uri": BOOK}}) == NotebookChanges(
        closed=["cell:/n#0", "cell:/n#1"]
    )
    assert len(book.documents) == 0 and book.notebooks.of("cell:/n#1") is None
    assert book.notebooks.closed({"notebookDocument": {"uri": BOOK}}) is None
    assert book.change() is None
    again = Book(("python", "a"))
    fresh = {"notebookDocument": {"uri": BOOK, "cells": [cell(again.made(7, "python", "z"))]}}
    opened = again.notebooks.opened({**fresh, "cellTextDocuments": [document(again.made(7, "python", "z"))]})
    assert opened == NotebookChanges(closed=["cell:/n#0"])
    assert [found.uri for found in again.documents] == ["cell:/n#7"]


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
def test_what_is_malformed_is_refused_and_changes_nothing(structure: dict[str, Any]):
    book = Book(("python", "a"), ("python", "b"))
    if structure:
        with pytest.raises((KeyError, TypeError, ValueError)):
            book.change(structure=structure)
    else:
        book.change(structure=structure)
    book.check()
