"""Requests of a client's status line and menus: on or off here, the reason, the last reason, the list of models."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import support
from support.lsp import lsp_client
from support.lsp.editor_client import CAPABILITIES, URI, Editor, Page
from support.lsp.lsp_client import Client
from support.waiting import PATIENCE_S

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


def test_an_empty_answer_while_the_model_is_not_ready_has_that_reason():
    with Editor(warm=False) as editor:  # it still imports its session, and starts an engine
        editor.initialize(CAPABILITIES)
        page = Page(editor, SOURCE)
        assert editor.items(page.ask(3)) == []
        assert editor.wait_for(lambda: editor.statuses()[-1]["last_reason"] == "loading")
        assert editor.statuses()[-1]["last_reason_meaning"] == "the model is not ready"


def test_the_first_empty_answer_without_an_engine_has_that_reason():
    with Editor(model="ecko", warm=False) as editor:  # it still imports its session
        editor.initialize(CAPABILITIES)
        page = Page(editor.until("error"), SOURCE)
        assert editor.items(page.ask(3)) == []
        assert editor.wait_for(lambda: editor.statuses()[-1]["last_reason"] == "engine_away")
        assert "loading" not in {status["last_reason"] for status in editor.statuses()}


def test_the_pairs_are_listed_and_the_current_pair_is_named():
    with Editor() as editor:
        editor.begin()
        reply = editor.call("speclsp/models", timeout_s=20)
        assert reply["current"] == "echo"
        rows = {row["name"]: row for row in reply["models"]}
        assert set(rows["tiny"]) == {
            *("name", "title", "target", "draft", "download_mib", "memory_mib", "fits", "fetched", "licence", "why"),
        }
        assert rows["tiny"]["fetched"] and not rows["qwen2.5-coder-3b"]["fetched"]


# ── speclsp/suggestionGrew ───────────────────────────────────────────────────────────────────────────────────────────

BODY = "def f(items):\n    total = 0\n    count = 1\n    total += count\n    return total\n\n\nother = 1\n"
TYPED = BODY[: BODY.index(" = 0")]
FIRST_LINE, FURTHER_LINES = " = 0", "\n    count = 1\n    total += count\n    return total"
GROWS = {"experimental": {"speclsp": {"suggestionGrew": True}}}


@contextmanager
def scripted(tmp_path: Path, capabilities: dict[str, object]) -> Iterator[Client]:
    """A client of the product whose engine writes BODY on, with a document that ends in TYPED."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"document": BODY, "round_s": 0.0}), encoding="utf-8")
    tests = Path(support.__file__).parents[1]
    command = [sys.executable, str(tests / "support/lsp/scripted_engine.py"), str(script), "lsp"]
    settings = ["--set", "context.index_workspace=false", "--set", "next_edit.enabled=false"]
    with Client([*command, "--stdio", *settings], {"PYTHONPATH": f"{lsp_client.ROOT}{os.pathsep}{tests}"}) as client:
        client.initialize(capabilities)
        client.open(URI, TYPED)
        assert client.wait_for(lambda: "ready" in [params["state"] for params in sent(client, "speclsp/status")])
        yield client


def sent(client: Client, method: str) -> list[Any]:
    return [message["params"] for message in list(client.notifications) if message["method"] == method]


def grown(client: Client, timeout_s: float = 0.0) -> list[Any]:
    """The params of each speclsp/suggestionGrew; waits for the first one."""
    client.wait_for(lambda: sent(client, "speclsp/suggestionGrew"), timeout_s)
    return sent(client, "speclsp/suggestionGrew")


def inserted(client: Client, version: int, typed: str = "") -> str:
    """The text that the client shows at the end of TYPED and `typed`."""
    line, character = (TYPED + typed).count("\n"), len((TYPED + typed).rpartition("\n")[2])
    (item,) = client.reply(client.complete(URI, line, character, version=version))["result"]["items"]
    assert item["range"]["end"] == {"line": line, "character": character}
    return str(item["insertText"][character - item["range"]["start"]["character"] :])


def accept(client: Client, version: int, text: str) -> None:
    line, character = TYPED.count("\n"), len(TYPED.rpartition("\n")[2])
    client.insert(URI, version, line, character, text)


def test_a_client_is_told_where_further_lines_have_joined_and_a_second_request_returns_them(tmp_path: Path):
    with scripted(tmp_path, GROWS) as client:
        assert inserted(client, 1) == FIRST_LINE
        place = {"line": 1, "character": len("    total")}
        assert grown(client, PATIENCE_S) == [{"textDocument": {"uri": URI, "version": 1}, "position": place}]
        assert inserted(client, 1) == FIRST_LINE + FURTHER_LINES
        accept(client, 2, FIRST_LINE)
        assert inserted(client, 2, FIRST_LINE) == FURTHER_LINES, "one line of it was taken"


def test_a_client_without_the_capability_is_not_told_and_gets_the_lines_after_tab(tmp_path: Path):
    with scripted(tmp_path, {}) as client:
        assert inserted(client, 1) == FIRST_LINE
        time.sleep(1.5)  # the pause before further lines, and more
        accept(client, 2, FIRST_LINE)
        assert inserted(client, 2, FIRST_LINE) == FURTHER_LINES
        assert grown(client) == []
