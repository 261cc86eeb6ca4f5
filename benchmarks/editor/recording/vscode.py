"""Pictures of real VS Code in a browser, without the parts of the window that only the browser build has.

Chromium's screencast delivers each changed frame with its time, so the recording takes no pictures of its own.
"""

from __future__ import annotations

import base64
import io
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from support.editors import install, vscode_screen
from support.editors.code_server import until
from support.editors.vscode_screen import Studio, Window

from benchmarks.editor.recording.frames import Frame, sampled, write_gif, write_still
from benchmarks.editor.recording.story import (
    DEMO,
    FILE,
    INVENTORY,
    METHODS,
    PAIR,
    SIGNATURE,
    WARM_UP,
    play,
    typed,
    wait_until_quiet,
)
from benchmarks.results_file import CHECKOUT

DARK, LIGHT = "Default Dark Modern", "Default Light Modern"
GIF_SIZE, STILL_SIZE = (760, 620), (760, 640)  # a suggestion of six lines fits below the text
CALM = {  # hides the parts of the window that do not belong to the subject
    "workbench.activityBar.location": "hidden",
    "workbench.layoutControl.enabled": False,
    "workbench.editor.editorActionsLocation": "hidden",
    "window.commandCenter": False,
    "window.menuBarVisibility": "hidden",
    "breadcrumbs.enabled": False,
    "editor.fontFamily": "DejaVu Sans Mono",
    "editor.fontSize": 14,
    "editor.scrollbar.vertical": "hidden",
    "editor.scrollbar.horizontal": "hidden",
    "editor.overviewRulerBorder": False,
    "editor.hideCursorInOverviewRuler": True,
    "editor.inlineSuggest.showToolbar": "never",
    "editor.stickyScroll.enabled": False,
    "editor.bracketPairColorization.enabled": False,
    "editor.matchBrackets": "never",
    "editor.guides.indentation": False,
    "editor.occurrencesHighlight": "off",
    "editor.selectionHighlight": False,
    "editor.lightbulb.enabled": "off",
}
CLUTTER = """
.statusbar-item[id*="keyboardLayout"], .statusbar-item[aria-label^="Layout"], .statusbar-item[id*="orwardedPorts"],
.statusbar-item[aria-label*="orts"], .statusbar-item[id="status.host"], .statusbar-item[id="status.problems"],
.statusbar-item[id="status.notifications"], .statusbar-item[id="status.editor.eol"],
.statusbar-item[id="status.editor.encoding"], .statusbar-item[id="status.editor.indentation"]
{ display: none !important; }
"""


class Fingers:
    """A person at VS Code. `sleep` lets the browser's events in."""

    def __init__(self, window: Window) -> None:
        self.window = window

    def type(self, character: str) -> None:
        self.window.page.keyboard.press("Enter") if character == "\n" else self.window.type(character, 0)

    def press(self, key: str) -> None:
        self.window.press(*["Shift+Tab"] * 3 if key == "Outdent" else [key])

    def suggested(self) -> bool:
        return bool(self.window.screen().ghost)

    def sleep(self, seconds: float) -> None:
        self.window.page.wait_for_timeout(seconds * 1000)


class Screencast:
    """Chromium's screencast of one window: its changed frames with their times."""

    def __init__(self, window: Window) -> None:
        self.raw: list[tuple[float, str]] = []  # (ms since the epoch, PNG in base64)
        self.protocol = window.page.context.new_cdp_session(window.page)
        self.protocol.on("Page.screencastFrame", self._receive)
        self.protocol.send("Page.startScreencast", {"format": "png", "everyNthFrame": 1})

    def _receive(self, event: dict[str, Any]) -> None:
        self.raw.append((event["metadata"]["timestamp"] * 1000, event["data"]))
        self.protocol.send("Page.screencastFrameAck", {"sessionId": event["sessionId"]})

    def frames(self) -> list[Frame]:
        """Stop, and decode the frames."""
        self.protocol.send("Page.stopScreencast")
        pictures = ((ms, Image.open(io.BytesIO(base64.b64decode(data)))) for ms, data in self.raw)
        return [Frame(ms, picture.convert("RGB")) for ms, picture in pictures]


