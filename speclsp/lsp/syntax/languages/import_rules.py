"""Imports of a language: parsed statements, and the workspace file that a module means.

A resolver yields candidates, the likeliest first; the first one in the index wins. Some languages search places that
are not known here (include directories, class paths): then any file whose path ends in the right way will do, the
nearest one first.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

MAX_DEPTH = 40  # directories


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module."""

    module: str  # as the language writes it: "a.b", "..a", "./a.js", "crate::a::b", "a/b.h"
    names: tuple[str, ...] = ()  # of the module, as it calls them


class KnownFiles(Protocol):
    """Queries about the files of a workspace."""

    def first_existing(self, paths: Iterable[str]) -> str | None:
        """The first of these that is there."""

    def files_with_stem(self, stem: str) -> list[str]:
        """The files of a name, without its suffix."""

    def files_in(self, directory: str) -> list[str]:
        """The files right in a directory."""


Reader = Callable[[str], Iterator[Import]]  # the imports of one statement's text
Resolver = Callable[[str, str, KnownFiles], str | None]  # (module, path of its importer, files) -> path
Exports = Callable[[str, str], bool]  # (text, name) -> True if other files can import this name of the text's top level


class ImportRules(NamedTuple):
    """Reader and resolver of a language's imports."""

    read: Reader
    resolve: Resolver
    starts: str  # pattern of the beginning of a line that begins an import statement
    names_can_be_files: bool = False  # from a import b, where b is a file
    directory_stems: tuple[str, ...] = ()  # of the files that stand for their directory
    written_suffixes: tuple[str, ...] = ()  # of files, in a module's name
    exports: Exports | None = None  # None: imported names are not followed from file to file
    package: str = ""  # pattern of the line that names a package, which is all files of a directory with that name


def original_names(names: str) -> tuple[str, ...]:
    """The names in their module of "a, b as c": ("a", "b")."""
    originals = (part.strip().partition(" as ")[0].strip().removeprefix("type ") for part in names.split(","))
    return tuple(filter(None, originals))


def above(path: str) -> Iterator[str]:
    """The directories that a file lies in, the innermost first; "" is the workspace folder."""
    directory = posixpath.dirname(path)
    for _ in range(MAX_DEPTH):
        yield directory
        if not directory:
            return
        directory = posixpath.dirname(directory)


def joined(*parts: str) -> str | None:
    """A path in the workspace folder; None for one that leads out of it."""
    path = posixpath.normpath(posixpath.join(*filter(None, parts)) if any(parts) else "")
    if path == "." or path == "":
        return ""
    return None if path.startswith(("..", "/")) else path


def distance(path: str, near: str) -> int:
    """Number of directory steps from one file's directory to the other's."""
    directory, near_directory = posixpath.dirname(path).split("/"), posixpath.dirname(near).split("/")
    same = 0
    for mine, theirs in zip(directory, near_directory, strict=False):
        if mine != theirs:
            break
        same += 1
    return len(directory) + len(near_directory) - 2 * same


def suffix_of(path: str) -> str:
    """The suffix of a path in lower case, with its dot."""
    return posixpath.splitext(path)[1].lower()


def by_end(end: str, near: str, files: KnownFiles) -> str | None:
    """The file nearest to `near` whose path ends with `end`."""
    stem = posixpath.basename(end).split(".", 1)[0]
    matches = [path for path in files.files_with_stem(stem) if path == end or path.endswith("/" + end)]
    return min(matches, key=lambda path: (distance(path, near), path)) if matches else None


def by_class(module: str, from_path: str, files: KnownFiles) -> str | None:
    """The file of a class: the parts of its name are directories and the file, somewhere below the source roots."""
    return by_end(module.replace(".", "/").replace("\\", "/").lstrip("/") + suffix_of(from_path), from_path, files)


def by_path(module: str, from_path: str, files: KnownFiles) -> str | None:
    """The file of a path, beside its importer or anywhere below an unknown search directory."""
    suffix = suffix_of(from_path)
    base = joined(posixpath.dirname(from_path), module)
    near = files.first_existing((base, base + suffix)) if base else None
    if near:
        return near
    end = joined(module)
    if not end:
        return None
    return by_end(end, from_path, files) or by_end(end + suffix, from_path, files)


def class_imports(statement: str) -> Iterator[Import]:
    """Imports of classes by their full names, as Java and C# write them."""
    match = re.match(r"\s*(?:import|using)\s+(static\s+)?([\w.]+?)(?:\.(\*))?\s*;", statement)
    if match and match[2]:
        module, _, name = match[2].rpartition(".")
        yield Import(match[2]) if match[3] else Import(module, (name,))
