"""Takes the pictures in editors/vscode/images: real VS Code, the real 0.5B model, its real suggestions.

    python tests/support/editors/screenshots.py [NAME...]    of suggestion, partial, status, first-run; all of them

Needs what install.py installs, the VSIX (`make vsix`) and the model (`speclsp models pull`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from support.editors import install, vscode_screen
from support.editors.code_server import ROOT, until
from support.editors.vscode_screen import Studio, Window

IMAGES = ROOT / "editors/vscode/images"
PAIR = "qwen2.5-coder-0.5b-instruct"
CALM = {  # hides everything on the picture that is not ours
    "workbench.colorTheme": "Default Dark Modern",
    "workbench.activityBar.location": "hidden",
    "workbench.layoutControl.enabled": False,
    "window.commandCenter": False,
    "breadcrumbs.enabled": False,
    "editor.fontSize": 15,
    "editor.scrollbar.vertical": "hidden",
    "editor.overviewRulerBorder": False,
    "editor.hideCursorInOverviewRuler": True,
    "editor.inlineSuggest.showToolbar": "never",
    "editor.stickyScroll.enabled": False,
}
INVENTORY = '''"""What is on the shelves of a small shop."""

from dataclasses import dataclass


@dataclass
class Item:
    name: str
    price_cents: int
    count: int


def total_value(items: list[Item]) -> int:
    """The value of everything in stock, in cents."""
    return sum(item.price_cents * item.count for item in items)


'''


def suggestion(window: Window) -> None:
    """A body of several lines."""
    window.type("def restock(items: list[Item], name: str, more: int) -> None:\n")
    assert "\n" in window.agreed().rest()


def partial(window: Window) -> None:
    """Some words of a line accepted, the rest still a suggestion."""
    window.type("def in_stock(items: list[Item]) -> list[Item]:\nreturn ")
    assert window.agreed().items
    for _ in range(4):
        before = window.screen().document
        window.press("Control+ArrowRight")
        window.sees(lambda screen, old=before: screen.document != old and screen.ghost, "a word is accepted")


def status(window: Window) -> None:
    """The hover, after some suggestions."""
    window.type("def names(items: list[Item]) -> list[str]:\nreturn ")
    assert window.agreed().items
    until(lambda: "after" in window.hover(), "the hover knows the last latency")


def first_run(window: Window) -> None:
    window.page.wait_for_selector(".notification-toast:has-text('speclsp was not found')")


TAKEN: dict[str, Callable[[Window], None]] = {
    "suggestion": suggestion,
    "partial": partial,
    "status": status,
    "first-run": first_run,
}


def take(studio: Studio, name: str) -> Path:
    settings = {"speclsp.model": PAIR, "speclsp.models_dir": str(install.editors_dir().parent / "models")}
    studio.server.settings({} if name == "first-run" else studio.server.ours | settings, CALM)
    with studio.window(studio.folder(inventory_py=INVENTORY), "inventory.py", scale=2, size=(880, 560)) as window:
        window.says("not installed" if name == "first-run" else "speclsp: ready", 300)
        window.focus()
        window.press("Control+b")  # closes the side bar
        TAKEN[name](window)
        path = IMAGES / f"{name}.png"
        window.page.screenshot(path=path)
        return path


def main(*names: str) -> None:
    programs = {name: install.place(name) for name in ("node", "code-server", "chromium")}
    with (
        vscode_screen.browsing(programs["chromium"]) as browser,
        vscode_screen.running(programs, ROOT / "build/speclsp.vsix", browser) as studio,
    ):
        for name in names or TAKEN:
            path = take(studio, name)
            print(f"{path} {path.stat().st_size // 1024} kB")


if __name__ == "__main__":
    main(*sys.argv[1:])
