"""Plain text: the first stop text, the text that may become one, and the inside of words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from speclsp.plain_text import first_stop, is_inside_word, longest_stop_start

words = st.text("ab", max_size=8)


@given(text=words, stops=st.lists(words, max_size=3))
def test_the_first_stop_text_ends_the_text_and_an_empty_one_does_not(text: str, stops: list[str]):
    starts = [at for at in range(len(text)) if any(stop and text.startswith(stop, at) for stop in stops)]
    assert first_stop(text, stops) == min(starts, default=None)


@given(text=words, more=words, stops=st.lists(words, max_size=3))
def test_no_stop_text_begins_before_the_withheld_characters(text: str, more: str, stops: list[str]):
    stop = first_stop(text + more, stops)
    if first_stop(text, stops) is None and stop is not None:
        assert stop >= len(text) - longest_stop_start(text, stops)


def test_an_offset_is_inside_a_word_between_two_of_its_characters():
    assert [at for at in range(8) if is_inside_word("ab +_é1", at)] == [1, 5, 6]
