"""What the workspace defines and where, asked from the index that a process of its own keeps (indexer.py).

This side only reads. A query has a budget, and where there is no index yet, or a broken one, everything is empty: what
is shown to the model is then poorer, and nothing waits.
"""

from __future__ import annotations

import functools
import json
import posixpath
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from heapq import nsmallest
from itertools import islice
from operator import itemgetter
from pathlib import Path
from time import perf_counter
from typing import Any

from speclsp.lsp.documents.uri_paths import file_path
from speclsp.lsp.index import import_resolution, schema
from speclsp.lsp.index.file_cache import FileCache
from speclsp.lsp.index.file_names import leaves_of, stem_of, twins
from speclsp.lsp.index.import_statements import Import
from speclsp.lsp.index.outline import Symbol
from speclsp.lsp.syntax.grammars import family
from speclsp.lsp.visibility import secret_files

BUDGET_MS = 10.0
_STEPS = 1000  # of sqlite's machine, between looks at the clock
_MOST_NAMES = 64  # in one question
_MOST_OF_A_NAME = 300  # files that are compared
_FILES_OF_A_NAME = 12  # the nearest, of which something is told
_MOST_PATHS = 400
_MOST_REMEMBERED = 20_000
_KEPT_ANSWERS = 4096
_KEPT_ROWS = 15_000  # in all answers: about 10 MiB
_LEVELS = 3  # of modules that pass on what they import
_COLUMNS = "f.path, s.name, s.container, s.kind, s.signature, s.doc, s.line, s.end_line"

_Near = tuple[int, str, int, Symbol]  # its distance, path and line, and it
_NEARNESS = itemgetter(0, 1, 2)


