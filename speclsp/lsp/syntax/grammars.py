"""Finds the grammar for a language id or a file, and the language id for a file name.

The names of grammars are those of languages.LANGUAGES. The table of language ids serves a file that no editor has
named a language id for.
"""

from __future__ import annotations

from collections.abc import Mapping

from speclsp.lsp.syntax.languages import BY_NAME, LANGUAGES, record
from speclsp.lsp.syntax.languages.without_grammar import PLAIN, WITHOUT_GRAMMAR

# grammar name -> (module, function that returns the grammar)
GRAMMARS: Mapping[str, tuple[str, str]] = {
    language.name: (language.grammar_module or f"tree_sitter_{language.name}", language.grammar_function)
    for language in LANGUAGES
}
# file suffix -> grammar, of the languages whose files are indexed
SUFFIXES: Mapping[str, str] = {suffix: language.name for language in LANGUAGES for suffix in language.indexed.split()}
_FILES = [  # (language id, suffixes and whole names of its files)
    (language_id, names.split())
    for language in (*WITHOUT_GRAMMAR, *LANGUAGES)
    for language_id, names in language.files.items()
]
_ID_OF_FILE: Mapping[str, str] = {name.lower(): language_id for language_id, names in _FILES for name in names}


def grammar(language_id: str) -> str | None:
    """The grammar for an LSP language id or a common name for it; None when speclsp has none."""
    name = record(language_id).name
    return name if name in BY_NAME else None


def grammar_of(path: str) -> str:
    """The grammar of a file that is indexed; "" for any other file."""
    return SUFFIXES.get("." + path.rpartition(".")[2].lower(), "")


def family(path: str) -> str:
    """A name that is the same for languages that use one another's files; "" for a file that is not indexed."""
    name = grammar_of(path)
    return (BY_NAME[name].family or name) if name else ""


def known_id(file_name: str) -> str:
    """The language id that an editor sends for a file; "" for an unknown name. Folders are not looked at."""
    name = file_name.lower()
    dot = name.rfind(".")
    return _ID_OF_FILE.get(name) or (_ID_OF_FILE.get(name[dot:], "") if dot >= 0 else "")


def language_id(file_name: str) -> str:
    """As `known_id`; "plaintext" for an unknown name."""
    return known_id(file_name) or PLAIN
