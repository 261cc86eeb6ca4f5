"""Workspace index, in memory: finds the files that are related to a document, for the context.

    path ─► state on the disk, imports        name without suffix, directory, last part of a module ─► paths

The index belongs to one thread. Files are read by another one (folder_reader.py), which hands over its changes. An
incomplete index gives a poorer context, and nothing waits for it.
"""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, TypeVar, cast

from speclsp.lsp.documents.uri_paths import file_path, folded
from speclsp.lsp.index import file_imports
from speclsp.lsp.index.deadline import NEVER, Deadline
from speclsp.lsp.index.file_cache import FileCache, FileState
from speclsp.lsp.index.file_imports import leaves_of, stem_of, twins
from speclsp.lsp.syntax import hidden_characters
from speclsp.lsp.syntax.grammars import family, grammar_of
from speclsp.lsp.syntax.languages import BY_NAME
from speclsp.lsp.syntax.languages.import_rules import Import, distance
from speclsp.lsp.visibility import secret_files

HOLDS_S = 0.003  # limit of `holds`, for which a prompt waits
_MAX_WAIT_S = 60.0  # for a text
_MAX_PATHS = 400  # of one name, directory or module
_MAX_ANSWERS = 4096
_MAX_COUNTERPARTS, _MAX_FILES_LIKE = 4, 20
_MAX_MATCHES = 20  # imports of one file that are resolved to find out whether it imports another one

