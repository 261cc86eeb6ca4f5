"""Hunks of a model's answer: known as soon as the answer repeats the window, and always a part of the whole answer."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp.lsp.postprocess.edit_answer import AnswerHunk, first_hunk, joint_logprob

WINDOW = ("def load(self):", "    return self.items", "", "def save(self):", "    write(self.items)", "    close()")


def changed(hunk: AnswerHunk | None) -> list[str]:
    """The window with the hunk applied."""
    assert hunk is not None
    return [*WINDOW[: hunk.first], *hunk.lines, *WINDOW[hunk.end :]]


def text(*lines: str) -> str:
    return "".join(line + "\n" for line in lines)


@pytest.mark.parametrize(
    ("answer", "lines", "shows"),
    [
        (text(WINDOW[0], "    return self.rows", "", WINDOW[3]), (1, 2, ("    return self.rows",)), "row"),
        (text(WINDOW[0], "    log()", WINDOW[1]), (1, 1, ("    log()",)), "    log()\n"),
        (text(*WINDOW[:3], *WINDOW[4:]), (3, 4, ()), ""),
        (text(*WINDOW[:4], "    a()", "    b()", WINDOW[5]), (4, 5, ("    a()", "    b()")), "a()\n    b("),
    ],
    ids=["changed line", "added line", "removed line", "one line for two"],
)
def test_a_hunk_is_known_when_the_answer_repeats_the_window(answer: str, lines: tuple[int, int, tuple], shows: str):
    hunk = first_hunk(WINDOW, answer, ended=False)
    assert hunk is not None and (hunk.first, hunk.end, hunk.lines) == lines
    assert answer[hunk.answer_start : hunk.answer_end] == shows
    assert first_hunk(WINDOW, answer[:-1], ended=False) is None, "its last line may go on"


def test_an_unchanged_window_has_no_hunk_and_a_changed_last_line_needs_the_end():
    assert first_hunk(WINDOW, text(*WINDOW), ended=True) is None
    assert first_hunk(WINDOW, text(*WINDOW)[:-1], ended=True) is None, "the last newline does not matter"
    answer = text(*WINDOW[:5], "    end()")
    assert first_hunk(WINDOW, answer, ended=False) is None
    assert changed(first_hunk(WINDOW, answer, ended=True)) == [*WINDOW[:5], "    end()"]


LINES = st.lists(st.sampled_from(["a", "b", "c1", "d2", "", "}"]), max_size=7)


@given(LINES, LINES)
def test_a_hunk_leads_towards_the_answer(window: list[str], answer: list[str]):
    """Applied to the window, it gives the lines of the answer up to its end, and one more that both have."""
    written = text(*answer)
    for length in range(len(written) + 1):
        ended = length == len(written)
        hunk = first_hunk(window, written[:length], ended)
        if hunk is None:
            assert not ended or window == answer
            continue
        assert 0 <= hunk.first <= hunk.end <= len(window)
        assert window[: hunk.first] == answer[: hunk.first]
        assert list(hunk.lines) == answer[hunk.first : hunk.first + len(hunk.lines)]
        assert list(hunk.lines) != window[hunk.first : hunk.end]
        assert 0 <= hunk.answer_start <= hunk.answer_end <= len(written)
        if not ended:
            after = hunk.first + len(hunk.lines)
            assert answer[after] == window[hunk.end], "the answer has rejoined the window"
            break


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(-5, 0)), max_size=8), st.data())
def test_only_tokens_with_changed_characters_count(tokens: list[tuple[int, float]], data: st.DataObject):
    size = sum(characters for characters, _ in tokens)
    start = data.draw(st.integers(0, size))
    end = data.draw(st.integers(start, size))
    at, counted = 0, []
    for characters, logprob in tokens:
        held = set(range(at, at + characters)) or {at}  # a part of a character counts as the next one
        counted += [logprob] if held & set(range(start, max(end, start + 1))) else []
        at += characters
    assert joint_logprob(tokens, start, end) == pytest.approx(sum(counted) if counted else -math.inf)
