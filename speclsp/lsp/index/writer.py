"""Write side of the workspace index: scans the files, parses those that changed, writes the tables.

Each step commits its part, and the process may end after any step: the next run writes the missing rows. The result
does not depend on the order of writing: after any edits the index equals a rebuilt one.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from speclsp import private_files
from speclsp.lsp.documents.uri_paths import system_path
from speclsp.lsp.index import file_imports, index_schema
from speclsp.lsp.index.file_cache import MAX_BYTES
from speclsp.lsp.index.file_imports import leaves_of, stem_of
from speclsp.lsp.index.scan import ScannedFile, WorkspaceScan, is_code
from speclsp.lsp.syntax import text_windows
from speclsp.lsp.syntax.grammars import grammar_of
from speclsp.lsp.syntax.languages import BY_NAME
from speclsp.lsp.syntax.languages.import_rules import Import
from speclsp.lsp.syntax.parser import SyntaxParser

PARSE_MS = 10_000.0  # a file that takes longer is skipped; parsing is slow at the lowest priority
HANG_CPU_S = 20.0  # a parse that ignores PARSE_MS ends the process after this time
COMMIT_FILES = 64  # in one transaction

ImportReader = Callable[[str, str, str], Sequence[Import] | None]  # grammar, text, path


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one index; seconds are processor time."""

    files: int = 20_000
    parse_s: float = 300.0  # for the files of one scan
    scan_s: float = 60.0  # to list the files


