"""The file's style: semicolons where they are optional, and single braces in Svelte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.lsp.suggested import accepted, inserted
from support.rows import rows

ROWS = rows(__file__)

ALWAYS = "import a from 'a';\nconst b = a();\nlet c = b + 1;\nc.run();\n"
NEVER = ALWAYS.replace(";", "")
LANGUAGES = ["javascript", "javascriptreact", "typescript", "typescriptreact"]


STATEMENTS = ("const d = b.map((x) => x + 1)", "let d = { b, c }", "return", "throw new Error('d')", "b.push(c)")
STATEMENTS += ("await b.push(c)", "b.d = c", "b.d += `${c}`", "import { d } from 'd'", "export default d")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("statement", [*STATEMENTS, "export * from 'd'", "new D(c)"])
def test_a_statement_ends_like_those_of_the_file(language: str, statement: str):
    for output in (statement, statement + ";"):
        assert inserted(ALWAYS + "¦", output, language) == statement + ";"
        assert inserted(NEVER + "¦", output, language) == statement
        assert inserted(NEVER + "¦", output + "\nconst e = 1\n", language) == statement


def test_every_statement_of_a_block_ends_like_those_of_the_file():
    block = "const d = 1{end}\n  if (d) {{\n    b.run(){end}\n  }}\n  return [\n    d,\n  ]\n}}\n"
    for start, end, output in ((ALWAYS, ";", block.format(end="")), (NEVER, "", block.format(end=";"))):
        shown = inserted(start + "function f() {\n  ¦\n", output, "javascript")
        assert isinstance(shown, str) and shown.startswith(f"const d = 1{end}\n  if (d) {{\n    b.run(){end}\n  }}\n")


@pytest.mark.parametrize(
    ("start", "outputs"),
    ROWS["other_lines_and_files_without_a_style_keep_their_ends"],
    ids=["always", "in a class", "never", "mixed", "too few", "empty"],
)
def test_other_lines_and_files_without_a_style_keep_their_ends(start: str, outputs: list[str]):
    assert [inserted(start + "¦", output, "javascript") for output in outputs] == outputs


@pytest.mark.parametrize(
    ("marked", "output", "result"),
    [
        (ALWAYS + "const d = b¦\n  .map(c);\n", ".list()", ".list()"),
        (ALWAYS + "b(\n  ¦\n);\n", "c()", "c()"),
        (ALWAYS + "b([\n  c,\n  ¦\n]);\n", "d()", "d()"),
        (ALWAYS + "const d = ¦;\n", "b()", "b()"),
        (NEVER + "¦\n(c || b).run()\n", "const d = b;", "const d = b;"),
        (NEVER + "¦\n[c, b] = [b, c]\n", "const d = b;", "const d = b;"),
    ],
)
def test_a_statement_that_the_next_line_continues_keeps_its_end(marked: str, output: str, result: str):
    assert inserted(marked, output, "javascript") == result


@pytest.mark.parametrize("language", ["python", "java", "c", "rust", "css", "go", "kotlin", "plaintext"])
def test_only_languages_with_optional_semicolons_are_changed(language: str):
    assert inserted(ALWAYS + "¦", "b.push(c)", language) == "b.push(c)"
    assert inserted(NEVER + "¦", "b.push(c);", language) == "b.push(c);"


def test_a_comment_behind_the_statement_stays_behind_it():
    assert inserted(ALWAYS + "¦", "b.push(c) // so", "javascript") == "b.push(c); // so"
    assert inserted(NEVER + "¦", "b.push(c); // so", "javascript") == "b.push(c) // so"


names = st.from_regex(r"[a-d]{1,3}", fullmatch=True)
statements = st.one_of(
    st.builds("const {} = {}({})".format, names, names, names),
    st.builds("{}.{}([{}, 1])".format, names, names, names),
    st.builds("{} = {} || '{}'".format, names, names, names),
    st.builds("return {}".format, names),
)


@given(
    st.lists(statements, min_size=3, max_size=12),
    statements,
    st.sampled_from(["", ";"]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_a_suggestion_never_mixes_the_ends_of_a_file(lines: list[str], statement: str, end: str, newline: str):
    text = "".join(line + end + newline for line in lines)
    for output in (statement, statement + ";"):
        document = accepted(text + "¦" + newline, output, "typescript")
        assert document == text + statement + end + newline or not document.startswith(text)


@pytest.mark.parametrize(("language", "marked", "output", "result"), ROWS["svelte_has_single_braces"])
def test_svelte_has_single_braces(language: str, marked: str, output: str, result: str):
    assert inserted(marked, output, language) == result
