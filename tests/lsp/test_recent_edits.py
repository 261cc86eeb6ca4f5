"""Recent edits over the wire: shown to the model while `context.sources` names "edit", never from hidden files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.lsp.editor_client import Editor, Page
from support.waiting import wait_until

HERE, THERE, SECRET = "file:///project/here.py", "file:///project/there.py", "file:///project/.env"
ROOT = {"workspaceFolders": [{"uri": "file:///project", "name": "project"}]}
WITH_EDITS = {**ROOT, "initializationOptions": {"context": {"sources": ["edit"]}}}
TEXT = "".join(f"value_of_{n} = compute({n})\n" for n in range(40))
CANARY = "kanarienvogel"


def edited_files(editor: Editor, page: Page) -> list[str]:
    """The files whose recent edits were in the context of a request at the end of `page`."""
    editor.reply(page.ask(len(page.text)))
    explanation: dict[str, Any] = editor.call("speclsp/explain", {"textDocument": {"uri": page.uri}})
    return sorted(file["path"] for file in explanation["context"]["files"] if file["source"] == "edit")


def set_sources(editor: Editor, *sources: str) -> None:
    settings = {"speclsp": {"context": {"sources": sources}}}
    editor.notify("workspace/didChangeConfiguration", {"settings": settings})


def test_an_edit_is_shown_in_another_file_and_one_in_a_secret_file_never():
    with Editor() as editor:
        editor.begin(**WITH_EDITS)
        there, secret, here = (Page(editor, TEXT, uri=uri) for uri in (THERE, SECRET, HERE))
        for page in (there, secret):
            editor.items(page.ask(0))  # after this their ignore files have been read
        secret.edit(0, 8, CANARY)
        there.edit(0, 8, "total_of")
        assert edited_files(editor, here) == ["there.py"]
        set_sources(editor, "similar")
        set_sources(editor, "edit")
        assert edited_files(editor, here) == [], "switching the source off drops the recorded edits"


def test_edits_are_recorded_from_the_moment_the_settings_name_the_source():
    with Editor() as editor:
        editor.begin(**ROOT)
        there, here = (Page(editor, TEXT, uri=uri) for uri in (THERE, HERE))
        editor.items(there.ask(0))
        there.edit(0, 8, "total_of")
        assert edited_files(editor, here) == []
        set_sources(editor, "edit")
        there.edit(0, 8, "sum_upto")
        assert edited_files(editor, here) == ["there.py"]


def test_an_edit_is_never_written_to_the_logs():
    with Editor() as editor:
        editor.begin(**WITH_EDITS)
        page = Page(editor, TEXT, uri=HERE)
        page.edit(0, 8, CANARY)
        assert editor.items(page.ask(len(page.text)))
        wait_until(lambda: any(editor.logs.iterdir()))
        assert CANARY not in "".join(file.read_text() for file in Path(editor.logs).iterdir())


@pytest.mark.parametrize("source", ["viewed", "copied", "skeleton", "test"])
def test_a_removed_source_is_named_as_a_problem_and_the_other_settings_count(source: str):
    with Editor() as editor:
        options = {
            "context": {"sources": ["similar", source], "cross_file_tokens": 77},
            "completion": {"show_in_menu": True},
        }
        capabilities = editor.initialize(initializationOptions=options)["capabilities"]
        assert capabilities.get("completionProvider"), "completion.show_in_menu is used"
        assert capabilities.get("experimental") is None


def test_a_notification_of_an_older_client_is_ignored():
    with Editor() as editor:
        editor.begin(**ROOT)
        page = Page(editor, TEXT, uri=HERE)
        span = {"start": {"line": 3, "character": 0}, "end": {"line": 9, "character": 0}}
        editor.notify("speclsp/viewed", {"textDocument": {"uri": HERE}, "range": span})
        editor.notify("speclsp/copied", {"text": CANARY, "textDocument": {"uri": HERE}})
        assert editor.items(page.ask(len(page.text)))
