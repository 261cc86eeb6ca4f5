"""Duplicates: a definition of the same scope, a statement of the last three lines, and an entry of a list file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.lsp.suggested import inserted, plan_for

from speclsp.lsp.postprocess.duplicates import list_file
from speclsp.lsp.postprocess.plan import SuggestionPlan
from speclsp.lsp.reasons import Reason

# ── a definition that its scope has already ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("language", "marked", "output"),
    [
        ("python", "¦\n\n\ndef area(r):\n    return r * r\n", "def area(radius):\n    return 1\n"),
        ("python", "def area(r):\n    return r * r\n\n\n¦", "def area(radius):\n"),
        ("python", "def area(r):\n    return r * r\n\n\ndef ¦", "area(radius):\n"),
        ("python", "async def area(r):\n    return r * r\n\n\n¦", "def area(radius):\n"),
        ("python", "class A:\n    def f(self):\n        pass\n\n    ¦\n", "def f(self, x):\n"),
        ("python", "class A(B):\n    pass\n\n\n¦", "class A:\n"),
        ("javascript", "¦\n\nfunction area(r) {\n  return r;\n}\n", "function area(radius) {\n"),
        ("javascript", "const area = (r) => r;\n\n¦", "const area = (radius) => {\n"),
        ("javascript", "export class A {\n}\n\n¦", "class A extends B {\n"),
        ("typescript", "¦\n\nexport function area(r: number) {\n  return r;\n}\n", "function area(radius: number) {\n"),
        ("typescriptreact", "¦\n\nexport function App() {\n  return <p />;\n}\n", "export default function App() {\n"),
        ("rust", "pub fn area(r: f64) -> f64 {\n    r\n}\n\n¦", "fn area(radius: f64) -> f64 {\n"),
        ("rust", "impl A {\n    fn f(&self) {}\n\n    ¦\n}\n", "pub fn f(&self, x: u8) {\n"),
        ("rust", "const fn f() -> u8 {\n    1\n}\n\n¦", "pub const fn f() -> u8 {\n"),
        ("typescript", "const enum A {\n  B,\n}\n\n¦", "enum A {\n"),
        ("go", "func area(r int) int {\n\treturn r\n}\n\n¦", "func area(radius int) int {\n"),
        ("go", "func (s *T) Area() int {\n\treturn 1\n}\n\n¦", "func (s *T) Area() int {\n"),
        ("java", "class A {\n}\n\n¦", "public class A {\n"),
        ("cpp", "struct A {\n  int x;\n};\n\n¦", "struct A {\n"),
        ("php", "<?php\nfunction area($r) {\n  return $r;\n}\n\n¦", "function area($radius) {\n"),
        ("ruby", "class A\n  def area\n    1\n  end\n\n  ¦\nend\n", "def area\n"),
        ("lua", "local function area(r)\n  return r\nend\n\n¦", "local function area(radius)\n"),
        ("shellscript", "area() {\n  echo 1\n}\n\n¦", "area() {\n"),
        ("kotlin", "data class A(val x: Int)\n\n¦", "data class A(val y: Int)\n"),
        ("sql", "CREATE TABLE users (\n  id int\n);\n\n¦", "create table if not exists users (\n"),
        ("proto3", "message User {\n}\n\n¦", "message User {\n"),
        ("toml", "[project]\nname = 'a'\n\n¦", "[project]\n"),
        ("json", '{\n  "name": "a",\n  ¦\n}\n', '"name": "b"\n'),
        ("yaml", "jobs:\n  build:\n    runs: x\n  ¦\n", "build:\n"),
    ],
)
def test_a_definition_that_its_scope_has_already_is_not_shown(language: str, marked: str, output: str):
    assert inserted(marked, output, language) is Reason.DEFINED


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_a_definition_is_found_with_any_line_ends(end: str):
    marked = "class A:\n    def f(self):\n        pass\n\n    ¦\n".replace("\n", end)
    assert inserted(marked, "def f(self, x):\n", "python") is Reason.DEFINED


@pytest.mark.parametrize(
    ("language", "marked", "output"),
    [
        # another scope
        ("python", "class A:\n    def f(self):\n        pass\n\n\nclass B:\n    ¦\n", "def f(self): pass\n"),
        ("python", "def f():\n    def g():\n        pass\n\n\n¦", "def g():\n"),
        ("python", "if x:\n    def f():\n        pass\nelse:\n    ¦\n", "def f(): pass\n"),
        ("python", "try:\n    import a\nexcept E:\n    def f(): pass\n\n\ndef g():\n    ¦\n", "def f(): pass\n"),
        ("rust", "impl A {\n    fn f(&self) {}\n}\n\nimpl B {\n    ¦\n}\n", "fn f(&self) {}\n"),
        ("cpp", "namespace a {\nstruct X {\n};\n}\nnamespace b {\n¦\n}\n", "struct X {\n"),
        ("javascript", "function f() {\n  const x = 1;\n}\nfunction g() {\n  ¦\n}\n", "const x = 2;\n"),
        ("json", '[\n  {\n    "name": "a"\n  },\n  {\n    ¦\n  }\n]\n', '"name": "b"\n'),
        ("yaml", "- uses: a\n  with: x\n- uses: b\n  ¦\n", "with: y\n"),
        ("yaml", "name: a\n---\n¦", "name: b\n"),
        # overloads and other definitions that may stand twice
        ("python", "@overload\ndef f(x: int) -> int: ...\n@overload\n¦", "def f(x: str) -> str: ...\n"),
        ("python", "@overload\ndef f(x: int) -> int: ...\n¦", "def f(x):\n"),
        (
            "python",
            "class A:\n    @property\n    def x(self):\n        return 1\n    @x.setter\n    ¦\n",
            "def x(self, v): y\n",
        ),
        ("python", "@f.register\ndef _(x: int):\n    pass\n\n\n@f.register\n¦", "def _(x: str):\n"),
        ("typescript", "function f(x: number): void;\n¦\n", "function f(x: string): void;\n"),
        ("typescript", "function f(x: number): void;\n¦\n", "function f(x: any) {\n"),
        ("java", "class A {\n  void f(int x) {}\n\n  ¦\n}\n", "void f(String x) {}\n"),
        ("kotlin", "fun f(x: Int) = 1\n\n¦", "fun f(x: String) = 2\n"),
        ("csharp", "partial class A {\n}\n\n¦", "partial class A {\n"),
        ("cpp", "struct A;\n\n¦", "struct A {\n"),
        ("c", "#ifdef X\nstruct A {\n  int x;\n};\n#else\n¦\n#endif\n", "struct A {\n"),
        ("rust", "#[cfg(unix)]\nfn f() {}\n\n#[cfg(windows)]\n¦", "fn f() {}\n"),
        ("rust", "const fn f() -> u8 {\n    1\n}\n\n¦", "const fn g() -> u8 {\n"),
        ("go", "func init() {\n}\n\n¦", "func init() {\n"),
        ("ruby", "class A\nend\n\n¦", "class A < B\n"),
        # another kind, another name, no code
        ("scala", "class A(x: Int)\n\n¦", "object A {\n"),
        ("python", "def area(r):\n    return r\n\n\n¦", "def area2(r):\n"),
        ("python", '"""\ndef area(r):\n"""\n\n\n¦', "def area(r):\n"),
        ("javascript", "/*\nfunction area(r) {\n*/\n\n¦", "function area(r) {\n"),
        # the user has typed the name
        ("python", "def area(r):\n    return r\n\n\ndef area¦", "(radius):\n"),
    ],
)
def test_a_definition_of_another_scope_or_an_overload_is_shown(language: str, marked: str, output: str):
    shown = inserted(marked, output, language)
    assert shown.split() == output.split(), shown


def test_a_block_ends_before_a_definition_that_its_scope_has_already():
    marked = "class A:\n    ¦\n\n    def close(self):\n        pass\n"
    output = "def open(self):\n        return 1\n    # Close it.\n    def close(self, force):\n        return 2\n"
    assert inserted(marked, output, "python") == "def open(self):\n        return 1"


# ── a statement of the last three lines ──────────────────────────────────────────────────────────────────────────────


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
    assert inserted(marked, output, language) is Reason.REPEATS_ABOVE


@pytest.mark.parametrize(
    ("language", "marked", "output"),
    [
        ("python", "a = b\nc = d\ne = f\ng = h\n¦", "a = b\n"),
        ("python", "if x:\n    a = b\nc = d\n¦", "a = b\n"),
        ("python", "def f():\n    a.b(c)\n\ndef g():\n    ¦", "a.b(c)\n"),
        ("python", "if x:\n    return None\nif y:\n    ¦", "return None\n"),
        ("go", "\tif err != nil {\n\t\treturn err\n\t}\n\t¦\n", "if err != nil {\n"),
        ("rust", "#[test]\nfn f() {}\n\n¦", "#[test]\n"),
        ("json", '[\n  "a b",\n  "c d",\n  ¦\n]\n', '"a b",\n'),
        ("plaintext", "one thing\nanother thing\n¦", "one thing\n"),
        ("python", "# see one thing\nx = 1\n¦", "# see one thing\n"),
    ],
)
def test_a_line_that_often_repeats_is_shown(language: str, marked: str, output: str):
    assert not isinstance(inserted(marked, output, language), Reason)


# ── an entry of a list file ──────────────────────────────────────────────────────────────────────────────────────────

WORDS = "".join(f"word{number}\n" for number in range(12))


@pytest.mark.parametrize(
    ("name", "marked", "output"),
    [
        (".gitignore", "build/\n*.pyc\n¦", "build/\n"),
        (".gitignore", "build/\n*.pyc\n¦", "build\n"),
        (".gitignore", "*.pyc\n¦\nnode_modules/\n", "node_modules\n"),
        (".gitignore", "*.pyc\nnode_modules/\nnode_mod¦\n", "ules\n"),
        (".dockerignore", ".git\r\n.venv\r\n¦", ".git\n"),
        ("requirements.txt", "requests>=2\nFlask\n¦", "flask==3.0\n"),
        ("requirements-dev.in", "typing_extensions\n¦", "typing-extensions>=4\n"),
        ("CODEOWNERS", "*.py @ann\n*.js @bob\n¦", "*.py @cy\n"),
        ("words.txt", "apple\npear\n¦", "apple\n"),
        ("names", WORDS + "¦", "word3\n"),
    ],
)
def test_an_entry_that_a_list_file_has_is_not_shown(name: str, marked: str, output: str):
    assert inserted(marked, output, "plaintext", f"file:///p/{name}") is Reason.LISTED


@pytest.mark.parametrize(
    ("name", "marked", "output"),
    [
        (".gitignore", "build/\n*.pyc\n¦", "dist/\n"),
        (".gitignore", "# cache\n*.pyc\n\n¦", "# cache\n"),
        (".gitignore", "build/\n¦", "!build/\n"),
        (".gitignore", "/build\n¦", "build\n"),
        ("requirements.txt", "requests>=2\n¦", "requests-toolbelt\n"),
        ("requirements.txt", "requests\nrequests¦", ">=2\n"),
        ("CODEOWNERS", "*.py @ann\n¦", "*.js @ann\n"),
        ("notes.txt", "an apple\na pear\n¦", "an apple\n"),
        ("names", WORDS + "¦", "word40\n"),
    ],
)
def test_an_entry_that_a_list_file_lacks_is_shown(name: str, marked: str, output: str):
    assert not isinstance(inserted(marked, output, "plaintext", f"file:///p/{name}"), Reason)


names = st.lists(st.from_regex(r"[a-z]{1,8}(/|\.[a-z]{1,3})?", fullmatch=True), min_size=2, max_size=15, unique=True)


@given(names, st.data())
def test_no_entry_is_ever_listed_twice(entries: list[str], data: st.DataObject):
    entry = data.draw(st.sampled_from(entries))
    shown = inserted("\n".join(entries) + "\n¦", entry + "\n", "ignore", "file:///p/.gitignore")
    assert shown in (Reason.LISTED, Reason.REPEATS_ABOVE)
    typed = data.draw(st.integers(0, len(entry) - 1))
    shown = inserted(
        "\n".join(entries) + "\n" + entry[:typed] + "¦", entry[typed:] + "\n", "ignore", "file:///p/.gitignore"
    )
    assert isinstance(shown, Reason) or not entry[typed:].strip("/")


@given(st.text(max_size=200), st.sampled_from(["plaintext", "ignore", "python", ""]), st.text(max_size=20))
def test_any_file_is_a_list_file_or_none(text: str, language: str, name: str):
    entries = list_file(f"file:///p/{name}", language, text)
    assert entries is None or entries.entry(entries.entry(text)) == entries.entry(text)


scraps = st.lists(
    st.sampled_from(
        [
            *("def f():", "def g():", "class A:", "    ", "\t", "x = 1", "\n", "\n    ", "{", "}", "function f() {"),
            *("@overload", '"a": 1,', "a: 1", "#if x", "fn f() {", "\r\n", '"""', "const f = 1;", "[a]", "é"),
        ]
    ),
    max_size=16,
).map("".join)


@given(
    scraps,
    scraps,
    scraps,
    st.sampled_from(["python", "javascript", "rust", "json", "yaml", "toml", "c", "sql", "ignore"]),
)
def test_what_is_shown_has_no_duplicate_left(before: str, after: str, output: str, language: str):
    text = before + after
    plan = plan_for(text, len(before), language)
    if isinstance(plan, SuggestionPlan) and plan.duplicates is not None:
        length, reason = plan.duplicates.length_without(output)
        assert (length == len(output)) if reason is None else (length < len(output))
        again, reason = plan.duplicates.length_without(output[:length])
        assert reason is None and again == length
