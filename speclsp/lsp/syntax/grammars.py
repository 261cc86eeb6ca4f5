"""Finds the grammar for a language id or a file. The names of grammars are those of languages.LANGUAGES."""

from __future__ import annotations

from collections.abc import Mapping

from speclsp.lsp.syntax.languages import BY_NAME, LANGUAGES, record

# grammar name -> (module, function that returns the grammar)
GRAMMARS: Mapping[str, tuple[str, str]] = {
    language.name: (language.grammar_module or f"tree_sitter_{language.name}", language.grammar_function)
    for language in LANGUAGES
}
# file suffix -> grammar, of the languages whose definitions are indexed
SUFFIXES: Mapping[str, str] = {suffix: language.name for language in LANGUAGES for suffix in language.indexed.split()}
# file suffix -> the LSP language id that an editor sends
LANGUAGE_ID_OF_SUFFIX: Mapping[str, str] = {
    suffix: language_id
    for language in LANGUAGES
    for language_id, suffixes in language.files.items()
    for suffix in suffixes.split()
}


def grammar(language_id: str) -> str | None:
    """The grammar for an LSP language id or a common name for it; None when speclsp has none."""
    name = record(language_id).name
    return name if name in BY_NAME else None


def grammar_of(path: str) -> str:
    """The grammar of a file that is indexed; "" for any other file."""
    return SUFFIXES.get("." + path.rpartition(".")[2].lower(), "")


def family(path: str) -> str:
    """A name that is the same for languages that use one another's definitions; "" for a file that is not indexed."""
    name = grammar_of(path)
    return (BY_NAME[name].family or name) if name else ""
