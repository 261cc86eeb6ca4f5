"""Imports of files in each indexed language: modules, and names in them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rows import rows

from speclsp.lsp.index import file_imports
from speclsp.lsp.syntax.grammars import SUFFIXES
from speclsp.lsp.syntax.languages.import_rules import Import

ROWS = rows(__file__)

SOURCES = ROWS["sources"]


def imports_of(grammar: str, text: str) -> list[Import]:
    statements = file_imports.statements(grammar, text)
    return [imported for statement in statements for imported in file_imports.read(grammar, statement)]


@pytest.mark.parametrize("grammar", SOURCES)
def test_the_imports_of_a_file_name_their_modules_and_the_names_in_them(grammar: str):
    text, expected = SOURCES[grammar]
    assert [[one.module, name] for one in imports_of(grammar, text) for name in one.names or [""]] == expected


def test_every_indexed_language_has_an_example():
    assert set(SUFFIXES.values()) == set(SOURCES)


@given(st.sampled_from(sorted(SOURCES)), st.text(max_size=6), st.floats(0, 1), st.floats(0, 1))
def test_unfinished_code_has_bounded_imports(grammar: str, written: str, start: float, end: float):
    text = SOURCES[grammar][0]
    low, high = sorted((int(start * len(text)), int(end * len(text))))
    text = text[:low] + written + text[high:]
    for statement in imports_of(grammar, text):
        assert statement.module and len(statement.module) <= len(text)
        assert all(name and len(name) <= len(text) for name in statement.names)


@pytest.mark.parametrize(
    ("grammar", "text", "imports"),
    [
        ("python", "from a import (  # of (all\n    b,  # (one\n    c,\n)\nx = (1\n", [Import("a", ("b", "c"))]),
        ("python", "from a import b, \\\n    c\ntry:\n    import d\nfrom e, a word\n", [Import("a", ("b", "c"))]),
        ("javascript", "const {\n  a,\n} = require('./x')\nconst y = f()\n", [Import("./x", ("a",))]),
        ("javascript", "import './a' // (\nexport { b } from './b'\nlet c = 1", [Import("./a"), Import("./b", ("b",))]),
        (
            "rust",
            "mod tests {\n    use a;\n}\npub(crate) use a::{b::c}; // {\nmod e;\n",
            [Import("a::b", ("c",)), Import("self::e")],
        ),
    ],
)
def test_a_statement_begins_at_a_lines_start_and_ends_where_its_brackets_are_closed(
    grammar: str, text: str, imports: list[Import]
):
    assert imports_of(grammar, text) == imports


def test_a_javascript_require_is_an_import_of_its_names():
    assert file_imports.read("javascript", 'const { a, b: c } = require("./x");') == [Import("./x", ("a", "b"))]
    assert file_imports.read("javascript", 'const fs = require("fs")') == [Import("fs")]
