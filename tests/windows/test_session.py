"""One session of the language server on Windows with the model echo: what `.ci` can run without PyTorch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.lsp.editor_client import Editor, Page, echoed
from support.waiting import PATIENCE_S


@pytest.mark.timeout(5 * PATIENCE_S)  # more than its waits together: `make test` runs it beside other suites
def test_a_session_completes_cancels_and_ends_with_its_engine(windows: list[str], isolated: Path):
    """The editor types, cancels a request, gets the text for the newest document, and no process stays."""
    assert os.environ["SPECLSP_TESTS_PROGRAM"] == windows[0], "pytest runs with the program of Windows"
    with Editor() as editor:
        editor.begin()
        page = Page(editor, "def area(width):\n    return ")
        cancelled = page.ask(len(page.text))
        editor.notify("$/cancelRequest", {"id": cancelled})
        end = page.type(len(page.text), "width")
        assert editor.text(page.ask(end)) == echoed(page.text, "")
        assert "result" in editor.reply(cancelled) or editor.reply(cancelled)["error"]["code"] == -32800
        assert editor.call("shutdown") is None
        editor.notify("exit")
        assert editor.ended(PATIENCE_S) == 0
        assert not editor.stray, "bytes on stdout that are no message"
        assert (isolated / "sta/speclsp/log/lsp.log").exists()
