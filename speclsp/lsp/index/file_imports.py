"""Imports of a workspace's files: statements, the files that they mean, and the names of files.

The statements are found by patterns: a grammar is C code of third parties, which a hostile file may crash or stop.
"""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Iterator
from itertools import islice

from speclsp.lsp.syntax.grammars import grammar_of
from speclsp.lsp.syntax.languages import BY_NAME, LANGUAGES
from speclsp.lsp.syntax.languages.import_rules import MAX_DEPTH, Import, KnownFiles, by_path

_MAX_STATEMENTS = 500  # of one file
_MAX_STATEMENT = 4000  # characters
_COMMENT = re.compile(r"(?<![:\"'\w])//[^\n]*|(?<=\s)#[^\n]*")  # of code; a URL has slashes too
_MAX_IMPORTS = 200  # in one statement
_MAX_MODULE = 400
_MAX_LEAF = 200
_RULES = [language.imports for language in LANGUAGES if language.imports is not None]
_DIRECTORY_STEMS = frozenset(stem for rules in _RULES for stem in rules.directory_stems)
_WRITTEN = tuple(dict.fromkeys(suffix for rules in _RULES for suffix in rules.written_suffixes))  # in an import


def read(grammar: str, statement: str) -> list[Import]:
    """The imports of one statement."""
    language = BY_NAME.get(grammar)
    if language is None or language.imports is None or len(statement) > _MAX_STATEMENT:
        return []
    return list(islice(language.imports.read(statement), _MAX_IMPORTS))


def statements(grammar: str, text: str) -> Iterator[str]:
    """The import statements that begin at a line's start, without comments; each ends where its brackets are closed."""
    starts = _starts(grammar)
    for match in islice(starts.finditer(text), _MAX_STATEMENTS) if starts is not None else ():
        start, statement, depth = match.start(), "", 0
        while start <= len(text) and len(statement) <= _MAX_STATEMENT:
            end = text.find("\n", start)
            end = len(text) if end < 0 else end
            line = _COMMENT.sub("", text[start:end])
            statement += line + "\n"
            depth += line.count("(") + line.count("{") - line.count(")") - line.count("}")
            if depth <= 0 and not line.endswith("\\"):
                yield statement[:-1]
                break
            start = end + 1


@functools.cache
def _starts(grammar: str) -> re.Pattern[str] | None:
    language = BY_NAME.get(grammar)
    rules = language.imports if language is not None else None
    return re.compile(f"^(?:{rules.starts})", re.MULTILINE) if rules is not None else None


def resolve(module: str, from_path: str, files: KnownFiles) -> str | None:
    """The path of the file that `module` means in the file at `from_path`; None where it is none of the workspace's."""
    if not module or len(module) > _MAX_MODULE or module.count("/") > MAX_DEPTH or module.count(".") > MAX_DEPTH:
        return None
    language = BY_NAME.get(grammar_of(from_path))
    if language is None:
        return by_path(module, from_path, files)
    return language.imports.resolve(module, from_path, files) if language.imports is not None else None


def leaves_of(statement: Import) -> set[str]:
    """Last parts of the module and names of an import: an importer is looked up by its target's stem."""
    bare = statement.module.rstrip("/.")
    last = bare.replace("::", "/").replace("\\", "/").rpartition("/")[2]
    name = last if "/" in bare else last.rpartition(".")[2]
    for suffix in _WRITTEN:
        last = last.removesuffix(suffix)
    leaves = {last, name, *statement.names[:50]}
    return {leaf for leaf in leaves if leaf and leaf != "*" and len(leaf) < _MAX_LEAF}


def stem_of(path: str) -> str:
    """A file's name without its suffix; of the file that stands for its directory, the directory's."""
    directory, name = posixpath.split(path)
    stem = name.rsplit(".", 1)[0].removesuffix(".d") if "." in name[1:] else name
    if stem in _DIRECTORY_STEMS and directory:
        return posixpath.basename(directory)
    return stem


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
