"""The replay of a recording keeps the books: keys, shown suggestions, and the person's acceptances."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.keystrokes.economy import economy, figures
from benchmarks.keystrokes.economy.bodies import Body
from benchmarks.keystrokes.economy.person import Keyboard
from benchmarks.keystrokes.economy.policies import by_confidence, by_share, by_value, judge, line_list
from benchmarks.keystrokes.economy.recording import Recording
from benchmarks.keystrokes.economy.replay import AFTER_ACCEPTING, EVERYWHERE, PAUSES, replay, replay_joined
from benchmarks.quality.calibration.examples import examples
from speclsp.lsp.completion.confidence import COSTS, NO_COST, Cost, Curve, lines, token_spans

CURVE = Curve(first={"intercept": 2.0, "total": 2.0}, later={"intercept": 2.0, "total": 2.0}, expected=0.5)
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
        "line": before.rpartition("\n")[2], "above": [], "opens": False,
        "lines": [[line.end, [list(token) for token in line.tokens], line.end] for line in own if line.end in last],
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


@given(CANDIDATES, st.booleans())
def test_the_books_balance_under_every_policy(candidates: list[tuple[str, float]], accepts: bool):
    typed = recording(candidates)
    judged = judge(typed, CURVE)
    for policy in (by_share(0.1), by_value(judged, COSTS["medium"]), by_confidence(judged, 0.2)):
        counts = replay(typed, policy, accepts)
        assert counts.keys == Keyboard.of(TEXT).keys and counts.characters == len(TEXT)
        assert counts.shown == counts.first_line_right + counts.wrong
        assert counts.wrong_but_used <= counts.wrong <= counts.shown
        assert 0 <= counts.pauses_right <= counts.pauses_shown <= counts.pauses
        assert counts.pressed <= counts.keys, "suggestions never cost keys"
        assert counts.stay <= counts.characters
        assert accepts or (counts.pressed, counts.stay) == (counts.keys, 0)


def test_a_right_suggestion_is_taken_with_one_key():
    counts = replay(recording([("right", -0.01)]), by_value({}, NO_COST))
    assert (counts.pressed, counts.shown, counts.wrong, counts.stay) == (1, 1, 0, len(TEXT))


def test_a_shown_suggestion_stays_until_a_key_disagrees_and_counts_once():
    text = "\n    abcdefgh"
    typed = recording([("none", 0.0)], text)
    rows = list(typed.rows)
    rows[1] = row("abcdefgX", "    ", -0.01)  # no word of it is right
    rows[2] = row("another", "    a", -0.01)  # never asked: the first one still stands
    counts = replay(Recording(typed.body, tuple(rows), 1.0), by_value({}, NO_COST))
    assert (counts.shown, counts.wrong, counts.pressed) == (1, 1, counts.keys)


@given(CANDIDATES, st.floats(0.1, 30), st.floats(1, 5))
def test_a_higher_cost_shows_no_candidate_that_a_lower_one_hides(
    candidates: list[tuple[str, float]], once: float, times: float
):
    typed = recording(candidates)
    judged = judge(typed, CURVE)
    low, high = by_value(judged, Cost(once, 0.5)), by_value(judged, Cost(once * times, 0.5 * times))
    for position in range(len(typed.rows)):
        if high(typed.rows, position):
            assert low(typed.rows, position)


def test_a_recorded_line_is_judged_as_the_gate_judges_it():
    text = "total = 0\n    return total"
    candidate = row(text, "    ", -0.3)
    assert line_list(candidate) == list(lines(text, token_spans([(1, -0.3)] * len(text))))
    assert len(judge(Recording(body(), (candidate,), 1.0), CURVE)[0]) == 2


def test_examples_know_which_lines_are_right():
    first, later = examples([recording([("right", -0.1)]), recording([("wrong", -3.0)], package="q")])
    assert {example.right for example in first if example.package == "p"} == {True}
    assert {example.right for example in first if example.package == "q"} == {False}
    assert later and all(example.right and example.package == "p" for example in later)


@pytest.mark.slow
def test_counts_become_figures_with_intervals_and_a_table():
    recordings = [
        recording([("right", -0.02), ("half", -2.0), ("wrong", -1.5), ("none", 0.0)], package=f"p{number}")
        for number in range(4)
    ]
    result = economy.compare(recordings, {f"p{number}": CURVE for number in range(4)})
    before, high = result["policies"]["before, share 0"], result["policies"]["high"]
    assert before["keys_saved"] == high["keys_saved"], "both show everything"
    assert high["keys_saved_change"]["value"] >= 0
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert "medium" in figures.table(result["policies"])
    assert result["languages"]["medium"]["python"]["bodies"] == 4


def first_lines(longer: Recording) -> Recording:
    """The same candidates with their first lines alone."""
    rows = []
    for number, end in enumerate(Keyboard.of(longer.body.text).ends):
        text = longer.rows[number]["text"]
        blank = len(text) - len(text.lstrip("\n"))
        line_end = text.find("\n", blank)
        rows.append(row(text[:line_end] if line_end >= 0 else text, longer.body.text[:end], -0.02))
    return Recording(longer.body, tuple(rows), 1.0)


@given(CANDIDATES, st.sets(st.sampled_from((PAUSES, AFTER_ACCEPTING, EVERYWHERE))))
def test_lines_that_join_keep_the_books_and_right_ones_save_keys(candidates: list[tuple[str, float]], ways: set[str]):
    longer = recording(candidates)
    alone, policy = first_lines(longer), by_value({}, NO_COST)
    counts = replay_joined(alone, longer, policy, policy, ways)
    assert counts.shown == counts.first_line_right + counts.wrong and counts.pressed <= counts.keys
    if not ways:
        assert counts == replay(alone, policy)
    if {kind for kind, _ in candidates} <= {"right"}:
        assert counts.pressed <= replay(alone, policy).pressed and counts.wrong == 0


def test_lines_that_join_make_no_other_suggestion():
    longer, policy = recording([("right", -0.01)]), by_value({}, NO_COST)
    joined = replay_joined(first_lines(longer), longer, policy, policy, (EVERYWHERE,))
    assert (joined.pressed, joined.shown) == (1, 1)
    looked = replay_joined(first_lines(longer), longer, policy, policy, (PAUSES,), accepts=False)
    assert (looked.shown, looked.pressed) == (1, looked.keys), "it grows at the next pause"


def test_lines_that_do_not_continue_the_shown_one_never_join():
    longer, policy = recording([("wrong", -0.01)]), by_value({}, NO_COST)
    alone = first_lines(recording([("right", -0.01)]))
    assert replay_joined(alone, longer, policy, policy, (EVERYWHERE,)) == replay(alone, policy)


def test_the_joined_lines_are_compared_with_the_first_line_alone():
    recordings = [recording([("right", -0.02), ("half", -2.0)], package=f"p{number}") for number in range(4)]
    curves = {f"p{number}": CURVE for number in range(4)}
    result = economy.joined([first_lines(longer) for longer in recordings], recordings, curves)
    assert result["medium"]["keys_saved_change"]["value"] == 0
    assert len(result) == 2 * (1 + len(economy.JOINED))
    assert "joined everywhere" in figures.table(result) and "wrong_per_key" in figures.changes_table(result)
