"""The simulated person takes only right text, and never for more keys than it saves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.keystrokes.economy.person import (
    MIN_SAVED,
    NOTHING,
    ONLOOKER,
    PERSONS,
    READER,
    Acceptance,
    Keyboard,
    Person,
    accept,
    right_length,
    right_lines,
)

TEXTS = st.text(alphabet="ab (.\n", max_size=40)


WORD_TAKER = PERSONS[-1]


def taken(suggestion: str, meant: str, person: Person = WORD_TAKER) -> Acceptance:
    """The acceptance at the start of `meant`."""
    return accept(suggestion, meant, Keyboard.of(meant), 0, person)


@given(TEXTS, TEXTS)
def test_only_the_word_taker_takes_a_part_of_a_line(suggestion: str, meant: str):
    acceptance = taken(suggestion, meant, READER)
    assert acceptance.characters in (0, len(suggestion), *right_lines(suggestion, meant))
    assert acceptance.saved <= taken(suggestion, meant).saved
    assert taken(suggestion, meant, ONLOOKER) == NOTHING


@given(TEXTS)
def test_the_keys_type_the_whole_text_and_enter_types_the_next_indentation(text: str):
    keyboard = Keyboard.of(text)
    assert keyboard.ends[0] == 0 and keyboard.ends[-1] == len(text)
    assert list(keyboard.ends) == sorted(set(keyboard.ends))
    assert keyboard.keys <= len(text)
    assert all(keyboard.position(end) == number for number, end in enumerate(keyboard.ends))
    assert Keyboard.of("a\n    b").keys == 3


@given(TEXTS, TEXTS)
def test_only_right_text_is_taken_and_only_where_it_saves_keys(suggestion: str, meant: str):
    acceptance = taken(suggestion, meant)
    assert suggestion[: acceptance.characters] == meant[: acceptance.characters]
    assert acceptance == NOTHING or acceptance.saved >= MIN_SAVED > 0
    assert acceptance.keys + acceptance.saved == Keyboard.of(meant).position(acceptance.characters)


@pytest.mark.parametrize(
    ("suggestion", "meant", "expected"),
    [
        ("return total", "return total\n", Acceptance(12, 1, 11)),
        ("return total + 1", "return total\n", Acceptance(12, 2, 10)),  # its two right words
        ("return totals", "return total\n", Acceptance(6, 1, 5)),  # no part of a word
        ("a = 1\n    b = 2\n    c", "a = 1\n    b = 3\n    c", Acceptance(13, 3, 6)),  # a line, and then words
        ("yield x", "return total\n", NOTHING),
        ("ab", "ab\n", NOTHING),  # typed as fast
        ("", "return", NOTHING),
    ],
)
def test_the_part_that_saves_most_is_taken(suggestion: str, meant: str, expected: Acceptance):
    assert taken(suggestion, meant) == expected


@given(TEXTS, TEXTS)
def test_right_lines_are_whole_lines_that_follow(suggestion: str, meant: str):
    for end in right_lines(suggestion, meant):
        assert suggestion[:end] == meant[:end]
        assert end == len(meant) or meant[end] == "\n"
        assert end == len(suggestion) or suggestion[end] == "\n"
        assert end <= right_length(suggestion, meant)
