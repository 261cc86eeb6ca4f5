"""Repetition: of the statements above, and of a clause or sentence that the model writes for the third time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.lsp.suggested import accepted
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
    ("language", "marked", "output"),
    [
        ("python", "self.x = x\nself.y = y\n¦", "self.x = x\n"),
        ("python", "self.x = x\nself.y = y\nself.z = z\nself.¦", "x = x\n"),
        ("javascript", "app.use(json());\n\napp.use(cors());\n¦\n", "app.use(json());\n"),
        ("c", "  a = b;\n  c = d;\n  ¦\n", "a = b;\n"),
    ],
)
def test_a_statement_of_the_last_three_lines_is_not_shown_again(language: str, marked: str, output: str):
    assert accepted(marked, output, language) is Reason.REPEATS_ABOVE


@pytest.mark.parametrize(("language", "marked", "output"), ROWS["a_line_that_often_repeats_is_shown"])
def test_a_line_that_often_repeats_is_shown(language: str, marked: str, output: str):
    assert not isinstance(accepted(marked, output, language), Reason)


words = st.from_regex(r"[a-z]{3,8}", fullmatch=True)
sentences = st.lists(words, min_size=4, max_size=12, unique=True).map(lambda sentence: " ".join(sentence) + ".")


@given(sentences, sentences, st.integers(3, 6))
def test_a_sentence_said_three_times_is_kept_once(opening: str, sentence: str, times: int):
    text = " ".join([opening] * (opening != sentence) + [sentence] * times) + " "
    end = repetition.clause_loop(text)
    assert end is not None and text[:end].count(sentence) <= 1


@given(st.lists(words, max_size=60, unique=True).map(" ".join))
def test_a_text_of_different_words_is_no_loop(text: str):
    assert repetition.clause_loop(text) is None


@given(st.lists(st.sampled_from(["one", "two,", "three.", "0,", "或", "or"]), max_size=40).map(" ".join), st.data())
def test_a_loop_stays_where_it_is_while_more_text_arrives(text: str, data: st.DataObject):
    early = repetition.clause_loop(text[: data.draw(st.integers(0, len(text)))])
    assert early is None or early == repetition.clause_loop(text)
