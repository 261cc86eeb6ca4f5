"""Several editors: one engine for those with the same settings, ended with the last; no editor disturbs another."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import pytest
from support.lsp.editor_client import CAPABILITIES, Editor, Page
from support.waiting import becomes_true

SOURCE = "def f():\n    return \n"
CURSOR = len(SOURCE) - 1
PATIENCE_S = 180.0  # limit for events that must happen; many processes start at once here


def open_editors(stack: ExitStack, count: int, *arguments: str) -> list[Editor]:
    """Start `count` servers at once on one engine, and wait until all are ready."""
    editors = [stack.enter_context(Editor(*arguments)) for _ in range(count)]
    for number, editor in enumerate(editors):
        editor.initialize(CAPABILITIES, clientInfo={"name": f"editor {number}"})
    for editor in editors:
        editor.until("ready", timeout_s=PATIENCE_S)
    return editors


def status(editor: Editor) -> dict[str, object]:
    return editor.statuses()[-1]


def comes(editor: Editor, true: Callable[[dict[str, object]], object]) -> bool:
    """True if a status of the editor satisfies the predicate in time."""
    return editor.wait_for(lambda: true(status(editor)), PATIENCE_S)


def engine_of(editors: Sequence[Editor]) -> int:
    """The process id of the one engine that all of them use."""
    pids = {pid for editor in editors for pid in [status(editor)["engine_pid"]]}
    assert len(pids) == 1 and 0 not in pids, pids
    for editor in editors:
        assert editor.server.children() == [], "an editor that kills its server's children would end it"
    return pids.pop()


def completes(editor: Editor, name: str) -> None:
    page = Page(editor, f"{SOURCE}# {name}", uri=f"file:///{name}.py")
    assert editor.text(page.ask(CURSOR)) == page.expected(CURSOR)


def shut_down(editor: Editor) -> None:
    editor.call("shutdown")
    editor.notify("exit")


WAYS: dict[str, Callable[[Editor], None]] = {
    "shut down": shut_down,
    "its pipe closed": lambda editor: editor.process.stdin.close(),
    "killed": lambda editor: editor.process.kill(),
    "told to end": lambda editor: editor.process.terminate(),
}


@pytest.mark.promise(4)
@pytest.mark.promise(21)
def test_the_engine_survives_every_end_of_an_editor_until_the_last_one():
    with ExitStack() as stack:
        editors = open_editors(stack, len(WAYS))
        engine = engine_of(editors)
        (process,) = editors[0].engines()
        for number, end in enumerate(WAYS.values()):
            end(editors[number])
            editors[number].process.wait(PATIENCE_S)
            for remaining in editors[number + 1 :]:
                count = len(editors) - number - 1
                assert comes(remaining, lambda report, count=count: report["clients"] == count)
                assert status(remaining)["engine_pid"] == engine
                completes(remaining, f"{number} of them gone")
        assert editors[-1].gone(process), "nobody is left"
        assert list(editors[0].runtime.glob("*.json")) == []


def test_a_stopped_engine_stays_stopped_until_a_setting_changes():
    with ExitStack() as stack:
        first, second = open_editors(stack, 2)
        (engine,) = first.engines()
        os.kill(engine.pid, signal.SIGTERM)
        for editor in (first, second):
            editor.until("stopped", timeout_s=PATIENCE_S)
            assert "setting" in status(editor)["message"]
        assert first.gone(engine)
        page = Page(first, SOURCE)
        assert first.items(page.ask(CURSOR)) == [], "a keystroke does not undo it"
        assert status(first)["state"] == "stopped" and first.engines() == []
        status_count = len(first.statuses())
        first.notify("workspace/didChangeConfiguration", {"settings": {"completion": {"max_tokens": 50}}})
        first.until("ready", after=status_count, timeout_s=PATIENCE_S)
        assert comes(second, lambda report: report["state"] == "ready"), "the others use it as well"
        engine_of([first, second])
        assert first.popups() == second.popups() == []


@pytest.mark.promise(22)
def test_editors_with_other_settings_have_another_engine_at_once():
    with Editor("--set", "echo.round_ms=1") as first, Editor("--set", "echo.round_ms=2") as second:
        for editor in (first, second):
            editor.begin()
        assert engine_of([first]) != engine_of([second]) and len(first.engines()) == 2
        for number, editor in enumerate((first, second)):
            completes(editor, f"number {number}")
            assert set(editor.states()) <= {"asleep", "starting", "loading", "ready", "thinking"}
            assert status(editor)["clients"] == 1 and editor.popups() == []
        shut_down(first)
        assert comes(second, lambda report: report["state"] == "ready")
        completes(second, "undisturbed")


def test_an_editor_releases_the_engine_while_completion_is_off_and_returns_to_it():
    with ExitStack() as stack:
        first, second = open_editors(stack, 2)
        engine = engine_of([first, second])
        first.notify("workspace/didChangeConfiguration", {"settings": {"completion": {"enabled": False}}})
        first.until("off")
        assert comes(second, lambda report: report["clients"] == 1)
        first.notify("workspace/didChangeConfiguration", {"settings": {"completion": {"enabled": True}}})
        assert comes(first, lambda report: report["state"] == "ready" and report["clients"] == 2)
        assert engine_of([first, second]) == engine


def test_an_engine_that_cannot_load_is_released_and_retried_when_a_setting_changes():
    with Editor("--set", "engine.offline=true", model="starcoder2-3b") as editor:
        editor.initialize(CAPABILITIES)
        editor.until("error", timeout_s=PATIENCE_S)
        assert "starcoder2-3b" in status(editor)["message"]
        assert becomes_true(lambda: not editor.engines()), "it is of no use to anybody"
        editor.notify("workspace/didChangeConfiguration", {"settings": {"model": "echo"}})
        editor.until("ready", timeout_s=PATIENCE_S)
        completes(editor, "another pair")


def test_a_request_loads_an_unloaded_model():
    with Editor("--set", "engine.idle_unload_minutes=0.005") as editor:
        editor.initialize(CAPABILITIES)
        editor.until("asleep", after=1, timeout_s=PATIENCE_S)  # the first status is that of a server without a file
        before = len(editor.statuses())
        completes(editor, "good morning")
        assert set(editor.states()[before:]) <= {"asleep", "loading", "ready", "thinking"}
