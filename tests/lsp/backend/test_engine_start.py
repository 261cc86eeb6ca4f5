"""Start of the engine: the first open document that is eligible for suggestions starts it, and nothing else does."""

from __future__ import annotations

import time

import pytest
from support.lsp.editor_client import CAPABILITIES, URI, Editor, Page

SOURCE = "def f():\n    return \n"
CURSOR = len(SOURCE) - 1
NOT_STARTED_S = 0.5  # an engine that is wanted has a process by then
SETTINGS = {"completion": {"disabled_languages": ["ruby"], "disabled_globs": ["**/generated/**"]}}
INELIGIBLE = {
    "secret file": ("file:///project/.env", "dotenv"),
    "disabled language": ("file:///project/app.rb", "ruby"),
    "disabled glob": ("file:///project/generated/app.py", "python"),
}


def initialized(editor: Editor, **params: object) -> Editor:
    """The editor with a server that is initialized and knows no document."""
    editor.initialize(CAPABILITIES, starts_engine=False, **params)
    return editor.until("asleep")


def starts_no_engine(editor: Editor) -> bool:
    time.sleep(NOT_STARTED_S)
    return editor.engines() == [] and editor.states()[-1] == "asleep"


@pytest.mark.parametrize("uri, language", INELIGIBLE.values(), ids=INELIGIBLE)
def test_the_first_eligible_document_starts_the_engine(uri: str, language: str):
    with Editor() as editor:
        initialized(editor, initializationOptions=SETTINGS)
        assert starts_no_engine(editor)
        assert "first open file" in editor.statuses()[-1]["message"]
        editor.open(uri, SOURCE, language=language)
        assert starts_no_engine(editor)
        page = Page(editor, SOURCE)
        editor.until("ready")
        assert len(editor.engines()) == 1
        assert editor.text(page.ask(CURSOR)) == page.expected(CURSOR)


def test_a_setting_that_makes_an_open_document_eligible_starts_the_engine():
    with Editor() as editor:
        initialized(editor, initializationOptions={"completion": {"disabled_languages": ["python"]}})
        editor.open(URI, SOURCE)
        assert starts_no_engine(editor)
        editor.notify("workspace/didChangeConfiguration", {"settings": {"completion": {"disabled_languages": []}}})
        editor.until("ready")


def test_a_cell_of_a_notebook_starts_the_engine():
    cell = {"uri": "vscode-notebook-cell:/project/a.ipynb#1", "languageId": "python", "version": 1, "text": SOURCE}
    notebook = {
        "uri": "file:///project/a.ipynb",
        "notebookType": "jupyter-notebook",
        "version": 1,
        "cells": [{"kind": 2, "document": cell["uri"]}],
    }
    with Editor() as editor:
        initialized(editor)
        editor.notify("notebookDocument/didOpen", {"notebookDocument": notebook, "cellTextDocuments": [cell]})
        editor.until("ready")
