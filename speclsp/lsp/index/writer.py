"""Write side of the workspace index: scans the files, outlines those that changed, writes the tables.

Each step commits its part and may be the last: the next run finds the missing rows and writes them. The result does not
depend on the order of writing: after any edits the index equals one that is built anew.
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
from speclsp.lsp.index import index_schema, manifests, outline
from speclsp.lsp.index.file_cache import MOST_BYTES
from speclsp.lsp.index.file_names import leaves_of, stem_of
from speclsp.lsp.index.outline import Outline
from speclsp.lsp.index.scan import ScannedFile, WorkspaceScan, is_code
from speclsp.lsp.syntax import text_windows
from speclsp.lsp.syntax.grammars import grammar_of
from speclsp.lsp.syntax.parser import SyntaxParser

PARSE_MS = 10_000.0  # a file that takes longer is left out; at the lowest priority all takes its time
HANG_CPU_S = 20.0  # one that does not even stop then ends the process
PAUSE_FILES = 64  # written at once

Outliner = Callable[[str, str, str], Outline | None]  # grammar, text, path


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one index."""

    files: int = 20_000
    seconds: float = 300.0  # of the processor's time, for one look at all of it
    walk_s: float = 60.0  # the same, to see which files there are


class IndexWriter:
    """Writes one folder's index. `outliner` reads a file; it is expected to fail."""

    def __init__(
        self,
        root: str,
        database: Path,
        disabled_globs: Sequence[str] = (),
        budget: Budget | None = None,
        outliner: Outliner | None = None,
        guard: Callable[[float], None] = lambda _seconds: None,
    ) -> None:
        self.root, self.database = root, database
        self.budget = budget or Budget()
        self.walk = WorkspaceScan(root, disabled_globs)
        self.outlined = 0  # files, so far
        self._outliner = outliner or outliner_of()
        self._guard = guard
        self._rows = index_schema.open_to_write(database)
        self._at = os.open(database.with_suffix(".at"), os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        self._open = False  # a transaction
        self._suspect = self.at()

    def __enter__(self) -> IndexWriter:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._commit()
        self._rows.close()
        os.close(self._at)

    def build(self, near: str = "") -> None:
        """Bring all of it up to date."""
        for _ in self.steps(near):
            pass

    def steps(self, near: str = "") -> Iterator[None]:
        """The same, file by file. The files nearest to `near` come first."""
        began_s = time.process_time()
        if not Path(self.root).is_dir():
            return  # it may come back
        files = self.walk.files(near, self.budget.walk_s)[: self.budget.files]
        known = {
            path: (mtime, size) for path, mtime, size in self._rows.execute("SELECT path, mtime_ns, size FROM files")
        }
        self._begin()
        self._rows.execute("DELETE FROM roots")
        self._rows.executemany("INSERT INTO roots VALUES(?,?,?)", manifests.roots(self.root, self.walk.manifests))
        removed = known.keys() - {file.path for file in files}
        for path in removed:
            if self.walk.complete or self.walk.file_at(path) is None:
                self._forget(path)
        self._commit()
        yield  # what may not be seen any more is gone
        todo = [file for file in files if (file.mtime_ns, file.size) != known.get(file.path)]
        todo.sort(key=lambda file: file.path == self._suspect)  # last
        finished = self.walk.complete
        for number, file in enumerate(todo):
            if time.process_time() - began_s > self.budget.seconds:
                finished = False
                break
            self.take(file)
            if number % PAUSE_FILES == PAUSE_FILES - 1:
                self._commit()
            yield
        self._begin()
        self._tell("built", "all" if finished else "part")
        self._commit()

    def update(self, path: str) -> None:
        """One file has changed, is new, or is gone."""
        file = self.walk.file_at(path)
        if file is None:
            self._forget(path)
        else:
            known = self._rows.execute("SELECT mtime_ns, size FROM files WHERE path = ?", (path,)).fetchone()
            if known != (file.mtime_ns, file.size):
                self.take(file)
        self._commit()

    def unsaved(self, path: str, text: str) -> None:
        """Index the unsaved text of an open document."""
        file = self.walk.file_at(path)
        if file is not None and len(text) <= MOST_BYTES:
            text = text.encode("utf-8", "replace").decode("utf-8")  # an editor may send half a character
            self._write(
                ScannedFile(path, -1, -1),
                self._outlined(file, text_windows.normal_newlines(text)),
                index_schema.UNSAVED,
            )
            self._commit()

    def blame(self) -> None:
        """The process before this one crashed: the file it was at is left out until it changes."""
        file = self.walk.file_at(self._suspect) if self._suspect else None
        if file is not None:
            self._write(file, None, index_schema.SKIPPED)
            self._commit()

    def at(self) -> str:
        """The file that the process before this one was at when it ended, "" for none."""
        with contextlib.suppress(OSError):
            os.lseek(self._at, 0, os.SEEK_SET)
            return os.read(self._at, 4096).partition(b"\n")[0].decode("utf-8", "replace")
        return ""

    def take(self, file: ScannedFile) -> None:
        """Outline a file as it lies there."""
        try:
            data = private_files.read_bytes(f"{self.root}/{file.path}", MOST_BYTES, follow=False)
        except (OSError, ValueError):
            self._forget(file.path)
            return
        text = text_windows.normal_newlines(data.decode("utf-8-sig", "replace"))
        result = self._outlined(file, text) if is_code(text, file.path) else None
        self._write(file, result, index_schema.OK if result is not None else index_schema.SKIPPED)

    def _outlined(self, file: ScannedFile, text: str) -> Outline | None:
        self._mark(file)
        try:
            return self._outliner(grammar_of(file.path), text, file.path)
        except Exception:  # whatever a file has thought of
            return None
        finally:
            self._mark(None)

    def _mark(self, file: ScannedFile | None) -> None:
        """Leave word of which file we are at, for the next process; let the system end this one if it hangs."""
        self._guard(HANG_CPU_S if file is not None else 0)
        with contextlib.suppress(OSError):
            os.lseek(self._at, 0, os.SEEK_SET)
            os.write(self._at, (file.path.encode("utf-8", "replace") if file else b"") + b"\n")

    def _write(self, scanned: ScannedFile, result: Outline | None, state: int) -> None:
        self._begin()
        self._forget(scanned.path)
        file = self._rows.execute(
            "INSERT INTO files(path, stem, grammar, mtime_ns, size, state) VALUES(?,?,?,?,?,?)",
            (scanned.path, stem_of(scanned.path), grammar_of(scanned.path), scanned.mtime_ns, scanned.size, state),
        ).lastrowid
        self.outlined += 1
        if result is None:
            return
        self._rows.executemany(
            "INSERT INTO symbols VALUES(?,?,?,?,?,?,?,?)",
            [
                (file, number, s.line, s.end_line, s.name, s.container, s.kind, s.signature)
                for number, s in enumerate(result.symbols)
            ],
        )
        self._rows.executemany(
            "INSERT INTO imports VALUES(?,?,?,?,?,?)",
            [(file, number, i.line, i.module, i.alias, json.dumps(i.names)) for number, i in enumerate(result.imports)],
        )
        leaves = set().union(*map(leaves_of, result.imports))
        self._rows.executemany("INSERT OR IGNORE INTO leaves VALUES(?,?)", [(leaf, file) for leaf in leaves])

    def _forget(self, path: str) -> None:
        self._begin()
        row = self._rows.execute("SELECT id FROM files WHERE path = ?", (path,)).fetchone()
        if row is not None:
            for table in ("symbols", "imports", "leaves"):
                self._rows.execute(f"DELETE FROM {table} WHERE file = ?", row)
            self._rows.execute("DELETE FROM files WHERE id = ?", row)

    def _tell(self, key: str, value: str) -> None:
        self._rows.execute("INSERT OR REPLACE INTO told VALUES(?,?)", (key, value))

    def _begin(self) -> None:
        if not self._open:
            self._rows.execute("BEGIN IMMEDIATE")
            self._open = True

    def _commit(self) -> None:
        if self._open:
            self._open = False
            self._rows.execute("COMMIT")


def outliner_of() -> Outliner:
    """Reads files with the grammars."""
    parser = SyntaxParser()

    def read(grammar: str, text: str, path: str) -> Outline | None:
        tree = parser.parse_once(grammar, text, PARSE_MS)
        return None if tree is None else outline.outline(tree, path)

    return read
