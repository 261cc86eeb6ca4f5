"""Next edits by a model in a real server: the tiny target, which declares an edit format.

Its answers are nonsense, so these tests are about the way of a request, not about its edit.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest
from support.lsp.edited_document import ROOT, EditPage, until_answering
from support.lsp.editor_client import Editor
from support.waiting import wait_until

from speclsp.lsp.next_edit.model_producer import MIN_PROBABILITY
from speclsp.weights import cards

TEXT = (
    "def load(path):\n    with open(path) as file:\n        return file.read()\n\n\ndef save(path, text):\n    pass\n"
)
BY_MODEL = {"unchanged", "model_unsure", "unfit", "breaks", "forbidden", "reverts", "deadline", "shown"}


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    """A server with a model's directory that declares the format."""
    path = tmp_path_factory.mktemp("models") / "edits"
    shutil.copytree(cards.models_root() / "tiny" / "target", path)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"edit_format": "sweep"}))
    with Editor(model=str(path)) as editor:
        editor.begin(**ROOT)
        until_answering(editor)
        yield editor
        assert editor.popups() == [] and editor.stray == b""


def edited(editor: Editor, file: str) -> EditPage:
    """A page with one edit that the rules can do nothing with."""
    page = EditPage(editor, TEXT, file)
    page.replace("file.read()", "json.load(file)")
    return page


def prompted(editor: Editor) -> float:
    """Prompt tokens of all requests that the engine has ended; idle ones count in tokens alone."""
    return sum(value for name, value in editor.metrics().items() if name.startswith("speclsp_prompt_tokens_total"))


def test_the_model_is_asked_and_shows_only_what_passes_the_gate(editor: Editor):
    page, before = edited(editor, "first.py"), prompted(editor)
    edit, record = page.offer(20), page.outcome()
    assert record["producer"] == "model" and record["outcome"] in BY_MODEL
    assert (edit is not None) == (record["outcome"] == "shown")
    assert edit is None or record["probability"] >= MIN_PROBABILITY
    wait_until(lambda: prompted(editor) > before)
