"""Replay of edits: undone edits and half-typed lines."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.editor.edit_replay.edit_counts import Count
from benchmarks.editor.edit_replay.half_typed import cut_line
from benchmarks.editor.edit_replay.replayed_file import Rules
from benchmarks.editor.next_edit import replay, undoes
from benchmarks.quality.edits import Hunk

PARTS = st.text("ab_(), ./", max_size=12)


@pytest.mark.parametrize(
    ("proposed", "is_undone"),
    [(["a = 1", "b"], True), (["a = 2", "b", "c"], False), (["a = 2", "b"], False), (["b"], True)],
)
def test_an_edit_undoes_the_newest_one_if_most_of_its_lines_go_back(proposed: list[str], is_undone: bool):
    assert undoes(["a = 1", "b"], ["a = 2", "b"], proposed) is is_undone


def test_a_half_typed_line_ends_behind_its_cursor_as_the_old_line_does():
    typed, column = cut_line(["call(a)"], Hunk(0, 1, ("call(a, b=1)",)), random.Random(1)) or ("", 0)
    assert typed.startswith("call(a,"[:column]) and typed.endswith(")") and 6 < column < len("call(a, b=1)")


@given(PARTS, PARTS, PARTS, PARTS, st.integers(0, 99))
def test_a_half_typed_line_is_a_beginning_of_the_new_line_and_an_end_of_the_old_one(
    head: str, went: str, came: str, tail: str, seed: int
):
    old, new = head + went + tail, head + came + tail
    cut = cut_line([old], Hunk(0, 1, (new,)), random.Random(seed))
    if cut is not None:
        typed = cut[0]
        assert typed not in (old, new)
        assert typed.startswith(head)
        ends = range(len(head) + 1, len(typed) + 1)
        assert any(new.startswith(typed[:end]) and old.endswith(typed[end:]) for end in ends)


def patient() -> Rules:
    """The rules with time enough on any machine."""
    return Rules(budget_ms=10_000)


def test_counts_of_languages_add_up():
    code = "".join(f"value_{n} = lib.read(open_file, {n})\n" for n in range(6))
    counts = {"python": Count(), "rust": Count()}
    for count in counts.values():
        spread = code.replace("\n", "\n\n")
        list(replay("app.py", spread, spread.replace("open_file", "shared.file"), patient(), count))
    total = Count.sum(counts.values())
    assert total.states == 10 and total.shown == 2 * counts["rust"].shown > 0
    assert total.right == total.shown and total.undoing == 0
    assert len(total.ms) == len(counts["python"].ms) * 2
    assert total.figures()["precision"] == 1.0
