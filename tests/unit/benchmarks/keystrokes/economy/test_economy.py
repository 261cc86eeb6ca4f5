"""The replay of a recording keeps the books: keys, shown suggestions, and the person's acceptances."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.keystrokes.economy import economy
from benchmarks.keystrokes.economy.bodies import Body
from benchmarks.keystrokes.economy.clock import PAUSE_MS, waits_ms
from benchmarks.keystrokes.economy.person import ONLOOKER, PERSONS, READER, Keyboard, Person
from benchmarks.keystrokes.economy.policies import by_value, judge, line_list
from benchmarks.keystrokes.economy.recording import Recording
from benchmarks.keystrokes.economy.replay import ready_times_ms, replay
from speclsp.lsp.completion.confidence import LEVELS, Bar, Curve, lines, token_spans

CURVE = Curve(first={"intercept": 2.0, "total": 2.0}, later={"intercept": 2.0, "total": 2.0})
TEXT = "\n    total = 0\n    for item in items:\n        total += item\n    return total"
CANDIDATES = st.lists(st.tuples(st.sampled_from(("right", "wrong", "half", "none")), st.floats(-6, 0)), min_size=1)


def body(text: str = TEXT, package: str = "p") -> Body:
    return Body(
        id=package, package=package, root="/p", path="a.py", language="python", group="python",
        above="def f(items):", text=text, below="\n", open_paths=(),
    )  # fmt: skip


def row(text: str, before: str, logprob: float) -> dict[str, Any]:
    """A candidate, each character of which has this log-probability; "" for none."""
    own = list(lines(text, token_spans([(1, logprob)] * len(text)))) if text else []
    last = [line.end for line in own]
    return {
        "reason": "" if text else "empty", "text": text, "typed": 0, "in_token": False, "kind": "code",
        "ms": 100.0, "line": before.rpartition("\n")[2], "above": [], "opens": False,
        "lines": [[line.end, list(line.logprobs), line.end] for line in own if line.end in last],
    }  # fmt: skip


def recording(candidates: list[tuple[str, float]], text: str = TEXT, package: str = "p") -> Recording:
    """A recording in which each position has one of these candidates, in turn."""
    rows = []
    for number, end in enumerate(Keyboard.of(text).ends):
        kind, logprob = candidates[number % len(candidates)]
        rest = text[end:]
        half = rest[: len(rest) // 2] + "§"
        candidate = {"right": rest, "wrong": "§§§§", "half": half, "none": ""}[kind] if rest.strip() else ""
        rows.append(row(candidate, text[:end], logprob))
    return Recording(body(text, package), tuple(rows), 1.0)


TYPIST = PERSONS[1]
MEDIUM = LEVELS["medium"]


@given(CANDIDATES, st.sampled_from((*PERSONS, ONLOOKER)), st.sampled_from((0.0, 1.0, 4.0)))
def test_the_books_balance_under_every_policy(candidates: list[tuple[str, float]], person: Person, speed: float):
    typed = recording(candidates)
    judged = judge(typed, CURVE)
    for bar in (Bar(), MEDIUM, Bar(least=0.2)):
        counts = replay(typed, by_value(judged, bar), person, speed)
        assert counts.keys == Keyboard.of(TEXT).keys and counts.characters == len(TEXT)
        assert counts.shown == counts.first_line_right + counts.wrong
        assert 0 <= counts.pauses_right <= counts.pauses_shown <= counts.pauses
        assert counts.pauses_hidden <= counts.pauses - counts.pauses_shown
        assert counts.pressed <= counts.keys, "suggestions never cost keys"
        assert counts.stay <= counts.characters
        assert person.takes or (counts.pressed, counts.stay) == (counts.keys, 0)


def test_a_right_suggestion_is_taken_with_one_key():
    counts = replay(recording([("right", -0.01)]), by_value({}, Bar()), TYPIST)
    assert (counts.pressed, counts.shown, counts.wrong, counts.stay) == (1, 1, 0, len(TEXT))


def test_the_reader_takes_at_the_first_pause():
    typed = recording([("right", -0.01)])
    pause = next(number for number, wait_ms in enumerate(waits_ms(typed.body)) if wait_ms >= PAUSE_MS)
    counts = replay(typed, by_value({}, Bar()), READER)
    assert counts.pressed == pause + 1 and counts.pauses == counts.pauses_right == 1


@given(CANDIDATES)
def test_a_hidden_right_candidate_is_counted_at_pauses(candidates: list[tuple[str, float]]):
    typed = recording(candidates)
    shown, hidden = (replay(typed, policy, ONLOOKER) for policy in (by_value({}, Bar()), lambda rows, position: 0))
    assert hidden.pauses_hidden <= hidden.pauses == shown.pauses and hidden.shown == 0
    if {kind for kind, _ in candidates} == {"right"}:
        assert hidden.pauses_hidden == shown.pauses_right == shown.pauses


# ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def with_times(typed: Recording, request_ms: float) -> Recording:
    """The same candidates, each computed anew in this time."""
    return Recording(typed.body, tuple(one | {"ms": request_ms} for one in typed.rows), typed.seconds)


@given(CANDIDATES, st.floats(0, 3000), st.floats(0.5, 8))
def test_a_faster_machine_is_never_later_and_an_endless_one_shows_nothing(
    candidates: list[tuple[str, float]], request_ms: float, times: float
):
    typed = with_times(recording(candidates), request_ms)
    slow, fast = (ready_times_ms(typed, speed) for speed in (1.0, max(1.0, times)))
    assert all(one >= other for one, other in zip(slow, fast, strict=True))
    policy = by_value({}, Bar())
    at_once = replay(typed, policy, READER)
    assert replay(with_times(typed, 0.0), policy, READER, 1.0) == at_once
    late = replay(with_times(typed, 1e9), policy, READER, 1.0)
    assert late.shown <= 1 and late.pressed == late.keys, "but for the last position, at which nothing follows"


# ── policies and figures ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_shown_suggestion_stays_until_a_key_disagrees_and_counts_once():
    text = "\n    abcdefgh"
    typed = recording([("none", 0.0)], text)
    rows = list(typed.rows)
    rows[1] = row("abcdefgX", "    ", -0.01)  # no word of it is right
    rows[2] = row("another", "    a", -0.01)  # never asked: the first one still stands
    counts = replay(Recording(typed.body, tuple(rows), 1.0), by_value({}, Bar()), TYPIST)
    assert (counts.shown, counts.wrong, counts.pressed) == (1, 1, counts.keys)


@given(CANDIDATES, st.floats(0.1, 30), st.floats(1, 5))
def test_a_higher_cost_shows_no_candidate_that_a_lower_one_hides(
    candidates: list[tuple[str, float]], once: float, times: float
):
    typed = recording(candidates)
    judged = judge(typed, CURVE)
    low, high = by_value(judged, Bar(once)), by_value(judged, Bar(once * times))
    for position in range(len(typed.rows)):
        if high(typed.rows, position):
            assert low(typed.rows, position)


def test_a_recorded_line_is_judged_as_the_gate_judges_it():
    text = "total = 0\n    return total"
    candidate = row(text, "    ", -0.3)
    assert line_list(candidate) == list(lines(text, token_spans([(1, -0.3)] * len(text))))
    assert len(judge(Recording(body(), (candidate,), 1.0), CURVE)[0]) == 2


@pytest.mark.slow
def test_counts_become_figures_with_intervals_and_a_table():
    recordings = [
        recording([("right", -0.02), ("half", -2.0), ("wrong", -1.5), ("none", 0.0)], package=f"p{number}")
        for number in range(4)
    ]
    judged = [judge(one, CURVE) for one in recordings]
    result = economy.compare(recordings, judged)
    for rows in result["persons"].values():
        assert rows["everything"]["keys_saved"] == rows["high"]["keys_saved"], "both show everything"
        assert rows["medium"]["wrong_per_key"]["value"] <= rows["high"]["wrong_per_key"]["value"]
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert "medium" in result["persons"]["reader"]
    assert result["languages"]["medium"]["python"]["bodies"] == 4
    chosen = economy.chosen_costs(recordings, judged)
    assert [row["judged_on"] for row in chosen.values()] == ["the other half", "the other half", "itself"]
    times = economy.in_real_time([with_times(one, 100.0) for one in recordings], judged)
    assert times["speed 4"]["keys_saved"]["value"] >= times["speed 1"]["keys_saved"]["value"]
