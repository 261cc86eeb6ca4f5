"""VS Code around the ghost text: status bar, menu, settings, first run, trust, two windows, the real model."""

from __future__ import annotations

import json
import os
import re
import shutil
import site
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from support.editors.code_server import until
from support.editors.vscode_screen import Studio, Window
from support.soak import in_soak

FUNCTION = "def area(width, height):\n    return width * height\n\n\n"
LEVEL = "speclsp.completion.eagerness"
BEGINNINGS = ("def total(items):\n", "result = ", "0\nfor item in items:\n", "print(", "\nreturn ")


@pytest.fixture
def no_engine(studio: Studio) -> None:
    """No engine of an earlier window runs."""
    studio.server.end_engine()


@pytest.fixture
def window(studio: Studio, request: pytest.FixtureRequest) -> Iterator[Window]:
    """A new window with a file; no error notification may appear in it."""
    try:
        with studio.window(studio.folder(a_py=FUNCTION), "a.py") as window:
            yield window
            finish(window, request)
    finally:
        studio.server.settings()


def finish(window: Window, request: pytest.FixtureRequest, name: str = "") -> None:
    window.shot((name or request.node.name.removeprefix("test_"))[:80])
    assert [text for severity, text in window.notifications() if severity == "error"] == []


def test_the_status_bar_shows_loading_then_ready_and_details_on_hover(no_engine: None, window: Window) -> None:
    window.says("speclsp: ready")
    labels = window.said()
    assert any("loading" in label for label in labels[: labels.index("speclsp: ready")]), labels
    window.focus()
    window.suggested(*BEGINNINGS)

    def hover_tells_all() -> bool:
        status = window.wire.told("speclsp/status")[-1]
        if status["last_latency_ms"] is None:
            return False
        latency = f"{int(status['last_latency_ms'] + 0.5)} ms"
        hover = window.hover()
        return all(word in hover for word in (status["model"], status["target"], status["device"], latency))

    until(hover_tells_all, "the hover has the model, the target, the device, the latency", else_=window.hover)


@pytest.mark.parametrize("scope", ["user", *in_soak("workspace")])
def test_two_clicks_from_the_status_bar_choose_a_level_that_the_server_uses_at_once(window: Window, scope: str) -> None:
    """The level is written where it is set already, else into the user's settings."""
    window.says("ready")
    before, file = "medium", window.server.user
    if scope == "workspace":
        before, file = "high", window.folder / ".vscode/settings.json"
        file.parent.mkdir()
        file.write_text(json.dumps({LEVEL: before}))
        level_becomes(window, before)
    window.menu()
    marked = window.page.locator(".quick-input-widget .monaco-list-row", has=window.page.locator(".codicon-check"))
    assert f"{before}, " in marked.first.get_attribute("aria-label")
    window.shot("levels")
    window.pick("Fewer: ")
    level_becomes(window, "low")
    assert json.loads(file.read_text())[LEVEL] == "low"
    assert scope == "user" or LEVEL not in json.loads(window.server.user.read_text())
    window.focus()
    window.type("name = (x) + y")
    window.press(*["ArrowLeft"] * len(") + y"))
    window.type("a")
    until(lambda: window.wire.told("speclsp/status")[-1]["last_reason"] == "mid_line", "the reason of this level")


def level_becomes(window: Window, level: str) -> None:
    until(lambda: window.wire.told("speclsp/status")[-1]["eagerness"] == level, f"the server's level is {level}")


def test_in_restricted_mode_workspace_settings_set_no_command_and_no_address(
    studio: Studio, request: pytest.FixtureRequest
) -> None:
    folder = studio.folder(a_py=FUNCTION)
    touched = folder / "touched"
    evil = folder / "evil"
    evil.write_text(f"#!/bin/sh\ntouch '{touched}'\n")
    evil.chmod(0o755)
    (folder / ".vscode").mkdir()
    theirs = {
        "speclsp.server.command": str(evil),
        "speclsp.remote.url": "http://127.0.0.1:9/v1",
        "speclsp.model": "echo",
        "speclsp.completion.multiline": "never",
    }
    (folder / ".vscode/settings.json").write_text(json.dumps(theirs))
    studio.server.settings(
        user={"security.workspace.trust.enabled": True, "security.workspace.trust.startupPrompt": "never"}
    )
    try:
        with studio.window(folder, "a.py") as window:
            window.page.wait_for_selector(".statusbar-item[aria-label*='Restricted Mode']")
            window.says("ready")
            until(lambda: "Restricted Mode" in window.hover(), "the hover says it", else_=window.hover)
            window.focus()
            window.suggested(*BEGINNINGS)
            assert not touched.exists()
            assert window.wire.told("speclsp/status")[-1]["model"] == "tiny"
            settings_sent = json.dumps(
                [
                    window.wire.told("initialize", to="server"),
                    window.wire.told("workspace/didChangeConfiguration", to="server"),
                ]
            )
            assert "127.0.0.1:9" not in settings_sent and "echo" not in settings_sent
            finish(window, request)
    finally:
        studio.server.settings()


RESOLVED = "echo 'Resolved 64 packages in 1.2s'; echo 'Downloading numpy (16.1MiB)'"
FULL = "echo 'cause: failed to write to file `a.so`: No space left on device (os error 28)'; exit 2"


