"""Border of a suggestion and the text right of the cursor: missing closers, blocks before closers, and overlaps."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from support.lsp.suggested import outcome, plan_at, plan_for, streamed

from speclsp.config import CompletionConfig
from speclsp.lsp.postprocess import surroundings
from speclsp.lsp.postprocess.plan import NoSuggestion
from speclsp.lsp.reasons import Reason

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
    [
        ("clojure", "(defn square [x]\n  ¦)\n", "(* x x", "(* x x)"),
        ("clojure", "(defn f [x]\n  (let [y (inc x)]\n    ¦))\n", "(* y (+ x 1", "(* y (+ x 1))"),
        ("clojure", "(map ¦ xs)", "(fn [x] (* x x", "(fn [x] (* x x))"),
        ("clojure", "(println ¦)", '"hello', '"hello"'),
        (
            "javascript",
            'const names = ["ann"];\nnames.forEach(¦)\n',
            "name => console.log(name",
            "name => console.log(name)",
        ),
        ("javascript", "const upper = names.map(¦);\n", "name => name.toUpperCase(", "name => name.toUpperCase()"),
        ("javascript", "fetch(url).then((r) => ¦)", "r.json(", "r.json()"),
        ("javascript", "if (¦) {\n}\n", "foo(x", "foo(x)"),
        (
            "typescriptreact",
            COUNTER + "  return (\n    <button onClick={¦}>\n      {count}\n    </button>\n  );\n}\n",
            "() => setCount(count + 1",
            "() => setCount(count + 1)",
        ),
        (
            "typescriptreact",
            COUNTER + "  return (\n    <button onClick={() => ¦}>{count}</button>\n  );\n}\n",
            "setCount(count + 1",
            "setCount(count + 1)",
        ),
        (
            "typescriptreact",
            COUNTER + "  return (\n    <ul>{items.map((item) => ¦)}</ul>\n  );\n}\n",
            "<li key={item.id}>{item.name",
            "<li key={item.id}>{item.name}</li>",
        ),
        ("typescriptreact", "const a = <ul>¦</ul>;\n", "<li>one", "<li>one</li>"),
        ("python", "if isinstance(x, ¦):\n    pass\n", "(list, tuple", "(list, tuple)"),
        ("python", "print(len(¦))", "[1, 2, 3", "[1, 2, 3]"),
        ("python", "open(¦)", "'a.txt", "'a.txt'"),
        ("python", "foo(\n    a, ¦)", "b[0", "b[0]"),
        ("python", "@app.route(¦)\ndef f(): pass\n", "'/', methods=['GET'", "'/', methods=['GET']"),
        ("python", 'print(f"{¦}")', "len(names", "len(names)"),
        ("rust", "fn main() {\n    println!(¦);\n}\n", '"{}", foo(x', '"{}", foo(x)'),
        ("go", "func f() {\n\tfmt.Println(¦)\n}\n", "len(xs", "len(xs)"),
        ("c", "int main(void) {\n    printf(¦);\n}\n", '"%d\\n", add(1, 2', '"%d\\n", add(1, 2)'),
        ("java", "class A {\n  void f() {\n    list.forEach(¦);\n  }\n}\n", "x -> print(x", "x -> print(x)"),
        ("ruby", 'puts "#{¦}"', "name.upcase(", "name.upcase()"),
        ("lua", "print(¦)", 'string.format("%d", x', 'string.format("%d", x)'),
        ("css", ".a { width: calc(¦); }", "100% - var(--gap", "100% - var(--gap)"),
        ("html", "<div>¦</div>", "<p>hello", "<p>hello</p>"),
        ("json", '{"a": ¦}', "[1, 2", "[1, 2]"),
        ("kotlin", "println(¦)", '"hello $name', '"hello $name"'),
        ("swift", "let a = foo(¦)", "bar(1", "bar(1)"),
        ("svelte", "<li>¦</li>", "{name", "{name}"),
        ("shellscript", 'x="${¦}"', "HOME", "HOME"),
        ("shellscript", "if [ ¦ ]\nthen\n  :\nfi\n", '-n "$(foo', '-n "$(foo)"'),
        ("python", 'print(f"{a(¦)}")', "b(c", "b(c)"),
        ("python", "# TODO (¦)\n", "fix this (soon", "fix this (soon)"),
        ("rust", "let v: Vec<¦> = vec![];\n", "Option<i32", "Option<i32>"),
        ("java", "class A { Map<String, ¦> m; }\n", "List<Integer", "List<Integer>"),
        ("terraform", "x = [¦]\n", "merge({ a = 1", "merge({ a = 1 })"),
        ("scheme", "(define (f x)\n  (¦))\n", "if (> x 0) (f (- x 1", "if (> x 0) (f (- x 1))"),
    ],
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
    [
        ("rust", "struct Point {¦}\n\nimpl Point {\n}\n", "\n    x: f64,\n    y: f64", "\n    x: f64,\n    y: f64,\n"),
        ("rust", "match x {¦}\n", '\n    1 => "a",\n    _ => "b"', '\n    1 => "a",\n    _ => "b",\n'),
        ("javascript", "useEffect(() => {¦}, [])", "\n  load();\n}, [])", "\n  load();\n"),
        ("javascript", "useEffect(() => {¦}, [])", "\n  load(", "\n  load()\n"),
        ("javascript", "  xs.forEach(x => {¦});\n", "\n    log(x);\n  });\n", "\n    log(x);\n  "),
        ("javascript", "const f = (x) => {¦}", " return x; }\n", " return x; "),
        ("javascript", "set(w, { ¦});", "value: id", "value: id "),
        ("javascript", "set(w, { raw: c¦});", "hunk.raw ", "hunk.raw "),
        ("javascript", "set(w, {¦});", "value: id", "value: id"),
        ("typescript", "interface A {¦}\n", "\n  x: number;\n  y: string;\n}\n", "\n  x: number;\n  y: string;\n"),
        ("typescript", "const f = (a: number): string => {¦};\n", "\n  return `${a", "\n  return `${a}`\n"),
        ("typescriptreact", "const a = <ul>¦</ul>;\n", "\n  <li>a</li>\n</ul>;\n", "\n  <li>a</li>\n"),
        ("css", ".button {¦}\n", "\n  color: red;\n  top: 0;\n}\n\n.b {", "\n  color: red;\n  top: 0;\n"),
        ("python", "config = {¦}", "\n    'a': 1,\n    'b': [1, 2", "\n    'a': 1,\n    'b': [1, 2],\n"),
        (
            "python",
            "def f():\n    return {¦}\n",
            "\n        'a': a,\n        'b': b",
            "\n        'a': a,\n        'b': b,\n    ",
        ),
        ("go", "func f() {¦}\n", "\n\tx := 1\n\tg(x)\n}\n\nfunc g() {", "\n\tx := 1\n\tg(x)\n"),
        ("go", "x := []int{¦}\n", "\n\t1,\n\t2", "\n\t1,\n\t2,\n"),
        ("c", "struct point {¦};\n", "\n    int x;\n    int y;\n};\n", "\n    int x;\n    int y;\n"),
        ("java", "class A {\n  void f() {¦}\n}\n", "\n    g();\n  }\n", "\n    g();\n  "),
        ("lua", "local t = {¦}", "\n  a = 1,\n  b = 2", "\n  a = 1,\n  b = 2,\n"),
        ("ruby", "xs.each { |x|¦}", "\n  puts x\n}", "\n  puts x\n"),
        ("shellscript", "foo() {¦}", "\n  echo hi\n}\n", "\n  echo hi\n"),
        ("json", "{¦}", '\n  "a": 1,\n  "b": 2,', '\n  "a": 1,\n  "b": 2\n'),
        ("html", "<div>¦</div>", "\n  <p>a</p>\n  <p>b</p>\n</div>", "\n  <p>a</p>\n  <p>b</p>\n"),
        ("typescript", "class A {\n  a = 1;\n  f() {¦}\n}\n", "\n    g(", "\n    g();\n  "),
        ("c", "int main(void) {¦}\n", '\n    int a = 1;\n    printf("a"', '\n    int a = 1;\n    printf("a");\n'),
        ("c", "int main(void) {¦}\n", '\n    printf("a"', '\n    printf("a");\n'),
        ("rust", "fn new() -> A {¦}\n", "\n    A { x, y", "\n    A { x, y }\n"),
        ("javascript", "const a = f()\nconst g = () => {¦}\n", "\n  a(", "\n  a()\n"),
        ("kotlin", "fun f() {¦}\n", '\n    println("x"', '\n    println("x")\n'),
        ("vue", "<ul>¦</ul>", "\n  <li>{{ a }}</li>\n</ul>", "\n  <li>{{ a }}</li>\n"),
    ],
)
def test_a_block_between_brackets_stands_on_lines_of_its_own(language: str, marked: str, output: str, inserted: str):
    assert shown(marked, output, language) == marked.replace("¦", inserted)


@pytest.mark.parametrize(
    ("language", "marked", "output", "inserted"),
    [
        ("javascript", "app.listen(3000, ¦)\n", "() => {\n  console.log('on'", "() => {\n  console.log('on')\n}"),
        ("javascript", "setTimeout(¦)\n", "function() {\n    log('a');\n}, 100", "function() {\n    log('a');\n}, 100"),
        (
            "javascript",
            'app.get("/", ¦);\n',
            '(req, res) => {\n  res.send("Hello World"',
            '(req, res) => {\n  res.send("Hello World")\n}',
        ),
        (
            "javascriptreact",
            "export function L({ items }) {\n  return <ul>{items.map(¦)}</ul>;\n}\n",
            "(item, index) => (\n    <li key={index}>{item}</li>\n  ))",
            "(item, index) => (\n    <li key={index}>{item}</li>\n  )",
        ),
        ("python", "x = foo(a, ¦)", "[\n    1,\n    2", "[\n    1,\n    2,\n]"),
        ("python", "x = foo(¦)", "a,\n        b", "a,\n        b"),
        ("javascript", "a();\nnew Promise(¦);\n", "(f) => {\n  g(f);\n})(", "(f) => {\n  g(f);\n}"),
        ("lua", "foo(¦)\n", "function(a)\n  return a\nend", "function(a)\n  return a\nend"),
        ("ruby", "foo(¦)\n", "xs.each do |x|\n  p x\nend", "xs.each do |x|\n  p x\nend"),
        ("clojure", "(defn f [x]\n  ¦)\n", "(let [y x]\n    (* y x", "(let [y x]\n    (* y x))"),
    ],
)
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
    [
        (
            "typescriptreact",
            COUNTER + "  return (\n    <Button onClick={() => setOpen(¦} />\n  );\n}\n",
            "!open)}>Toggle</Button",
            "!open)",
        ),
        (
            "typescriptreact",
            COUNTER + "  return (\n    <Button onClick={() => setOpen(¦} />\n  );\n}\n",
            "!open)}>Toggle</Button>",
            "!open)",
        ),
        ("typescriptreact", 'const a = <p className="¦">x</p>;\n', 'title">Hello</p>', "title"),
        ("javascript", "if (¦) {\n}\n", "x > 0) {\n  y();\n}", "x > 0"),
        ("python", 'print(f"hello {na¦}!")\n', "mes[0]} and {names[1]}!", "mes[0]} and {names[1]"),
        ("python", 'print(f"hello {¦}!")\n', "names[0]} and {names[1]}!", "names[0]} and {names[1]"),
        ("python", 'print("hello ¦!")\n', 'world!")', "world"),
        ("python", "foo(¦, bar)\n", "a, b, ", "a, b"),
        ("javascript", "x = a ¦ = 1;\n", "+ b =", "+ b"),
        ("markdown", "see **¦** there\n", "the docs**", "the docs"),
        ("c", "int a = (¦) / 32 * 32;\n", "b + c - 1) / 32 * 32, q = d;\n", "b + c - 1"),
        ("python", "r = f(¦) + g(x)\n", "a) + g(y", "a"),
        ("typescript", 'import {¦} from "a";\n', " b } from 'c';\n", " b "),
        ("typescript", "interface A { a: ¦]; }\n", "string[][", "string[]["),
        ("c", "// (see ¦): a\n", "b(c", "b(c)"),
        ("c", "// see ¦): a\n", "b(c", "b(c"),
        ("latex", "\\section{¦}\n", "Introduction}\n\nText", "Introduction"),
        ("html", "<div>\n  <p>¦</p>\n</div>\n", "hello</p>\n  <p>world</p>", "hello"),
        ("typescriptreact", "const a = <div>{x.map(i => <b>¦</b>)}</div>;\n", "{i}</b>)}</div>", "{i}"),
        ("typescriptreact", "const a = <div>{x.map(i => <b>¦</b>)}</div>;\n", "{i}</b><i>", "{i}"),
    ],
)
def test_nothing_runs_past_the_enclosing_closer_and_nothing_of_the_rest_occurs_twice(
    language: str, marked: str, output: str, inserted: str, tree: bool
):
    assert shown(marked, output, language, tree=tree) == marked.replace("¦", inserted)


# ── text that a limit cuts ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("language", "marked", "output", "inserted"),
    [
        (
            "javascript",
            'const a = "Lorem ipsum, ¦";\n',
            "dolor sit. Nulla facilisi. Sed ut tell",
            "dolor sit. Nulla facilisi.",
        ),
        ("python", "# The ¦", "quick brown fox jum", "quick brown fox"),
        ("python", "# 这是¦", "一个测试", "一个测试"),
        ("python", "def f(a):\n    ¦", '"""Return the sum of all val', '"""Return the sum of all"""'),
        ("python", "def f(a):\n    ¦", '"""Return.\n    The sum of all val', '"""Return.\n    The sum of all\n    """'),
        ("python", "def f(a):\n    ¦", '"""Return the sum.\n\n    More.\n', '"""Return the sum."""'),
        ("c", "¦\nint f(void);\n", "/**\n * Adds two num", "/**\n * Adds two\n */"),
        ("c", "¦\nint f(void);\n", "/**\n * Adds two numbers.\n */\n", "/**\n * Adds two numbers.\n */"),
        ("python", "print(¦)", '"Hello wor', '"Hello"'),
        ("python", "x = ¦\ny = 1\n", "[1, 2, 33", "[1, 2]"),
        ("python", "x = foo(¦)\n", "a, b, c.na", "a, b"),
        ("python", "x = 1¦", "  # the first of the va", "  # the first of the"),
        ("python", "x = ¦\n", '"""SELECT *\n    FROM x"""\n', '"""SELECT *\n    FROM x"""'),
        ("javascript", "¦\nf();\n", "a(); b(); c(", "a(); b();"),
        ("typescript", "const ops = ¦\n", "new Set(['eq', 'not in', '", "new Set(['eq', 'not in'])"),
    ],
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
