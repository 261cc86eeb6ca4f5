"""Next edits in a real VS Code: shown as decorations or ghost text, reached and accepted by Tab, dismissed by Escape.

The server's own producer makes them, without a model: the user changes a name twice, and its next place is offered.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.editors.code_server import until
from support.editors.vscode_screen import Studio, Window
from support.soak import in_soak

from speclsp.lsp.next_edit import wire
from speclsp.lsp.protocol.initialize_answer import ACCEPT_COMMAND, REJECT_COMMAND

TOTAL = (
    "def total(items):\n    count = len(items)\n    check(count)\n    print(count)\n"
    + "".join(f"    log({number})\n" for number in range(6))
    + "    return count + 1\n"
)
NEAR, FAR = 3, 10  # lines of TOTAL, from 0, that still have the old name after two changes
PHRASES = "import lib\n\n\n" + "".join(f"{name} = lib.read(open_file, 1)\n" for name in "abcd")
NO_REQUEST_S = 1.5  # several times the pause after which a request is sent
DONE = """() => [...document.querySelectorAll(".editor-instance .view-line span > span")]
  .some((span) => getComputedStyle(span, "::after").content === '"done:\\u00a02\\u00a0edits"')"""
HINT = f"→ Edit at line {FAR + 1} (Tab)"

VSCODE_PROGRESS = ("Saving '", "Activating Extensions...")  # its own, when the machine is slow


@pytest.fixture(scope="module")
def shared(studio: Studio) -> Iterator[Window]:
    """A window without ghost text of a model."""
    studio.server.settings(studio.server.ours | {"speclsp.completion.enabled": False})
    with studio.window(studio.folder()) as window:
        window.says("completion.enabled is off")
        yield window


@pytest.fixture
def window(shared: Window, request: pytest.FixtureRequest) -> Iterator[Window]:
    """A window with no open file; no notification may appear in any test, but VS Code's own while it is slow."""
    yield shared
    shared.shot(request.node.name.removeprefix("test_")[:80])
    shared.put_away()
    assert [text for _, text in shared.notifications() if not text.startswith(VSCODE_PROGRESS)] == []


def rename_twice(window: Window, name: str, text: str = TOTAL) -> None:
    """Open a file and change the name on lines 1 and 2 by the keyboard."""
    window.show(name, text)
    window.press("Control+Home", "ArrowDown", "Home", "Control+Shift+ArrowRight")
    window.type("number", 10)
    window.press("ArrowDown", "Home", *["ArrowRight"] * len("check("), "Control+Shift+ArrowRight")
    window.type("number", 10)
    window.sees(lambda screen: screen.document[2] == "    check(number)", "two lines have the new name")


def offered(window: Window) -> None:
    """The edit on line NEAR is shown."""
    window.draws([("    print(count)", "→ number")], [("    print(count)", "count")])


def nothing_is_shown(window: Window) -> None:
    window.draws([], [])


def requests(window: Window) -> list[dict[str, Any]]:
    """The params of all requests."""
    return window.sent(wire.INLINE_EDIT)


def answered(window: Window, command: str) -> list[list[str]]:
    """The arguments of all reports of one answer of the user's."""
    reports = window.sent("workspace/executeCommand")
    return [params["arguments"] for params in reports if params["command"] == command]


def test_tab_accepts_a_near_edit_then_jumps_to_a_far_one_and_accepts_it(window: Window) -> None:
    rename_twice(window, "rename.py")
    offered(window)
    accepted = len(answered(window, ACCEPT_COMMAND))
    window.press("Tab")
    window.sees(lambda screen: screen.document[NEAR] == "    print(number)", "the near edit is made")
    at_far = "    return count + 1"
    window.draws([("    print(number)", HINT), (at_far, "→ number")], [(at_far, "count")])
    window.shot("next-edit-far")
    window.press("Tab")
    window.draws([(at_far, "→ number")], [(at_far, "count")])
    window.page.wait_for_selector(f".line-numbers.active-line-number:text-is('{FAR + 1}')")
    window.shot("next-edit-near")
    window.press("Tab")
    window.page.wait_for_function(DONE)
    window.sees(lambda screen: screen.document[FAR] == "    return number + 1", "the far edit is made")
    nothing_is_shown(window)
    window.type("x")
    window.sees(lambda screen: screen.document[FAR] == "    return numberx + 1", "the cursor is behind the new text")
    assert len(answered(window, ACCEPT_COMMAND)) == accepted + 2
    shown = [params["item"]["command"]["arguments"] for params in window.sent(wire.DID_SHOW)]
    assert answered(window, ACCEPT_COMMAND)[-2:] == shown[-2:]


