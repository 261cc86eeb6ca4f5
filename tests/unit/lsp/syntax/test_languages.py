"""Law of languages: each record answers each question, and no other module of the server names a language."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.lsp.edited_document import EditDesk
from support.lsp.suggested import suggest
from support.lsp.syntax_samples import ANSWERS
from support.source_tree import ROOT

from speclsp.lsp.index import file_imports
from speclsp.lsp.reasons import Reason
from speclsp.lsp.syntax import bindings, languages, lexical_rules, tree
from speclsp.lsp.syntax.languages import BY_NAME, LANGUAGES, record
from speclsp.lsp.syntax.languages.keywords import Keywords
from speclsp.lsp.syntax.languages.python import PYTHON
from speclsp.lsp.syntax.languages.record import Language
from speclsp.lsp.syntax.languages.without_grammar import UNKNOWN, WITHOUT_GRAMMAR
from speclsp.lsp.syntax.languages.words import RUBY
from speclsp.lsp.syntax.tree import query_sections

NAMES = sorted(BY_NAME)
SERVER = ROOT / "speclsp/lsp"
SECRETS = ("MySQL", "Terraform", "ini", "json", "properties", "toml", "xml", "yaml", "yml")
ALLOWED = {  # (file, text): reason
    ("server/items.py", "markdown"): "a kind of LSP's MarkupContent",
    ("syntax/offset_map.py", "ignore"): "an error handler of str.encode",
    **{("visibility/secret_files.py", text): "a part of the patterns for files with secrets" for text in SECRETS},
}


class Files:
    """The files of a workspace."""

    def __init__(self, *paths: str) -> None:
        self.paths = paths

    def first_existing(self, paths: Iterable[str]) -> str | None:
        return next((path for path in paths if path in self.paths), None)

    def files_with_stem(self, stem: str) -> list[str]:
        return [path for path in self.paths if posixpath.basename(path).split(".")[0] == stem]

    def files_in(self, directory: str) -> list[str]:
        return [path for path in self.paths if posixpath.dirname(path) == directory]


# ── each record answers each question ─────────────────────────────────────────────────────────────────────────────────


def test_every_language_with_a_grammar_has_answers():
    assert sorted(ANSWERS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_comment_and_a_string_hold_no_code(name: str):
    rules, comment = BY_NAME[name].rules, ANSWERS[name].comment
    if comment is None:
        assert not rules.comment and not rules.block_comment
    else:
        assert lexical_rules.code_of("x " + comment, rules) == "x"
    assert lexical_rules.pair('x "(" y', rules).imbalance == 0
    assert lexical_rules.left_open('x "(', rules) is not None or not rules.string.endswith("$)")


@pytest.mark.parametrize("name", NAMES)
def test_the_header_of_a_block_opens_it_and_breaks_no_syntax(name: str):
    marked, header = ANSWERS[name].block
    assert lexical_rules.opens_block(header, BY_NAME[name].rules, above=True)
    assert not lexical_rules.opens_block("x y", BY_NAME[name].rules, above=True)
    suggestion = suggest(marked, header, name)
    assert not isinstance(suggestion, Reason) and suggestion.text.startswith(header)


@pytest.mark.parametrize("name", NAMES)
def test_an_import_has_a_module_and_a_file(name: str):
    answers, rules = ANSWERS[name], BY_NAME[name].imports
    assert (rules is None) == (answers.statement is None) == (answers.file is None)
    if answers.statement is not None and answers.file is not None:
        statement, module = answers.statement
        (imported,) = file_imports.read(name, statement)
        assert imported.module == module
        importer, module, path = answers.file
        files = Files(importer, path, "other/unrelated.txt")
        assert file_imports.resolve(module, importer, files) == path
        assert file_imports.resolve("no.such/module", importer, files) is None


def test_a_language_that_is_indexed_is_the_family_of_no_other_by_chance():
    for language in LANGUAGES:
        assert not language.family or BY_NAME[language.family].indexed
        assert bool(language.imports) <= bool(language.indexed)


def test_a_record_is_known_by_each_of_its_names_and_by_no_name_of_another():
    names = [
        name
        for language in (*LANGUAGES, *WITHOUT_GRAMMAR)
        for name in {language.name, *language.aliases, *language.files}
    ]
    assert len(names) == len(set(names))
    for language in (*LANGUAGES, *WITHOUT_GRAMMAR):
        for name in (language.name, *language.aliases, *language.files):
            assert record(f" {name.upper()} ") is language
    assert record("") is record("cobol") is UNKNOWN


def test_the_page_lists_the_languages_with_a_grammar():
    page = (ROOT / "docs/context.md").read_text("utf-8")
    rows = {
        kind: set(re.findall(r"`([\w-]+)`", ids))
        for kind, ids in re.findall(r"^\| (checked.*?) \| (.*) \|$", page, re.M)
    }
    ids = {True: set[str](), False: set[str]()}
    for language in LANGUAGES:
        ids[bool(language.indexed)] |= set(language.files)
    assert rows == {"checked and indexed": ids[True], "checked": ids[False]}


# ── no other module names a language ──────────────────────────────────────────────────────────────────────────────────


def words() -> frozenset[str]:
    """Language ids, common names and suffixes of all records."""
    known = (*LANGUAGES, *WITHOUT_GRAMMAR)
    names = {name for language in known for name in (language.name, *language.aliases, *language.files)}
    return frozenset(names | {suffix for language in LANGUAGES for suffix in language.indexed.split()})


def named(source: str, known: frozenset[str]) -> Iterator[tuple[int, str]]:
    """(line, text) of each string in a source text that is a name or a suffix of a language."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.strip().lower() in known:
            yield node.lineno, node.value


