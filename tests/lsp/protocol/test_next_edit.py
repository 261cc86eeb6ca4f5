"""Next edits over the wire: Copilot's copilotInlineEdit and speclsp/nextEdit, in a real server without any model.

An answer is never null and never an error for a sound request, and names the version that was asked for.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from support.lsp.editor_client import URI, Editor, Page, units
from support.lsp.lsp_client import Client
from support.waiting import wait_until
from windows.harness.program import program

from speclsp.lsp.next_edit import wire
from speclsp.lsp.protocol.initialize_answer import COPILOT_ACCEPT_COMMAND

ROOT = {"workspaceFolders": [{"uri": "file:///project", "name": "project"}]}
CALLS = [f"value_{n} = old_reader({n})\n" for n in range(6)]
TEXT = "from lib import old_reader, new_reader\n\n\n" + "".join(CALLS)
PHRASES = "import lib\n\n\n" + "".join(f"result_{n} = lib.read(open_file, {n})\n" for n in range(6))
WITHOUT_ENGINE = ("--set", "completion.enabled=false")
NEITHER_SHOWS = (
    None,
    {},
    {"item": None},
    {"item": {"command": {"arguments": []}}},
    {"item": {"command": {"arguments": [1]}}},
)


def server(*arguments: str) -> Editor:
    """A server for a client of Copilot's protocol: no engine starts."""
    return Editor("--copilot", *arguments)


def replace(page: Page, old: str, new: str, number: int) -> int:
    """Replace the first `old` behind the start of line `number`. Returns the offset after it."""
    at = page.text.index(old, sum(map(len, page.text.splitlines(keepends=True)[:number])))
    page.edit(at, at + len(old), new)
    return at + len(new)


def ask(page: Page, cursor: int, method: str = wire.COPILOT_INLINE_EDIT, **changes: Any) -> list[dict[str, Any]]:
    """The edits of an answer."""
    document = {"uri": page.uri, "version": page.version}
    params = {"textDocument": document, "position": page.place(cursor), "context": {"triggerKind": 2}, **changes}
    result = page.editor.call(method, params)
    assert isinstance(result, dict) and isinstance(result["edits"], list)
    return result["edits"]


def apply(page: Page, edit: dict[str, Any]) -> None:
    """Apply an edit, as a client does."""
    start, end = (offset(page, edit["range"][name]) for name in ("start", "end"))
    page.edit(start, end, edit["text"])


def offset(page: Page, place: dict[str, int]) -> int:
    lines = page.text.splitlines(keepends=True)
    line = lines[place["line"]] if place["line"] < len(lines) else ""
    column = next(n for n in range(len(line) + 1) if units(line[:n], page.encoding) == place["character"])
    return sum(map(len, lines[: place["line"]])) + column


def two_changes(editor: Editor, text: str = PHRASES, uri: str = URI, encoding: str = "utf-16") -> tuple[Page, int]:
    """A page on which the user changed the same phrase on the first two lines that have it, and the cursor."""
    page = Page(editor, text, encoding=encoding, uri=uri)
    ask(page, 0)  # after this its ignore files have been read
    return page, change_twice(page)


def change_twice(page: Page) -> int:
    """Change the phrase on the first two lines that have it; returns the cursor."""
    number = next(n for n, line in enumerate(page.text.split("\n")) if "lib.read(open_file" in line)
    for line in (number, number + 1):
        cursor = replace(page, "lib.read(open_file", "lib.read(shared.file", line)
    return cursor


def begin(editor: Editor, **params: Any) -> dict[str, Any]:
    """Initialize, and wait until the server records edits."""
    return editor.initialize({"general": {"positionEncodings": ["utf-8", "utf-16"]}}, **(ROOT | params))


def until_recording(editor: Editor) -> None:
    """Wait until requests reach the producer: it starts after `initialize`."""
    editor.open("file:///project/first.py", "x = 1\n")
    params = {
        "textDocument": {"uri": "file:///project/first.py", "version": 1},
        "position": {"line": 0, "character": 0},
    }

    def explained() -> bool:
        editor.call(wire.COPILOT_INLINE_EDIT, params)
        return "next_edit" in editor.call("speclsp/explain", {})

    wait_until(explained)


@pytest.fixture(scope="module")
def shared() -> Any:
    with server() as editor:
        begin(editor)
        until_recording(editor)
        yield editor
        assert editor.popups() == [] and editor.stray == b""


