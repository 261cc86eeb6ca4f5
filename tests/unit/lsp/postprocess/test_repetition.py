"""Loops: a clause or sentence that the model writes for the third time ends the suggestion after the first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.lsp.suggested import accepted, applied, outcome, plan_at, streamed
from support.rows import rows

from speclsp.config import CompletionConfig
from speclsp.lsp.postprocess import repetition
from speclsp.lsp.reasons import Reason

ROWS = rows(__file__)
EAGER = CompletionConfig(eagerness="high")


@pytest.mark.parametrize(("language", "marked", "output", "result"), ROWS["a_text_ends_before_the_second_repetition"])
def test_a_text_ends_before_the_second_repetition(language: str, marked: str, output: str, result: str | Reason):
    assert accepted(marked, output, language) == result


@pytest.mark.parametrize(("language", "marked", "output"), ROWS["equal_entries_of_a_list_are_no_loop"])
def test_equal_entries_of_a_list_are_no_loop(language: str, marked: str, output: str):
    assert accepted(marked, output, language) == marked.replace("¦", output.rstrip())


@pytest.mark.parametrize(
    ("language", "marked", "output", "result"), ROWS["a_sequence_that_counts_up_ends_after_its_first_new_item"]
)
def test_a_sequence_that_counts_up_ends_after_its_first_new_item(language: str, marked: str, output: str, result: str):
    plan = plan_at(marked, language, EAGER)
    assert outcome(marked, plan.to_suggestion(output)) == result
    assert outcome(marked, plan.to_suggestion(streamed(plan, output))) == result


@pytest.mark.parametrize(("language", "marked", "output"), ROWS["a_short_or_known_sequence_is_no_loop"])
def test_a_short_or_known_sequence_is_no_loop(language: str, marked: str, output: str):
    assert accepted(marked, output, language) == marked.replace("¦", output)


def test_a_list_of_numbers_is_a_loop_if_a_limit_ended_it():
    plan = plan_at("xs = [1, ¦]\n")
    assert applied("xs = [1, ]\n", plan.to_suggestion("2, 3, 4, 5, 6, 7, 8, 9", complete=False)) == "xs = [1, 2]\n"


@given(st.integers(0, 40), st.integers(1, 40), st.integers(0, 300))
def test_a_counting_sequence_stays_cut_where_it_is_while_more_text_arrives(first: int, count: int, length: int):
    around = plan_at("¦\n").around
    text = "\n".join(f"a{number} = {number}" for number in range(first, first + count))
    early = repetition.counting_end(text[:length], around, truncated=False)
    assert early is None or early == repetition.counting_end(text, around, truncated=False)


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