Answer = TypeVar("Answer")
Places = dict[str, tuple[str, ...]]  # paths by a key; the collector does not track a tuple of strings


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A file in the state in which it was read: strings, because the collector visits no strings.

    `path`: in the workspace folder, with forward slashes, in the spelling of the directory.
    `imports`: its import statements, separated by NUL; None for a file that nobody wrote.
    `leaves`: the last parts of their modules and names.
    """

    path: str
    state: FileState
    imports: str | None
    leaves: tuple[str, ...] = ()


class FileChange(NamedTuple):
    """A file that was read, or one that left the index (`file` is None)."""

    path: str
    file: IndexedFile | None = None


class WorkspaceIndex:
    """Index of one workspace folder."""

    def __init__(self, folder: str, hidden_rule: Callable[[str], bool] = lambda _path: False) -> None:
        """`folder` is a path or a URI; `hidden_rule(path)` is True for a file in it that no model may see."""
        self.folder = file_path(folder).rstrip("/")
        self.hidden_rule = hidden_rule
        self.on_stale: Callable[[str], None] = lambda _path: None  # a file has changed since it was read
        self._files: dict[str, IndexedFile] = {}  # by folded path
        self._by_stem: Places = {}
        self._by_directory: Places = {}
        self._by_leaf: Places = {}  # importers, by the last parts of modules and names
        self._answers: dict[tuple[object, ...], Any] = {}  # until the next change
        self._texts = FileCache(self.folder)

    # ── changes ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def apply(self, changes: Iterable[FileChange]) -> None:
        """Apply changes, each the newest of its file."""
        self._answers.clear()
        for path, file in changes:
            self._forget(path)
            if file is not None:
                self._add(file)

    def _add(self, file: IndexedFile) -> None:
        self._files[folded(file.path)] = file
        for places, key in self._places_of(file):
            paths = places.get(key, ())
            if len(paths) < _MAX_PATHS:
                places[key] = (*paths, file.path)

    def _forget(self, path: str) -> None:
        file = self._files.pop(folded(path), None)
        if file is None:
            return
        for places, key in self._places_of(file):
            paths = tuple(other for other in places.get(key, ()) if other != file.path)
            if paths:
                places[key] = paths
            else:
                places.pop(key, None)

    def files(self) -> list[IndexedFile]:
        """All files. For any thread."""
        return list(self._files.values())

    def state_of(self, path: str) -> FileState | None:
        """The state in which a file was read; None if it is not in the index. For any thread."""
        file = self._files.get(folded(path))
        return file.state if file is not None else None

    def _places_of(self, file: IndexedFile) -> list[tuple[Places, str]]:
        return [
            (self._by_stem, stem_of(file.path)),
            (self._by_directory, posixpath.dirname(file.path)),
            *((self._by_leaf, leaf) for leaf in file.leaves),
        ]

    # ── queries ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def imports(self, path: str) -> list[Import]:
        """All imports of a file, in order."""
        return [] if self.is_hidden(path) else list(self._imports_naming("", path))

    def resolve_module(self, module: str, from_path: str, deadline: Deadline = NEVER) -> str | None:
        """Path of the file that an import in `from_path` means; None if it is not in this folder."""
        path = self._resolve(module, from_path, deadline)
        return None if path is None or self.is_hidden(path) else path

    def importers(self, path: str, limit: int = 12, deadline: Deadline = NEVER) -> list[str]:
        """Files that import this one, the nearest first."""

        def query() -> list[str]:
            return [other for other in self.naming(path)[: 2 * limit] if self._imports_file(other, path)]

        nobody: list[str] = []
        return self._visible(self._answer(("importers", path, limit), query, nobody, deadline), limit)

    def counterparts(self, path: str) -> list[str]:
        """Tests of a file, or the files that a test is about: by their names, the nearest first."""
        languages = family(path)
        candidates = {other for stem in twins(stem_of(path)) for other in self.files_with_stem(stem)}
        paths = [other for other in candidates if other != path and family(other) == languages]
        return self._visible(nearest(paths, path), _MAX_COUNTERPARTS)

    def files_like(self, path: str) -> list[str]:
        """Counterparts of a file, then the files beside it in the same language."""
        languages = family(path)
        beside = (other for other in self.files_in(posixpath.dirname(path)) if family(other) == languages)
        paths = dict.fromkeys([*self.counterparts(path), *beside])
        return self._visible((other for other in paths if other != path), _MAX_FILES_LIKE)

    def text(self, path: str, deadline: Deadline = NEVER) -> str:
        """Text of a file on the disk; "" if the file has changed since it was read, or the disk is too slow."""
        return "" if self.is_hidden(path) else self._text(path, min(deadline.left_s(), _MAX_WAIT_S), at_once=True) or ""

    def holds(self, path: str, lines: str) -> bool:
        """True if an indexed file is unchanged and has `lines`; True as well if that is unknown after HOLDS_S."""
        text = self._text(path, HOLDS_S, at_once=False)
        return text is not None and (not text or hidden_characters.shows(text, lines))

    def is_hidden(self, path: str) -> bool:
        """True if nothing of a file may be shown."""
        return bool(secret_files.pattern_of(path)) or self.hidden_rule(path)

    def listed_path(self, path: str) -> str:
        """The path in the spelling of the index: on Windows an editor may send another case."""
        file = self._files.get(folded(path))
        return file.path if file is not None else path

    # ── KnownFiles, for file_imports.resolve ──────────────────────────────────────────────────────────────────────────

    def first_existing(self, paths: Iterable[str]) -> str | None:
        """The first of these paths that is in the index."""
        files = (self._files.get(folded(path)) for path in islice(paths, _MAX_PATHS))
        return next((file.path for file in files if file is not None), None)

    def files_with_stem(self, stem: str) -> list[str]:
        """Files of this name without its suffix."""
        return list(self._by_stem.get(stem, ()))

    def files_in(self, directory: str) -> list[str]:
        """Files of a directory, those of its subdirectories excluded."""
        return sorted(self._by_directory.get(directory, ()))

    def naming(self, path: str, *names: str) -> list[str]:
        """Files of this one's language whose imports have its stem or a name, the nearest first. Some may be hidden."""
        languages, leaves = family(path), (stem_of(path), *names)
        paths = dict.fromkeys(other for leaf in leaves for other in self._by_leaf.get(leaf, ()) if other != path)
        return nearest([other for other in paths if family(other) == languages], path)

    def _resolve(self, module: str, from_path: str, deadline: Deadline = NEVER) -> str | None:
        query = functools.partial(file_imports.resolve, module, from_path, self)
        return self._answer(("module", module, from_path), query, None, deadline)

    def _imports_file(self, importer: str, path: str) -> bool:
        """True if an import of `importer` means the file at `path`."""
        stem, language = stem_of(path), BY_NAME.get(grammar_of(importer))
        rules = language.imports if language is not None else None
        named = self._imports_naming(stem, importer)
        matches = (imported for imported in named if stem in leaves_of(imported))
        for statement in islice(matches, _MAX_MATCHES):
            if self._resolve(statement.module, importer) == path:
                return True
            if rules and rules.names_can_be_files and stem in statement.names:
                package = statement.module + "." if statement.module.strip(".") else statement.module
                if self._resolve(package + stem, importer) == path:  # from a import b, where b is a file
                    return True
        return False

    def _imports_naming(self, word: str, path: str) -> Iterator[Import]:
        """The imports of a file whose statements contain a word."""
        file, grammar = self._files.get(folded(path)), grammar_of(path)
        for statement in (file.imports or "").split("\0") if file is not None else ():
            if word in statement:
                yield from file_imports.read(grammar, statement)

    def _visible(self, paths: Iterable[str], limit: int) -> list[str]:
        return list(islice((path for path in paths if not self.is_hidden(path)), limit))

    def _text(self, path: str, wait_s: float, at_once: bool) -> str | None:
        """Text of a file in its indexed state; None if it is in another, "" if the disk is slow."""
        file = self._files.get(folded(path))
        if file is None or file.imports is None:
            return None
        text = self._texts.text(file.path, file.state, wait_s, at_once)
        if text is None:
            self.on_stale(file.path)
        return text

    def _answer(
        self, key: tuple[object, ...], query: Callable[[], Answer], default: Answer, deadline: Deadline
    ) -> Answer:
        """The cached or new answer of a query; `default` where a new one would come after the deadline."""
        if key not in self._answers:
            if deadline.passed():
                return default
            if len(self._answers) >= _MAX_ANSWERS:
                self._answers.clear()
            self._answers[key] = query()
        return cast(Answer, self._answers[key])


def nearest(paths: Sequence[str], path: str) -> list[str]:
    """Paths in the order of their directories' distance from a file's."""
    in_directory = {posixpath.dirname(other): other for other in paths}  # many files, few directories
    steps = {directory: distance(other, path) for directory, other in in_directory.items()}
    return sorted(paths, key=lambda other: (steps[posixpath.dirname(other)], other))
