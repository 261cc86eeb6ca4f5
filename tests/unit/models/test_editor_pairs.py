"""Places with automatic closers: the editor's closers are right of the cursor, and the answer closes what it opens."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from models.training import editor_pairs
from models.training.editor_pairs import Place
from speclsp.lsp.syntax import lexical_rules
from speclsp.lsp.syntax.grammars import grammar

RULES = lexical_rules.rules_of(grammar("javascript"))
CLOSERS = {"(": ")", "[": "]", "{": "}"}
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
    return lexical_rules.balance(text, RULES).imbalance


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
def test_the_authors_text_is_the_answer_and_the_rest_without_what_is_not_typed(text: str, data: st.DataObject):
    place = drawn_place(data, text)
    assert text.startswith(text[: place.cursor] + place.answer)
    behind = iter(text[place.cursor + len(place.answer) : place.end])
    assert all(character in behind for character in place.rest + place.mark)  # a part of it, in its order


@given(TEXTS, st.data())
def test_the_rest_closes_only_what_the_line_opens_left_of_the_cursor(text: str, data: st.DataObject):
    place = drawn_place(data, text, typed_around=False)
    line = text[text.rfind("\n", 0, place.cursor) + 1 : place.cursor]
    opened = [CLOSERS[bracket] for bracket, _ in lexical_rules.balance(line, RULES).stack][::-1]
    closers = place.rest.rstrip(";, {")
    if place.kind == "string":
        assert closers[:1] == lexical_rules.closing_of(line[lexical_rules.left_open(line, RULES).start :], "string")  # type: ignore[union-attr]
        closers = closers[1:]
        assert opened[: len(closers)] == list(closers)
    else:
        assert opened[: len(closers)] == list(closers) and closers


@given(TEXTS, EXPRESSIONS)
def test_after_enter_the_body_and_its_closers_are_the_same_text(text: str, value: str):
    text += f"while (a) {{\n  go({value});\n}}\n"
    place = place_at(text, text.index("while (a) {") + len("while (a) {"))
    assert place is not None and place.kind == "block"
    entered = editor_pairs.entered(text, place)
    assert entered is not None and entered.answer == f"go({value});"
    assert entered.author_text(text) == place.author_text(text)


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


def test_text_typed_between_the_closers_stays_if_asked():
    text = "useEffect(() => {\n  go();\n}, [go]);\n"
    cursor = text.index("{") + 1
    stays, dropped = place_at(text, cursor, typed_around=True), place_at(text, cursor)
    assert stays is not None and (stays.rest, stays.mark) == ("}, [go])", ";")
    assert dropped is not None and dropped.rest == "})"


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
