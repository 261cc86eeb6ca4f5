"""Tab between ghost text and a next edit in a real VS Code. A scripted server has ghost text at every place."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from support.editors import item_server
from support.editors.vscode_screen import Studio, Window

GHOST = " + GHOST"
RENAME = {"old": "width", "new": "breadth", "kind": "rename"}
AREA = ["def area(width, height):", "    check(width)", "    log(height)", "    return width", ""]
RENAMED = [line.replace("width", "breadth") for line in AREA]


@pytest.fixture(scope="module")
def window(studio: Studio) -> Iterator[Window]:
    """A window whose server has scripted ghost text and next edits."""
    items = studio.server.root / "items.json"
    items.write_text("{}")
    program = shlex.join([sys.executable, item_server.__file__, str(items)])
    with studio.window_with_program(f'exec {program} "$@"', "ready") as window:
        yield window


def script(window: Window, **edit: Any) -> None:
    items = {item_server.ANY: {"text": GHOST}} | ({item_server.NEXT_EDIT: edit} if edit else {})
    item_server.script(window.server.root / "items.json", items)


def labels(window: Window) -> int:
    """The number of labels that next edits draw."""
    return int(
        window.page.evaluate("""() => [...document.querySelectorAll(".editor-instance .view-line span > span")]
          .filter((span) => getComputedStyle(span, "::after").content.includes("breadth")).length""")
    )


def questions(window: Window) -> int:
    """The number of requests for ghost text."""
    log = window.server.root / "items.log"
    return log.read_text(encoding="utf-8").split("\n").count("textDocument/inlineCompletion")


def test_tab_walks_through_a_rename_although_there_is_ghost_text_at_every_place(window: Window) -> None:
    script(window, **RENAME)
    window.show("area.py", "\n".join(AREA))
    window.press("Control+Home", *["ArrowRight"] * len("def area("), "Control+Shift+ArrowRight")
    window.type("breadth", 10)
    window.sees(lambda screen: labels(window) and not screen.ghost, "the edit is shown, and no ghost text")
    asked = questions(window)
    assert asked > 0, "the keys have requested ghost text"
    window.press("Tab")
    window.sees(lambda screen: screen.document[1] == RENAMED[1], "Tab makes the first edit")
    window.sees(lambda screen: labels(window) and not screen.ghost, "the next edit is shown, and no ghost text")
    assert questions(window) == asked, "no ghost text is requested within the walk"
    script(window, **RENAME, delay_s="1")
    window.press("Tab")
    window.sees(lambda screen: screen.document == RENAMED, "Tab makes the last edit")
    window.press("Tab", "Tab")
    window.page.wait_for_timeout(2500)
    assert not window.screen().ghost, "ghost text waits for the next key"
    assert window.screen().document == RENAMED, "a Tab too many is swallowed while the next edit is computed"
    window.press("Tab")
    window.sees(lambda screen: screen.document[3].rstrip() != screen.document[3], "a later Tab indents")
    window.type("x")
    window.sees(lambda screen: GHOST in screen.ghost, "the next key has ghost text again")
    window.put_away()


def test_ghost_text_on_the_screen_goes_before_another_edit_and_a_request_by_hand_before_all(window: Window) -> None:
    script(window, **RENAME | {"kind": "edit"})
    window.show("first.py", "\n".join(AREA))
    window.press("Control+End", "ArrowUp", "ArrowUp", "End")
    window.type("#", 10)
    window.sees(lambda screen: GHOST in screen.ghost, "ghost text")
    window.page.wait_for_timeout(1000)
    assert labels(window) == 0 and GHOST in window.screen().ghost
    window.press("Tab")
    window.sees(lambda screen: screen.document[2].endswith("#" + GHOST), "Tab accepts the ghost text")
    window.sees(lambda screen: GHOST in screen.ghost, "the next one, which Escape then hides")
    window.press("Escape")
    window.sees(lambda screen: not screen.ghost, "no ghost text")
    window.press("ArrowUp")
    window.sees(lambda screen: labels(window) and not screen.ghost, "the edit is shown when the line is finished")
    window.press("End", "Alt+\\")
    window.sees(lambda screen: GHOST in screen.ghost and not labels(window), "the ghost text that the user wants")
    window.press("Tab")
    window.sees(lambda screen: screen.document[1] == AREA[1] + GHOST, "Tab accepts it")
    window.put_away()


@pytest.mark.parametrize(("key", "argument"), [("Tab", "depth"), ("2", "2")])
def test_a_placeholder_is_selected_so_that_tab_keeps_it_and_typing_replaces_it(window, key, argument) -> None:
    place = {name: {"line": 2, "character": character} for name, character in (("start", 16), ("end", 21))}
    script(window, old="log(height)", new="log(height, depth)", kind="rename", placeholder=place)
    window.show(f"{argument}.py", "\n".join(AREA))
    window.type("#", 10)
    window.draws([("    log(height)", ", depth")], [])
    window.press("Control+Home", "ArrowDown", "Tab")
    window.sees(lambda screen: screen.document[2] == "    log(height, depth)", "the edit is made")
    script(window, **RENAME)
    window.press(key)
    window.sees(lambda screen: labels(window), "the next edit is shown")
    assert window.screen().document[2] == f"    log(height, {argument})"
    window.put_away()
