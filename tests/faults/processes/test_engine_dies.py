"""Engine crashes: one costs an empty answer and a load; a crash loop stops the restarts until the user retries."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest
from promises import Measured
from support.faults.broken_engines import Trouble
from support.lsp.editor_client import CAPABILITIES, Editor, Page
from support.lsp.lsp_client import gone_within
from support.soak import in_soak

SOURCE = "def f():\n    return \n"
CURSOR = len(SOURCE) - 1
PATIENCE_S = 180.0  # limit of a wait, on a busy machine
SLOW_ROUNDS = ("--set", "echo.round_ms=30", "--set", "completion.timeout_ms=60000")


def engine_of(editor: Editor) -> int:
    status = editor.statuses()[-1]
    return int(status["engine_pid"]) if status["state"] in ("ready", "thinking") else 0


def comes(editor: Editor, true: Callable[[], object]) -> bool:
    return bool(editor.wait_for(true, PATIENCE_S))


def ask_until_answered(editor: Editor, page: Page) -> float:
    """Repeats a request, as a user who types on, until an answer comes; returns its time."""
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        if editor.items(page.ask(CURSOR), timeout_s=PATIENCE_S):
            return time.monotonic()
        time.sleep(0.02)
    raise AssertionError(f"never answered again: {editor.statuses()[-1]}")


@pytest.mark.promise(5)
def test_a_killed_engine_costs_one_empty_answer_and_a_load(soak: bool, promise: Measured):
    kills = 20 if soak else 3  # as many as a crash loop has
    with Editor(*SLOW_ROUNDS) as editor:
        editor.begin()
        began_s = time.monotonic()
        load_s = began_s - editor.started  # the first start, with the language server's own
        server, answered_ms, back_s = editor.process.pid, [], []
        for number in range(kills):
            page = Page(editor, SOURCE, uri=f"file:///{number}.py")
            assert comes(editor, lambda: engine_of(editor))
            engine = engine_of(editor)
            question = page.ask(CURSOR)
            assert comes(editor, lambda: editor.states()[-1] == "thinking")
            time.sleep(0.1)  # midway through an answer
            killed_s = time.monotonic()
            os.kill(engine, signal.SIGKILL)
            assert editor.items(question, timeout_s=PATIENCE_S) == []
            answered_ms.append(1000 * (time.monotonic() - killed_s))
            assert comes(editor, lambda engine=engine: engine_of(editor) not in (0, engine))
            back_s.append(time.monotonic() - killed_s)
            assert editor.items(page.ask(CURSOR), timeout_s=PATIENCE_S)[0]["insertText"] == page.expected(CURSOR)
        assert (editor.process.pid, editor.process.poll()) == (server, None)
        assert editor.popups() == []
        assert "error" not in editor.states(), "with completions in between this is no loop"
        assert max(answered_ms) < 20 * 250
        promise.measured(
            f"{kills} kills of an engine: answered empty after {max(answered_ms):.0f} ms at most and ready"
            f" again after {max(back_s):.1f} s at most, the first start took {load_s:.1f} s; 0 popups",
            holds=max(answered_ms) <= 250 and max(back_s) <= load_s + 2,
        )


def question(editor: Editor) -> None:
    """Sends a request that kills the engine."""
    page = Page(editor, SOURCE, uri=f"file:///fatal{len(editor.arrived)}.py")
    assert editor.items(page.ask(CURSOR), timeout_s=PATIENCE_S) == []


def asks_on(editor: Editor) -> None:
    """Sends requests until no engine is started any more."""
    until_s = time.monotonic() + PATIENCE_S
    while editor.states()[-1:] != ["error"] and time.monotonic() < until_s:
        question(editor)
        time.sleep(0.02)


LOOPS: dict[str, tuple[str, str]] = {
    "as it loads": ("load", "killed late"),
    "at every question": ("question", "killed"),
    "as it starts": ("start", "killed"),
}


@pytest.mark.promise(6)
@pytest.mark.parametrize("loop", ["at every question", *in_soak("as it loads", "as it starts")])
def test_a_crash_loop_ends_with_one_status_until_the_user_retries(loop: str, trouble: Trouble, promise: Measured):
    with Editor() as editor:
        trouble.at(*LOOPS[loop])
        began_s = time.monotonic()
        editor.initialize(CAPABILITIES)
        asks_on(editor)
        took_s = time.monotonic() - began_s
        assert comes(editor, lambda: editor.states()[-1] == "error")
        message = editor.statuses()[-1]["message"]
        starts = trouble.starts()
        assert starts <= 3
        if starts > 1:
            assert "3 times" in message and "the editor's command" in message
        until_s = time.monotonic() + PATIENCE_S  # a server that has just started reports loading for a moment
        while editor.statuses()[-1]["last_reason"] in ("", "loading") and time.monotonic() < until_s:
            question(editor)
        count = len(editor.statuses())
        questions_began_s = time.monotonic()
        for _ in range(20):
            question(editor)
        each_ms = 1000 * (time.monotonic() - questions_began_s) / 20
        assert editor.statuses()[-1]["last_reason"] == "engine_away"
        time.sleep(0.5)
        assert {status["state"] for status in editor.statuses()[count:]} <= {"error"}
        assert len({status["message"] for status in editor.statuses() if status["state"] == "error"}) == 1, (
            "one clear status"
        )
        assert trouble.starts() == starts and editor.engines() == []
        trouble.over()
        assert editor.call("speclsp/retry") == {"retrying": True, "message": "trying again"}
        page = Page(editor, SOURCE, uri="file:///well.py")
        ask_until_answered(editor, page)
        assert editor.call("speclsp/retry")["retrying"] is False
        assert editor.popups() == [] and editor.process.poll() is None
        promise.measured(
            f"dies {loop}: {starts} start{'s' if starts > 1 else ''} in {took_s:.1f} s and no more, one status"
            f" and then empty within {each_ms:.0f} ms each; another try works once the cause is gone",
            holds=starts <= 3 and each_ms < 50,
        )


@pytest.mark.promise(6)
def test_a_retry_starts_only_an_abandoned_engine():
    with Editor() as editor:
        editor.begin()
        (engine,) = editor.engines()
        assert editor.call("speclsp/retry") == {"retrying": False, "message": "nothing to retry; the state is ready"}
        since = len(editor.statuses())
        os.kill(engine.pid, signal.SIGTERM)
        editor.until("stopped", after=since, timeout_s=PATIENCE_S)
        assert "the editor's command" in editor.statuses()[-1]["message"]
        assert gone_within(engine.pid, PATIENCE_S)
        assert editor.call("speclsp/retry")["retrying"] is True
        editor.until("ready", after=since, timeout_s=PATIENCE_S)
        editor.notify("workspace/didChangeConfiguration", {"settings": {"completion": {"enabled": False}}})
        editor.until("off", timeout_s=PATIENCE_S)
        reply = editor.call("speclsp/retry")
        assert reply == {"retrying": False, "message": "completion.enabled is off: no backend to start"}
