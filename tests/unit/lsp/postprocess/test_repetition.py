"""Loops: a clause or sentence that the model writes for the third time ends the suggestion after the first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.lsp.suggested import accepted
from support.rows import rows

from speclsp.lsp.postprocess import repetition
from speclsp.lsp.reasons import Reason

ROWS = rows(__file__)


@pytest.mark.parametrize(("language", "marked", "output", "result"), ROWS["a_text_ends_before_the_second_repetition"])
def test_a_text_ends_before_the_second_repetition(language: str, marked: str, output: str, result: str | Reason):
    assert accepted(marked, output, language) == result


@pytest.mark.parametrize(("language", "marked", "output"), ROWS["equal_entries_of_a_list_are_no_loop"])
def test_equal_entries_of_a_list_are_no_loop(language: str, marked: str, output: str):
    assert accepted(marked, output, language) == marked.replace("¦", output.rstrip())


words = st.from_regex(r"[a-z]{3,8}", fullmatch=True)
sentences = st.lists(words, min_size=4, max_size=12, unique=True).map(lambda sentence: " ".join(sentence) + ".")


@given(sentences, sentences, st.integers(3, 6))
def test_a_sentence_said_three_times_is_kept_once(opening: str, sentence: str, times: int):
    text = " ".join([opening] * (opening != sentence) + [sentence] * times) + " "
    second = repetition.second_repetition(text, prose=True)
    assert second is not None
    assert text[:second].count(sentence) == 1 and text[:second].rstrip().endswith(".")


@given(st.lists(words, max_size=60, unique=True).map(" ".join), st.booleans())
def test_a_text_of_different_words_is_no_loop(text: str, prose: bool):
    assert repetition.second_repetition(text, prose=prose) is None


@given(st.lists(st.sampled_from(["one", "two,", "three.", "0,", "或", "or"]), max_size=40).map(" ".join), st.data())
def test_a_loop_stays_where_it_is_while_more_text_arrives(text: str, data: st.DataObject):
    prose = data.draw(st.booleans())
    early = repetition.second_repetition(text[: data.draw(st.integers(0, len(text)))], prose=prose)
    assert early is None or early == repetition.second_repetition(text, prose=prose)
