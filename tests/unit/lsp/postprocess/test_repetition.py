"""Loops: a clause or sentence that the model writes for the third time ends the suggestion after the first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.lsp.suggested import accepted, outcome, plan_at, streamed
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


@pytest.mark.parametrize(("language", "marked", "output", "result"), ROWS["a_sequence_that_a_limit_cuts"])
def test_a_sequence_that_a_limit_cuts_ends_after_its_first_new_item(
    language: str, marked: str, output: str, result: str
):
    """Before a closer, nothing of a list is shown. Behind a sequence that the text continues past, the items remain."""
    plan = plan_at(marked, language, EAGER)
    text = streamed(plan, output)
    assert outcome(marked, plan.to_suggestion(output, complete=False)) == result
    assert outcome(marked, plan.to_suggestion(text, complete=text != output)) == result


@pytest.mark.parametrize(("language", "marked", "output"), ROWS["a_sequence_that_the_model_ends_is_kept"])
def test_a_sequence_that_the_model_ends_is_kept(language: str, marked: str, output: str):
    plan, result = plan_at(marked, language), marked.replace("¦", output.removesuffix("\nnext()"))
    assert outcome(marked, plan.to_suggestion(output)) == result
    assert outcome(marked, plan.to_suggestion(streamed(plan, output))) == result


def test_a_sequence_that_the_model_closes_itself_is_kept_before_an_inserted_closer():
    names = ", ".join(f'"f{number}"' for number in range(1, 13))
    assert accepted("keys = [¦]\n", names + "]") == accepted("keys = [¦]\n", names) == f"keys = [{names}]\n"


@pytest.mark.parametrize(("language", "marked", "output"), ROWS["a_known_sequence_is_kept_at_a_limit"])
def test_a_known_sequence_is_kept_at_a_limit(language: str, marked: str, output: str):
    assert repetition.counting_end(output, plan_at(marked, language).around) is None


@given(st.integers(0, 120), st.integers(5, 40), st.data())
def test_a_sequence_is_cut_while_it_goes_on_and_kept_when_the_text_continues_past_it(
    first: int, count: int, data: st.DataObject
):
    around = plan_at("¦\n").around
    lines = [f"a{number} = {number}\n" for number in range(first, first + count)]
    text = "".join(lines)
    length = data.draw(st.integers(sum(map(len, lines[:4])), len(text)))
    assert repetition.counting_end(text[:length], around) == len(lines[0]) - 1
    assert repetition.counting_end(text + "return a", around) is None


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
def test_a_sequence_that_begins_before_the_cursor_is_cut_behind_it(count: int, cursor: int, length: int):
    line = ", ".join(f"x{number}, {number}, y{number}, z{number}" for number in range(9, 13))[: 40 + count]
    around = plan_at(line[:cursor] + "¦\n").around
    end = repetition.counting_end(line[cursor : cursor + length], around)
    assert end is None or 0 <= end <= length


class CountedLines(tuple[str, ...]):
    """Lines that count how often they are read."""

    reads = 0

    def __iter__(self) -> Iterator[str]:
        CountedLines.reads += 1
        return super().__iter__()


def test_the_document_is_read_once_for_a_long_sequence():
    around = replace(plan_at("xs = [¦\n").around, above=CountedLines(("a = 1",)))
    assert repetition.counting_end(", ".join(map(str, range(128))), around) and CountedLines.reads == 1


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
