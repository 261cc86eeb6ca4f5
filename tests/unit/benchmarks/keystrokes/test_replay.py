"""Replay of recorded typing on a manual clock, and its statistics."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.keystrokes import figures, language_server, replay_editor
from benchmarks.keystrokes.figures import bucket_quantile, by_request, followed, quantile
from benchmarks.keystrokes.keystrokes import chosen
from benchmarks.keystrokes.recording import Key, Recording
from benchmarks.keystrokes.replay_editor import Press, landing, offset_of, position
from benchmarks.keystrokes.typist import record

SOURCE = """import re


def words(text, least=2):
    \"\"\"The words of a text that have some letters.\"\"\"
    found = []
    for word in re.findall("[a-z]+", text):
        if len(word) >= least:
            found.append(word)
    return found


def longest(text):
    candidates = words(text)
    return max(candidates, key=len)


def shortest(text):
    candidates = words(text, 3)
    return min(candidates, key=len)
"""


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.ticked: Callable[[], None] = lambda: None

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.ticked()


class Oracle(language_server.Server):
    """A server that knows the recording and answers each question, `takes_s` later, with what will be typed."""

    def __init__(self, recording: Recording, clock: Clock, takes_s: float, ahead: int = 40) -> None:
        self.clock, self.takes_s, self.ahead = clock, takes_s, ahead
        clock.ticked = self._deliver
        self.states, text = [(recording.start, 0)], recording.start
        for key in recording.keys:
            text = key.on(text)
            self.states.append((text, key.cursor))
        self.answers, self.stray, self.messages = {}, 0, []
        self._coming: dict[int, tuple[float, dict[str, Any]]] = {}
        self._numbers, self._heard, self._ended = itertools.count(1), threading.Condition(), False
        self.text, self.cancelled, self.msg_ids = "", [], []

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
                self._coming[params["id"]] = (self.clock() + 0.001, {"error": {"code": -32800}})
            elif message["method"] == "textDocument/inlineCompletion":
                self.msg_ids.append(message["id"])
                answer = {"result": {"items": self.items(params["position"])}}
                self._coming[message["id"]] = (self.clock() + self.takes_s, answer)

    def items(self, place: dict[str, int]) -> list[dict[str, Any]]:
        cursor = offset_of(self.text, place)
        before, after = self.text[:cursor], self.text[cursor:]
        at = self.states.index((self.text, cursor))
        grown = [
            text[cursor:then]
            for text, then in self.states[at + 1 : at + 1 + self.ahead]
            if text.startswith(before) and text.endswith(after) and then == len(text) - len(after) > cursor
        ]
        suggestion = max(grown, key=len, default="")
        return [{"insertText": suggestion, "range": {"start": place, "end": place}}] if suggestion else []

    def metrics(self) -> dict[str, float]:
        """Every question costs 3 tokens."""
        count = float(len(self.msg_ids))
        return {
            'speclsp_requests_total{stop="eos"}': count,
            "speclsp_prompt_tokens_total": 103 * count,
            "speclsp_cached_tokens_total": 100 * count,
            "speclsp_prefilled_tokens_total": 3 * count,
            "speclsp_running_requests": 0.0,
        }

    def _deliver(self) -> None:
        for number, (when_s, message) in list(self._coming.items()):
            if when_s <= self.clock():
                self.answers[number] = (when_s, message)
                del self._coming[number]

    def wait(self, until: Any, timeout_s: float) -> bool:
        """Let time pass until it is true."""
        end_s = self.clock() + max(0.0, timeout_s)
        while True:
            self._deliver()
            coming = [when_s for when_s, _ in self._coming.values() if when_s <= end_s]
            if until() or not coming:
                return bool(until())
            self.clock.now_s = max(self.clock(), min(coming))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(replay_editor, "perf_counter", made)
    monkeypatch.setattr(replay_editor, "sleep", made.sleep)
    return made


def replayed(clock: Clock, takes_s: float, seed: int = 4) -> tuple[Oracle, Recording, list[Press]]:
    recording = record(SOURCE, language="python", seed=seed, minutes=2)
    oracle = Oracle(recording, clock, takes_s)
    return oracle, recording, replay_editor.replay(oracle, recording, "file:///a.py", math.inf)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("takes_s", [0.001, 0.2, 5.0])
def test_the_replay_writes_the_source_at_every_server_speed(clock: Clock, takes_s: float, seed: int):
    oracle, recording, presses = replayed(clock, takes_s, seed)
    assert oracle.text == recording.source() == SOURCE
    assert len(presses) == len(oracle.msg_ids) - 1
    assert all(math.isfinite(press.heard_s) for press in presses), "every question has its answer"


def test_keys_keep_their_times_and_unanswered_requests_are_cancelled(clock: Clock):
    oracle, _, presses = replayed(clock, takes_s=0.2005)
    for press in presses:
        assert press.late_ms < 1e-6
        assert (press.number in oracle.cancelled) == (press.next_ms < 200.5)
        assert press.fresh == (press.number not in oracle.cancelled)
        if press.fresh:
            assert press.answer_ms == pytest.approx(200.5)


def test_a_suggestion_that_matches_the_next_keys_is_accepted_in_some_pauses(clock: Clock):
    _, recording, presses = replayed(clock, takes_s=0.01)
    accepted = [press for press in presses if press.accepted]
    assert accepted and len(presses) < len(recording.keys)
    for before, press in itertools.pairwise(presses):
        if press.accepted:
            assert before.on_screen and before.next_ms >= before.answer_ms + replay_editor.READING_MS - 1e-6
    typed_along = [press for press in presses if press.along]
    assert len(typed_along) > len(presses) / 4, "an oracle's suggestions are typed along"


def test_the_engines_metrics_are_read_while_it_is_idle(clock: Clock):
    _, _, presses = replayed(clock, takes_s=0.01)
    for press in presses:
        assert press.counted is None or press.next_ms >= (press.answer_ms + 1000 * replay_editor.QUIET_S)
    tokens = figures.alone(presses)
    assert tokens and set(tokens) == {3}
    assert figures.alone(replayed(clock, takes_s=2.0)[2]) == []


def test_no_suggestion_of_a_slow_server_is_accepted(clock: Clock):
    _, recording, presses = replayed(clock, takes_s=30)
    assert len(presses) == len(recording.keys) - 1
    assert not any(press.accepted or press.along or press.fresh for press in presses)


def test_only_the_true_part_of_a_suggestion_is_accepted():
    keys = [Key(100, "char", n, n, char, n + 1) for n, char in enumerate("return value")]
    assert landing("", 0, 0, "return value", keys) == (Key(0, "accept", 0, 0, "return value", 12), 12)
    assert landing("", 0, 0, "return values\n", keys) == (Key(0, "accept", 0, 0, "return", 6), 6)
    assert landing("", 0, 0, "yield value", keys) is None
    assert landing("", 0, 0, "ret", keys) is None, "shorter than it takes to accept it"


def test_a_replacement_is_accepted_whole_or_as_an_insertion():
    keys = [Key(100, "char", 5 + n, 5 + n, char, 6 + n) for n, char in enumerate("first")]
    keys += [Key(100, "overtype", 10, 11, ")", 11)]
    assert landing("call()", 5, 6, "first)", keys) == (Key(0, "accept", 5, 6, "first)", 11), 6)
    assert landing("call()", 5, 6, "first, last)", keys) == (Key(0, "accept", 5, 5, "first", 10), 5)


@given(st.text("ab\n\té😀", max_size=60), st.data())
def test_a_position_maps_back_to_its_offset(text: str, data: st.DataObject):
    offset = data.draw(st.integers(0, len(text)))
    assert offset_of(text, position(text, offset)) == offset


# ── statistics ───────────────────────────────────────────────────────────────────────────────────────────────


def press(number: int = 1, sent_s: float = 0.0, heard_s: float = 0.1, next_ms: float = 300, **more: Any) -> Press:
    made = Press("python", "file:///a.py", "char", more.pop("version", number), number, sent_s, 0.0, False)
    made.heard_s, made.next_ms, made.shown = heard_s, next_ms, True
    for name, value in more.items():
        setattr(made, name, value)
    return made


def trace(version: int, outcome: str = "shown", **more: Any) -> dict[str, Any]:
    from speclsp.plain_text import digest

    about = {"document": digest("file:///a.py"), "version": version, "outcome": outcome, "reused": False}
    return {**about, "parse_ms": 1.0, "context_ms": 2.0, "first_ms": 10.0, "total_ms": 14.0, **more}


@given(st.lists(st.floats(0, 1e4), max_size=30), st.integers(0, 30))
def test_a_missing_answer_counts_as_infinite_time(values: list[float], missing: int):
    found = quantile([*values, *[math.inf] * missing], 0.5)
    assert (found is None) == (len(values) < missing or not values)


def test_late_answers_and_empty_answers_are_not_counted_as_suggestions():
    presses = [
        press(1),
        press(2, heard_s=0.4),
        press(3, shown=False),
        press(4, next_ms=100, heard_s=0.05),
        press(5, fits=False),
    ]
    assert figures.pauses(presses, 250) == {"count": 4, "with_suggestion": 0.25, "answered": 0.75}
    side = figures.editors_side(presses, {})
    assert side["suggestion"]["count"] == 2
    assert side["keys_overtaken"] == 0.2
    assert side["misfits"] == 1


def test_traces_are_matched_to_requests_in_order_by_version():
    presses = [press(1, version=1), press(2, version=2), press(3, version=2), press(4, version=3)]
    traces = [trace(1), trace(2, "cancelled"), trace(2), trace(3, reused=True), trace(9)]
    found = by_request(presses, traces)
    assert [(number, one["outcome"]) for number, one in found.items()] == [
        (1, "shown"),
        (2, "cancelled"),
        (3, "shown"),
        (4, "shown"),
    ]
    side = figures.servers_side(list(found.values()))
    assert side["without_model"] == 0.25
    assert side["outcomes"] == {"shown": 3, "cancelled": 1}
    assert side["mean_ms_of_shown_from_model"] == {
        "parse": 1.0,
        "context": 2.0,
        "queue_prefill_first_round": 7.0,
        "further_rounds": 4.0,
    }
    assert figures.editors_side(presses, found)["suggestion_from_model"]["count"] == 3


def test_stale_work_is_reported_in_ms_and_in_rounds():
    counts = {
        "speclsp_rounds_total": 10.0,
        "speclsp_predicted_ms_sum": 400.0,
        "speclsp_predicted_ms_count": 5.0,
        "speclsp_stale_work_ms_sum": 200.0,
        "speclsp_stale_work_ms_count": 4.0,
        "speclsp_prompt_tokens_total": 1000.0,
        "speclsp_cached_tokens_total": 900.0,
        "speclsp_prefilled_tokens_total": 100.0,
        'speclsp_requests_total{stop="eos"}': 4.0,
        'speclsp_requests_total{stop="cancelled"}': 4.0,
        'speclsp_stale_work_histogram_ms_bucket{le="30"}': 1.0,
        'speclsp_stale_work_histogram_ms_bucket{le="100"}': 4.0,
        'speclsp_stale_work_histogram_ms_bucket{le="+Inf"}': 4.0,
    }
    side = figures.engines_side(20, counts)
    assert (side["stale_work_ms_per_key"], side["round_ms"], side["stale_rounds_per_key"]) == (10.0, 40.0, 0.25)
    assert (side["prefilled_tokens_per_key"], side["cached_share"]) == (5.0, 0.9)
    assert side["cancel_to_stop_p99_ms"] == 100
    assert side["mean_ms"] == {"predicted_ms": 80.0, "stale_work_ms": 50.0}
    assert bucket_quantile({}, "stale_work_histogram_ms", 0.99) is None


def test_each_server_fault_is_reported_in_one_sentence():
    sound: dict[str, Any] = {"server": {"outcomes": {"shown": 9, "cancelled": 4}}, "unanswered": 0, "stray_answers": 0}
    sound |= {"misfits": 0, "errors": {}, "messages_shown": []}
    assert figures.faults(sound) == []
    for name, value in (
        ("server", {"outcomes": {"shown": 1, "engine_lost": 3}}),
        ("unanswered", 3),
        ("stray_answers", 3),
        ("misfits", 3),
        ("errors", {"-32603": 3}),
        ("messages_shown", ["3 popups"]),
    ):
        (sentence,) = figures.faults({**sound, name: value})
        assert "3" in sentence


@given(st.floats(0.05, 20))
def test_minutes_are_divided_equally_among_the_languages(minutes: float):
    def of(language: str, *lengths_ms: int) -> list[Recording]:
        about = {"path": "", "origin": "", "licence": "", "seed": 1, "minutes": 1.0, "start": ""}
        keys = [tuple(Key(100, "char", 0, 0, "a", 1) for _ in range(length // 100)) for length in lengths_ms]
        return [Recording(language=language, keys=made, **about) for made in keys]

    everything = {"c": of("c", 60_000, 120_000), "go": of("go", 240_000)}
    made = chosen(everything, minutes)
    for name, of_one in everything.items():
        spent_ms = sum(limit for recording, limit in made if recording.language == name)
        assert spent_ms == pytest.approx(min(minutes * 30_000, sum(one.duration_ms for one in of_one)))


def test_keys_are_counted_while_they_type_through_a_suggestion():
    presses = [
        press(1), press(2, along=True), press(3, along=True), press(4), press(5, along=True, uri="file:///b.py"),
        press(6, heard_s=9.0), press(7, along=True), press(8), press(9, along=True),
    ]  # fmt: skip
    traces = {number: trace(number, confidence=number / 10) for number in (1, 4, 6, 8)}
    traces |= {2: trace(2, reused=True, confidence=0.5), 7: trace(7, confidence=None)}
    assert followed(presses, traces) == [(0.1, 2), (0.4, 0), (0.8, 1)], "those of the model that were seen"
    traces[2] = trace(2, confidence=0.3)
    assert followed(presses, traces)[:2] == [(0.1, 1), (0.3, 1)], "a key is counted once"
