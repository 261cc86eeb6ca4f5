"""Notebooks over the wire: each cell is completed with the cells above it, in its own positions."""

from __future__ import annotations

from typing import Any

import pytest
from support.lsp.editor_client import CAPABILITIES, Editor, echoed
from support.soak import in_soak

BOOK = "file:///project/n.ipynb"
NOTEBOOKS = {**CAPABILITIES, "notebookDocument": {"synchronization": {"dynamicRegistration": True}}}
FIRST, NOTE, LAST = (f"vscode-notebook-cell:/project/n.ipynb#W{number}" for number in range(3))
ABOVE = "area = '日本 𝒙é'\n"


def document(uri: str, text: str, language: str = "python", version: int = 1) -> dict[str, Any]:
    return {"uri": uri, "languageId": language, "version": version, "text": text}


def cell(uri: str, kind: int = 2) -> dict[str, Any]:
    return {"kind": kind, "document": uri, "metadata": {"tags": []}, "executionSummary": {"executionOrder": 1}}


def open_book(editor: Editor, last: str = "print(𝒙é") -> None:
    book = {"uri": BOOK, "notebookType": "jupyter-notebook", "version": 1, "metadata": {"kernel": {}}}
    cells = [cell(FIRST), cell(NOTE, kind=1), cell(LAST)]
    texts = [document(FIRST, ABOVE), document(NOTE, "# Text", "markdown"), document(LAST, last)]
    editor.notify(
        "notebookDocument/didOpen", {"notebookDocument": {**book, "cells": cells}, "cellTextDocuments": texts}
    )


def change(editor: Editor, **cells: object) -> None:
    book = {"uri": BOOK, "version": 2}
    editor.notify("notebookDocument/didChange", {"notebookDocument": book, "change": {"cells": cells}})


def suggestion_at(editor: Editor, uri: str, line: int, character: int) -> str:
    """The answer at a position. Its range must be empty and at that position."""
    (item,) = editor.items(editor.complete(uri, line, character))
    position = {"line": line, "character": character}
    assert item["range"] == {"start": position, "end": position}
    return item["insertText"]


def test_notebook_support_is_announced_to_clients_that_have_it():
    with Editor() as editor:
        capabilities = editor.initialize(NOTEBOOKS)["capabilities"]
        assert capabilities["notebookDocumentSync"] == {"notebookSelector": [{"notebook": "*"}]}
        editor.until("ready")
    with Editor() as editor:
        assert "notebookDocumentSync" not in editor.initialize(CAPABILITIES)["capabilities"]
        editor.until("ready")


@pytest.mark.parametrize(("encoding", "columns"), [("utf-16", 9), *in_soak(("utf-8", 12), ("utf-32", 8))])
def test_a_cell_is_completed_with_the_cells_above_in_its_own_positions(encoding: str, columns: int):
    with Editor("--set", "completion.disabled_languages=") as editor:
        editor.begin({**NOTEBOOKS, "general": {"positionEncodings": [encoding]}})
        open_book(editor)
        assert suggestion_at(editor, LAST, 0, columns) == echoed(f"{ABOVE}\nprint(𝒙é", "")
        assert suggestion_at(editor, LAST, 0, 5) == echoed(f"{ABOVE}\nprint", "(𝒙é")
        assert suggestion_at(editor, NOTE, 0, 2) == echoed("# ", "Text")
        position = {"line": 0, "character": columns}
        edit = {"range": {"start": position, "end": position}, "text": "\n  y"}
        change(editor, textContent=[{"document": {"uri": LAST, "version": 2}, "changes": [edit]}])
        assert suggestion_at(editor, LAST, 1, 3) == echoed(f"{ABOVE}\nprint(𝒙é\n  y", "")
        assert editor.popups() == []


def test_a_cell_has_the_path_of_its_notebook():
    with Editor("--set", "completion.disabled_globs=project/*,n.ipynb") as editor:
        editor.begin(NOTEBOOKS, workspaceFolders=[{"uri": "file:///project", "name": "p"}])
        open_book(editor)
        visibility = editor.call("speclsp/here", {"textDocument": {"uri": LAST}})
        assert visibility["reason"] == "glob_off" and "'n.ipynb'" in visibility["message"]
