"""Replayed typing on a manual clock: texts, times of keys, cancelled requests."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.keystrokes import language_server, replay_editor
from benchmarks.keystrokes.lines.lines import type_keys
from benchmarks.keystrokes.replay_editor import Editor, Key, Press, offset_of, position

TEXT = "\n    return 'π' + a😀b"
INTERVAL_S, PAUSE_S = 0.14, 0.7


class Clock:
    """Time that passes only while somebody sleeps or waits."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.ticked: Callable[[], None] = lambda: None

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.ticked()


class SlowServer(language_server.Server):
    """A server that answers each request `takes_s` later with a suggestion, and a cancelled one with an error."""

    def __init__(self, clock: Clock, takes_s: float) -> None:
        self.clock, self.takes_s = clock, takes_s
        clock.ticked = self.deliver
        self.answers = {}
        self._numbers, self._heard, self._ended = itertools.count(1), threading.Condition(), False
        self._coming: dict[int, tuple[float, dict[str, Any]]] = {}
        self.text, self.cancelled = "", []

    def send(self, *messages: dict[str, Any]) -> None:
        for message in messages:
            params = message["params"]
            if message["method"] == "textDocument/didOpen":
                self.text = params["textDocument"]["text"]
            elif message["method"] == "textDocument/didChange":
                (change,) = params["contentChanges"]
                start, end = (offset_of(self.text, change["range"][side]) for side in ("start", "end"))
                self.text = self.text[:start] + change["text"] + self.text[end:]
            elif message["method"] == "$/cancelRequest":
                self.cancelled.append(params["id"])
                self._coming[params["id"]] = (self.clock(), {"error": {"code": -32800}})
            elif message["method"] == "textDocument/inlineCompletion":
                place = params["position"]
                item = {"insertText": "a suggestion", "range": {"start": place, "end": place}}
                self._coming[message["id"]] = (self.clock() + self.takes_s, {"result": {"items": [item]}})

    def deliver(self) -> None:
        for number, (at_s, message) in list(self._coming.items()):
            if at_s <= self.clock():
                self.answers[number] = (at_s, message)
                del self._coming[number]

    def wait(self, until: Any, timeout_s: float) -> bool:
        self.clock.sleep(timeout_s)
        return bool(until())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(replay_editor, "perf_counter", clock)
    monkeypatch.setattr("benchmarks.keystrokes.lines.lines.perf_counter", clock)
    monkeypatch.setattr(replay_editor, "sleep", clock.sleep)
    return clock


def typed(clock: Clock, takes_s: float) -> tuple[SlowServer, list[Press]]:
    """TEXT typed at the end of a document, with a pause at every fifth key."""
    server = SlowServer(clock, takes_s)
    above = "def f(a):"
    editor = Editor(server, "file:///a.py", "python", above)
    keys = [
        Key(round(1000 * (INTERVAL_S if at % 5 else PAUSE_S)), "char", len(above) + at, len(above) + at, character,
            len(above) + at + 1)
        for at, character in enumerate(TEXT)
    ]  # fmt: skip
    presses = type_keys(editor, keys)
    assert server.text == editor.text == above + TEXT
    assert [press.number for press in presses] == list(range(1, len(TEXT)))
    return server, presses


@pytest.mark.parametrize("takes_s", [0.001, 0.2005, 5.0])
def test_keys_keep_their_times_and_unanswered_requests_are_cancelled(clock: Clock, takes_s: float):
    server, presses = typed(clock, takes_s)
    for press in presses:
        assert press.late_ms < 1e-6
        assert math.isfinite(press.heard_s), "every request has its answer"
        assert (press.number in server.cancelled) == (press.next_ms < 1000 * takes_s)
        assert press.fresh == press.on_screen == (press.number not in server.cancelled)
        if press.fresh:
            assert press.answer_ms == pytest.approx(1000 * takes_s)


@given(st.text("ab\n\té😀", max_size=60), st.data())
def test_a_position_maps_back_to_its_offset(text: str, data: st.DataObject):
    offset = data.draw(st.integers(0, len(text)))
    assert offset_of(text, position(text, offset)) == offset
