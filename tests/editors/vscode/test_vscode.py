"""Ghost text in a real VS Code: typing, showing and accepting; the screen is compared with the wire."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from support.editors.code_server import until
from support.editors.vscode_screen import Studio, Window, lines, same
from support.waiting import wait_until

FUNCTION = "def area(width, height):\n    return width * height\n\n\n"
BEGINNINGS = ("def total(items):\n", "result = ", "0\nfor item in items:\n", "print(", "\nreturn ")
REST_S = 0.3
NOTHING_S = 1.5  # long enough for a request and its answer, where none may come


@pytest.fixture(scope="module")
def shared(studio: Studio) -> Iterator[Window]:
    with studio.window(studio.folder()) as window:
        window.says("asleep")  # until a file is opened
        yield window


@pytest.fixture
def window(shared: Window, request: pytest.FixtureRequest) -> Iterator[Window]:
    """A window with no open file; no error notification may appear in any test."""
    yield shared
    shared.shot(request.node.name.removeprefix("test_")[:80])
    shared.put_away()
    assert [text for severity, text in shared.notifications() if severity == "error"] == []


def test_ghost_text_appears_while_typing_and_equals_the_answer_on_the_wire(window: Window) -> None:
    window.show("ghost.py", FUNCTION)
    question = window.suggested(*BEGINNINGS)
    wait_until(lambda: window.screen().ghost.rstrip() == question.rest().rstrip())
    assert question.context["triggerKind"] == 2


def test_tab_accepts_the_whole_suggestion_and_one_undo_removes_it(window: Window) -> None:
    window.show("tab.py", FUNCTION)
    question = window.suggested(*BEGINNINGS)
    window.press("Tab")
    window.sees(lambda screen: same(screen.document, lines(question.accepted())), "the document has the suggestion")
    (item,) = question.items
    until(lambda: window.sent("workspace/executeCommand"), "the acceptance is reported")
    assert window.sent("workspace/executeCommand")[-1]["arguments"] == item["command"]["arguments"]
    window.agreed()
    window.press("Escape", "Control+z")
    window.sees(lambda screen: same(screen.document, lines(question.text)), "the document is as before")


def test_a_single_line_can_be_accepted(window: Window) -> None:
    window.show("line.py", FUNCTION)
    question = window.suggested(*BEGINNINGS)
    window.press("Control+ArrowDown")
    row, wanted = question.position["line"], lines(question.accepted())
    window.sees(
        lambda screen: screen.document[row].rstrip() == wanted[row].rstrip() and not screen.rows[row]["ghost"],
        "the first line of the suggestion is in the document",
    )


def test_a_snooze_stops_automatic_suggestions_until_it_ends(window: Window) -> None:
    window.show("snooze.py", FUNCTION)
    window.suggested(*BEGINNINGS)
    window.command("Snooze Suggestions...")
    choices = ["For 10 minutes", "For this session"]
    until(
        lambda: [label.split(",")[0].split("  ")[-1] for label in window.picks()] == choices,
        "the choices are listed",
        else_=window.picks,
    )
    window.shot("snooze")
    window.pick("For this session")
    window.says("snoozed for this session")
    window.sees(lambda screen: not screen.ghost, "the shown suggestion is gone")
    assert window.bar() == "speclsp: snoozed for this session"
    before = len(window.wire.replay()[1])
    window.type("\n\nresult = ")
    window.sees(lambda screen: screen.document[-1].strip() == "result =", "the document has the typed line")
    time.sleep(NOTHING_S)
    assert not window.screen().ghost
    assert len(window.wire.replay()[1]) == before, "the server got no request"
    suggestion_by_key(window)
    window.command("Snooze Suggestions...")
    window.pick("End the snooze")
    window.says("speclsp: ready")
    window.press("Control+End")
    window.suggested(*BEGINNINGS)


def suggestion_by_key(window: Window) -> None:
    """Request a suggestion at the cursor by the key, and see it. The model may need another beginning first."""
    for beginning in ("", *BEGINNINGS):
        window.type(beginning)
        earlier_requests = len(window.wire.replay()[1])
        window.press("Alt+Backslash")
        question = until(
            lambda old=earlier_requests: (
                len(window.wire.replay()[1]) > old
                and (newest := window.wire.newest())
                and newest.context["triggerKind"] == 1
                and newest
            ),
            "a request by the key",
        )
        if question.items:
            shown = lines(question.accepted(0))
            window.sees(lambda screen, shown=shown: screen.ghost and same(screen.whole, shown), "the suggestion")
            return
    pytest.fail("the model suggested nothing")


def test_a_resting_cursor_is_reported_to_the_server_once_for_each_place(window: Window) -> None:
    window.show("rest.py", FUNCTION)
    reports = lambda: window.sent("speclsp/didFocus")  # noqa: E731
    until(lambda: reports()[-1]["position"] == {"line": 4, "character": 0}, "the report of the text's end")
    for key, line, character in (("ArrowUp", 3, 0), ("Control+Home", 0, 0), ("x", 0, 1), ("End", 0, 25)):
        count = len(reports())
        window.press(key)
        until(lambda old=count: len(reports()) > old, f"the report after {key}")
        time.sleep(2 * REST_S)
        [report] = reports()[count:]
        assert report["textDocument"]["uri"].endswith("/rest.py")
        assert report["position"] == {"line": line, "character": character}
    count = len(reports())
    window.press("Shift+ArrowLeft")
    time.sleep(2 * REST_S)
    assert len(reports()) == count, "a selection is no resting cursor"


def test_several_cursors_get_no_suggestion(window: Window) -> None:
    window.show("cursors.py", "a = \nb = \n")
    window.press("Control+Home", "End", "Control+Alt+b")
    window.says("several cursors")
    before = len(window.wire.replay()[1])
    window.type("a")
    window.sees(lambda screen: screen.document[:2] == ["a = a", "b = a"], "both cursors type")
    time.sleep(NOTHING_S)
    assert not window.screen().ghost
    assert len(window.wire.replay()[1]) == before
    window.press("Escape")
    window.says("ready")


def test_a_diff_editor_gets_no_suggestion(window: Window) -> None:
    window.show("comparison.py", FUNCTION)
    window.type("x")
    window.press("Escape", "Control+Alt+d")
    window.page.wait_for_selector(".monaco-diff-editor .editor.modified")
    window.says("comparison")
    before = len(window.wire.replay()[1])
    window.focus(".monaco-diff-editor .editor.modified .view-lines")
    window.type("\ndef again(a):\n")
    window.sees(lambda screen: "def again(a):" in screen.document, "the modified side is typed into")
    time.sleep(NOTHING_S)
    assert not window.page.query_selector_all("[class*='ghost-text']")
    assert len(window.wire.replay()[1]) == before
    window.put_away()


def test_a_notebook_cell_is_completed_with_the_earlier_cells_as_context(window: Window) -> None:
    cells = [
        {"cell_type": "code", "source": text, "metadata": {}, "outputs": [], "execution_count": None}
        for text in (FUNCTION, "")
    ]
    info = {"language_info": {"name": "python"}, "kernelspec": {"name": "python3", "display_name": "Python 3"}}
    text = json.dumps({"cells": cells, "metadata": info, "nbformat": 4, "nbformat_minor": 5})
    window.show("cells.ipynb", text, inside=".cell-list-container .cell.code >> nth=1 >> .view-lines")
    question = window.suggested(*BEGINNINGS)
    assert question.uri.startswith("vscode-notebook-cell:")
    opened = window.wire.told("notebookDocument/didOpen", to="server")[-1]
    assert [cell["text"] for cell in opened["cellTextDocuments"]] == [FUNCTION, ""]
    window.press("Tab")
    window.sees(lambda screen: same(screen.document, lines(question.accepted())), "the cell has the suggestion")


def test_a_dead_server_restarts_without_a_popup(window: Window) -> None:
    window.show("server.py", FUNCTION)
    window.suggested(*BEGINNINGS)
    server = window.wire.server()
    server.kill()
    window.type("zz = 1")
    window.sees(lambda screen: "\n".join(screen.document).rstrip().endswith("zz = 1"), "typing goes on")
    until(lambda: any(process.pid != server.pid for process in window.wire.servers()), "another server runs")
    window.says("ready")
    window.type("\n\n")
    window.suggested(*BEGINNINGS)
