"""Real VS Code for the tests: code-server with our extension, headless Chromium, and the screen's contents.

`Studio` is one code-server and a browser. `Window` is one browser window on one of its folders, which can wait until
the screen agrees with the wire (`Window.agreed`).
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, TimeoutError, sync_playwright

from support.editors.code_server import PATIENCE_S, ROOT, NotShown, Server, until
from support.editors.vscode_wire import Question, Wire, lines

SHOTS = ROOT / "build/screenshots/vscode"
CHROMIUM = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--font-render-hinting=none")
OURS = ".statusbar-item[id^='speclsp.speclsp']"
CENTER = ".notifications-center.visible"
ASKING = ".quick-input-widget:not([style*='display: none'])"

# The content of one editor: for each line from the top its text, its ghost text, and whether the line is real.
# A suggestion's further lines are drawn in a view zone. After them the rest of the cursor's line is drawn, and it is
# hidden in its line.
SCREEN = """() => {
  const shown = (element) => element.textContent.replace(/\\u00a0/g, " ").replace(/\\u200b/g, "");
  const editors = [...document.querySelectorAll(".monaco-editor")].filter((e) => e.querySelector(".view-lines"));
  const editor = editors.find((e) => e.classList.contains("focused")) ??
    editors.find((e) => e.closest(".editor-instance"));
  if (!editor) return null;
  const rows = [];
  for (const line of editor.querySelectorAll(".view-lines > .view-line")) {
    const parts = [...line.querySelectorAll("span > span")].filter((span) => !span.querySelector("span"));
    const hidden = parts.filter((span) => /ghost-text-hidden/.test(span.className));
    const ghost = parts.filter((span) => /ghost-text/.test(span.className) && !hidden.includes(span));
    rows.push({ top: line.getBoundingClientRect().top, real: true,
      whole: hidden.length ? parts.filter((span) => !hidden.includes(span)).map(shown).join("") : shown(line),
      typed: parts.filter((span) => !ghost.includes(span)).map(shown).join(""), ghost: ghost.map(shown).join("") });
  }
  for (const line of editor.querySelectorAll(".view-zones .suggest-preview-text .view-line"))
    rows.push({ top: line.getBoundingClientRect().top, real: false, typed: "",
      whole: shown(line), ghost: shown(line) });
  return rows.sort((a, b) => a.top - b.top);
}"""


# Text that the style sheets draw behind parts of lines, and text that is struck through: [line, text] from the top.
DECORATIONS = """() => {
  const plain = (text) => text.replace(/\\u00a0/g, " ");
  const added = [], removed = [];
  const lines = [...document.querySelectorAll(".editor-instance .view-lines > .view-line")]
    .map((line) => ({ line, top: line.getBoundingClientRect().top })).sort((a, b) => a.top - b.top);
  for (const { line } of lines) {
    const spans = [...line.querySelectorAll("span > span")];
    const drawn = spans.map((span) => getComputedStyle(span, "::after").content).filter((text) => text.startsWith('"'));
    const struck = spans.filter((span) => getComputedStyle(span).textDecorationLine === "line-through");
    added.push(...drawn.map((text) => [plain(line.textContent), plain(JSON.parse(text))]));
    if (struck.length) removed.push([plain(line.textContent), plain(struck.map((span) => span.textContent).join(""))]);
  }
  return { added, removed };
}"""


# Records every label of our status bar item, even a brief one.
HISTORY = """() => {
  window.said = [];
  const look = () => {
    const label = document.getElementById("speclsp.speclsp.speclsp.status")?.getAttribute("aria-label");
    if (label && label !== window.said.at(-1)) window.said.push(label);
  };
  new MutationObserver(look).observe(document, { subtree: true, childList: true, attributeFilter: ["aria-label"] });
}"""

# Records every key that the page receives and every state of the editor, with the page's clock.
OBSERVE = """() => {
  const look = (SCREEN);
  const keys = [], states = [];
  const key = (event) => keys.push({ ms: performance.now(), key: event.key });
  const state = () => {
    const rows = look() ?? [];
    const typed = rows.filter((row) => row.real).map((row) => row.typed).join("\\n");
    const ghost = rows.map((row) => row.ghost).filter(Boolean).join("\\n");
    states.push({ ms: performance.now(), typed, ghost });
  };
  const observer = new MutationObserver(state);
  observer.observe(document.querySelector(".monaco-editor.focused"),
    { subtree: true, childList: true, characterData: true });
  document.addEventListener("keydown", key, true);
  window.observed = () => {
    observer.disconnect();
    document.removeEventListener("keydown", key, true);
    return { keys, states };
  };
}""".replace("SCREEN", SCREEN)


def same(shown: list[str], wanted: list[str]) -> bool:
    """True if the screen shows these lines, except for blanks at their ends, which are invisible."""
    return [line.rstrip() for line in shown] == [line.rstrip() for line in wanted]


@dataclass
class Screen:
    """One snapshot of the editor with the focus."""

    rows: list[dict[str, Any]]

    @property
    def document(self) -> list[str]:
        """The lines of the document, without ghost text."""
        return [row["typed"] for row in self.rows if row["real"]]

    @property
    def whole(self) -> list[str]:
        """The lines as a user reads them, ghost text included."""
        return [row["whole"] for row in self.rows]

    @property
    def ghost(self) -> str:
        return "\n".join(row["ghost"] for row in self.rows if row["ghost"] or not row["real"])


@dataclass
class Stroke:
    """One key, the time when the page received it, and when its line's ghost text first appeared in the DOM."""

    key: str
    ms: float
    ghost_ms: float | None
    ghost: str


