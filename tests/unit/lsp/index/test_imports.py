"""Imports of files in each indexed language: modules, and names in them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp.lsp.index import file_imports
from speclsp.lsp.syntax.grammars import SUFFIXES
from speclsp.lsp.syntax.languages.import_rules import Import
from speclsp.lsp.syntax.parser import SyntaxParser

SCRIPT = """\
import def, { A, b as c } from "./x.js";
import * as ns from '../y';
export * from './z';
export class K { run() { return require("./local"); } }
"""
SOURCES: dict[str, tuple[str, list[tuple[str, str]]]] = {  # grammar: (text, modules and names), the name "" for none
    "python": (
        "from . import store\nfrom ..x.y import (Foo,  # of old\n    bar as baz)\nimport os, numpy as np\n"
        "class A:\n    def f(self):\n        import local\n",
        [(".", "store"), ("..x.y", "Foo"), ("..x.y", "bar"), ("os", ""), ("numpy", "")],
    ),
    "typescript": (
        SCRIPT + "import type { T } from './t';\n",
        [("./x.js", "A"), ("./x.js", "b"), ("../y", ""), ("./z", ""), ("./t", "T")],
    ),
    "tsx": (SCRIPT, [("./x.js", "A"), ("./x.js", "b"), ("../y", ""), ("./z", "")]),
    "javascript": ('const { a, b: c } = require("./x");\nfunction foo() {}\n', [("./x", "a"), ("./x", "b")]),
    "rust": (
        "use crate::store::{Store, inner::{A, B as C}};\nuse a::*;\nmod sub;\npub struct Thing {}\n",
        [
            *[("crate::store", "Store"), ("crate::store::inner", "A"), ("crate::store::inner", "B"), ("a", "*")],
            ("self::sub", ""),
        ],
    ),
    "go": (
        'package p\nimport (\n  "fmt"\n  st "example.com/m/store"\n)\nvar Err = fmt.Errorf("x")\n',
        [("fmt", ""), ("example.com/m/store", "")],
    ),
    "c": ('#include "a/b.h"\n#include <stdio.h>\nint total = 3;\n', [("a/b.h", ""), ("stdio.h", "")]),
    "cpp": ('#include "x.hpp"\nnamespace ns { class A {}; }\n', [("x.hpp", "")]),
    "java": (
        "package a.b;\nimport a.c.D;\nimport a.d.*;\npublic class A<T> extends B { int x = 3; }\n",
        [("a.c", "D"), ("a.d", "")],
    ),
    "kotlin": (
        "package a.b\nimport a.c.D\nimport a.d.*\nimport a.e.F as G\nclass K\n",
        [("a.c", "D"), ("a.d", ""), ("a.e", "F")],
    ),
    "swift": (
        "import Foundation\nimport struct Foundation.Date\nclass K {}\n",
        [("Foundation", ""), ("Foundation", "Date")],
    ),
    "scala": (
        "package a.b\nimport a.c.D\nimport a.d._\nimport a.e.{F, G => H, _}\nclass K\n",
        [("a.c", "D"), ("a.d", ""), ("a.e", "F"), ("a.e", "G")],
    ),
    "sql": ("CREATE TABLE s.t (id int);\n", []),
    "c_sharp": ("using A.B.C;\nclass A { int x = 3; }\n", [("A.B", "C")]),
    "php": ("<?php\nuse A\\B\\C as D;\nuse E\\F;\nfunction g($b) {}\n", [("A\\B", "C"), ("E", "F")]),
    "ruby": ('require_relative "a/b"\nmodule M\nend\n', [("a/b", "")]),
    "lua": ('local m = require("a.b")\nfunction M.f() end\n', [("a.b", "")]),
    "bash": ("source ./lib.sh\nsource 'a/b.sh'\nfoo() { echo; }\n", [("a/b.sh", "")]),
}


def imports_of(grammar: str, text: str) -> list[Import] | None:
    tree = SyntaxParser().parse_once(grammar, text, 5000)
    return None if tree is None else file_imports.read_all(tree)


@pytest.mark.parametrize("grammar", SOURCES)
def test_the_imports_of_a_file_name_their_modules_and_the_names_in_them(grammar: str):
    text, expected = SOURCES[grammar]
    imports = imports_of(grammar, text)
    assert imports is not None
    assert [(one.module, name) for one in imports for name in one.names or [""]] == expected


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
