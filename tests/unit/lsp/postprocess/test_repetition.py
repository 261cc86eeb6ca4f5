"""Loops: a clause or sentence that the model writes for the third time ends the suggestion after the first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.lsp.suggested import accepted

from speclsp.lsp.postprocess import repetition
from speclsp.lsp.reasons import Reason


@pytest.mark.parametrize(
    ("language", "marked", "output", "result"),
    [
        (
            "javascript",
            'const lorem = "Lorem ipsum dolor sit amet, ¦";\n',
            "amet. Nulla facilisi. Sed ut tellus. Nulla facilisi. Sed ut tellus. Nulla facil",
            'const lorem = "Lorem ipsum dolor sit amet, amet. Nulla facilisi. Sed ut tellus.";\n',
        ),
        ("python", "# ¦\n", "Return the value. Return the value. Return the value.\n", "# Return the value.\n"),
        ("python", "# Return the value of the key. ¦\n", "Return the value of the key. Return the\n", Reason.LOOPS),
        (
            "python",
            '"""¦\n"""\n',
            "of the first one, and of the second one, " * 4,
            '"""of the first one, and of the second one,\n"""\n',
        ),
        ("python", "if ¦:\n", "a == 1 or a == 2 or a == 2 or a == 2 or a == 2", "if a == 1 or a == 2:\n"),
        ("go", "if ¦ {\n", "a == nil && b == nil && b == nil && b == nil && b", "if a == nil && b == nil {\n"),
        ("markdown", "We ¦\n", "go. We walk far and we walk far and we walk far and\n", "We go. We walk far and\n"),
        ("python", "# ¦\n", "今天天气很好。今天天气很好。今天天气很好。\n", "# 今天天气很好。\n"),
        ("markdown", "¦\n", "Über alle Maßen. Über alle Maßen. Über alle Maßen. Ü\n", "Über alle Maßen.\n"),
    ],
)
def test_a_text_ends_before_the_second_repetition(language: str, marked: str, output: str, result: str | Reason):
    assert accepted(marked, output, language) == result


@pytest.mark.parametrize(
    ("language", "marked", "output"),
    [
        ("python", "x = [¦]\n", "0, 0, 0, 0, 0, 0, 0, 0"),
        ("python", "x = [¦]\n", "None, None, None, None, None"),
        ("python", "x = (¦)\n", "Point(1, 2), Point(1, 2), Point(1, 2), Point(1, 2)"),
        ("python", "# ¦\n", "0.0 1.0 0.0 1.0 0.0 1.0 0.0 1.0\n"),
        ("python", 'x = "¦"\n', "%s %d %s %d %s %d %s %d"),
        ("javascript", "const v = ¦;\n", "[1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0]"),
        ("sql", "INSERT INTO t VALUES ¦;\n", "(1, 'a', NULL), (1, 'a', NULL), (1, 'a', NULL)"),
        ("c", "int x[] = {¦};\n", "MAX_SIZE, MAX_SIZE, MAX_SIZE, MAX_SIZE"),
        ("markdown", "| ¦\n", "--- | --- | --- | --- | --- |\n"),
        ("c", "if (¦)\n", "c != 'a' && c != 'A' && c != 'b' && c != 'B'"),
        ("python", "if ¦:\n", "a == 1 or a == 2 or a == 3 or a == 4 or a == 5"),
    ],
)
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