@pytest.fixture
def editor(shared: Editor, request: pytest.FixtureRequest) -> Any:
    yield shared
    for number in range(20):
        shared.notify("textDocument/didClose", {"textDocument": {"uri": f"file:///project/case{number}.py"}})


def test_copilot_mode_announces_its_commands_and_utf16_and_starts_no_engine():
    with server() as editor:
        capabilities = begin(editor)["capabilities"]
        assert capabilities["positionEncoding"] == "utf-16"
        assert {wire.ACCEPT_COMMAND, COPILOT_ACCEPT_COMMAND} <= set(capabilities["executeCommandProvider"]["commands"])
        until_recording(editor)
        assert editor.engines() == []


def test_another_client_gets_the_encoding_it_offers_and_no_command_of_copilot():
    with Editor(*WITHOUT_ENGINE) as editor:
        capabilities = begin(editor)["capabilities"]
        assert capabilities["positionEncoding"] == "utf-8"
        assert capabilities["executeCommandProvider"]["commands"] == [wire.ACCEPT_COMMAND]


def test_a_client_that_names_its_copilot_plugin_gets_utf16():
    with Editor(*WITHOUT_ENGINE) as editor:
        options = {
            "editorInfo": {"name": "Neovim", "version": "0.11"},
            "editorPluginInfo": {"name": "copilot-lsp", "version": "1"},
        }
        capabilities = begin(editor, initializationOptions=options)["capabilities"]
        assert capabilities["positionEncoding"] == "utf-16"
        assert COPILOT_ACCEPT_COMMAND in capabilities["executeCommandProvider"]["commands"]


def test_a_change_made_twice_is_offered_at_the_next_place_and_then_at_all_others(editor: Editor):
    page, cursor = two_changes(editor, uri="file:///project/case1.py")
    for number in range(2, 6):
        (edit,) = ask(page, cursor)
        assert edit["textDocument"] == {"uri": page.uri, "version": page.version}
        assert edit["range"]["start"]["line"] == edit["range"]["end"]["line"] == 3 + number
        assert edit["command"]["command"] == wire.ACCEPT_COMMAND and isinstance(edit["command"]["title"], str)
        apply(page, edit)
        assert editor.call("workspace/executeCommand", edit["command"]) is None
        cursor = offset(page, edit["range"]["start"])
    assert "open_file" not in page.text and page.text.count("lib.read(shared.file") == 6
    assert ask(page, cursor) == []


def test_positions_are_utf16_for_a_copilot_client(editor: Editor):
    text = PHRASES.replace("import lib\n", 'import lib\nname = "𐐀é"\n').replace("result_2", "𐐀_result_2")
    page, cursor = two_changes(editor, text, uri="file:///project/case2.py")
    (edit,) = ask(page, cursor)
    apply(page, edit)
    assert "𐐀_result_2 = lib.read(shared.file, 2)" in page.text


def test_another_version_an_unknown_document_and_a_position_past_the_end_give_no_error(editor: Editor):
    page, cursor = two_changes(editor, uri="file:///project/case3.py")
    assert ask(page, cursor, textDocument={"uri": page.uri, "version": page.version - 1}) == []
    assert ask(page, cursor, textDocument={"uri": page.uri, "version": 10**9}) == []
    assert ask(page, cursor, textDocument={"uri": "file:///project/none.py", "version": 1}) == []
    assert len(ask(page, cursor, position={"line": 10**6, "character": 10**6})) == 1
    assert len(ask(page, cursor, textDocument={"uri": page.uri})) == 1, "without a version the present one counts"


@pytest.mark.parametrize(
    "params",
    [
        None,
        {},
        [],
        {"textDocument": {"uri": 1}},
        {"textDocument": {"uri": URI, "version": "1"}, "position": {"line": 0}},
    ],
)
def test_malformed_params_are_refused_in_one_line(editor: Editor, params: Any):
    assert editor.error(wire.COPILOT_INLINE_EDIT, params)["code"] == -32602


def test_notifications_of_the_protocol_are_accepted_in_any_shape(editor: Editor):
    for method in (wire.DID_SHOW_INLINE_EDIT, *wire.IGNORED, wire.SHOWN, wire.ACCEPTED, wire.REJECTED):
        for params in (*NEITHER_SHOWS, {"id": "unknown"}, {"textDocument": {"uri": URI}}):
            editor.notify(method, params)
    editor.notify("workspace/executeCommand", {"command": wire.ACCEPT_COMMAND, "arguments": ["unknown"]})
    assert editor.call("workspace/executeCommand", {"command": COPILOT_ACCEPT_COMMAND, "arguments": []}) is None
    assert ask(Page(editor, "a = 1\n", uri="file:///project/case4.py"), 0) == []


