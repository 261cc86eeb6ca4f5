"""Places with automatic closers: the editor's closers are right of the cursor, and the answer closes what it opens."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from benchmarks.quality.auto_closed import editor_pairs, outcomes
from benchmarks.quality.auto_closed.editor_pairs import Place
from benchmarks.quality.auto_closed.outcomes import Outcome
from benchmarks.quality.run_task import Row
from benchmarks.quality.scoring.scores import Judged
from benchmarks.quality.tasks.tasks import Task
from speclsp.lsp.syntax import lexical_rules
from speclsp.lsp.syntax.grammars import grammar

RULES = lexical_rules.rules_of(grammar("javascript"))
ATOMS = st.sampled_from(["a", "count", '"text"', "'it'", "12", "x.y", '")"'])
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda two: f"call({two[0]}, {two[1]})"),
        st.lists(inner, max_size=2).map(lambda items: f"[{', '.join(items)}]"),
        inner.map(lambda value: f"{{key: {value}}}"),
        st.tuples(inner, inner).map(lambda two: f"{two[0]} + {two[1]}"),
        inner.map(lambda value: f"(() => {{\n    return {value};\n  }}, [a])"),
    ),
    max_leaves=5,
)
STATEMENTS = st.one_of(
    EXPRESSIONS.map(lambda value: f"const a = {value};"),
    EXPRESSIONS.map(lambda value: f"use{value if value[:1] == '(' else f'({value})'};"),
    EXPRESSIONS.map(lambda value: f"if ({value}) {{\n  go({value});\n}}"),
)
TEXTS = st.lists(STATEMENTS, min_size=1, max_size=4).map(lambda lines: "\n".join(lines) + "\n")


def imbalance(text: str) -> int:
    return lexical_rules.pair(text, RULES, tags=False).imbalance


def place_at(text: str, cursor: int, *, with_mark: bool = False, typed_around: bool = False) -> Place | None:
    pairs = editor_pairs.pairs_of(text, "javascript")
    assert pairs is not None
    return editor_pairs.place_at(text, pairs, cursor, with_mark=with_mark, typed_around=typed_around)


def drawn_place(data: st.DataObject, text: str, *, typed_around: bool | None = None) -> Place:
    cursor = data.draw(st.integers(0, len(text)))
    around = data.draw(st.booleans()) if typed_around is None else typed_around
    place = place_at(text, cursor, with_mark=data.draw(st.booleans()), typed_around=around)
    assume(place is not None)
    assert place is not None
    return place


@given(TEXTS, st.data())
def test_the_answer_and_the_rest_are_a_balanced_document(text: str, data: st.DataObject):
    place = drawn_place(data, text)
    assert imbalance(text) == imbalance(place.author_text(text)) == imbalance(place.document(text)) == 0


@given(TEXTS, st.data())
def test_the_rest_closes_only_what_the_line_opens_left_of_the_cursor(text: str, data: st.DataObject):
    place = drawn_place(data, text, typed_around=False)
    line = text[text.rfind("\n", 0, place.cursor) + 1 : place.cursor]
    opened = [opener.closer for opener in lexical_rules.pair(line, RULES, tags=False).openers][::-1]
    closers = place.rest.rstrip(";, {")
    if place.kind == "string":
        assert closers[:1] == lexical_rules.closing_of(line[lexical_rules.left_open(line, RULES).start :], "string")  # type: ignore[union-attr]
        closers = closers[1:]
        assert opened[: len(closers)] == list(closers)
    else:
        assert opened[: len(closers)] == list(closers) and closers


@pytest.mark.parametrize(
    ("before", "answer", "rest", "behind"),
    [
        ("foo(a, bar(", "b", "))", ";"),
        ("foo(", "a", ")", " + b;"),
        ('say(["', "hi", '"])', ";"),
        ("use(() => {", "\n  go();\n", "})", ";"),
        ("class A {", "\n  b() {}\n", "}", ""),
    ],
)
def test_an_editor_leaves_these_closers(before: str, answer: str, rest: str, behind: str):
    place = place_at(f"{before}{answer}{rest}{behind}\n", len(before))
    assert place is not None
    assert (place.answer, place.rest) == (answer, rest)


def test_docstrings_and_tags_are_pairs():
    python = 'def f():\n    """Add.\n\n    More.\n    """\n    return 1\n'
    pairs = editor_pairs.pairs_of(python, "python") or []
    place = editor_pairs.place_at(python, pairs, python.index("Add"), with_mark=False, typed_around=False)
    assert place is not None and (place.kind, place.rest) == ("docstring", '"""')
    assert place.answer == "Add.\n\n    More.\n    "
    markup = "const a = (\n  <ul>\n    <li>one</li>\n  </ul>\n);\n"
    pairs = editor_pairs.pairs_of(markup, "typescriptreact") or []
    item = editor_pairs.place_at(markup, pairs, markup.index("one"), with_mark=False, typed_around=False)
    both = editor_pairs.place_at(markup, pairs, markup.index("<ul>") + 4, with_mark=False, typed_around=False)
    assert item is not None and (item.kind, item.answer, item.rest) == ("tag", "one", "</li>")
    assert both is not None and (both.kind, both.rest) == ("block", "</ul>")


@pytest.mark.parametrize("text", ["f(a]\n", "f(a\n", "a)\n"])
def test_a_file_whose_brackets_do_not_match_has_no_pairs(text: str):
    assert editor_pairs.pairs_of(text, "javascript") is None


# ── outcomes ──

TEXT = "const a = foo(bar(1));\nconst b = 2;\n"
CURSOR = TEXT.index("bar")


def task(text: str) -> Task:
    return Task(
        id="t", package="p", root=Path("/p"), path="a.js", language="javascript", text=text, cursor=CURSOR,
        truth="bar(1)", kind="bracket", below="kept", crosses=(), seen=False, open_paths=(),
    )  # fmt: skip


def outcome_of(shown: str, *, replaced: int = 0, said: str = "", reason: str = "") -> Outcome:
    place = place_at(TEXT, CURSOR)
    assert place is not None and (place.rest, place.mark) == (")", ";")
    row = Row(task="t", judged=Judged(), text=shown, replaced=replaced, said=said, reason=reason)
    return outcomes.outcome(TEXT, place, task(place.document(TEXT)), row)


@pytest.mark.parametrize(("shown", "replaced"), [("bar(1)", 0), ("bar(1));", 1), ("bar(1))", 1), ("bar(1));  ", 1)])
def test_the_authors_text_is_exact_with_the_mark_and_without_it(shown: str, replaced: int):
    outcome = outcome_of(shown, replaced=replaced)
    assert outcome.shown and not outcome.unbalanced
    assert outcome.exact


@pytest.mark.parametrize(("shown", "replaced"), [("bar(1", 0), ("bar(1))", 0), ("'", 0), ("bar(1)", 1)])
def test_a_closer_too_few_or_too_many_is_unbalanced(shown: str, replaced: int):
    outcome = outcome_of(shown, replaced=replaced)
    assert outcome.shown and outcome.unbalanced and not outcome.exact


# ── the result file ──