class IndexReader:
    """One workspace folder's. Not for several threads at once."""

    def __init__(
        self, folder: str, database: Path | None = None, hidden: Callable[[str], bool] = lambda _path: False
    ) -> None:
        """`folder`: its path or URI; `hidden`: whether nothing of a file, by its path in the folder, may be shown."""
        self.folder = file_path(folder).rstrip("/")
        self.database = database or schema.place(self.folder)
        self.hidden = hidden
        self.budget_ms = BUDGET_MS  # of one question
        self.broken: Callable[[], None] = lambda: None  # it has to be made again
        self.stale: Callable[[str], None] = lambda _path: None  # a file is not as it was
        self.hurried: Callable[[str], None] = lambda _path: None  # of a document's neighbours not all was at hand
        self._rows: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None
        self._version = -1
        self._deadline = 0.0
        self._until_s = 0.0  # of all questions of one look; 0 while there is none
        self._seen_ready = False  # in this look
        self._hidden: dict[str, bool] = {}  # as it was found in this look
        self._cut = False  # the answer under way is not all there is
        self._answers: OrderedDict[tuple[object, ...], Any] = OrderedDict()
        self._answer_rows = 0
        self._paths: dict[int, str] = {}  # of files, by their number; those asked about
        self._there: dict[str, bool] = {}  # which paths there are; those asked about
        self._texts = FileCache(self.folder)

    @classmethod
    def build(cls, folder: str | Path, database: Path | None = None, near: str = "") -> IndexReader:
        """Index a folder here and now, as the process of its own does."""
        from speclsp.lsp.index.writer import IndexWriter  # not where only reading is done

        index = cls(str(folder), database)
        with IndexWriter(index.folder, index.database) as keeper:
            keeper.build(near)
        return index

    def forget_answers(self) -> None:
        """Look up the next question's answer, even if it was asked before."""
        self._answers.clear()
        self._answer_rows = 0
        self._paths.clear()
        self._there.clear()

    def close(self) -> None:
        """Let go of the database."""
        if self._rows is not None:
            self._rows.close()
        self._rows, self._opened = None, None
        self.forget_answers()

    @contextmanager
    def look(self, until_s: float) -> Iterator[None]:
        """The questions in this belong together: they have no more than this time, and what is hidden stays so.

        After it they are answered by what is remembered, or with nothing.
        """
        self._until_s, self._seen_ready = until_s, self._ready()
        try:
            yield
        finally:
            self._until_s, self._seen_ready = 0.0, False
            self._hidden.clear()

    # ── questions ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def symbols(self, names: Iterable[str], near: str = "", limit: int = 20) -> list[Symbol]:
        """What is defined under these names, in the languages of the file at `near`, the nearest file first."""
        wanted = tuple(dict.fromkeys(names))[:_MOST_NAMES]
        sql = f"SELECT {_COLUMNS} FROM symbols s JOIN files f ON f.id = s.file WHERE s.name = ? AND s.file IN (%s)"
        steps: dict[str, int] = {}

        def of(name: str) -> list[_Near]:
            files = self._nearest(name, near, steps)
            if not files:
                return []
            rows = self._select(sql % ",".join("?" * len(files)), (name, *files))
            found = [Symbol(*row) for row in rows]
            return [
                (import_resolution.distance(symbol.path, near), symbol.path, symbol.line, symbol) for symbol in found
            ]

        def look() -> list[_Near]:
            found: list[_Near] = []
            for name in wanted:
                try:
                    found += self._ask(("symbol", name, near), functools.partial(of, name), [])
                except sqlite3.OperationalError:
                    if not self._late():
                        raise
                    self._cut = True  # the names asked for first were found
                    break
            return sorted(found, key=_NEARNESS)

        found = self._ask(("symbols", wanted, near), look, [])
        return list(islice((symbol for *_, symbol in found if not self.hides(symbol.path)), limit))

    def outline(self, path: str) -> list[Symbol]:
        """Everything that a file defines, in order."""
        if self.hides(path):
            return []
        sql = f"SELECT {_COLUMNS} FROM symbols s JOIN files f ON f.id = s.file WHERE f.path = ? ORDER BY s.number"
        return list(self._ask(("outline", path), lambda: [Symbol(*row) for row in self._select(sql, (path,))], []))

    def imports(self, path: str) -> list[Import]:
        """Everything that a file imports, in order."""
        sql = (
            "SELECT i.module, i.names, i.alias, i.line FROM imports i JOIN files f ON f.id = i.file "
            "WHERE f.path = ? ORDER BY i.number"
        )

        def look() -> list[Import]:
            rows = self._select(sql, (path,))
            return [
                Import(str(module), tuple((str(a), str(b)) for a, b in json.loads(names)), str(alias), int(line))
                for module, names, alias, line in rows
            ]

        return [] if self.hides(path) else list(self._ask(("imports", path), look, []))

    def module(self, module: str, from_path: str) -> str | None:
        """The path of the file that an import in `from_path` means; None where it is none of this folder."""
        found: str | None = self._ask(
            ("module", module, from_path), lambda: import_resolution.resolve(module, from_path, self), None
        )
        return None if found is None or self.hides(found) else found

    def imported(self, made: Import, from_path: str) -> list[Symbol]:
        """The definitions of the names that an import brings, through modules that only pass them on."""

        def look() -> list[Symbol]:
            found: list[Symbol] = []
            target = self.module(made.module, from_path)
            for name, here in made.names:
                there = target or self.module(f"{made.module}.{name}", from_path)  # Java's packages hold classes
                found += self._defined(here if name == "default" else name, name == "default", there)
            return found

        return [symbol for symbol in self._ask(("imported", made, from_path), look, []) if not self.hides(symbol.path)]

    def importers(self, path: str, limit: int = 12) -> list[str]:
        """The files that import this one, the nearest first."""

        def look() -> list[str]:
            sql = "SELECT f.path FROM leaves l JOIN files f ON f.id = l.file WHERE l.leaf = ? LIMIT ?"
            kin, stem = family(path), stem_of(path)
            found = [
                str(row[0])
                for row in self._select(sql, (stem, _MOST_PATHS))
                if row[0] != path and family(row[0]) == kin
            ]
            steps = {one.rpartition("/")[0]: one for one in found}  # many files, few directories
            far = {directory: import_resolution.distance(one, path) for directory, one in steps.items()}
            found.sort(key=lambda one: (far[one.rpartition("/")[0]], one))
            return list(islice((one for one in found[: 2 * limit] if self._leads(one, path)), limit))

        found = self._ask(("importers", path, limit), look, [])
        return list(islice((one for one in found if not self.hides(one)), limit))

    def counterparts(self, path: str, limit: int = 4) -> list[str]:
        """The tests of a file, or what a test is about: by their names, the nearest first."""

        def look() -> list[str]:
            kin = family(path)
            found = {
                one for stem in twins(stem_of(path)) for one in self.by_stem(stem) if one != path and family(one) == kin
            }
            return sorted(found, key=lambda one: (import_resolution.distance(one, path), one))

        found = self._ask(("counterparts", path), look, [])
        return list(islice((one for one in found if not self.hides(one)), limit))

    def files_like(self, path: str, limit: int = 20) -> list[str]:
        """Its counterparts, then the files beside it in the same language."""
        kin = family(path)
        inside = self._ask(("inside", path), lambda: self.inside(posixpath.dirname(path)), [])
        found = dict.fromkeys([*self.counterparts(path), *(one for one in inside if family(one) == kin)])
        return list(islice((one for one in found if one != path and not self.hides(one)), limit))

    def text(self, path: str, start_line: int = 0, end_line: int = -1) -> str:
        """Lines of a file as it is on the disk, both ends included; "" where it is not as the index has it."""
        known = self._ask(
            ("state", path),
            lambda: next(iter(self._select("SELECT mtime_ns, size, state FROM files WHERE path = ?", (path,))), None),
            None,
        )
        if known is None or known[2] != schema.OK or self.hides(path):
            return ""
        wait_s, now_s = self.budget_ms / 1000, perf_counter()
        if self._until_s:
            wait_s = min(wait_s, self._until_s - now_s)
        text = self._texts.text(path, (int(known[0]), int(known[1])), wait_s, at_once=self._until_s > 0)
        if text is None:
            self.stale(path)
            return ""
        if start_line <= 0 and end_line < 0:
            return text
        return "\n".join(text.split("\n")[max(start_line, 0) : end_line + 1 if end_line >= 0 else None])

    def told(self, key: str) -> str:
        """What the indexer has left word of: "built" once all was looked at."""
        rows = self._ask(("told", key), lambda: self._select("SELECT value FROM told WHERE key = ?", (key,)), [])
        return str(rows[0][0]) if rows else ""

    # ── what `resolve` asks ───────────────────────────────────────────────────────────────────────────────────────────

    def first(self, paths: Iterable[str]) -> str | None:
        """The first of these that is there."""
        wanted = list(dict.fromkeys(paths))[:_MOST_PATHS]
        if len(self._there) > _MOST_REMEMBERED:
            self._there.clear()
        missing = [path for path in wanted if path not in self._there]
        if missing:
            marks = ",".join("?" * len(missing))
            rows = self._select(f"SELECT path FROM files WHERE path IN ({marks})", missing)
            self._there.update(dict.fromkeys(missing, False))
            self._there.update((str(row[0]), True) for row in rows)
        return next((path for path in wanted if self._there[path]), None)

    def by_stem(self, stem: str) -> list[str]:
        """The files of a name, without its suffix."""
        rows = self._select("SELECT path FROM files WHERE stem = ? LIMIT ?", (stem, _MOST_PATHS))
        return [str(row[0]) for row in rows]

    def inside(self, directory: str) -> list[str]:
        """The files right in a directory."""
        low = f"{directory}/" if directory else ""
        rows = self._select(
            "SELECT path FROM files WHERE path >= ? AND path < ? AND instr(substr(path, ?), '/') = 0 LIMIT ?",
            (low, low[:-1] + "0" if low else "\U0010ffff", len(low) + 1, _MOST_PATHS),
        )
        return [str(row[0]) for row in rows]

    def roots(self, kind: str) -> list[tuple[str, str]]:
        """(name, directory) of the packages that manifests declare, the longest name first."""
        rows = self._select("SELECT name, path FROM roots WHERE kind = ? LIMIT ?", (kind, _MOST_PATHS))
        return sorted(((str(name), str(path)) for name, path in rows), key=lambda row: (-len(row[0]), row))

    # ── how ───────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _nearest(self, name: str, near: str, steps: dict[str, int]) -> list[int]:
        """The files that define a name, of the languages that the file at `near` can use; a few, the nearest first."""
        rows = self._select("SELECT DISTINCT file FROM symbols WHERE name = ? LIMIT ?", (name, _MOST_OF_A_NAME))
        missing = [file for (file,) in rows if file not in self._paths]
        if missing:
            marks = ",".join("?" * len(missing))
            self._paths.update(self._select(f"SELECT id, path FROM files WHERE id IN ({marks})", missing))
        kin, found = family(near), []
        for (file,) in rows:
            path = self._paths.get(file, "")  # gone meanwhile
            if path and (not kin or family(path) == kin):
                directory = path.rpartition("/")[0]
                if directory not in steps:
                    steps[directory] = import_resolution.distance(path, near)
                found.append((steps[directory], path, file))
        return [file for _, _, file in nsmallest(_FILES_OF_A_NAME, found)]

    def _defined(self, name: str, default: bool, target: str | None) -> list[Symbol]:
        """What the file at `target` defines under a name, or passes on; its default export has no name of its own."""
        for _ in range(_LEVELS):
            if target is None:
                return []
            outline = [symbol for symbol in self.outline(target) if not symbol.container]
            found = outline if name == "*" else [symbol for symbol in outline if symbol.name == name]
            if default and not found:
                named = [symbol for symbol in outline if symbol.name == stem_of(target)]
                found = (named or [symbol for symbol in outline if symbol.kind in ("class", "function")])[:1]
            if found:
                return found
            target, name = self._passed_on(name, target)
        return []

    def _passed_on(self, name: str, path: str) -> tuple[str | None, str]:
        """(file, name there) that a module's own imports say a name comes from."""
        anywhere: str | None = None
        for made in self.imports(path):
            there = next((there for there, here in made.names if name == here), "")
            if there or any(here == "*" for _, here in made.names):
                target = self.module(made.module, path)
                if target is None or target == path:
                    continue
                if there or any(symbol.name == name for symbol in self.outline(target)):
                    return target, there or name
                anywhere = target
        return anywhere, name

    def _leads(self, importer: str, path: str) -> bool:
        stem = stem_of(path)
        for made in self.imports(importer):
            if stem not in leaves_of(made):
                continue
            if self.module(made.module, importer) == path:
                return True
            if importer.endswith(import_resolution.PYTHON):  # from a import b, where b is a file
                package = made.module + "." if made.module.strip(".") else made.module
                if any(name == stem and self.module(package + name, importer) == path for name, _ in made.names):
                    return True
        return False

    def hides(self, path: str) -> bool:
        """Whether nothing of a file may be shown."""
        if not isinstance(path, str):
            return True
        hidden = self._hidden.get(path)
        if hidden is None:
            hidden = _is_secret(path) or self.hidden(path)
            if self._until_s:
                self._hidden[path] = hidden
        return hidden

    def _ask(self, key: tuple[object, ...], look: Callable[[], Any], nothing: Any) -> Any:
        """The answer, known or found within the budget; `nothing` where it takes longer or there is no index."""
        nested = self._deadline > 0
        if not nested and not self._seen_ready and not self._ready():
            return nothing
        if key in self._answers:
            self._answers.move_to_end(key)
            return self._answers[key]
        if not nested:
            now_s = perf_counter()
            if self._until_s and now_s > self._until_s:
                return nothing
            self._deadline, self._cut = now_s + self.budget_ms / 1000, False
            if self._until_s:
                self._deadline = min(self._deadline, self._until_s)
        elif self._late():
            raise sqlite3.OperationalError("interrupted")
        try:
            found = look()
        except (sqlite3.OperationalError, UnicodeError):  # interrupted, or locked; asked for half a character
            if nested:
                raise
            return nothing
        except (sqlite3.Error, ValueError, TypeError, LookupError, AttributeError):  # no rows of ours
            if nested:
                raise
            self._throw_away()
            return nothing
        finally:
            if not nested:
                self._deadline = 0.0
        if self._cut:
            return found
        self._answers[key] = found
        self._answer_rows += _rows(found)
        while len(self._answers) > _KEPT_ANSWERS or self._answer_rows > _KEPT_ROWS:
            self._answer_rows -= _rows(self._answers.popitem(last=False)[1])
        return found

    def _select(self, sql: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        if self._rows is None:
            return []
        return self._rows.execute(sql, values).fetchall()

    def _ready(self) -> bool:
        """See that the database is open, and the one that lies there; forget answers that are older than it."""
        try:
            now = self.database.stat()
        except OSError:
            self.close()
            return False
        try:
            if self._rows is None or self._opened != (now.st_dev, now.st_ino):
                self.close()
                self._rows = schema.open_to_read(self.database)
                if self._rows is None:
                    return False
                self._opened = now.st_dev, now.st_ino
                self._rows.set_progress_handler(self._late, _STEPS)
            (version,) = self._rows.execute("PRAGMA data_version").fetchone()
        except sqlite3.OperationalError:
            self.close()
            return False
        except sqlite3.Error:
            self._throw_away()
            return False
        if version != self._version:
            self._version = version
            self.forget_answers()
        return True

    def _late(self) -> bool:
        return 0 < self._deadline < perf_counter()

    def _throw_away(self) -> None:
        self.close()
        self._seen_ready = False
        self.broken()


@functools.lru_cache(maxsize=4096)
def _is_secret(path: str) -> bool:
    return bool(secret_files.pattern_of(path))


def _rows(answer: object) -> int:
    return len(answer) if isinstance(answer, list) else 1