def test_our_own_request_tells_the_kind_and_whether_ghost_text_can_show_it(editor: Editor):
    page, cursor = two_changes(editor, uri="file:///project/case5.py")
    (edit,) = ask(page, cursor, wire.NEXT_EDIT, trigger="manual")
    assert set(edit) == {"id", "text", "range", "textDocument", "kind", "confidence", "ghost"}
    assert edit["kind"] == "edit" and 0 < edit["confidence"] <= 1 and edit["ghost"] is False
    assert editor.error(wire.NEXT_EDIT, {"textDocument": {"uri": page.uri}, "position": page.place(0), "trigger": "x"})


def test_a_rejected_change_is_not_offered_again_until_the_user_makes_it_once_more(editor: Editor):
    page, cursor = two_changes(editor, uri="file:///project/case6.py")
    (edit,) = ask(page, cursor, wire.NEXT_EDIT)
    editor.notify(wire.SHOWN, {"id": edit["id"]})
    editor.notify(wire.REJECTED, {"id": edit["id"], "reason": "rejected"})
    assert ask(page, cursor) == []
    assert editor.call("speclsp/explain", {"textDocument": {"uri": page.uri}})["next_edit"]["outcome"] == "declined"
    cursor = replace(page, "lib.read(open_file", "lib.read(shared.file", 5)
    assert len(ask(page, cursor)) == 1


def test_an_accepted_edit_that_is_undone_is_not_offered_again(editor: Editor):
    page, cursor = two_changes(editor, uri="file:///project/case7.py")
    before = page.text
    (edit,) = ask(page, cursor)
    apply(page, edit)
    editor.notify("workspace/executeCommand", edit["command"])  # as copilot.el does
    start = offset(page, edit["range"]["start"])
    page.edit(
        start, start + len(edit["text"]), before[start : start + len(before) - len(page.text) + len(edit["text"])]
    )
    assert page.text == before
    assert ask(page, cursor) == []


def test_a_wrong_notification_is_ignored_and_is_no_fault_of_the_server(editor: Editor):
    editor.notify("workspace/executeCommand", {"command": "unknown", "arguments": []})
    editor.notify(wire.NEXT_EDIT, {"textDocument": None})
    page, cursor = two_changes(editor, uri="file:///project/case20.py")
    assert len(ask(page, cursor)) == 1
    lines = [line for log in editor.logs.glob("lsp.log*") for line in log.read_text().splitlines()]
    assert sum("a notification failed" in line for line in lines) == 2
    assert [line for line in lines if " error " in line] == []


def test_a_request_is_dropped_at_the_next_key_or_answered_for_its_version(editor: Editor):
    page, cursor = two_changes(editor, uri="file:///project/case8.py")
    params = {"textDocument": {"uri": page.uri, "version": page.version}, "position": page.place(cursor)}
    older, newer = (editor.request(wire.COPILOT_INLINE_EDIT, params) for _ in range(2))
    page.edit(len(page.text), len(page.text), "x")
    for request in (older, newer):
        for edit in editor.reply(request)["result"]["edits"]:
            assert edit["textDocument"]["version"] == params["textDocument"]["version"]


def test_a_file_that_no_model_may_see_gets_no_edit(editor: Editor):
    page, cursor = two_changes(editor, uri="file:///project/.env")
    assert ask(page, cursor) == []
    facts = editor.call("speclsp/explain", {"textDocument": {"uri": page.uri}})
    assert facts["next_edit"]["outcome"] == "secret_file"
    editor.notify("textDocument/didClose", {"textDocument": {"uri": page.uri}})


def test_an_edit_of_ten_thousand_lines_and_an_undo_storm_are_survived(editor: Editor):
    page, cursor = two_changes(editor, uri="file:///project/case9.py")
    bulk = "".join(f"line_{n} = lib.read(open_file, {n})\n" for n in range(10_000))
    page.edit(0, 0, bulk)
    ask(page, 0)
    page.edit(0, len(bulk), "")
    for _ in range(50):
        page.edit(0, 0, "lib.read(shared.file")
        page.edit(0, len("lib.read(shared.file"), "")
        ask(page, cursor)
    assert page.text.startswith("import lib\n")


