"""One code-server with our extension: real VS Code with its own HOME, settings and processes.

The language server runs behind lsp_tap.py, so that a test can compare the screen with the messages.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
SPECLSP = Path(sys.executable).with_name("speclsp")
PATIENCE_S = 240.0  # limit of any wait, on a busy machine
NO_GALLERY = json.dumps({"serviceUrl": "", "itemUrl": "", "resourceUrlTemplate": ""})  # disables the gallery
FLAGS = ("--auth=none", "--disable-telemetry", "--disable-update-check", "--disable-getting-started-override")
QUIET = {
    "chat.disableAIFeatures": True,
    "workbench.startupEditor": "none",
    "workbench.tips.enabled": False,
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "security.workspace.trust.enabled": False,
    "editor.quickSuggestions": {"other": "off", "comments": "off", "strings": "off"},
    "editor.suggestOnTriggerCharacters": False,
    "editor.cursorBlinking": "solid",
    "editor.minimap.enabled": False,
    "diffEditor.useInlineViewWhenSpaceIsLimited": False,
    "extensions.ignoreRecommendations": True,
    "git.enabled": False,
}
KEYS = {  # VS Code's own commands without a default key
    "editor.action.inlineSuggest.acceptNextLine": "ctrl+alt+l",
    "notifications.showList": "ctrl+alt+n",
    "notifications.hideList": "ctrl+alt+h",
    "editor.action.insertCursorBelow": "ctrl+alt+b",
    "workbench.action.revertAndCloseActiveEditor": "ctrl+alt+w",
    "workbench.files.action.refreshFilesExplorer": "ctrl+alt+r",
    "workbench.files.action.compareWithSaved": "ctrl+alt+d",
}
T = TypeVar("T")


class NotShown(AssertionError):
    """A state that never appeared; the message describes the screen instead."""


def until(wanted: Callable[[], T], what: str, patience_s: float = PATIENCE_S, else_: Callable[[], object] = str) -> T:
    """Waits for the first true value of `wanted()`."""
    end = time.monotonic() + patience_s
    while True:
        value = wanted()
        if value:
            return value
        if time.monotonic() > end:
            raise NotShown(f"{what}: not within {patience_s:g} s; {else_()}")
        time.sleep(0.1)


class Server:
    """One code-server: its own HOME, settings and extensions, all under `root`."""

    def __init__(self, root: Path, programs: dict[str, Path], vsix: Path, environment: dict[str, str]) -> None:
        self.root = root
        self.logs = root / "wire"
        self.user = root / "data/User/settings.json"
        self.machine = root / "data/Machine/settings.json"
        for folder in (self.logs, self.user.parent, self.machine.parent, root / "home", root / "extensions"):
            folder.mkdir(parents=True)
        (root / "run").mkdir(mode=0o700)
        self.tapped = root / "speclsp"  # the program in `speclsp.server.command`: the real one behind the tap
        tap = shlex.join([sys.executable, str(HERE / "lsp_tap.py")])
        self.tapped.write_text(f'#!/bin/sh\nexec {tap} "{self.logs}/$$.jsonl" "{SPECLSP}" "$@"\n')
        self.tapped.chmod(0o755)
        self.ours = {"speclsp.server.command": str(self.tapped), "speclsp.model": "tiny"}
        self.ours |= {
            "speclsp.engine.shutdown_delay_seconds": 60
        }  # the next window uses the same engine; `close` ends it
        self.ours |= {"speclsp.completion.timeout_ms": 60_000}  # the text must not depend on the machine's speed
        bound = [{"key": key, "command": command} for command, key in KEYS.items()]
        (self.user.parent / "keybindings.json").write_text(json.dumps(bound))
        self.settings()
        self._program = [str(programs["node"] / "node"), str(programs["code-server"])]
        self._program += ["--config", str(root / "config.yaml"), "--user-data-dir", str(root / "data")]
        self._program += ["--extensions-dir", str(root / "extensions")]
        self._environment = {
            "PATH": path_without_speclsp(),
            "LANG": "C.UTF-8",
            "HOME": str(root / "home"),
            "XDG_RUNTIME_DIR": str(root / "run"),
            "EXTENSIONS_GALLERY": NO_GALLERY,
            **environment,
        }
        self._run("--install-extension", str(vsix))
        self._process, self.port = self._start()

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(
            [*self._program, *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _start(self) -> tuple[subprocess.Popen[bytes], int]:
        log = self.root / "code-server.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                # The extension host and the language server of a closed window end soon, not after 3 h.
                [*self._program, *FLAGS, "--bind-addr=127.0.0.1:0", "--reconnection-grace-time=1"],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        address = until(
            lambda: re.search(r"listening on http://127\.0\.0\.1:(\d+)", log.read_text()),
            "code-server listens",
            else_=log.read_text,
        )
        return process, int(address[1])

    def settings(self, machine: dict[str, Any] | None = None, user: dict[str, Any] | None = None) -> None:
        """Replaces the settings: the machine's, which may name commands and models, and the user's.

        Without `machine` the server is speclsp behind the tap, with the model `tiny`.
        """
        replace(self.machine, json.dumps(self.ours if machine is None else machine))
        replace(self.user, json.dumps(QUIET | (user or {})))

    def extension_hosts(self) -> list[psutil.Process]:
        """The processes that run the extensions of its windows."""
        family = psutil.Process(self._process.pid).children(recursive=True)
        return [process for process in family if "--type=extensionHost" in process.cmdline()]

    def close(self) -> None:
        """Ends it and all processes that it started."""
        family = [psutil.Process(self._process.pid)]
        family += family[0].children(recursive=True)
        self._process.terminate()
        _, alive = psutil.wait_procs(family, timeout=20)
        for process in alive:
            process.send_signal(signal.SIGKILL)
        self._process.wait(timeout=20)
        self.end_engine()

    def end_engine(self) -> None:
        """Ends the engines of all windows, if there are any."""
        files = list(self.root.glob("run/speclsp/engine-*.json"))
        for file in files:
            with suppress(FileNotFoundError, ProcessLookupError):  # it ends with its last window, or after its delay
                os.kill(json.loads(file.read_text())["pid"], signal.SIGTERM)
        until(lambda: not any(file.exists() for file in files), "the engines are gone")


def path_without_speclsp() -> str:
    """Program folders, this Python's among them, without an installed speclsp."""
    folders = [str(Path(sys.base_prefix) / "bin"), "/usr/local/bin", "/usr/bin", "/bin"]
    return os.pathsep.join(folder for folder in folders if not (Path(folder) / "speclsp").exists())


def replace(path: Path, text: str) -> None:
    """Writes a file atomically, as others may read it at any moment."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
