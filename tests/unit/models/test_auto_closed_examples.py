"""Examples at places with automatic closers, and closers that stay behind a cursor."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.training import auto_closed_examples
from models.training.fill_examples import Cut, closers_of
from speclsp.lsp.syntax import lexical_rules
from speclsp.lsp.syntax.grammars import grammar

PARTS = [
    "a = call(one, two[three]);",
    "say({key: 'text', other: [1, 2]});",
    "run(() => {\n  go(first, second);\n});",
    "if (test(value)) {\n  first();\n  second('a');\n}",
    "const {x, y} = use(z(w(v)));",
    "let a = b + c;",
]
FILES = st.lists(st.sampled_from(PARTS), min_size=8, max_size=16).map(lambda parts: "\n".join(parts) + "\n")
RULES = lexical_rules.rules_of(grammar("javascript"))
LINES = st.text("a()[]{},; ", max_size=24)


def cuts(text: str, seed: int) -> list[Cut]:
    return list(auto_closed_examples.cuts(text, "javascript", random.Random(seed), 6))


@given(FILES, st.integers(0, 999))
def test_an_answer_closes_what_it_opens(text: str, seed: int):
    for cut in cuts(text, seed):
        above, below = cut.text[: cut.cursor], cut.text[cut.cursor :]
        assert text.startswith(above + cut.answer) and cut.is_whole
        assert lexical_rules.pair(above + cut.answer + below, RULES, tags=False).imbalance == 0
        assert cut.kind == auto_closed_examples.KIND and re.search(r"\w", cut.answer)


@given(LINES, st.data())
def test_only_closers_of_openers_left_of_the_cursor_stay(line: str, data: st.DataObject):
    column = data.draw(st.integers(0, len(line)))
    stays = closers_of(line, column)
    assert line.endswith(stays) and len(stays) < max(1, len(line) - column)
    answer = line[column : len(line) - len(stays)]
    before = lexical_rules.pair(line[:column], RULES, tags=False).openers
    after = lexical_rules.pair(line[:column] + answer, RULES, tags=False).openers
    if stays:  # what was open is still open in the line up to the closers, and nothing else
        closers = stays.rstrip(";,:")
        assert [opener.closer for opener in after[::-1]][: len(closers)] == list(closers)
        assert len(before) >= len(closers)


@pytest.mark.parametrize(
    ("line", "column", "stays"),
    [
        ("f(a, g(b))", 5, ")"),
        ("f(a, g(b))", 7, "))"),
        ("f(a, g(b));", 7, "));"),
        ("  x, y)", 2, ""),
        ("f([a])", 2, ")"),
    ],
)
def test_closers_of_a_line(line: str, column: int, stays: str):
    assert closers_of(line, column) == stays