def test_the_explanation_names_the_producer_and_never_the_text(editor: Editor):
    page, cursor = two_changes(editor, uri="file:///project/case10.py")
    ask(page, cursor)
    facts = editor.call("speclsp/explain", {"textDocument": {"uri": page.uri}})
    outcome = facts["next_edit"]
    assert (outcome["outcome"], outcome["kind"]) == ("shown", "phrase") and outcome["times"] >= 2
    assert outcome["producer"] == "rules" and outcome["line"] == 6 and outcome["document"] == "case10.py"
    assert "next edit" in facts["text"] and "open_file" not in str(facts)


def test_switched_off_there_is_no_edit_and_explain_says_so():
    with server("--set", "next_edit.enabled=false") as editor:
        begin(editor)
        until_recording(editor)
        page, cursor = two_changes(editor)
        assert ask(page, cursor) == []
        assert editor.call("speclsp/explain", {})["next_edit"]["outcome"] == "next_edit_off"


@pytest.mark.parametrize("flags", [(), WITHOUT_ENGINE], ids=["completion on", "completion off"])
def test_edits_are_recorded_once_the_editor_has_asked_about_the_document(flags: tuple[str, ...], tmp_path: Path):
    with Editor(*flags) as editor:
        begin(editor, workspaceFolders=[{"uri": tmp_path.as_uri(), "name": "new"}])
        until_recording(editor)
        page = Page(editor, PHRASES, encoding="utf-8", uri=(tmp_path / "new.py").as_uri())
        answer = editor.call("speclsp/here", {"textDocument": {"uri": page.uri}})
        assert answer["reason"] == ("disabled" if flags else "")
        assert len(ask(page, change_twice(page), wire.NEXT_EDIT, trigger="edit")) == 1


def test_two_clients_at_once_have_their_own_edits():
    with server() as first, server() as second:
        for editor in (first, second):
            begin(editor)
            until_recording(editor)
        page, cursor = two_changes(first)
        assert len(ask(page, cursor)) == 1
        assert ask(Page(second, page.text), 0) == []


def test_the_server_runs_without_the_engines_packages():
    with Client(program("lsp", "--copilot")) as client:
        client.initialize()
        assert client.call(
            wire.COPILOT_INLINE_EDIT,
            {"textDocument": {"uri": URI, "version": 1}, "position": {"line": 0, "character": 0}},
        ) == {"edits": []}


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
    page = Page(editor, RENAMED, uri=file.as_uri())
    ask(page, 0)  # after this its ignore files have been read
    new = f"breadth_{is_written}_{is_saved}_{whole}"  # a rename of another document is no evidence for this one
    after = RENAMED.replace("(width)", f"({new})")
    if is_written:
        time.sleep(0.05)  # the kernel's clock of files is up to 10 ms late: the file is newer than didOpen
        file.write_text(after, encoding="utf-8")
        time.sleep(0.05)
    if whole:
        page.text, page.version = after, page.version + 1
        editor.change(page.uri, page.version, {"text": after})
    else:
        page.edit(len("def area("), len("def area(width"), new)
    if is_saved:
        editor.notify("textDocument/didSave", {"textDocument": {"uri": page.uri}})
    assert bool(ask(page, len("def area("))) == offered
    editor.notify("textDocument/didClose", {"textDocument": {"uri": page.uri}})


@pytest.mark.parametrize("way", ["whole text", "one range", "many edits"])
def test_a_rename_goes_on_after_a_formatter(editor: Editor, way: str):
    lines = [f"value_{n} = [ 1,{n} ]\nprint( 'x' )\n" for n in range(40)]
    text = "def area(width):\n    return width * 2\n\n\n" + "".join(lines)
    page = Page(editor, text, uri="file:///project/case19.py")
    ask(page, 0)
    page.edit(len("def area("), len("def area(width"), "breadth")
    formatted = page.text.replace("[ 1,", "[1, ").replace(" ]", "]").replace("( 'x' )", '("x")')
    if way == "whole text":
        page.text, page.version = formatted, page.version + 1
        editor.change(page.uri, page.version, {"text": formatted})
    elif way == "one range":
        page.edit(0, len(page.text), formatted)
    else:
        changes = [
            {"range": {"start": {"line": n, "character": 0}, "end": {"line": n + 1, "character": 0}}, "text": new}
            for n, new in reversed(list(enumerate(formatted.splitlines(keepends=True))))
            if new != page.text.splitlines(keepends=True)[n]
        ]
        page.text, page.version = formatted, page.version + 1
        editor.change(page.uri, page.version, *changes)
    (edit,) = ask(page, len("def area("))
    assert edit["range"]["start"]["line"] == 1 and edit["text"] == "breadth"