@contextmanager
def studio() -> Iterator[Studio]:
    """A code-server with the extension of build/speclsp.vsix, and a browser."""
    programs = {name: install.install(name) for name in ("node", "code-server", "chromium")}
    vsix = CHECKOUT / "build/speclsp.vsix"
    with (
        vscode_screen.browsing(programs["chromium"]) as browser,
        vscode_screen.running(programs, vsix, browser) as opened_studio,
    ):
        yield opened_studio


@contextmanager
def opened(
    place: Studio, theme: str, size: tuple[int, int], scale: float, first_run: bool = False, real_time: bool = False
) -> Iterator[Window]:
    """A window with the sample file; without `first_run` the model is loaded and warm. `real_time`: for the story."""
    machine = dict(place.server.ours)
    if real_time:
        del machine["speclsp.completion.timeout_ms"]  # a still picture waits for the whole text
    machine |= {"speclsp.model": PAIR, "speclsp.models_dir": str(install.editors_dir().parent / "models")}
    place.server.settings({} if first_run else machine, CALM | {"workbench.colorTheme": theme})
    folder = place.folder(inventory_py=METHODS if real_time else INVENTORY)
    with place.window(folder, FILE, scale=scale, size=size) as window:
        window.page.add_style_tag(content=CLUTTER)
        window.says("not installed" if first_run else "speclsp: ready", 300)
        window.focus()
        window.press("Control+b")  # closes the side bar
        if real_time:
            play(Fingers(window), WARM_UP)
            until(window.wire.newest, "the first request is answered")
            window.press("Escape", *["Backspace"] * len(WARM_UP[0].text))
            window.page.wait_for_timeout(1000)
            window.press("Escape")
        yield window


def record(place: Studio, path: Path) -> None:
    """Record the story."""
    with opened(place, DARK, GIF_SIZE, scale=1, real_time=True) as window:
        fingers = Fingers(window)
        wait_until_quiet(fingers)
        screencast = Screencast(window)
        fingers.sleep(0.5)
        start_ms = time.time() * 1000
        play(fingers, DEMO)
        end_ms = time.time() * 1000
        timed = sampled(screencast.frames(), start_ms, end_ms)
    write_gif(path, timed)


def suggestion(window: Window) -> None:
    """A body of several lines."""
    play(Fingers(window), typed(SIGNATURE))


def partial(window: Window) -> None:
    """Some words of a line accepted, the rest still a suggestion."""
    play(Fingers(window), typed("def in_stock(items: list[Item]) -> list[Item]:\nreturn "))
    for _ in range(4):
        before = window.screen().document
        window.press("Control+ArrowRight")
        window.sees(lambda screen, old=before: screen.document != old and screen.ghost, "a word is accepted")


def status(window: Window) -> None:
    """The hover of the status bar item, after a suggestion."""
    play(Fingers(window), typed("def names(items: list[Item]) -> list[str]:\nreturn "))
    until(lambda: " ms" in window.hover(), "the hover has the last latency")


def first_run(window: Window) -> None:
    """The offer to install the server."""
    window.page.wait_for_selector(".notification-toast:has-text('needs its local server')")


STILLS: dict[str, tuple[Callable[[Window], None], str]] = {
    "suggestion": (suggestion, DARK),
    "suggestion-light": (suggestion, LIGHT),
    "partial": (partial, DARK),
    "status": (status, DARK),
    "first-run": (first_run, DARK),
}


def still(place: Studio, path: Path, name: str) -> None:
    """One picture, at twice the size."""
    scene, theme = STILLS[name]
    with opened(place, theme, STILL_SIZE, scale=2, first_run=name == "first-run") as window:
        scene(window)
        window.page.wait_for_timeout(500)
        write_still(path, Image.open(io.BytesIO(window.page.screenshot())))
