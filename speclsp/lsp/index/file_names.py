"""Names of files in imports and in the names of their tests."""

from __future__ import annotations

import posixpath

from speclsp.lsp.syntax.languages import LANGUAGES
from speclsp.lsp.syntax.languages.import_rules import Import

_IMPORT_RULES = [language.imports for language in LANGUAGES if language.imports is not None]
_DIRECTORY_STEMS = frozenset(stem for rules in _IMPORT_RULES for stem in rules.directory_stems)
_WRITTEN = tuple(dict.fromkeys(suffix for rules in _IMPORT_RULES for suffix in rules.written_suffixes))  # in an import
_MAX_LEAF = 200


def stem_of(path: str) -> str:
    """A file's name without its suffix; of the file that stands for its directory, the directory's."""
    directory, name = posixpath.split(path)
    stem = name.rsplit(".", 1)[0].removesuffix(".d") if "." in name[1:] else name
    if stem in _DIRECTORY_STEMS and directory:
        return posixpath.basename(directory)
    return stem


def leaves_of(statement: Import) -> set[str]:
    """Last parts of the module and names of an import: an importer is looked up by its target's stem."""
    bare = statement.module.rstrip("/.")
    last = bare.replace("::", "/").replace("\\", "/").rpartition("/")[2]
    name = last if "/" in bare else last.rpartition(".")[2]
    for suffix in _WRITTEN:
        last = last.removesuffix(suffix)
    leaves = {last, name, *statement.names[:50]}
    return {leaf for leaf in leaves if leaf and leaf != "*" and len(leaf) < _MAX_LEAF}


def twins(stem: str) -> list[str]:
    """Possible stems of a file's tests, or of the file that a test is for."""
    for ending in ("_test", ".test", ".spec", "_spec", "-test", "Tests", "Test", "IT"):
        if stem.endswith(ending) and len(stem) > len(ending):
            return [stem.removesuffix(ending)]
    for start in ("test_", "Test", "test-"):
        if stem.startswith(start) and len(stem) > len(start):
            return [stem.removeprefix(start)]
    endings = ("_test", ".test", ".spec", "_spec", "-test", "Test", "Tests")
    starts = dict.fromkeys([f"test_{stem}", f"test_{stem.lstrip('_') or stem}", f"Test{stem}"])
    return [*starts, *(stem + ending for ending in endings)]