def test_a_line_changed_once_is_offered_at_its_twin_when_the_cursor_has_left_it(window: Window) -> None:
    case = (
        "def test_{0}(self):\n    client = Client({0})\n    client.open_session(one)\n    assert client.is_open\n\n\n"
    )
    window.show("cases.py", case.format("http") + case.format("https"))
    before = len(requests(window))
    window.press("Control+Home", "ArrowDown", "ArrowDown", "End", "ArrowLeft")
    window.type(", retry", 10)
    until(lambda: len(requests(window)) > before, "a request")
    time.sleep(NO_REQUEST_S)  # on a slow machine a pause between two keys may have requested one, too
    before = len(requests(window))
    nothing_is_shown(window)
    window.press("ArrowDown")
    hint = ("    assert client.is_open", "→ Edit at line 9 (Tab)")
    window.draws([hint, ("    client.open_session(one)", ", retry")], [])
    assert len(requests(window)) == before + 1
    window.press("Escape", "ArrowDown")
    time.sleep(NO_REQUEST_S)
    assert len(requests(window)) == before + 1, "the same text is requested once more only"


def test_escape_dismisses_for_good_and_then_tab_indents(window: Window) -> None:
    rename_twice(window, "escape.py")
    offered(window)
    window.press("Escape")
    nothing_is_shown(window)
    until(lambda: answered(window, REJECT_COMMAND), "the server knows")
    before = len(requests(window))
    window.press("End", "Tab")
    window.sees(lambda screen: screen.document[2].rstrip() != screen.document[2], "Tab inserts blanks")
    until(lambda: len(requests(window)) > before, "that change was asked about")
    time.sleep(NO_REQUEST_S)
    nothing_is_shown(window)
    assert window.screen().document[NEAR] == "    print(count)"


@pytest.mark.parametrize(("keys", "typed"), [("x\ty", "xy"), *in_soak(("\txyz", "xyz"), ("x\t", "x"), ("\t\tx", "x"))])
def test_keys_that_arrive_before_the_extension_runs_insert_nothing_at_a_stale_place(
    window: Window, keys: str, typed: str
) -> None:
    rename_twice(window, f"together-{keys.replace(chr(9), 't')}.py")
    offered(window)
    window.press("End")
    shown = len(window.sent(wire.DID_SHOW))
    with window.extensions_paused():
        window.press(*("Tab" if key == "\t" else key for key in keys))
    until(lambda: len(window.sent(wire.DID_SHOW)) > shown, "the edit is shown anew")
    offered(window)
    window.type("#")
    screen = window.sees(lambda screen: screen.document[2].endswith("#"), "the cursor is where it was")
    # A Tab behind a letter runs when the letter has hidden the edit or before: it indents, or it is lost.
    lost = [TOTAL.replace("count", "number", 2).replace(")\n    pr", f"){typed}#\n    pr").split("\n")]
    indents = [[*lost[0][:2], lost[0][2].replace("x", "x  "), *lost[0][3:]]] if "x\t" in keys else []
    assert screen.document in lost + indents


def test_several_cursors_and_a_selection_keep_their_own_tab(window: Window) -> None:
    rename_twice(window, "cursors.py")
    offered(window)
    for key, back in (("Shift+ArrowRight", "ArrowLeft"), ("Control+Alt+b", "Escape")):
        window.press(key)
        nothing_is_shown(window)
        window.press(back)
        offered(window)
    with window.extensions_paused():
        window.press("End", "Control+Alt+b", "Tab")
    screen = window.sees(lambda screen: screen.document[NEAR] != "    print(count)", "both cursors indent")
    assert [line.rstrip() for line in screen.document[2:4]] == ["    check(number)", "    print(count)"]
    window.press("Escape")


