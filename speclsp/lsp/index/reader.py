"""Read side of the workspace index: imports, related files and their text, for the context.

A process of its own writes the index (worker.py, writer.py). This side only reads. Each query has a time budget. Where
there is no index yet, or a broken one, every answer is empty: the context is poorer then, and nothing waits.
"""

from __future__ import annotations

import functools
import json
import posixpath
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

from speclsp.lsp.documents.uri_paths import IS_WINDOWS, file_path
from speclsp.lsp.index import file_imports, index_schema
from speclsp.lsp.index.file_cache import FileCache
from speclsp.lsp.index.file_imports import leaves_of, stem_of, twins
from speclsp.lsp.index.query_cache import Deadline, QueryCache
from speclsp.lsp.syntax import hidden_characters
from speclsp.lsp.syntax.grammars import family, grammar_of
from speclsp.lsp.syntax.languages import BY_NAME
from speclsp.lsp.syntax.languages.import_rules import Import, distance
from speclsp.lsp.visibility import secret_files

_PROGRESS_STEPS = 1000  # of sqlite's virtual machine, between two checks of the time
_MAX_PATHS = 400
_MAX_COUNTERPARTS, _MAX_FILES_LIKE = 4, 20
_MAX_KNOWN_PATHS = 20_000
HOLDS_S = 0.003  # limit of `holds`, for which a prompt waits