@contextmanager
def browsing(chromium: Path) -> Iterator[Browser]:
    """A headless Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium.resolve(), args=[*CHROMIUM])
        yield browser
        browser.close()


@contextmanager
def running(programs: dict[str, Path], vsix: Path, browser: Browser, **environment: str) -> Iterator[Studio]:
    """A code-server with the extension; it and all its processes end with the block."""
    root = Path(tempfile.mkdtemp(prefix="vs-"))  # a short name: a Unix socket's path has 103 bytes
    server = Server(root, programs, vsix, environment)
    try:
        yield Studio(server, browser)
    finally:
        server.close()
        shutil.rmtree(root, ignore_errors=True)


@dataclass
class Studio:
    """One code-server and one browser, to open windows with."""

    server: Server
    browser: Browser
    folders: int = 0
    context: BrowserContext | None = None  # shared by the windows: the workbench's 20 MB of scripts are compiled once

    def folder(self, **files: str) -> Path:
        """Creates a folder with these files: `a_py` is a.py."""
        self.folders += 1
        folder = self.server.root / f"work-{self.folders}"
        folder.mkdir()
        for name, text in files.items():
            (folder / name.replace("_", ".")).write_bytes(text.encode())
        return folder

    def window(self, folder: Path, file: str = "", scale: float = 1, size: tuple[int, int] = (1200, 800)) -> Window:
        if scale == 1:
            self.context = self.context or self.browser.new_context()
        context = self.context if scale == 1 and self.context else self.browser.new_context(device_scale_factor=scale)
        return Window(self.server, context, folder, file, size)

    @contextmanager
    def window_with_program(self, script: str, status: str = "asleep") -> Iterator[Window]:
        """A window whose extension runs this shell script as speclsp, without a file, once it shows `status`.

        speclsp starts its engine with the first file; a scripted server may be ready at once.
        """
        program = self.server.root / "scripted"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        self.server.settings({"speclsp.server.command": str(program)})
        try:
            with self.window(self.folder()) as window:
                window.says(status)
                yield window
        finally:
            self.server.settings()


class Window:
    """One browser window with an open folder, and a file of it where one is named."""

    def __init__(self, server: Server, context: BrowserContext, folder: Path, file: str, size: tuple[int, int]) -> None:
        self.server, self.folder = server, folder
        self.wire = Wire(server.logs, folder)
        self.page: Page = context.new_page()
        self.page.set_viewport_size({"width": size[0], "height": size[1]})
        self.page.set_default_timeout(PATIENCE_S * 1000)
        self.page.add_init_script(f"({HISTORY})()")
        self.open(file)

    def open(self, file: str = "") -> None:
        """Loads the window again, with `file`."""
        address = f"http://127.0.0.1:{self.server.port}/?folder={urllib.parse.quote(str(self.folder))}"
        if file:
            authority = f"vscode-remote://127.0.0.1:{self.server.port}{urllib.parse.quote(str(self.folder / file))}"
            address += "&payload=" + urllib.parse.quote(json.dumps([["openFile", authority]]))
        self.page.goto(address)
        self.page.wait_for_selector(".statusbar-item")
        if file:
            self.page.wait_for_selector(f".tab.active[data-resource-name='{Path(file).name}']")

    def show(self, name: str, text: str, inside: str = ".editor-instance .monaco-editor .view-lines") -> None:
        """Creates a file in the folder, opens it from the explorer, and puts the cursor at its end."""
        (self.folder / name).write_bytes(text.encode())
        row = self.page.locator(f".explorer-folders-view .monaco-list-row[aria-label^='{name}']")
        until(lambda: row.count() or self.press("Control+Alt+r"), f"the explorer lists {name}")
        row.first.dblclick()
        self.page.wait_for_selector(f".tab.active[data-resource-name='{name}']")
        self.focus(inside)

    def put_away(self) -> None:
        """Closes the active file without saving."""
        self.press("Escape", "Control+Alt+w")

    def close(self) -> None:
        self.page.close()

    def __enter__(self) -> Window:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # The editor

    def focus(self, inside: str = ".editor-instance .monaco-editor .view-lines") -> None:
        """Puts the cursor into the editor, at the end of its text."""
        self.page.click(inside, position={"x": 300, "y": 5})
        self.page.wait_for_selector(".monaco-editor.focused")
        self.press("Control+End")

    def type(self, text: str, pace_ms: float = 30) -> None:
        self.page.keyboard.type(text, delay=pace_ms)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    @contextmanager
    def extensions_paused(self) -> Iterator[None]:
        """Keys pressed in this block reach the editor at once, and the extensions after it."""
        hosts = self.server.extension_hosts()
        for host in hosts:
            host.suspend()
        try:
            yield
        finally:
            for host in hosts:
                host.resume()

    def screen(self) -> Screen:
        return Screen(self.page.evaluate(SCREEN) or [])

    def sees(self, wanted: Callable[[Screen], object], what: str) -> Screen:
        """Waits for the first snapshot of the screen for which `wanted` holds."""
        screens: list[Screen] = []

        def looked() -> bool:
            screens[:] = [self.screen()]
            return bool(wanted(screens[0]))

        until(looked, what, else_=lambda: self.explained(screens[0]))
        return screens[0]

    def comes(self, wanted: Callable[[Screen], object], within_s: float) -> bool:
        """True if the screen reaches that state in time."""
        try:
            return bool(until(lambda: wanted(self.screen()), "", within_s))
        except NotShown:
            return False

    def draws(self, added: list[tuple[str, str]], removed: list[tuple[str, str]]) -> None:
        """Waits until the editors show exactly these labels and this struck-through text, each with its line."""
        wanted = {"added": [list(label) for label in added], "removed": [list(piece) for piece in removed]}
        drawn: list[Any] = []

        def matches() -> bool:
            drawn[:] = [self.page.evaluate(DECORATIONS)]
            return bool(drawn[0] == wanted)

        until(matches, f"decorations {wanted}", else_=lambda: (drawn, self.wire.messages()[-12:]))

    def sent(self, method: str) -> list[dict[str, Any]]:
        """The parameters of all messages of one kind to the server."""
        return self.wire.told(method, to="server")

    def agreed(self, what: str = "the screen shows the answer on the wire") -> Question:
        """Waits until the newest answer fits the present document and the screen shows exactly that; returns it."""
        agreed: list[Question] = []

        def looked() -> bool:
            newest = self.wire.newest()
            if newest is None:
                return False
            screen = self.screen()
            wanted = newest.accepted() if newest.items else newest.text
            agreed[:] = [newest]
            return same(screen.whole, lines(wanted)) and bool(screen.ghost) == bool(newest.items)

        until(looked, what, else_=lambda: self.explained(self.screen()))
        return agreed[0]

    def suggested(self, *beginnings: str) -> Question:
        """Types beginnings until the model suggests something, and waits until the screen shows it."""
        for beginning in beginnings:
            self.type(beginning)
            question = self.agreed()
            if question.items:
                return question
        raise NotShown(f"nothing was suggested after any of {beginnings}; {self.explained(self.screen())}")

    def explained(self, screen: Screen) -> str:
        questions = self.wire.replay()[1]
        last = questions[-1] if questions else None
        return f"screen {screen.whole}, ghost {screen.ghost!r}, status {self.status()!r}, last question {last}"

    def type_timed(self, text: str, pace_ms: float) -> list[Stroke]:
        """Types a text, one key every `pace_ms`, and returns when each key and its ghost text came.

        The wire's requests have the same clock, so the time from a key to its ghost text has three parts: the editor up
        to the request, the server with its engine up to the answer, the editor up to the ghost text. A key typed
        through a suggestion has its ghost text at once. A key whose answer came after the next key, or never, has none.
        """
        apart_ms = self._clock_ms()
        self.page.evaluate(OBSERVE)
        start = time.monotonic()
        for number, key in enumerate(text):
            time.sleep(max(0.0, start + number * pace_ms / 1000 - time.monotonic()))
            self.page.keyboard.type(key)
        self.agreed()
        observed = self.page.evaluate("() => window.observed()")
        keys = [key["ms"] for key in observed["keys"]]
        assert len(keys) == len(text), (text, observed["keys"])
        strokes = []
        for key, since, till in zip(text, keys, [*keys[1:], float("inf")], strict=True):
            states = [state for state in observed["states"] if since <= state["ms"] < till]
            shown = [state for state in states if state["ghost"] and state["typed"] == states[-1]["typed"]]
            first = shown[0]["ms"] + apart_ms if shown else None
            strokes.append(Stroke(key, since + apart_ms, first, shown[0]["ghost"] if shown else ""))
        return strokes

    def _clock_ms(self) -> float:
        """The offset from the page's clock to CLOCK_MONOTONIC, by the quickest of many readings of both."""
        looks = []
        for _ in range(30):
            before = time.monotonic_ns() / 1e6
            page = self.page.evaluate("() => performance.now()")
            after = time.monotonic_ns() / 1e6
            looks.append((after - before, (before + after) / 2 - page))
        return float(min(looks)[1])

    # The workbench

    def status(self) -> str:
        """Our status bar item, as a screen reader reads it: text and hover."""
        items = self.page.query_selector_all(OURS)
        return "; ".join(item.get_attribute("aria-label") or "" for item in items)

    def bar(self) -> str:
        """Our status bar item, as it is drawn, without its icon."""
        return self.page.inner_text(OURS).strip()

    def said(self) -> list[str]:
        """All labels of our item since the window opened, in order."""
        return list(self.page.evaluate("() => window.said"))

    def says(self, pattern: str, patience_s: float = PATIENCE_S) -> str:
        """Waits until the label of our status bar item matches."""

        def matching_status() -> str:
            status = self.status()
            return status if re.search(pattern, status) else ""

        return until(matching_status, f"the status bar says {pattern!r}", patience_s, self.status)

    def hover(self) -> str:
        """The text of our item's hover; "" until it shows."""
        self.page.mouse.move(300, 300)
        self.page.hover(OURS)
        try:
            self.page.wait_for_selector(".monaco-hover:has-text('speclsp')", timeout=5000)
        except TimeoutError:
            return ""
        return self.page.inner_text(".monaco-hover:has-text('speclsp')")

    def menu(self) -> None:
        """Opens the menu of our item."""
        self.page.click(OURS)
        until(self.picks, "the menu opens")

    def command(self, title: str) -> None:
        """Runs a command of the palette by its title."""
        self.press("F1")
        self.page.wait_for_selector(ASKING)
        self.narrow(f">{title}")
        self.pick(title)

    def narrow(self, text: str) -> None:
        """Types into the box above the open list."""
        self.page.fill(f"{ASKING} input.input", text)

    def picks(self) -> list[str]:
        """The rows of the open list."""
        rows = self.page.query_selector_all(f"{ASKING} .monaco-list-row")
        return [row.get_attribute("aria-label") or "" for row in rows]

    def pick(self, part: str) -> None:
        """Selects the row whose label has `part`."""
        row = self.page.locator(".quick-input-widget .monaco-list-row", has_text=part).first
        row.wait_for()
        row.click()

    def list_notifications(self) -> None:
        """Opens the list of notifications.

        The key is repeated, as the window may not have read its keybindings yet, and as an open list closes by itself
        when its last notification ends.
        """
        opened = self.page.locator(CENTER)
        until(lambda: opened.is_visible() or self.press("Control+Alt+n"), "the list of notifications opens")

    def notifications(self) -> list[tuple[str, str]]:
        """(severity, text) of every notification that is not closed, including those no longer on the screen."""
        self.list_notifications()
        rows = self.page.eval_on_selector_all(
            f"{CENTER} .notification-list-item",
            """(items) => items.map((item) => [
              [...item.querySelector(".notification-list-item-icon").classList].find((name) =>
                /codicon-(error|warning|info)/.test(name))?.replace("codicon-", "") ?? "",
              item.querySelector(".notification-list-item-message").textContent])""",
        )
        self.press("Control+Alt+h")
        self.page.wait_for_selector(CENTER, state="hidden")
        return [(severity, text) for severity, text in rows]

    def shot(self, name: str) -> Path:
        """Saves a picture of the window for the reader of the tests' report."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        path = SHOTS / f"{name}.png"
        self.page.screenshot(path=path)
        return path
