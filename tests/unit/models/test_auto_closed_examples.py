"""Examples at places with automatic closers, and closers that stay behind a cursor."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.training import auto_closed_examples, train
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


def test_every_kind_occurs_and_a_file_gives_no_more_than_asked():
    text = "\n".join(PARTS * 3) + "\n"
    answers = [cut.answer for seed in range(60) for cut in cuts(text, seed)]
    assert any("\n" in answer for answer in answers) and "one, two[three]" in answers and "text" in answers
    assert any(answer.startswith("\n") for answer in answers), "the block behind its opener"
    assert all(len(cuts(text, seed)) <= 6 for seed in range(20))


def test_a_long_body_is_learned_from_its_beginning_and_has_no_end():
    body = "\n".join(f"  call_number_{n}(first_argument, second_argument, {n});" for n in range(12))
    text = "\n" * 8 + f"function f() {{\n{body}\n}}\n" + "let a;\n" * 8
    parts = [cut for seed in range(40) for cut in cuts(text, seed) if "\n" in cut.answer]
    assert parts and not any(cut.is_whole for cut in parts)
    assert all(cut.text[cut.cursor :].lstrip().startswith("}") for cut in parts)


def test_the_rest_of_the_block_may_not_be_written_yet():
    document = "def f():\n    a(b)\n    c()\n\n    d()\nx = 1\n"
    assert auto_closed_examples.without_rest_of_block(document, 15) == "def f():\n    a(b)\nx = 1\n"
    assert auto_closed_examples.without_rest_of_block(document, 3) == document


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


@given(st.lists(st.booleans(), max_size=60), st.floats(0.05, 0.95))
def test_a_share_of_automatic_closers_repeats_nothing_and_keeps_the_order(sorts: list[bool], share: float):
    rows = [{"kind": "auto-closed" if is_closed else "line", "n": n} for n, is_closed in enumerate(sorts)]
    chosen = list(train.with_auto_closed(rows, share))
    for kind in ("auto-closed", "line"):
        numbers = [row["n"] for row in chosen if row["kind"] == kind]
        assert numbers == sorted(set(numbers))
    count = sum(row["kind"] == "auto-closed" for row in chosen)
    if 0 < sum(sorts) < len(sorts):
        assert abs(count - share * len(chosen)) <= 1
    else:
        assert chosen == rows
