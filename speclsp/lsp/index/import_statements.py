"""Imports of a file: parser of the statements, and resolution of a module to a file, by the rules of the language."""

from __future__ import annotations

from itertools import islice

from speclsp.lsp.syntax.grammars import grammar_of
from speclsp.lsp.syntax.languages import BY_NAME
from speclsp.lsp.syntax.languages.import_rules import MAX_DEPTH, Import, KnownFiles, by_path
from speclsp.lsp.syntax.tree import SyntaxTree

_LONGEST = 4000  # characters of one statement
_MOST = 200  # imports in one statement
_MAX_MODULE = 400


def read(grammar: str, statement: str) -> list[Import]:
    """The imports of one statement."""
    language = BY_NAME.get(grammar)
    if language is None or language.imports is None or len(statement) > _LONGEST:
        return []
    return list(islice(language.imports.read(statement), _MOST))


def read_all(tree: SyntaxTree) -> list[Import]:
    """The imports of a file, in order."""
    statements = (tree.text[start:end] for start, end in tree.imports())
    return [imported for statement in statements for imported in read(tree.grammar, statement)]


def resolve(module: str, from_path: str, files: KnownFiles) -> str | None:
    """The path of the file that `module` means in the file at `from_path`; None where it is none of the workspace's."""
    if not module or len(module) > _MAX_MODULE or module.count("/") > MAX_DEPTH or module.count(".") > MAX_DEPTH:
        return None
    language = BY_NAME.get(grammar_of(from_path))
    if language is None:
        return by_path(module, from_path, files)
    return language.imports.resolve(module, from_path, files) if language.imports is not None else None
