"""Recent edits over the wire: the logs hold none of their text, and messages of older clients are ignored."""

from __future__ import annotations

from pathlib import Path

from support.lsp.editor_client import Editor, Page
from support.waiting import wait_until

HERE = "file:///project/here.py"
ROOT = {"workspaceFolders": [{"uri": "file:///project", "name": "project"}]}
TEXT = "".join(f"value_of_{n} = compute({n})\n" for n in range(40))
CANARY = "kanarienvogel"


def test_an_edit_is_never_written_to_the_logs():
    with Editor() as editor:
        editor.begin(**ROOT)
        page = Page(editor, TEXT, uri=HERE)
        page.edit(0, 8, CANARY)
        assert editor.items(page.ask(len(page.text)))
        wait_until(lambda: any(editor.logs.iterdir()))
        assert CANARY not in "".join(file.read_text() for file in Path(editor.logs).iterdir())


def test_a_notification_of_an_older_client_is_ignored():
    with Editor() as editor:
        editor.begin(**ROOT)
        page = Page(editor, TEXT, uri=HERE)
        span = {"start": {"line": 3, "character": 0}, "end": {"line": 9, "character": 0}}
        editor.notify("speclsp/viewed", {"textDocument": {"uri": HERE}, "range": span})
        editor.notify("speclsp/copied", {"text": CANARY, "textDocument": {"uri": HERE}})
        assert editor.items(page.ask(len(page.text)))