class IndexWriter:
    """Writes one folder's index.

    Args:
        read_imports: parses a file; it may raise anything.
        guard: called with a limit in seconds of processor time before each parse, and with 0 after it.
    """

    def __init__(
        self,
        root: str,
        database: Path,
        disabled_globs: Sequence[str] = (),
        budget: Budget | None = None,
        read_imports: ImportReader | None = None,
        guard: Callable[[float], None] = lambda _seconds: None,
    ) -> None:
        self.root, self.database = root, database
        self.budget = budget or Budget()
        self.scan = WorkspaceScan(root, disabled_globs)
        self.parsed = 0  # files, so far
        self._read_imports = read_imports or import_reader()
        self._guard = guard
        self._rows = index_schema.open_to_write(database)
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        self._progress_file = os.open(database.with_suffix(".at"), flags, 0o600)
        self._in_transaction = False
        self._suspect = self.interrupted_file()

    def __enter__(self) -> IndexWriter:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._commit()
        self._rows.close()
        os.close(self._progress_file)

    def build(self, near: str = "") -> None:
        """Bring the whole index up to date."""
        for _ in self.steps(near):
            pass

    def steps(self, near: str = "") -> Iterator[None]:
        """`build` in steps of one file, the nearest to `near` first."""
        began_s = time.process_time()
        if not Path(f"{self.root}/").is_dir():
            return  # an unmounted folder may come back
        files = self.scan.files(near, self.budget.scan_s)[: self.budget.files]
        known = {
            path: (mtime, size) for path, mtime, size in self._rows.execute("SELECT path, mtime_ns, size FROM files")
        }
        self._begin()
        self._rows.execute("DELETE FROM roots")
        self._rows.executemany(
            "INSERT INTO roots VALUES(?,?,?)", file_imports.package_roots(self.root, self.scan.manifests)
        )
        removed = known.keys() - {file.path for file in files}
        for path in removed:
            if self.scan.complete or self.scan.file_at(path) is None:
                self._forget(path)
        self._commit()
        yield  # files that became hidden are removed
        pending = [file for file in files if (file.mtime_ns, file.size) != known.get(file.path)]
        pending.sort(key=lambda file: file.path == self._suspect)  # last
        finished = self.scan.complete
        for number, file in enumerate(pending):
            if time.process_time() - began_s > self.budget.parse_s:
                finished = False
                break
            self.write_saved(file)
            if number % COMMIT_FILES == COMMIT_FILES - 1:
                self._commit()
            yield
        self._begin()
        self._set_metadata("built", "all" if finished else "part")
        self._commit()

    def update(self, path: str) -> None:
        """Index a file that was changed, created or removed."""
        file = self.scan.file_at(path)
        if file is None:
            self._forget(path)
        else:
            known = self._rows.execute("SELECT mtime_ns, size FROM files WHERE path = ?", (path,)).fetchone()
            if known != (file.mtime_ns, file.size):
                self.write_saved(file)
        self._commit()

    def skip_suspect(self) -> None:
        """Skip the file that the crashed process was parsing, until the file changes."""
        file = self.scan.file_at(self._suspect) if self._suspect else None
        if file is not None:
            self._write(file, None, index_schema.SKIPPED)
            self._commit()

    def interrupted_file(self) -> str:
        """The file that the previous process was parsing when it ended, "" for none."""
        with contextlib.suppress(OSError):
            os.lseek(self._progress_file, 0, os.SEEK_SET)
            return os.read(self._progress_file, 4096).partition(b"\n")[0].decode("utf-8", "replace")
        return ""

    def write_saved(self, file: ScannedFile) -> None:
        """Index a file with its text on the disk."""
        try:
            data = private_files.read_bytes(system_path(f"{self.root}/{file.path}"), MAX_BYTES, follow=False)
        except (OSError, ValueError):
            self._forget(file.path)
            return
        text = text_windows.normal_newlines(data.decode("utf-8-sig", "replace"))
        imports = self._imports(file, text) if is_code(text, file.path) else None
        self._write(file, imports, index_schema.OK if imports is not None else index_schema.SKIPPED)

    def _imports(self, file: ScannedFile, text: str) -> Sequence[Import] | None:
        self._record_progress(file)
        try:
            return self._read_imports(grammar_of(file.path), text, file.path)
        except Exception:  # a hostile file can raise anything
            return None
        finally:
            self._record_progress(None)

    def _record_progress(self, file: ScannedFile | None) -> None:
        """Record the file being parsed, for the next process, and limit the time of its parse."""
        self._guard(HANG_CPU_S if file is not None else 0)
        with contextlib.suppress(OSError):
            os.lseek(self._progress_file, 0, os.SEEK_SET)
            os.write(self._progress_file, (file.path.encode("utf-8", "replace") if file else b"") + b"\n")

    def _write(self, scanned: ScannedFile, imports: Sequence[Import] | None, state: int) -> None:
        self._begin()
        self._forget(scanned.path)
        file = self._rows.execute(
            "INSERT INTO files(path, stem, mtime_ns, size, state) VALUES(?,?,?,?,?)",
            (scanned.path, stem_of(scanned.path), scanned.mtime_ns, scanned.size, state),
        ).lastrowid
        self.parsed += 1
        if imports is None:
            return
        self._rows.executemany(
            "INSERT INTO imports VALUES(?,?,?,?)",
            [(file, number, i.module, json.dumps(i.names)) for number, i in enumerate(imports)],
        )
        leaves = set().union(*map(leaves_of, imports))
        self._rows.executemany("INSERT OR IGNORE INTO leaves VALUES(?,?)", [(leaf, file) for leaf in leaves])

    def _forget(self, path: str) -> None:
        self._begin()
        row = self._rows.execute("SELECT id FROM files WHERE path = ?", (path,)).fetchone()
        if row is not None:
            for table in ("imports", "leaves"):
                self._rows.execute(f"DELETE FROM {table} WHERE file = ?", row)
            self._rows.execute("DELETE FROM files WHERE id = ?", row)

    def _set_metadata(self, key: str, value: str) -> None:
        self._rows.execute("INSERT OR REPLACE INTO metadata VALUES(?,?)", (key, value))

    def _begin(self) -> None:
        if not self._in_transaction:
            self._rows.execute("BEGIN IMMEDIATE")
            self._in_transaction = True

    def _commit(self) -> None:
        if self._in_transaction:
            self._in_transaction = False
            self._rows.execute("COMMIT")


def import_reader() -> ImportReader:
    """A reader that parses with the grammars; a language without imports is not parsed."""
    parser = SyntaxParser()

    def read(grammar: str, text: str, _path: str) -> Sequence[Import] | None:
        if BY_NAME[grammar].imports is None:
            return ()
        tree = parser.parse_once(grammar, text, PARSE_MS)
        return None if tree is None else file_imports.read_all(tree)

    return read
