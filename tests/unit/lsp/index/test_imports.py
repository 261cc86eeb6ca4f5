"""Imports of files in each indexed language: modules, and names in them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rows import rows

from speclsp.lsp.index import file_imports
from speclsp.lsp.syntax.grammars import SUFFIXES
from speclsp.lsp.syntax.languages.import_rules import Import
from speclsp.lsp.syntax.parser import SyntaxParser

ROWS = rows(__file__)

SOURCES = ROWS["sources"]


def imports_of(grammar: str, text: str) -> list[Import] | None:
    tree = SyntaxParser().parse_once(grammar, text, 5000)
    return None if tree is None else file_imports.read_all(tree)


@pytest.mark.parametrize("grammar", SOURCES)
def test_the_imports_of_a_file_name_their_modules_and_the_names_in_them(grammar: str):
    text, expected = SOURCES[grammar]
    imports = imports_of(grammar, text)
    assert imports is not None
    assert [[one.module, name] for one in imports for name in one.names or [""]] == expected


def test_every_indexed_language_has_an_example():
    assert set(SUFFIXES.values()) == set(SOURCES)


@given(st.sampled_from(sorted(SOURCES)), st.text(max_size=6), st.floats(0, 1), st.floats(0, 1))
def test_unfinished_code_has_bounded_imports(grammar: str, written: str, start: float, end: float):
    text = SOURCES[grammar][0]
    low, high = sorted((int(start * len(text)), int(end * len(text))))
    text = text[:low] + written + text[high:]
    for statement in imports_of(grammar, text) or ():  # None for a binary file
        assert statement.module and len(statement.module) <= len(text)
        assert all(name and len(name) <= len(text) for name in statement.names)


def test_a_tree_parsed_once_does_not_depend_on_the_previous_one():
    parser, text = SyntaxParser(), SOURCES["python"][0]
    before = parser.parse_once("python", "def f(:\n    x = (1\n", 5000)
    tree = parser.parse_once("python", text, 5000)
    assert before is not None and tree is not None
    assert file_imports.read_all(tree) == imports_of("python", text)


def test_a_javascript_require_is_an_import_of_its_names():
    assert file_imports.read("javascript", 'const { a, b: c } = require("./x");') == [Import("./x", ("a", "b"))]
    assert file_imports.read("javascript", 'const fs = require("fs")') == [Import("fs")]