@pytest.fixture
def without_speclsp(studio: Studio) -> Iterator[tuple[Window, Path]]:
    """A window without the program, and the place of a script that plays uv."""
    programs = studio.server.root / "home/.local/bin"
    programs.mkdir(parents=True)
    studio.server.settings({"speclsp.model": "tiny"})
    try:
        with studio.window(studio.folder(a_py=FUNCTION), "a.py") as window:
            window.says("not installed")
            yield window, programs / "uv"
    finally:
        studio.server.settings()
        shutil.rmtree(programs)


def click_install(window: Window, uv: Path, script: str) -> None:
    uv.write_text(f"#!/bin/sh\n{script}\n")
    uv.chmod(0o755)
    window.command("speclsp: Install or Update the Server")
    window.list_notifications()


def notified(window: Window, text: str) -> None:
    window.page.wait_for_selector(f".notification-list-item-message:has-text('{text}')")


def test_an_installation_shows_names_and_megabytes_and_then_the_server_starts(
    without_speclsp: tuple[Window, Path], request: pytest.FixtureRequest
) -> None:
    window, uv = without_speclsp
    go, words = window.folder / "go", window.folder / "words"
    install = f"cp '{window.server.tapped}' '{uv.with_name('speclsp')}'"
    script = f"printf '%s\\n' \"$@\" > '{words}'; {RESOLVED}; until [ -e '{go}' ]; do sleep 0.1; done; {install}"
    click_install(window, uv, script)
    notified(window, "Installing speclsp with uv: downloading numpy, 0 of")
    assert re.search(r"installing: downloading numpy, 0 of \d+ MB", window.status())
    window.shot("installing")
    *_, constraints, server = words.read_text().splitlines()
    assert constraints.endswith("/server/constraints.txt") and Path(constraints).is_file()
    assert re.fullmatch(r"speclsp(\[gpu\])? @ file:///.*/server/speclsp-.*-py3-none-\w+\.whl", server)
    go.touch()
    window.says("speclsp: ready")
    finish(window, request)


def test_a_cancelled_installation_is_no_error_and_a_failed_one_names_the_fix_and_the_log(
    without_speclsp: tuple[Window, Path],
) -> None:
    window, uv = without_speclsp
    click_install(window, uv, f"{RESOLVED}; sleep 600")
    notified(window, "downloading numpy")
    window.page.click(".notifications-center .monaco-button:has-text('Cancel')")
    window.says("not installed")
    assert [text for severity, text in window.notifications() if severity == "error"] == []
    click_install(window, uv, FULL)
    notified(window, "speclsp could not be installed: the disk is full, and speclsp needs")
    window.shot("installation_failed")
    window.page.click(".notifications-center .monaco-button:has-text('Open Log')")
    selected = "() => [...document.querySelectorAll('.panel select')].map((list) => list.selectedOptions[0]?.text)"
    until(lambda: "speclsp" in window.page.evaluate(selected), "the panel shows the extension's log", 30)


def dependencies(folder: Path) -> Path:
    """All packages installed here except speclsp: pip finds them and does not download them."""
    folder.mkdir()
    for package in Path(site.getsitepackages()[0]).iterdir():
        if "speclsp" not in package.name and not package.name.endswith(".pth"):
            (folder / package.name).symlink_to(package)
    return folder


@pytest.mark.soak
@pytest.mark.timeout(900)  # pip and a compiler
def test_the_first_run_without_speclsp_installs_it_and_ends_with_a_suggestion(
    fresh: Studio, request: pytest.FixtureRequest
) -> None:
    """A real installation, by pip into the extension's own environment, from the source in the extension.

    Only large packages such as torch are not downloaded again: pip finds them on PYTHONPATH.
    """
    fresh.server.settings({"speclsp.model": "tiny"})
    with fresh.window(fresh.folder(a_py=FUNCTION), "a.py") as window:
        assert "not installed" in window.says("not installed")
        toast = window.page.wait_for_selector(".notification-toast:has-text('speclsp needs its local server')")
        assert toast is not None
        window.shot("first_run_offer")
        assert [severity for severity, notice in window.notifications() if "needs its local server" in notice] == [
            "info"
        ]
        window.list_notifications()
        window.page.click(".notifications-center .monaco-button:has-text('Install')")
        window.says("speclsp: installing")
        until(
            lambda: "ready" in window.status() or "error" in window.status(),
            "installed, started, loaded",
            600,
            window.status,
        )
        window.says("speclsp: ready")
        window.focus()
        for text in BEGINNINGS:
            window.type(text)
            if window.comes(lambda screen: screen.ghost, 10):
                break
        assert window.screen().ghost
        finish(window, request)


@pytest.fixture
def fresh(studio_with: Callable[..., AbstractContextManager[Studio]], tmp_path: Path) -> Iterator[Studio]:
    """A separate code-server, on a machine with Python and without speclsp."""
    passed = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    cache = os.environ.get("PIP_CACHE_DIR") or str(Path.home() / ".cache/pip")
    with studio_with(PYTHONPATH=str(dependencies(tmp_path / "site")), **{**passed, "PIP_CACHE_DIR": cache}) as studio:
        yield studio
