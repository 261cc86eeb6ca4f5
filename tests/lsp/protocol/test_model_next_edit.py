"""Next edits by a model in a real server: the tiny target, which declares an edit format.

Its answers are nonsense, so these tests are about the way of a request, not about its edit.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.lsp.editor_client import Editor, Page
from support.waiting import wait_until

from speclsp.lsp.next_edit import wire
from speclsp.lsp.next_edit.model_producer import MIN_PROBABILITY
from speclsp.weights import cards

ROOT = {"workspaceFolders": [{"uri": "file:///project", "name": "project"}]}
TEXT = (
    "def load(path):\n    with open(path) as file:\n        return file.read()\n\n\ndef save(path, text):\n    pass\n"
)
BY_MODEL = {"unchanged", "model_unsure", "unfit", "breaks", "forbidden", "reverts", "deadline", "shown"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's directory that declares the format."""
    path = tmp_path_factory.mktemp("models") / "edits"
    shutil.copytree(cards.models_root() / "tiny" / "target", path)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"edit_format": "sweep"}))
    return path


@pytest.fixture(scope="module")
def editor(directory: Path) -> Iterator[Editor]:
    with Editor(model=str(directory)) as editor:
        editor.begin(**ROOT)
        yield editor
        assert editor.popups() == [] and editor.stray == b""


def edited(editor: Editor, name: str) -> tuple[Page, dict[str, Any]]:
    """A page with one edit that the rules can do nothing with, and the params of a request at it."""
    page = Page(editor, TEXT, uri=f"file:///project/{name}.py")
    wait_until(lambda: "edits" in editor.call(wire.COPILOT_INLINE_EDIT, params_of(page)) and outcome(editor, page))
    at = page.text.index("file.read()")
    page.edit(at, at + len("file.read()"), "json.load(file)")
    return page, params_of(page)


def params_of(page: Page) -> dict[str, Any]:
    return {"textDocument": {"uri": page.uri, "version": page.version}, "position": page.place(20)}


def outcome(editor: Editor, page: Page) -> dict[str, Any]:
    return editor.call("speclsp/explain", {"textDocument": {"uri": page.uri}}).get("next_edit", {})


def prompted(editor: Editor) -> float:
    """Prompt tokens of all requests that the engine has ended; idle ones count in tokens alone."""
    return sum(value for name, value in editor.metrics().items() if name.startswith("speclsp_prompt_tokens_total"))


def test_the_model_is_asked_and_shows_only_what_passes_the_gate(editor: Editor):
    page, params = edited(editor, "first")
    before = prompted(editor)
    edits = editor.call(wire.COPILOT_INLINE_EDIT, params)["edits"]
    record = outcome(editor, page)
    assert record["producer"] == "model" and record["outcome"] in BY_MODEL
    assert bool(edits) == (record["outcome"] == "shown")
    assert not edits or record["probability"] >= MIN_PROBABILITY
    assert "(model, " in editor.call("speclsp/explain", {})["text"]
    wait_until(lambda: prompted(editor) > before)


def test_a_key_drops_the_request_and_the_next_one_is_answered(editor: Editor):
    page, params = edited(editor, "second")
    dropped = editor.request(wire.COPILOT_INLINE_EDIT, params)
    page.edit(0, 0, "x = 1\n")
    for edit in editor.reply(dropped)["result"]["edits"]:
        assert edit["textDocument"]["version"] == params["textDocument"]["version"], "it was answered before the key"
    assert isinstance(editor.call(wire.COPILOT_INLINE_EDIT, params_of(page))["edits"], list)
    assert outcome(editor, page)["outcome"] in BY_MODEL


def test_ghost_text_is_answered_while_a_next_edit_is_made(editor: Editor):
    page, params = edited(editor, "third")
    request = editor.request(wire.NEXT_EDIT, params)
    assert len(editor.items(page.ask(page.text.index("pass")))) <= 1
    assert isinstance(editor.reply(request)["result"]["edits"], list)
    assert outcome(editor, page)["outcome"] in BY_MODEL | {"engine_busy"}


def test_a_model_without_the_declaration_is_not_asked():
    with Editor() as editor:
        editor.begin(**ROOT)
        page, params = edited(editor, "fourth")
        assert editor.call(wire.COPILOT_INLINE_EDIT, params) == {"edits": []}
        assert outcome(editor, page)["producer"] == "rules"
