"""Requests of a client's status line and menus: on or off here, the reason, the last reason, the list of pairs."""

from __future__ import annotations

from typing import Any

import pytest
from support.lsp.editor_client import CAPABILITIES, URI, Editor, Page

SOURCE = "def f():\n    return \n"
ROOT = {"workspaceFolders": [{"uri": "file:///project", "name": "project"}]}
ON = {"on": True, "reason": "", "message": ""}


def here(editor: Editor, uri: str = URI) -> Any:
    return editor.call("speclsp/here", {"textDocument": {"uri": uri}})


def change(editor: Editor, **completion: object) -> None:
    editor.notify("workspace/didChangeConfiguration", {"settings": {"completion": completion}})


@pytest.mark.parametrize(
    ("setting", "reason", "named"),
    [
        ({"enabled": False}, "disabled", "completion.enabled"),
        ({"disabled_languages": ["go", "python"]}, "language_off", "python is in completion.disabled_languages"),
        ({"disabled_globs": ["sub/**", "app.*"]}, "glob_off", "'app.*' in completion.disabled_globs"),
    ],
)
def test_a_setting_that_disables_suggestions_is_named_until_it_is_changed_back(
    setting: dict[str, object], reason: str, named: str
):
    with Editor() as editor:
        editor.begin(**ROOT)
        page = Page(editor, SOURCE)
        assert here(editor) == ON
        assert editor.text(page.ask(3)) == page.expected(3)
        change(editor, **setting)
        visibility = here(editor)
        assert (visibility["on"], visibility["reason"]) == (False, reason) and named in visibility["message"]
        assert editor.items(page.ask(3)) == []
        assert editor.wait_for(lambda: editor.statuses()[-1]["last_reason"] == reason)
        assert editor.statuses()[-1]["last_reason_meaning"]
        change(editor, enabled=True, disabled_languages=[], disabled_globs=[])
        assert here(editor) == ON
        editor.until("ready", after=len(editor.statuses()) - 1)
        assert editor.text(page.ask(3)) == page.expected(3)
        assert editor.wait_for(lambda: editor.statuses()[-1]["last_reason"] == "")
        assert editor.statuses()[-1]["last_reason_meaning"] == ""


def test_a_secret_file_and_a_file_not_open_are_named_as_such():
    with Editor(pair="tiny") as editor:
        editor.begin(**ROOT)
        Page(editor, "secret_word = 1\n", uri="file:///project/.env")
        assert here(editor, "file:///project/.env")["reason"] == "secret_file"
        assert here(editor, "file:///project/env.py")["reason"] == "not_open"


def test_suggestions_are_off_in_a_document_that_is_not_open_or_too_large():
    with Editor("--set", "context.max_file_bytes=10") as editor:
        editor.begin()
        assert here(editor, "file:///never.py") == {
            **ON,
            "on": False,
            "reason": "not_open",
            "message": "the editor has not opened this document with the server",
        }
        Page(editor, SOURCE)
        assert here(editor)["reason"] == "too_large" and "context.max_file_bytes = 10" in here(editor)["message"]
        editor.items(editor.complete("file:///never.py", 0, 0))
        assert editor.wait_for(lambda: editor.statuses()[-1]["last_reason"] == "not_open")


def test_a_request_without_a_document_is_refused_in_one_line():
    with Editor() as editor:
        editor.begin()
        for params in (None, [], {}, {"textDocument": 3}):
            assert "textDocument" in editor.error("speclsp/here", params)["message"]


def test_a_superseded_request_leaves_no_reason_in_the_status():
    with Editor("--set", "echo.round_ms=30") as editor:
        page = Page(editor.begin(), SOURCE)
        cursor = page.type(3, "x")
        older = page.ask(cursor)
        cursor = page.type(cursor, "y")
        newer = page.ask(cursor)
        assert editor.items(older) == [] and editor.text(newer) == page.expected(cursor)
        editor.until("ready", after=len(editor.statuses()) - 1)
        assert {status["last_reason"] for status in editor.statuses()} == {""}


def test_an_empty_answer_while_the_model_is_not_ready_has_that_reason():
    with Editor("--set", "engine.socket=/nowhere/e.sock") as editor:
        editor.initialize(CAPABILITIES)
        page = Page(editor.until("error"), SOURCE)
        assert editor.items(page.ask(3)) == []
        assert editor.wait_for(lambda: editor.statuses()[-1]["last_reason"] == "loading")
        assert editor.statuses()[-1]["last_reason_meaning"] == "the model is not ready"


def test_the_pairs_are_listed_and_the_current_pair_is_named():
    with Editor() as editor:
        editor.begin()
        reply = editor.call("speclsp/pairs", timeout_s=20)
        assert reply["current"] == "echo"
        rows = {row["name"]: row for row in reply["pairs"]}
        assert set(rows["tiny"]) == {
            *("name", "title", "target", "draft", "download_mib", "memory_mib", "fits", "fetched", "licence", "why"),
        }
        assert rows["tiny"]["fetched"] and not rows["qwen2.5-coder-3b"]["fetched"]


def test_a_chosen_pair_is_loaded_and_current():
    with Editor() as editor:
        before = len(editor.begin().statuses())
        editor.notify("workspace/didChangeConfiguration", {"settings": {"model": "tiny"}})
        editor.until("ready", after=before, timeout_s=60)
        assert editor.call("speclsp/pairs", timeout_s=20)["current"] == "tiny"
