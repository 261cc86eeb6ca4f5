"""Syntax trees: scopes, imports and kinds of text in every language, and texts that a scanner must not get."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.lsp.syntax_samples import ANSWERS, PLACES
from support.rows import rows

from speclsp.lsp.syntax import incremental_parse, text_windows
from speclsp.lsp.syntax import parser as parser_module
from speclsp.lsp.syntax import tree as syntax
from speclsp.lsp.syntax.grammars import GRAMMARS, grammar
from speclsp.lsp.syntax.parser import SyntaxParser
from speclsp.lsp.syntax.tree import SyntaxTree

ROWS = rows(__file__)

QUERIES = Path(syntax.__file__).parent / "queries"
LANGUAGES = sorted(file.stem for file in QUERIES.glob("*.scm"))

COMMENTS = {  # that reach to the end of their line
    name: answers.comment
    for name, answers in ANSWERS.items()
    if answers.comment and not answers.comment.endswith(("*/", "-->"))
}


def at(marked: str) -> tuple[str, int]:
    """The text without the ¦, and its offset."""
    return marked.replace("¦", ""), marked.index("¦")


def tree_of(language: str, text: str, near: int | None = None) -> SyntaxTree:
    tree = SyntaxParser().parse(language, text, budget_ms=2000, near=near)
    assert tree is not None
    return tree


def test_there_is_a_query_file_and_a_sample_for_every_grammar():
    assert sorted(GRAMMARS) == LANGUAGES == sorted(PLACES)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_section_of_a_query_file_is_valid_for_the_grammar(language: str):
    sections = syntax.query_sections(language)
    assert {"scopes", "text"} <= set(sections)
    for section in sections:
        assert syntax.load_query(language, section) is not None


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_scopes_around_the_cursor_are_found_outermost_first(language: str):
    text, offset = at(PLACES[language][0])
    scopes = tree_of(language, text).enclosing(offset)
    assert [scope.name for scope in scopes] == PLACES[language][1]
    for scope in scopes:
        assert scope.start <= offset <= scope.end
        assert text[scope.start :].startswith(scope.header)
        assert scope.kind in ("class", "function")


@pytest.mark.parametrize("language", LANGUAGES)
def test_imports_and_neighbouring_members_are_found(language: str):
    marked, _scopes, first_import, siblings = PLACES[language]
    text, offset = at(marked)
    tree = tree_of(language, text)
    if first_import is not None:
        start, end = tree.imports()[0]
        assert text[start:end].strip() == first_import
    if siblings is not None:
        assert [scope.name for scope in tree.siblings(offset)] == siblings


@pytest.mark.parametrize("language", sorted(COMMENTS))
def test_text_typed_at_the_end_of_a_line_comment_is_a_comment(language: str):
    text, offset = at(PLACES[language][0])
    line = text.rindex("\n", 0, offset) + 1 if "\n" in text[:offset] else 0
    text = text[:line] + COMMENTS[language] + "\n" + text[line:]
    tree = tree_of(language, text)
    end = line + len(COMMENTS[language])
    assert tree.kind_at(end) == "comment"
    assert tree.kind_at(end - 1) == "comment"
    assert tree.kind_at(line) == "code"


@pytest.mark.parametrize(("language", "marked", "kind"), ROWS["code_strings_and_comments_are_distinguished"])
def test_code_strings_and_comments_are_distinguished(language: str, marked: str, kind: str):
    text, offset = at(marked)
    assert tree_of(language, text).kind_at(offset) == kind


@pytest.mark.parametrize(
    ("name", "expected"),
    [*ROWS["language_ids_and_common_names_map_to_grammars"], ("cobol", None), ("", None)],
)
def test_language_ids_and_common_names_map_to_grammars(name: str, expected: str | None):
    assert grammar(name) == expected


def test_a_language_without_grammar_a_binary_and_no_budget_give_no_tree():
    parser = SyntaxParser()
    assert parser.parse("cobol", "x", 10) is None
    assert parser.parse("python", "x = 1\0", 10) is None
    assert parser.parse("python", "x", 0) is None


def test_offsets_are_code_points_for_every_kind_of_character():
    text = "# 日本語 \U0001f600 é\n" * 60 + "x = '\ud800'\nclass Ä:\n    def ß(self):\n        pass\n"
    tree = tree_of("python", text)
    offset = text.index("pass")
    assert [scope.header for scope in tree.enclosing(offset)] == ["class Ä:", "    def ß(self):"]
    assert tree.kind_at(text.index("\ud800") + 1) == "string"
    assert tree.kind_at(3) == "comment"


def test_an_indented_scope_reaches_to_the_end_of_its_last_line():
    text = "def f():\n    x = 1\n\n\ny = 2\n"
    tree = tree_of("python", text)
    assert [scope.name for scope in tree.enclosing(text.index("\n\n"))] == ["f"]
    assert tree.enclosing(text.index("y")) == []
    assert tree_of("c", "int f() {\n}\n").enclosing(11) == [], "a closed brace is over"


def test_errors_are_not_counted_where_the_grammar_lacks_dialects():
    tree = tree_of("sql", "SELECT TOP 3 FROM ) x (;\n")
    assert tree.raw.root_node.has_error and tree.count_errors() == 0
    assert tree.count_errors_with(0, 0, ") (", 100) == 0


def test_lone_carriage_returns_parse_like_line_feeds():
    text = "class A:\n    def f(self):\n        return 1\n\n\nx = (\n"
    twins = [SyntaxParser().parse("python", text.replace("\n", end), 1000) for end in ("\n", "\r")]
    assert twins[0] is not None and twins[1] is not None
    assert twins[0].count_errors() == twins[1].count_errors() == 1
    assert (
        [scope.name for scope in twins[1].enclosing(35)]
        == [scope.name for scope in twins[0].enclosing(35)]
        == ["A", "f"]
    )


def test_the_tree_without_the_typed_line_is_the_same_after_every_key():
    parser = SyntaxParser()
    before, after = "class A:\n    def f(self):\n        x = 1\n", "\n    def g(self):\n        pass\n"
    trees = []
    for typed in ("", "        foo", "        foo(", '        foo("', '        foo(")'):
        tree = parser.parse("python", before + typed + after, 1000)
        assert tree is not None
        trees.append(tree.parse_without(len(before), len(before + typed), 1000))
    assert all(stable is trees[0] for stable in trees)
    assert [scope.name for scope in trees[0].enclosing(len(before) - 1)] == ["A", "f"]


def big_class(methods: int) -> str:
    body = "".join(f"    def m{i}(self, x):\n        return self.table[{i}] + x\n\n" for i in range(methods))
    return "import os\nimport sys\n\n\nclass Big(Base):\n" + body


def test_a_file_too_large_for_the_budget_is_parsed_in_a_window(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parser_module, "FIRST_RATE", 1000)  # as on a slow machine
    text = big_class(3_000)
    offset = text.index("return self.table[1200]")
    parser = SyntaxParser()
    trees = filter(None, (parser.parse("python", text, 20, near=offset) for _ in range(50)))
    tree = next(tree for tree in trees if tree.imports() and tree.enclosing(offset))  # a busy machine stops some early
    assert [scope.name for scope in tree.enclosing(offset)] == ["Big", "m1200"]
    assert [text[start:end] for start, end in tree.imports()] == ["import os", "import sys"]
    assert "m1199" in [scope.name for scope in tree.siblings(offset)]
    assert all(text[s.start :].startswith(s.header) for s in [*tree.enclosing(offset), *tree.siblings(offset)])


def test_typing_moves_neither_end_of_the_window():
    text = big_class(4_000)
    offset = text.index("return self.table[3000]")
    _head, pieces = text_windows.window(text, offset, 20_000)
    for typed in range(1, 60):
        longer = text[:offset] + "x" * typed + text[offset:]
        _head, moved = text_windows.window(longer, offset + typed, 20_000)
        assert moved[:-1] == pieces[:-1]
        assert (moved[-1][0], moved[-1][1] - typed) == pieces[-1]


def test_yaml_that_would_overrun_the_scanner_is_not_parsed():
    deep = ["".join(" " * i + "k:\n" for i in range(300)), "- " * 300 + "a\n", ": " * 300, "...\n" * 3000]
    for text in deep:
        assert SyntaxParser().parse("yaml", text, 100) is None
    # The deepest text that is parsed, in a process of its own: an error here is a crash.
    deepest = "".join(" " * i + "- k:\n" for i in range(80)) + " " * 80 + "- " * 24 + "a\n"
    code = "from speclsp.lsp.syntax.parser import SyntaxParser; "
    code += f"assert SyntaxParser().parse('yaml', {deepest!r} * 3, 2000)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.mark.promise(13)
def test_the_bash_grammar_gets_only_ascii(monkeypatch: pytest.MonkeyPatch):
    """The grammar passes every character to C's isalpha(), which reads past the end of its table.

    U+10FFFF in a bash text crashed half of the processes that parsed it.
    """
    inputs: list[bytes] = []
    run = incremental_parse.run

    def recording_run(parser: object, data: bytes, *rest: object) -> object:
        inputs.append(data)
        return run(parser, data, *rest)

    monkeypatch.setattr(incremental_parse, "run", recording_run)
    text = 'größe() {\n  echo "\U0010ffff 😀 é"\n}\n'
    tree = SyntaxParser().parse("shellscript", text, 1000)
    assert tree is not None and inputs == [re.sub(rb"[\x80-\xff]", b"x", text.encode())]
    scopes = tree.enclosing(text.index("echo"))
    assert [scope.header for scope in scopes] == ["größe() {"], "what is shown is the document's own"
    assert tree.kind_at(text.index("😀")) == "string"