def test_the_completion_menu_has_precedence(window: Window) -> None:
    rename_twice(window, "menu.py")
    offered(window)
    window.press("Control+End", "Control+Space")
    window.page.wait_for_selector(".suggest-widget.visible .monaco-list-row.focused")
    window.press("Tab")
    window.page.wait_for_selector(".suggest-widget.visible", state="hidden")
    screen = window.sees(lambda screen: screen.document[-1], "Tab accepts the item of the menu")
    assert screen.document[NEAR] == "    print(count)"


def test_the_hover_has_the_whole_difference(window: Window) -> None:
    rename_twice(window, "hover.py")
    offered(window)
    window.page.hover(".editor-instance .view-line:has-text('print(count)') span > span >> nth=1")
    window.page.wait_for_selector(".monaco-hover:has-text('-    print(count)'):has-text('+    print(number)')")
    window.shot("next-edit-hover")


def test_lines_are_shown_behind_the_lines_they_replace(window: Window) -> None:
    old, new = "    first = open_it(1)\n    close_it(1)\n", ("yield open_it(1)", "    pass")
    window.show("lines.py", ("def f():\n" + old) * 3)
    for first in (1, 4):
        window.press("Control+Home", *["ArrowDown"] * first, "Home", "Shift+ArrowDown", "Shift+End")
        window.page.keyboard.insert_text("\n".join(new))  # one change: a pause within it would be two
    window.draws(
        [(" " * 4 + "first = open_it(1)", f"→ {new[0]}"), (" " * 4 + "close_it(1)", "→ pass")],
        [(" " * 4 + "first = open_it(1)", "first = open_it(1)"), (" " * 4 + "close_it(1)", "close_it(1)")],
    )
    window.shot("next-edit-lines")
    window.press("Tab")
    twin = window.screen().document[3:6]
    window.sees(lambda screen: screen.document == [*twin, *twin, *twin, ""], "the lines are replaced")
    window.type("#")
    window.sees(lambda screen: screen.document[8] == twin[2] + "#", "the cursor is behind the new text")


def test_an_edit_right_of_the_cursor_is_ghost_text(window: Window) -> None:
    window.show("ghost.py", PHRASES)
    for _ in range(2):
        window.press("Control+Home", *["ArrowDown"] * (3 + _), "End", *["ArrowLeft"] * len(", 1)"))
        window.type(".first", 10)
    at = "c = lib.read(open_file, 1)"
    window.draws([(at, ".first")], [])
    window.press("ArrowDown", "Home")
    window.type("x", 10)
    window.press("Backspace")
    window.sees(lambda screen: screen.ghost == ".first", "ghost text shows the edit")
    nothing_is_shown(window)
    window.shot("next-edit-ghost")
    shown = window.sent(wire.DID_SHOW)[-1]["item"]["command"]["arguments"]
    window.press("Tab")
    window.sees(lambda screen: screen.document[5] == "c = lib.read(open_file.first, 1)", "Tab accepts it")
    until(lambda: shown in answered(window, ACCEPT_COMMAND), "the server knows")


def test_nothing_is_requested_for_a_paste_a_selection_several_cursors_or_when_off(window: Window) -> None:
    window.show("quiet.py", TOTAL)
    before = len(requests(window))
    window.press("Control+a", "Control+c", "Control+End", "Control+v")
    window.sees(lambda screen: len(screen.document) > 2 * FAR, "the paste is in the document")
    time.sleep(NO_REQUEST_S)
    window.press("Control+Home", "Shift+End", "Control+Slash")
    time.sleep(NO_REQUEST_S)
    window.press("Control+Home", "Control+Alt+b")
    window.type("z")
    window.sees(lambda screen: screen.document[1].startswith("z"), "both cursors type")
    time.sleep(NO_REQUEST_S)
    window.press("Escape")
    assert len(requests(window)) == before
    window.server.settings(
        window.server.ours | {"speclsp.completion.enabled": False, "speclsp.next_edit.enabled": False}
    )
    until(lambda: window.wire.told("speclsp/status")[-1]["next_edit"] is False, "the server has the setting")
    window.type("y")
    time.sleep(NO_REQUEST_S)
    assert len(requests(window)) == before
