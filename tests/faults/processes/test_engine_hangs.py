"""Hung engines: an engine that stops answering is detected, ended and replaced for all its editors without an error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psutil
import pytest
from promises import Measured
from support.faults.broken_engines import Trouble
from support.lsp.editor_client import CAPABILITIES, Editor, Page
from support.lsp.lsp_client import gone_within

from speclsp import config
from speclsp.config import Config
from speclsp.daemon import control, launch
from speclsp.daemon.engine_files import EngineEndpoint, EngineFiles
from speclsp.process_resources.programs import is_gone

SOURCE = "def f():\n    return \n"
CURSOR = len(SOURCE) - 1
PATIENCE_S = 180.0  # limit of a wait, on a busy machine
FILES = EngineFiles.of(Config(model="echo"))
HASTY = ("--set", "completion.timeout_ms=500")
PROBE_S = 5.0  # limit of a health answer while a request waits


@contextmanager
def editors(count: int, *arguments: str) -> Iterator[list[Editor]]:
    """Starts `count` editors and waits until each is ready."""
    with ExitStack() as stack:
        opened = [stack.enter_context(Editor(*HASTY, *arguments)) for _ in range(count)]
        for editor in opened:
            editor.initialize(CAPABILITIES)
        for editor in opened:
            editor.until("ready", timeout_s=PATIENCE_S)
        yield opened


def engine_of(editor: Editor) -> int:
    return int(editor.statuses()[-1]["engine_pid"])


def has_another(editor: Editor, than: int) -> bool:
    """True if the editor reaches another engine and that engine answers."""
    return editor.wait_for(lambda: ready_with(editor) not in (0, than), PATIENCE_S) and completes(editor)


def ready_with(editor: Editor) -> int:
    status = editor.statuses()[-1]
    return int(status["engine_pid"]) if status["state"] == "ready" else 0


def completes(editor: Editor) -> bool:
    """True when a request is answered; another editor may occupy the engine for a moment."""
    page = Page(editor, SOURCE, uri="file:///again.py")
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        if editor.text(page.ask(CURSOR, kind=1)) == page.expected(CURSOR):
            return True
    return False


def fault_messages(editor: Editor, count: int) -> list[str]:
    """The distinct status messages about the fault since then."""
    return list(
        dict.fromkeys(status["message"] for status in editor.statuses()[count:] if status["state"] == "starting")
    )


@pytest.mark.promise(19)
def test_engines_that_hang_are_replaced_for_all_their_editors_at_once(trouble: Trouble, promise: Measured):
    """A stopped engine shared by three editors; and one with other settings in which no thread runs."""
    with editors(3) as sharing, editors(1, "--set", "echo.round_ms=1") as (alone,):
        everybody = [*sharing, alone]
        old = [engine_of(editor) for editor in everybody]
        since = [len(editor.statuses()) for editor in everybody]
        servers = [editor.process.pid for editor in everybody]
        os.kill(old[0], signal.SIGSTOP)
        trouble.at("question", "hung")
        began_s = time.monotonic()
        msg_ids = [Page(editor, SOURCE).ask(CURSOR) for editor in everybody]
        for editor, question in zip(everybody, msg_ids, strict=True):
            assert editor.items(question, timeout_s=PATIENCE_S) == []
        answered_ms = 1000 * (time.monotonic() - began_s)
        assert all(gone_within(pid, PATIENCE_S) for pid in old)
        trouble.over()
        found_s = time.monotonic() - began_s
        assert all(has_another(editor, than) for editor, than in zip(everybody, old, strict=True))
        back_s = time.monotonic() - began_s - found_s
        assert len({engine_of(editor) for editor in sharing}) == 1, "all of them the same one"
        for editor, count in zip(everybody, since, strict=True):
            messages = fault_messages(editor, count)
            assert any("does not answer" in message for message in messages), messages
            assert "error" not in editor.states()
            assert editor.popups() == []
        assert [editor.process.pid for editor in everybody] == servers
        assert all(editor.process.poll() is None for editor in everybody)
        promise.measured(
            f"an engine stopped and one that holds its interpreter: answered empty after {answered_ms:.0f} ms with a"
            f" deadline of 500; found out after {found_s:.1f} s and another there {back_s:.1f} s later; 0 popups",
            holds=found_s <= 0.5 + PROBE_S + 1 and back_s <= 3,
        )


@pytest.mark.promise(19)
def test_an_engine_stopped_only_briefly_is_kept(trouble: Trouble, promise: Measured):
    with editors(2) as (first, other):
        old, since = engine_of(first), len(first.statuses())
        os.kill(old, signal.SIGSTOP)
        assert first.items(Page(first, SOURCE).ask(CURSOR), timeout_s=PATIENCE_S) == []
        assert first.wait_for(lambda: first.statuses()[-1]["state"] == "starting", PATIENCE_S)
        assert f"process {old}" in first.statuses()[-1]["message"]
        began_ms = time.monotonic()
        assert first.items(Page(first, SOURCE, uri="file:///b.py").ask(CURSOR), timeout_s=PATIENCE_S) == []
        at_once_ms = 1000 * (time.monotonic() - began_ms)
        os.kill(old, signal.SIGCONT)
        assert first.wait_for(lambda: ready_with(first) == old, PATIENCE_S)
        assert completes(first) and completes(other)
        assert engine_of(first) == engine_of(other) == old
        assert {status["state"] for status in first.statuses()[since:]} <= {"ready", "thinking", "starting"}
        promise.measured(
            f"stopped and let go on: kept; meanwhile answered empty after {at_once_ms:.0f} ms", holds=at_once_ms < 250
        )


@pytest.mark.promise(19)
def test_an_engine_survives_the_suspension_of_the_machine(trouble: Trouble):
    """Both processes stop while a hang is suspected: after waking, the server must not kill the engine first."""
    trouble.hasten()
    with editors(1) as (first,):
        old = engine_of(first)
        os.kill(old, signal.SIGSTOP)
        assert first.wait_for(lambda: first.statuses()[-1]["state"] == "starting", PATIENCE_S)
        os.kill(first.process.pid, signal.SIGSTOP)
        time.sleep(4)  # longer than the limit for a health answer
        os.kill(first.process.pid, signal.SIGCONT)
        time.sleep(0.2)
        os.kill(old, signal.SIGCONT)
        assert first.wait_for(lambda: ready_with(first) == old, PATIENCE_S)
        assert completes(first) and engine_of(first) == old


@pytest.mark.soak
@pytest.mark.promise(19)
def test_an_engine_that_hangs_while_idle_is_replaced_too(soak: bool, trouble: Trouble, promise: Measured):
    silence_s = 15 if soak else 2
    if not soak:
        trouble.hasten()
    with editors(2) as (first, other):
        old = engine_of(first)
        began_s = time.monotonic()
        os.kill(old, signal.SIGSTOP)
        assert has_another(first, old) and has_another(other, old)
        recovered_s = time.monotonic() - began_s
        promise.measured(
            f"hung while nobody asks: replaced after {recovered_s:.1f} s, doubted after {silence_s} s of silence",
            holds=recovered_s <= silence_s + PROBE_S + 3,
        )


# ── conditions for ending a process ────────────────────────────────────────────────────────────────────────────────


LISTENS = """
import socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.bind(sys.argv[1]); server.listen(); print("listens", flush=True); sys.stdin.read()
"""


@pytest.mark.promise(19)
def test_only_a_process_that_listens_there_and_is_an_engine_is_ended(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(control, "ENDS_S", 0.2)
    path, pipe = config.runtime_dir() / "s", subprocess.PIPE
    listens = subprocess.Popen([sys.executable, "-c", LISTENS, str(path)], stdin=pipe, stdout=pipe, text=True)
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        assert listens.stdout is not None
        assert listens.stdout.readline() == "listens\n"
        for pid in (listens.pid, bystander.pid):  # one listens but is no engine; the other does not listen
            running = EngineEndpoint(pid=pid, socket=str(path))
            FILES.write(running)
            assert not control.end_hung(FILES, running)
        path.unlink()
        assert not control.end_hung(FILES, running), "the engine has gone, and its number is another's by now"
        assert (listens.poll(), bystander.poll()) == (None, None)
    finally:
        for process in (listens, bystander):
            process.kill()
            process.communicate()


def test_an_engine_being_killed_by_another_editor_is_awaited(monkeypatch: pytest.MonkeyPatch):
    """A killed process has no command line while its memory is released."""
    old = launch.start(Config(model="echo"))
    assert old is not None
    monkeypatch.setattr(psutil.Process, "cmdline", lambda process: [])  # lengthens that moment
    killing = threading.Timer(0.2, os.kill, (old.pid, signal.SIGKILL))
    killing.start()
    assert control.end_hung(FILES, old) and is_gone(old.pid)
    killing.join()