class IndexReader:
    """Index of one workspace folder. Not for several threads at once."""

    def __init__(
        self,
        folder: str,
        database: Path | None = None,
        hidden_rule: Callable[[str], bool] = lambda _path: False,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """`folder` is a path or a URI; `hidden_rule(path)` is True for a file in it that no model may see."""
        self.folder = file_path(folder).rstrip("/")
        self.database = database or index_schema.index_path(self.folder)
        self.hidden_rule = hidden_rule
        self.on_broken: Callable[[], None] = lambda: None  # the index has to be built again
        self.on_stale: Callable[[str], None] = lambda _path: None  # a file has changed since it was indexed
        self.on_late: Callable[[str], None] = lambda _path: None  # a context of this document lacked time
        self.cache = QueryCache(self._check_ready, self._discard, clock)
        self._rows: sqlite3.Connection | None = None
        self._file_id: tuple[int, int] | None = None  # device and inode of the open database
        self._version = -1
        self._is_ready = False  # checked at the start of the current group of queries
        self._hidden_paths: dict[str, bool] = {}  # of the current group of queries
        self._exists: dict[str, bool] = {}  # by path, of those that were looked up
        self._texts = FileCache(self.folder)

    @classmethod
    def build(cls, folder: str | Path, database: Path | None = None, near: str = "") -> IndexReader:
        """Index a folder in this process, as the index worker does in its own."""
        from speclsp.lsp.index.writer import IndexWriter  # loads every grammar

        index = cls(str(folder), database)
        with IndexWriter(index.folder, index.database) as writer:
            writer.build(near)
        return index

    def clear_cache(self) -> None:
        """Drop all cached answers."""
        self.cache.clear()
        self._exists.clear()

    def close(self) -> None:
        """Close the database; the next query opens it again."""
        if self._rows is not None:
            self._rows.close()
        self._rows, self._file_id = None, None
        self.clear_cache()

    @contextmanager
    def shared_deadline(self, deadline: Deadline) -> Iterator[None]:
        """A group of queries: they end at `deadline` in sum, and a file that is hidden stays hidden in all of them.

        After the deadline, queries return cached answers or nothing.
        """
        self._is_ready = self._check_ready()
        try:
            with self.cache.share(deadline):
                yield
        finally:
            self._is_ready = False
            self._hidden_paths.clear()

    # ── queries ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def imports(self, path: str) -> list[Import]:
        """All imports of a file, in order."""
        sql = "SELECT i.module, i.names FROM imports i JOIN files f ON f.id = i.file WHERE f.path = ? ORDER BY i.number"

        def query() -> list[Import]:
            return [
                Import(str(module), tuple(map(str, json.loads(names)))) for module, names in self._select(sql, (path,))
            ]

        return [] if self.is_hidden(path) else list(self.cache.get_list(("imports", path), query))

    def resolve_module(self, module: str, from_path: str) -> str | None:
        """Path of the file that an import in `from_path` means; None if it is not in this folder."""
        query = functools.partial(file_imports.resolve, module, from_path, self)
        path = self.cache.get_or(("module", module, from_path), query, None)
        return None if path is None or self.is_hidden(path) else path

    def importers(self, path: str, limit: int = 12) -> list[str]:
        """Files that import this one, the nearest first."""

        def query() -> list[str]:
            sql = "SELECT f.path FROM leaves l JOIN files f ON f.id = l.file WHERE l.leaf = ? LIMIT ?"
            languages = family(path)
            rows = self._select(sql, (stem_of(path), _MAX_PATHS))
            paths = [str(row[0]) for row in rows if row[0] != path and family(row[0]) == languages]
            in_directory = {other.rpartition("/")[0]: other for other in paths}  # many files, few directories
            steps = {name: distance(other, path) for name, other in in_directory.items()}
            paths.sort(key=lambda other: (steps[other.rpartition("/")[0]], other))
            return list(islice((other for other in paths[: 2 * limit] if self._imports_file(other, path)), limit))

        return self._visible(self.cache.get_list(("importers", path, limit), query), limit)

    def counterparts(self, path: str) -> list[str]:
        """Tests of a file, or the files that a test is about: by their names, the nearest first."""

        def query() -> list[str]:
            languages = family(path)
            candidates = {other for stem in twins(stem_of(path)) for other in self.files_with_stem(stem)}
            paths = [other for other in candidates if other != path and family(other) == languages]
            return sorted(paths, key=lambda other: (distance(other, path), other))

        return self._visible(self.cache.get_list(("counterparts", path), query), _MAX_COUNTERPARTS)

    def files_like(self, path: str) -> list[str]:
        """Counterparts of a file, then the files beside it in the same language."""
        languages = family(path)
        query = functools.partial(self.files_in, posixpath.dirname(path))
        beside = self.cache.get_list(("inside", path), query)
        paths = dict.fromkeys([*self.counterparts(path), *(other for other in beside if family(other) == languages)])
        return self._visible((other for other in paths if other != path), _MAX_FILES_LIKE)

    def text(self, path: str) -> str:
        """Text of a file on the disk; "" if the file has changed since it was indexed."""
        rows = self._states(path)
        if not rows or rows[0][2] != index_schema.OK or self.is_hidden(path):
            return ""
        return self._text_in_state(path, rows[0], self.cache.left_s()) or ""

    def holds(self, path: str, lines: str) -> bool:
        """True if an indexed file is unchanged and has `lines`; True as well if that is unknown after HOLDS_S."""
        rows = self._states(path)
        text = self._text_in_state(path, rows[0], HOLDS_S) if rows and rows[0][2] == index_schema.OK else None
        return text is not None and (not text or hidden_characters.shows(text, lines))

    def _states(self, path: str) -> list[tuple[Any, ...]]:
        """The row of a file: mtime_ns, size, state. [] without an index, and for a file that is not in it."""
        sql = "SELECT mtime_ns, size, state FROM files WHERE path = ?"
        return self.cache.get_list(("state", path), lambda: self._select(sql, (path,)))

    def _text_in_state(self, path: str, row: tuple[Any, ...], wait_s: float) -> str | None:
        """Text of a file that was indexed in this state; None if it is in another, "" if the disk is too slow."""
        text = self._texts.text(path, (int(row[0]), int(row[1])), wait_s, at_once=self.cache.is_shared)
        if text is None:
            self.on_stale(path)
        return text

    def metadata(self, key: str) -> str:
        """An entry of the writer: "built" is set after the first whole scan. "" if there is none."""
        sql = "SELECT value FROM metadata WHERE key = ?"
        rows = self.cache.get_list(("metadata", key), lambda: self._select(sql, (key,)))
        return str(rows[0][0]) if rows else ""

    def is_hidden(self, path: str) -> bool:
        """True if nothing of a file may be shown."""
        if not isinstance(path, str):
            return True
        hidden = self._hidden_paths.get(path)
        if hidden is None:
            hidden = _is_secret(path) or self.hidden_rule(path)
            if self.cache.is_shared:
                self._hidden_paths[path] = hidden
        return hidden

    def listed_path(self, path: str) -> str:
        """The path in the spelling of the index: on Windows an editor may send another case."""
        if not IS_WINDOWS:
            return path
        rows = self.cache.get_list(
            ("listed", path), lambda: self._select("SELECT path FROM files WHERE path = ?", (path,))
        )
        return str(rows[0][0]) if rows else path

    # ── KnownFiles, for file_imports.resolve ──────────────────────────────────────────────────────────────────────────

    def first_existing(self, paths: Iterable[str]) -> str | None:
        """The first of these paths that is in the index."""
        wanted = list(dict.fromkeys(paths))[:_MAX_PATHS]
        if len(self._exists) > _MAX_KNOWN_PATHS:
            self._exists.clear()
        missing = [path for path in wanted if path not in self._exists]
        if missing:
            marks = ",".join("?" * len(missing))
            rows = self._select(f"SELECT path FROM files WHERE path IN ({marks})", missing)
            self._exists.update(dict.fromkeys(missing, False))
            self._exists.update((str(row[0]), True) for row in rows)
        return next((path for path in wanted if self._exists[path]), None)

    def files_with_stem(self, stem: str) -> list[str]:
        """Files of this name without its suffix."""
        rows = self._select("SELECT path FROM files WHERE stem = ? LIMIT ?", (stem, _MAX_PATHS))
        return [str(row[0]) for row in rows]

    def files_in(self, directory: str) -> list[str]:
        """Files of a directory, those of its subdirectories excluded."""
        low = f"{directory}/" if directory else ""
        rows = self._select(
            "SELECT path FROM files WHERE path >= ? AND path < ? AND instr(substr(path, ?), '/') = 0 LIMIT ?",
            (low, low[:-1] + "0" if low else "\U0010ffff", len(low) + 1, _MAX_PATHS),
        )
        return [str(row[0]) for row in rows]

    def package_roots(self, kind: str) -> list[tuple[str, str]]:
        """(name, directory) of the packages that manifests declare, the longest name first."""
        rows = self._select("SELECT name, path FROM roots WHERE kind = ? LIMIT ?", (kind, _MAX_PATHS))
        return sorted(((str(name), str(path)) for name, path in rows), key=lambda row: (-len(row[0]), row))

    def _imports_file(self, importer: str, path: str) -> bool:
        """True if an import of `importer` means the file at `path`."""
        stem, language = stem_of(path), BY_NAME.get(grammar_of(importer))
        rules = language.imports if language is not None else None
        for statement in self.imports(importer):
            if stem not in leaves_of(statement):
                continue
            if self.resolve_module(statement.module, importer) == path:
                return True
            if rules and rules.names_can_be_files and stem in statement.names:
                package = statement.module + "." if statement.module.strip(".") else statement.module
                if self.resolve_module(package + stem, importer) == path:  # from a import b, where b is a file
                    return True
        return False

    def _visible(self, paths: Iterable[str], limit: int) -> list[str]:
        return list(islice((path for path in paths if not self.is_hidden(path)), limit))

    # ── the database ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _select(self, sql: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        return [] if self._rows is None else self._rows.execute(sql, values).fetchall()

    def _check_ready(self) -> bool:
        """True once the current database is open; cached answers of an older version are dropped."""
        if self._is_ready:
            return True
        try:
            info = self.database.stat()
        except OSError:
            self.close()
            return False
        try:
            if self._rows is None or self._file_id != (info.st_dev, info.st_ino):
                self.close()
                self._rows = index_schema.open_to_read(self.database)
                if self._rows is None:
                    return False
                self._file_id = info.st_dev, info.st_ino
                self._rows.set_progress_handler(lambda: self.cache.is_late, _PROGRESS_STEPS)
            (version,) = self._rows.execute("PRAGMA data_version").fetchone()
        except sqlite3.OperationalError:
            self.close()
            return False
        except sqlite3.Error:
            self._discard()
            return False
        if version != self._version:
            self._version = version
            self.clear_cache()
        return True

    def _discard(self) -> None:
        """Close a broken database and have it built again."""
        self.close()
        self._is_ready = False
        self.on_broken()


@functools.lru_cache(maxsize=4096)
def _is_secret(path: str) -> bool:
    return bool(secret_files.pattern_of(path))
