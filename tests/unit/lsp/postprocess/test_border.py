"""Border of a suggestion and the text right of the cursor: missing closers, blocks before closers, and overlaps."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from support.lsp.suggested import inserted, outcome, plan_at, plan_for, streamed
from support.rows import rows

from speclsp.config import CompletionConfig
from speclsp.lsp.postprocess import surroundings
from speclsp.lsp.postprocess.plan import NoSuggestion
from speclsp.lsp.reasons import Reason

ROWS = rows(__file__)

CONFIG = CompletionConfig()


def shown(
    marked: str,
    output: str,
    language: str,
    config: CompletionConfig = CONFIG,
    *,
    tree: bool = True,
    truncated: bool = False,
) -> str | Reason:
    """The document with the suggestion made of `output` at the ¦, or the reason for none.

    `truncated`: a limit ended `output`, not the model.
    """
    plan = plan_at(marked, language, config, tree=tree)
    read = streamed(plan, output)
    return outcome(marked, plan.to_suggestion(read, complete=not truncated or len(read) < len(output)))


# ── closers that the model leaves out ────────────────────────────────────────────────────────────────────────────────

COUNTER = (
    'import { useState } from "react";\n\nexport function App({ items }) {\n  const [count, setCount] = useState(0);\n'
)


@pytest.mark.parametrize("tree", [True, False])
@pytest.mark.parametrize(
    ("language", "marked", "output", "inserted"),
    ROWS["a_text_that_the_model_ends_gets_the_closers_that_the_rest_leaves_out"],
)
def test_a_text_that_the_model_ends_gets_the_closers_that_the_rest_leaves_out(
    language: str, marked: str, output: str, inserted: str, tree: bool
):
    assert shown(marked, output, language, tree=tree) == marked.replace("¦", inserted)


def test_a_bracket_of_the_line_that_nothing_closes_is_closed():
    assert shown("foo(bar(¦)\n", "x", "python") == "foo(bar(x))\n"
    assert shown("foo(¦\n", "a, b", "python") == "foo(a, b)\n"
    assert shown("foo(¦\n)\n", "a, b", "python") == "foo(a, b\n)\n", "closed below"


def test_files_with_errors_tabs_and_closers_in_strings_get_the_same_closers():
    for before, after in (
        ("const a = { // }\n  b: foo(", ")\n};\n"),
        ('const a = ")(" + foo(', ");\n"),
        ("}} )) \nfoo(", ")\n"),
        ("if (a {\n\tfoo(", ")\n}\n"),
        ("const re = /[(]/; foo(", ");\n"),
        ("foo(", ") // closes )\n"),
        ("const \u05e9\u05dc = foo(", ");\r\n"),
    ):
        assert shown(f"{before}¦{after}", "bar(1", "javascript") == f"{before}bar(1){after}"


@pytest.mark.parametrize(
    ("language", "marked", "output", "result"), ROWS["the_closers_of_several_blocks_are_shown_together"]
)
def test_the_closers_of_several_blocks_are_shown_together(language: str, marked: str, output: str, result: str):
    assert inserted(marked, streamed(plan_at(marked, language), output), language) == result


@pytest.mark.parametrize(("language", "marked", "output", "result"), ROWS["an_element_that_a_text_begins_is_closed"])
def test_an_element_that_a_text_begins_is_closed(language: str, marked: str, output: str, result: str):
    assert inserted(marked, output, language) == result


def test_a_string_does_not_end_in_the_middle_of_a_word():
    assert shown("const s = '¦';\n", "don't stop", "javascript") is Reason.BREAKS


def test_a_text_that_goes_on_at_the_end_of_a_line_stays_open():
    assert shown("x = foo(¦", "a,", "python") == "x = foo(a,"
    assert shown("¦", "if (x) {", "javascript") == "if (x) {"


# ── a block before closers ───────────────────────────────────────────────────────────────────────────────────────────

FIB = """
  if (n === 0) return 0;
  let a = 0, b = 1;
  for (let i = 2; i <= n; i++) {
    c"""
ROW = """(
      <li key={item.id}>
        <b>{item.name}</b>
        {open && (
          <i>x</i>
        )}
        {item.id ==="""


@pytest.mark.parametrize(
    ("language", "marked", "output", "inserted"),
    ROWS["a_block_between_brackets_stands_on_lines_of_its_own"],
)
def test_a_block_between_brackets_stands_on_lines_of_its_own(language: str, marked: str, output: str, inserted: str):
    assert shown(marked, output, language) == marked.replace("¦", inserted)


@pytest.mark.parametrize(("language", "marked", "output", "inserted"), ROWS["a_block_that_the_model_opens_is_closed"])
def test_a_block_that_the_model_opens_is_closed(language: str, marked: str, output: str, inserted: str):
    assert shown(marked, output, language) == marked.replace("¦", inserted)


def test_a_block_that_a_limit_cuts_ends_with_its_last_whole_line_and_is_closed():
    assert shown("function fib(n) {¦}\n", FIB, "javascript", truncated=True) == (
        "function fib(n) {\n  if (n === 0) return 0;\n  let a = 0, b = 1;\n}\n"
    )
    marked = COUNTER + "  return (\n    <ul>{items.map((item) => ¦)}</ul>\n  );\n}\n"
    whole = ROW.rpartition("\n")[0] + "\n      </li>\n    )"
    assert shown(marked, ROW, "typescriptreact", truncated=True) == marked.replace("¦", whole)


@pytest.mark.parametrize(
    ("language", "marked", "output"),
    [
        ("javascript", "setTimeout(¦, 100)\n", "() => {\n  a();\n}"),
        ("javascript", 'app.get("/", ¦, next);\n', "(req, res) => {\n  res.send(1)"),
        ("javascript", "const a = ¦ + 1;\n", "[\n  1,\n"),
        ("kotlin", "val a = foo(¦, 1)\n", "bar {\n"),
    ],
)
def test_before_other_text_no_line_ends_open(language: str, marked: str, output: str):
    assert shown(marked, output, language) is Reason.BREAKS


def test_one_line_settings_show_no_half_of_a_block():
    never = CompletionConfig(multiline="never")
    for marked, output in (("app.listen(3000, ¦)\n", "() => {\n  a();\n}"), ("f(¦)", "[\n  1,\n  2]")):
        assert shown(marked, output, "javascript", never) is Reason.BREAKS
    assert shown("function f(n) {¦}\n", FIB, "javascript", never) is Reason.DOES_NOT_FIT


def test_the_stream_of_a_block_before_closers_is_closed_at_its_end():
    plan = plan_at("app.listen(3000, ¦)\n", "javascript")
    assert not plan.finished("() => {\n") and not plan.finished("() => {\n  a();\n")
    assert not plan.finished("() => {\n  a();\n}") and plan.finished("() => {\n  a();\n}\n")
    assert plan_at("f(¦)\n", "javascript").finished("a, b\n"), "one line, as anywhere"
    assert plan_at("f() {¦}\n", "javascript").finished("\n  a();\n}\n")


def test_text_before_closers_may_have_as_many_tokens_as_a_block():
    several_lines = {"f(¦)": True, "f() {¦}": True, "f(¦, x)": False, "a = ¦ + 1": False, "x¦;": False}
    for marked, several in several_lines.items():
        plan = plan_at(marked, "javascript")
        assert plan.enclosed is several
        assert plan.max_tokens == (CONFIG.max_tokens if several else CONFIG.max_tokens_single_line)


# ── no other meaning ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("language", "marked", "output"),
    [
        ("javascript", 'app.get("/", ¦, x);\n', "(req, res) => {\n"),
        ("javascript", "const f = g(¦, 1);\n", "(a, b) => {\n"),
        ("java", "list.forEach(¦, 1);\n", "(a) -> {\n"),
        ("python", "foo(¦, 1)\n", "(a) if (\n"),
        ("rust", "fn f() {\n    g(¦, 1);\n}\n", "h(x) + {\n"),
    ],
)
def test_no_text_is_shortened_to_an_end_before_what_goes_on(language: str, marked: str, output: str):
    assert shown(marked, output, language) is Reason.BREAKS


@pytest.mark.parametrize("output", ["name => console.log(name", "(name) => console.log(name", "name => {", "f(g(name"])
def test_a_closer_of_the_user_is_replaced_only_by_a_text_that_closes_it(output: str):
    text = shown("names.forEach(¦)\n", output, "javascript")
    assert isinstance(text, Reason) or text.count("(") == text.count(")")
    assert shown("foo(¦)\n", "a).bar()", "python") == "foo(a).bar()\n"


# ── the enclosing closer, and the rest of the line ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("tree", [True, False])
@pytest.mark.parametrize(
    ("language", "marked", "output", "inserted"),
    ROWS["nothing_runs_past_the_enclosing_closer_and_nothing_of_the_rest_occurs_twice"],
)
def test_nothing_runs_past_the_enclosing_closer_and_nothing_of_the_rest_occurs_twice(
    language: str, marked: str, output: str, inserted: str, tree: bool
):
    assert shown(marked, output, language, tree=tree) == marked.replace("¦", inserted)


# ── text that a limit cuts ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("language", "marked", "output", "inserted"),
    ROWS["a_cut_text_ends_where_it_is_whole_and_is_closed"],
)
def test_a_cut_text_ends_where_it_is_whole_and_is_closed(language: str, marked: str, output: str, inserted: str):
    assert shown(marked, output, language, truncated=True) == marked.replace("¦", inserted)


@pytest.mark.parametrize("output", ["foo(a, b, c_lo", "a.b.c", "price * qua", "'https://exam", "lambda a: a.b"])
def test_the_beginning_of_an_expression_is_not_shown(output: str):
    assert shown("x = ¦\ny = 1\n", output, "python", truncated=True) is Reason.CUT_SHORT


def test_a_comment_that_only_begins_is_not_shown():
    never = CompletionConfig(multiline="never")
    assert shown("¦\nint f(void);\n", "/**\n * Adds.\n */\n", "c", never) is Reason.BREAKS
    assert shown("def f():\n    ¦\n", '"""\n    Adds.\n    """\n', "python", never) is Reason.BREAKS


# ── bad input ────────────────────────────────────────────────────────────────────────────────────────────────────────

LANGUAGES = ["python", "javascript", "typescriptreact", "c", "rust", "ruby", "html", "json", "clojure", "svelte", "lua"]
scraps = st.sampled_from(
    [
        *("(", ")", "[", "]", "{", "}", "<b>", "</b>", "<b c={", " />", "${", '"', "'", "`", '"""', "/*", "*/", "//"),
        *("a", "foo", " ", "  ", "\t", "\n", "\n  ", "\n\t", "\n\n", ", ", ";", ": ", " => ", " -> ", " = ", "+", "!"),
        *("if x:", "for (", "é", "日本", "\u05d0\u05d1", "\u202e", "\\", "#", "f'", "</", "<", ">"),
    ]
)
codes = st.lists(scraps, max_size=16).map("".join)


@settings(max_examples=500)
@given(codes, codes, codes, st.sampled_from(LANGUAGES), st.sampled_from(["\n", "\r\n"]), st.booleans(), st.booleans())
def test_any_text_in_any_file_closes_nothing_twice_and_leaves_nothing_open(
    before: str, after: str, output: str, language: str, end: str, tree: bool, complete: bool
):
    text, cursor = (before + after).replace("\n", end), len(before.replace("\n", end))
    plan = plan_for(text, cursor, language, tree=tree)
    if isinstance(plan, NoSuggestion):
        return
    suggestion = plan.to_suggestion(output, complete=complete)
    if isinstance(suggestion, NoSuggestion):
        return
    around = plan.around
    inserted, replaced = suggestion.text.replace("\r\n", "\n"), suggestion.end - suggestion.start
    if around.rest.strip() and around.kind in ("code", "string") and not tree:
        assert surroundings.imbalance(inserted, replaced, around) <= surroundings.imbalance("", 0, around)
    for closer in ")]}":
        assert around.rest[:replaced].count(closer) <= inserted.count(closer), "a closer of the user is lost"


names = st.sampled_from(["a", "b.c", "x1", "len", "foo"])


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> str:
    """A balanced expression that Python and JavaScript share."""
    if depth == 0:
        return draw(names)
    inner = [draw(expressions(depth - 1)) for _ in range(draw(st.integers(1, 2)))]
    joined = ", ".join(inner)
    return draw(st.sampled_from([f"f({joined})", f"[{joined}]", f"g[{inner[0]}]", inner[0], f'h("s", {joined})']))


@settings(max_examples=300)
@given(
    expressions(),
    st.sampled_from(["python", "javascript", "nim"]),
    st.integers(0, 6),
    st.sampled_from(["", ";", "\n"]),
)
@example("f([a])", "python", 2, "")
def test_any_number_of_closers_that_the_model_leaves_out_is_added(expression: str, language: str, lost: int, end: str):
    assume(any(character in "([" for character in expression))
    bare = expression.rstrip(")]")
    output = expression[: max(len(bare), len(expression) - lost)]
    assert shown(f"v = foo(¦){end}", output, language) == f"v = foo({expression}){end}"


@settings(max_examples=300)
@given(
    expressions(),
    st.sampled_from([") + b", "], c)", ", d)", ") and e", "})", ")} f"]),
    st.integers(1, 7),
)
def test_no_beginning_of_the_rest_occurs_twice(expression: str, rest: str, length: int):
    length = min(length, len(rest))
    assume(not (rest[length - 1].isalnum() and rest[length : length + 1].isalnum()))  # the model ends with a word
    opener = "".join({")": "(", "]": "[", "}": "{"}[closer] for closer in reversed(rest) if closer in ")]}")
    text = shown(f"v = {opener}¦{rest}", expression + rest[:length], "nim")
    assert text == f"v = {opener}{expression}{rest}"


@pytest.mark.parametrize("above", ["", '"""Module."""\n\n', 'def g():\n    """Doc."""\n\n\n'])
def test_prose_in_a_docstring_that_is_not_closed_yet_is_shown(above: str):
    head = above + 'def f(a) -> L:\n    """Return the keys of all documents currently held in the cache.\n\n'
    head, text = head + "    Use it to find which docu", "ments have already been converted and are not in the cache."
    assert shown(head + "¦\n", text + "\n", "python") == head + text + "\n"
