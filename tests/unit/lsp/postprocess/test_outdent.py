"""Outdent: a line that ends its block stands as deep as the line that opened it, or nothing is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.lsp.suggested import accepted, suggest
from support.rows import rows

from speclsp.lsp.postprocess.plan import Suggestion
from speclsp.lsp.reasons import Reason

ROWS = rows(__file__)


@pytest.mark.parametrize(
    ("language", "marked", "output", "result"),
    ROWS["a_line_that_ends_its_block_stands_as_deep_as_the_opener"],
)
def test_a_line_that_ends_its_block_stands_as_deep_as_the_opener(language: str, marked: str, output: str, result: str):
    assert accepted(marked, output, language, outdents=True) == result
    assert accepted(marked, output, language) is Reason.OUTDENTS, "an editor that cannot move the line shows nothing"


@pytest.mark.parametrize(("language", "marked", "output"), ROWS["other_lines_keep_their_indentation"])
def test_other_lines_keep_their_indentation(language: str, marked: str, output: str):
    with_outdents = suggest(marked, output, language, outdents=True)
    assert with_outdents == suggest(marked, output, language)
    assert isinstance(with_outdents, Reason) or with_outdents.start == marked.index("¦")


@pytest.mark.parametrize(
    ("language", "marked", "output", "reason"),
    [
        ("javascript", "if (x) {\n  a();\n  ¦\n}\n", "}\n", Reason.REPEATS_BELOW),
        ("python", "if x:\n    a()\n    ¦\nelse:\n    b()\n", "else:\n", Reason.REPEATS_BELOW),
        ("c", "int f() {\n  x();\n  ¦\n  y();\n}\n", "}\n", Reason.BREAKS),
    ],
)
def test_a_block_is_not_ended_twice(language: str, marked: str, output: str, reason: Reason):
    assert suggest(marked, output, language, outdents=True) is reason


@given(
    st.lists(st.sampled_from(["if", "for", "while", "try", "with"]), min_size=1, max_size=5),
    st.integers(1, 4),
    st.data(),
)
def test_the_range_covers_white_space_only_and_the_result_is_deeper_than_nothing(
    headers: list[str], step: int, data: st.DataObject
):
    tails = {"if": " x:", "for": " x in y:", "while": " x:", "try": ":", "with": " x:"}
    lines = [" " * step * depth + word + tails[word] for depth, word in enumerate(headers)]
    marked = "\n".join([*lines, " " * step * len(headers) + "a()", " " * step * len(headers) + "¦"])
    word = data.draw(st.sampled_from(["else", "except", "finally"]))
    suggestion = suggest(marked, f"{word}:\n", outdents=True)
    if isinstance(suggestion, Suggestion):
        text = marked.replace("¦", "")
        assert text[suggestion.start : suggestion.end].strip() == ""
        assert text[suggestion.start - 1] == "\n" or suggestion.start == len(text)
        width = len(suggestion.text) - len(suggestion.text.lstrip())
        assert width % step == 0 and headers[width // step] in {"else": ("if", "for", "while")}.get(word, ("try",))
