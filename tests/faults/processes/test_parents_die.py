"""Process cleanup: no process or file is left behind, whatever ends the editor or its language server, and whenever."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from promises import Measured
from support.faults.broken_engines import Trouble, processes_of
from support.lsp.editor_client import CAPABILITIES, Editor, Page
from support.lsp.lsp_client import gone_within
from support.waiting import becomes_true

from speclsp.daemon import control

SOURCE = "def f():\n    return \n"
CURSOR = len(SOURCE) - 1
PATIENCE_S = 180.0  # limit of a wait, on a busy machine
SLOW_ROUNDS = ("--set", "echo.round_ms=400", "--set", "completion.timeout_ms=60000")


def shut_down(editor: Editor, parent: subprocess.Popen[bytes]) -> None:
    editor.call("shutdown", timeout_s=PATIENCE_S)
    editor.notify("exit")


# Ways to end, and the limit of each in docs/reliability.md. The editor's process is not the one that holds the pipe.
WAYS: dict[str, tuple[Callable[[Editor, subprocess.Popen[bytes]], object], float]] = {
    "shut down": (shut_down, 2.0),
    "end of stdin": (lambda editor, parent: editor.process.stdin.close(), 2.0),
    "SIGTERM": (lambda editor, parent: editor.process.terminate(), 2.0),
    "SIGKILL": (lambda editor, parent: editor.process.kill(), 2.0),
    "the editor killed and its pipe held open": (lambda editor, parent: parent.kill(), 5.0),
}
IN_MID_WORK_S = 3.0


def starts(editor: Editor, trouble: Trouble) -> None:
    trouble.at("start", "late")
    editor.initialize(CAPABILITIES, processId=int(editor.parent.pid))
    assert becomes_true(lambda: trouble.starts() > 0)


def loads(editor: Editor, trouble: Trouble) -> None:
    trouble.at("load", "slow")
    editor.initialize(CAPABILITIES, processId=int(editor.parent.pid))
    editor.until("loading", timeout_s=PATIENCE_S)


def answers(editor: Editor, trouble: Trouble) -> None:
    idle(editor, trouble)
    Page(editor, SOURCE).ask(CURSOR)
    editor.until("thinking", timeout_s=PATIENCE_S)
    time.sleep(0.1)


def idle(editor: Editor, trouble: Trouble) -> None:
    editor.initialize(CAPABILITIES, processId=int(editor.parent.pid))
    editor.until("ready", timeout_s=PATIENCE_S)


WHEN: dict[str, Callable[[Editor, Trouble], None]] = {
    "as the engine starts": starts,
    "in mid-load": loads,
    "in mid-answer": answers,
    "idle": idle,
}
CASES = [(way, when) for when in WHEN for way in WAYS]
FEW = [CASES[at] for at in (0, 6, 12, 18, 19)]  # each way, each moment


class Parented(Editor):
    """A language server whose editor is not the process that holds its pipe."""

    parent: subprocess.Popen[bytes]


@pytest.mark.promise(4)
@pytest.mark.timeout(600)
def test_no_process_or_file_is_left_however_the_server_ends(
    soak: bool, isolated: Path, trouble: Trouble, monkeypatch: pytest.MonkeyPatch, promise: Measured
):
    temporary = isolated / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    server_s: dict[str, list[float]] = {"idle": [], "in mid-work": [], "the pipe held open": []}
    all_s, slow = [], []
    for way, when in CASES if soak else FEW:
        trouble.over()
        to_server_s, to_all_s = end_one(way, when, trouble)
        kind = "the pipe held open" if WAYS[way][1] > 2 else "idle" if when == "idle" else "in mid-work"
        server_s[kind].append(to_server_s)
        all_s.append(to_all_s)
        wanted_s = max(WAYS[way][1], IN_MID_WORK_S if when != "idle" else 0)
        if to_server_s > wanted_s or to_all_s > to_server_s + 5:
            slow.append(f"{way} {when}")
        assert to_server_s < 20 * wanted_s
        assert list(temporary.iterdir()) == [], "no directory made for a socket"
        runtime = Path(os.environ["XDG_RUNTIME_DIR"]) / "speclsp"
        assert {path.suffix for path in runtime.iterdir()} <= {".lock"}
        # A dying process gives back its memory, and /proc/PID/environ with it, before the files it holds.
        assert becomes_true(lambda: control.running() == []), "the lock outlives its engine"
    longest = {kind: max(took) for kind, took in server_s.items()}
    promise.measured(
        f"{len(all_s)} ends of an editor: the language server gone after {longest['idle']:.2f} s at most when idle and"
        f" {longest['in mid-work']:.2f} in mid-work and {longest['the pipe held open']:.2f} with the pipe held open;"
        f" the engine with all it had after {max(all_s):.1f} s" + (f"; slow: {'; '.join(slow)}" if slow else ""),
        holds=not slow,
    )


def end_one(way: str, when: str, trouble: Trouble) -> tuple[float, float]:
    """Ends a language server this way at this moment; seconds until it, and until all its processes, ended."""
    with subprocess.Popen(["sleep", "600"]) as parent, Parented(*SLOW_ROUNDS) as editor:
        editor.parent = parent
        try:
            WHEN[when](editor, trouble)
            began_s = time.monotonic()
            WAYS[way][0](editor, parent)
            assert gone_within(editor.process.pid, PATIENCE_S), f"the language server stays: {way} {when}"
            to_server_s = time.monotonic() - began_s
            runtime = os.environ["XDG_RUNTIME_DIR"]
            assert becomes_true(lambda: processes_of(runtime) == [parent.pid] or processes_of(runtime) == []), when
            return to_server_s, time.monotonic() - began_s
        finally:
            parent.kill()