def sources() -> Iterator[Path]:
    for path in sorted(SERVER.rglob("*.py")):
        if path.parent != SERVER / "syntax/languages":
            yield path


def test_no_other_module_of_the_server_names_a_language():
    known = words()
    places = {
        (path.relative_to(SERVER).as_posix(), text): line
        for path in sources()
        for line, text in named(path.read_text("utf-8"), known)
    }
    assert {place: line for place, line in places.items() if place not in ALLOWED} == {}
    assert set(ALLOWED) <= set(places), "an exception that nothing needs"


# ── a language is one record ──────────────────────────────────────────────────────────────────────────────────────────

NEW_LANGUAGES = {  # a record with the grammar of a language like it, and a text in which <old|new> was edited
    "elixir": (
        replace(
            RUBY,
            name="elixir",
            grammar_module="tree_sitter_ruby",
            keywords=Keywords(functions="def|defp", types="defmodule"),
        ),
        "defmodule Box do\n  defp <area|surface>(box) do\n    box\n  end\n\n"
        "  def twice(box), do: 2 * <area|surface>(box)\n  def half(box), do: area(box) / 2\nend\n",
    ),
    "nim": (
        replace(
            PYTHON,
            name="nim",
            grammar_module="tree_sitter_python",
            keywords=Keywords(functions="proc|iterator", variables="let|var|const"),
        ),
        "proc <area|surface>(box: int): int =\n  box\n\necho <area|surface>(2)\necho area(3)\n",
    ),
}


@pytest.fixture(params=NEW_LANGUAGES)
def new_language(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Language:
    """A language that only its record names. Its file of queries inherits another one without `locals`."""
    language, _ = NEW_LANGUAGES[request.param]
    parent = language.grammar_module.removeprefix("tree_sitter_")
    sections = {name: text for name, text in query_sections(parent).items() if name != bindings.SECTION}
    monkeypatch.setattr(
        tree, "query_sections", lambda name: sections if name == language.name else query_sections(name)
    )
    for table in (languages.BY_NAME, languages.BY_ID):
        monkeypatch.setitem(table, language.name, language)
    monkeypatch.setitem(tree.GRAMMARS, language.name, (language.grammar_module, "language"))
    return language


def test_a_new_language_offers_the_uses_of_a_renamed_function(new_language: Language):
    text = NEW_LANGUAGES[new_language.name][1]
    edit = re.compile(r"<(\w+)\|(\w+)>")
    desk = EditDesk(edit.sub(r"\1", text), new_language.name)
    for _ in edit.findall(text):
        at = re.search(r"\barea\b", desk.document.text)
        assert at is not None
        desk.replace(*at.span(), "surface")
    offer = desk.propose()
    assert not isinstance(offer, str), offer
    assert desk.applied(offer) == edit.sub(r"\2", text).replace("area", "surface")
