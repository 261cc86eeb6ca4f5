"""Next edits over the wire, in a real server without any model: requests, answers, commands and explanations.

An answer is never null and never an error for a sound request, and names the version that was asked for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.lsp.edited_document import ROOT, EditPage, edit_server, until_answering
from support.lsp.editor_client import URI, Editor

from speclsp.lsp.next_edit import wire
from speclsp.lsp.protocol.initialize_answer import ACCEPT_COMMAND, COPILOT_ACCEPT_COMMAND, REJECT_COMMAND

PHRASES = "import lib\n\n\n" + "".join(f"result_{n} = lib.read(open_file, {n})\n" for n in range(6))
WITHOUT_ENGINE = ("--set", "completion.enabled=false")
OFFERED = {"general": {"positionEncodings": ["utf-8", "utf-16"]}}
PLUGIN = {"editorInfo": {"name": "Neovim", "version": "0.11"}, "editorPluginInfo": {"name": "a", "version": "1"}}
FILES = (f"case{number}.py" for number in count())  # the server remembers the edits of other tests


@pytest.fixture(scope="module")
def editor() -> Iterator[Editor]:
    with edit_server("--copilot") as shared:
        yield shared
        assert shared.popups() == [] and shared.stray == b"" and shared.engines() == []


@pytest.fixture
def page(editor: Editor) -> Iterator[EditPage]:
    opened = EditPage(editor, PHRASES, next(FILES))
    yield opened
    opened.close()


def change_twice(page: EditPage) -> int:
    """Make a shape on the first two lines that have it; returns the cursor."""
    return max(page.replace("open_file", "shared.file") for _ in range(2))


@pytest.mark.parametrize(
    ("arguments", "options", "encoding", "copilot"),
    [
        (("--copilot",), None, "utf-16", True),
        (WITHOUT_ENGINE, None, "utf-8", False),
        (WITHOUT_ENGINE, PLUGIN, "utf-16", True),
    ],
    ids=["--copilot", "another client", "a plugin of Copilot"],
)
def test_a_client_of_copilot_gets_utf16_and_its_own_command(
    arguments: tuple[str, ...], options: Any, encoding: str, copilot: bool
):
    with Editor(*arguments) as editor:
        answer = editor.initialize(OFFERED, **ROOT, initializationOptions=options)["capabilities"]
        commands = {ACCEPT_COMMAND, REJECT_COMMAND, *([COPILOT_ACCEPT_COMMAND] if copilot else [])}
        assert answer["positionEncoding"] == encoding
        assert set(answer["executeCommandProvider"]["commands"]) == commands


def test_a_change_made_twice_is_offered_at_the_next_place_and_then_at_all_others(page: EditPage):
    cursor = change_twice(page)
    for number in range(2, 6):
        edit = page.offer(cursor)
        assert edit is not None and set(edit) == {"text", "range", "textDocument", "command", "kind", "ghost"}
        assert edit["range"]["start"]["line"] == edit["range"]["end"]["line"] == 3 + number
        assert (edit["kind"], edit["ghost"]) == ("edit", False)
        assert (edit["command"]["command"], edit["command"]["title"]) == (ACCEPT_COMMAND, wire.TITLE)
        cursor = page.accept(edit)
    assert "open_file" not in page.text and page.offer(cursor) is None


def test_positions_are_utf16(editor: Editor):
    page = EditPage(editor, PHRASES.replace("result_2", "𐐀_result_2"), next(FILES))
    edit = page.offer(change_twice(page))
    assert edit is not None
    page.accept(edit)
    assert "𐐀_result_2 = lib.read(shared.file, 2)" in page.text


def test_another_version_an_unknown_document_and_a_position_past_the_end_give_no_error(page: EditPage):
    cursor = change_twice(page)
    for document in ({"uri": page.uri, "version": 1}, {"uri": page.uri, "version": 10**9}, {"uri": URI, "version": 1}):
        assert page.offer(cursor, textDocument=document) is None
    assert page.offer(cursor, position={"line": 10**6, "character": 10**6}) is not None
    assert page.offer(cursor, textDocument={"uri": page.uri}) is not None, "without a version the present one counts"


def test_a_rejected_change_is_not_offered_again_until_the_user_makes_it_once_more(page: EditPage):
    cursor = change_twice(page)
    edit = page.offer(cursor)
    assert edit is not None
    page.reject(edit)
    assert page.offer(cursor) is None
    explained = page.outcome()
    assert explained["outcome"] == "declined" and explained["meaning"].startswith("shape: ")
    assert {"kind": "shape", "line": 6, "reason": "declined"}.items() <= explained["not_offered"][0].items()
    cursor = page.replace("open_file", "shared.file")
    assert page.offer(cursor) is not None


def test_an_accepted_edit_that_is_undone_is_not_offered_again(page: EditPage):
    cursor, before = change_twice(page), page.text
    edit = page.offer(cursor)
    assert edit is not None
    start, end = page.span(edit)
    old = page.text[start:end]
    page.accept(edit)
    page.edit(start, start + len(edit["text"]), old)
    assert page.text == before and page.offer(cursor) is None


def test_a_request_is_dropped_at_the_next_key_or_answered_for_its_version(page: EditPage):
    params = page.params(change_twice(page))
    older, newer = (page.editor.request(wire.INLINE_EDIT, params) for _ in range(2))
    page.edit(len(page.text), len(page.text), "x")
    for request in (older, newer):
        for edit in page.editor.reply(request)["result"]["edits"]:
            assert edit["textDocument"]["version"] == params["textDocument"]["version"]


def test_a_file_that_no_model_may_see_gets_no_edit(editor: Editor):
    page = EditPage(editor, PHRASES, ".env")
    assert page.offer(change_twice(page)) is None and page.outcome()["outcome"] == "secret_file"
    page.close()


def test_the_explanation_names_the_producer_and_never_the_text(page: EditPage):
    page.offer(change_twice(page))
    facts = page.editor.call("speclsp/explain", {})
    outcome = facts["next_edit"]
    assert (outcome["outcome"], outcome["kind"]) == ("shown", "shape") and outcome["times"] >= 2
    assert outcome["producer"] == "rules" and outcome["line"] == 6 and page.uri.endswith(outcome["document"])
    assert "open_file" not in str(facts)


def test_switched_off_there_is_no_edit_and_explain_says_so():
    with edit_server("--set", "next_edit.enabled=false") as editor:
        page = EditPage(editor, PHRASES, next(FILES))
        assert page.offer(change_twice(page)) is None and page.outcome()["outcome"] == "next_edit_off"


@pytest.mark.parametrize("arguments", [(), WITHOUT_ENGINE, ("--copilot",)], ids=["completion", "edits", "copilot"])
def test_edits_count_from_the_first_one_and_never_in_an_ignored_file(arguments: tuple[str, ...], tmp_path: Path):
    (tmp_path / ".gitignore").write_text("local.py\n")
    with Editor(*arguments) as editor:
        editor.initialize(workspaceFolders=[{"uri": tmp_path.as_uri(), "name": "new"}])
        until_answering(editor)
        ignored = EditPage(editor, PHRASES, (tmp_path / "local.py").as_uri())
        page = EditPage(editor, PHRASES, (tmp_path / "new.py").as_uri())
        change_twice(ignored)
        assert page.offer(0) is None and page.offer(change_twice(page)) is not None


# ── changes that nobody typed ─────────────────────────────────────────────────────────────────────────────────────────

RENAMED = "def area(width):\n    return width * 2\n\n\ndef other():\n    return 1\n"


@pytest.mark.parametrize("whole", [True, False], ids=["whole text", "one range"])
@pytest.mark.parametrize(
    ("is_written", "is_saved", "offered"),
    [
        (False, False, True),  # the user renames, and the file on disk is as it was
        (True, True, True),  # the editor writes the file before its didChange arrives, and then didSave
        (True, False, False),  # git has changed the file, and the editor reloads it
    ],
    ids=["typed", "saved", "reloaded"],
)
def test_a_reload_from_disk_is_no_edit_of_the_user_s(
    editor: Editor, tmp_path: Path, whole: bool, is_written: bool, is_saved: bool, offered: bool
):
    file = tmp_path / "box.py"
    file.write_text(RENAMED, encoding="utf-8")
    page = EditPage(editor, RENAMED, file.as_uri())
    new = f"breadth_{is_written}_{is_saved}_{whole}"  # a rename of another document is no evidence for this one
    after = RENAMED.replace("(width)", f"({new})")
    if is_written:
        file.write_text(after, encoding="utf-8")
        os.utime(file, times=(time.time(), time.time()))  # the kernel's clock of files is up to 10 ms late
    if whole:
        page.replace_all(after)
    else:
        page.replace("width", new)
    if is_saved:
        editor.notify("textDocument/didSave", {"textDocument": {"uri": page.uri}})
    assert (page.offer(len("def area(")) is not None) == offered
    page.close()
