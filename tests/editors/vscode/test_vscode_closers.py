"""Suggestions before closing brackets in a real VS Code: the brackets are drawn after the last suggested line."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator

import pytest
from support.editors import item_server
from support.editors.vscode_screen import Studio, Window, lines, same


@pytest.fixture(scope="module")
def window(studio: Studio) -> Iterator[Window]:
    """A window whose server has scripted suggestions."""
    items = studio.server.root / "items.json"
    items.write_text("{}")
    program = shlex.join([sys.executable, item_server.__file__, str(items)])
    with studio.window_with_program(f'exec {program} "$@"', "ready") as window:
        yield window


@pytest.mark.parametrize("name", ["block", "argument over all", "effect over"])  # Neovim draws all of them
def test_closers_are_drawn_after_the_suggestion_and_stay_after_accepting(window: Window, name: str) -> None:
    marked, text, over = item_server.CLOSERS[name]
    left, _, right = marked.partition(item_server.CURSOR)
    item_server.script(window.server.root / "items.json", {marked: {"text": text, "over": over}})
    window.show(f"{name.replace(' ', '-')}.js", left[:-1] + right)
    window.press("Home", *["ArrowRight"] * (len(left) - 1))
    window.page.keyboard.insert_text(left[-1])  # without a closing bracket of VS Code's own
    accepted = lines(left + text + right.removeprefix(over))
    window.sees(lambda screen: screen.ghost and same(screen.whole, accepted), "the suggestion")
    window.shot(f"closers-{name.replace(' ', '-')}")
    window.press("Tab")
    window.sees(lambda screen: not screen.ghost and same(screen.document, accepted), "the accepted text")
    window.put_away()


def test_a_line_with_less_indentation_is_shown_and_accepted(window: Window) -> None:
    typed, text = "        el", "    else:"
    item = {"text": text, "left": typed}
    item_server.script(window.server.root / "items.json", {typed + item_server.CURSOR: item})
    window.show("outdent.txt", typed[:-1])
    window.press("End")
    window.page.keyboard.insert_text(typed[-1])
    window.sees(lambda screen: bool(screen.ghost), "the suggestion")
    window.shot("outdent")
    window.press("Tab")
    window.sees(lambda screen: not screen.ghost and same(screen.document, lines(text)), "the accepted line")
    window.put_away()
