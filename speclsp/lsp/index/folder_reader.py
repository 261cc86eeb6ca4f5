"""Background thread that reads one workspace folder's files for its index.

    jobs of the server ─► scan the folder, read the heads of new files ─► changes of the index, in the server's loop

Python runs one thread at a time. So this one works in slices of 1 ms and sleeps between them, for longer while the user
types. A disk that hangs stops only this thread.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from speclsp import private_files
from speclsp.lsp.documents.uri_paths import system_path
from speclsp.lsp.index import file_imports
from speclsp.lsp.index.file_cache import FileState, is_code
from speclsp.lsp.index.scan import WorkspaceScan
from speclsp.lsp.index.workspace_index import FileChange, IndexedFile, WorkspaceIndex
from speclsp.lsp.syntax import text_windows
from speclsp.lsp.syntax.grammars import grammar_of

MAX_FILES = 20_000  # in an index
HEAD_BYTES = 16_384  # of a file, in which its imports are looked for
SLICE_S = 0.001  # of work, between two rests
MAX_BATCH = 32  # changes that the server's loop applies at once

log = logging.getLogger("speclsp.index")

Call = Callable[[Callable[[], None]], object]


class Job(NamedTuple):
    """Files to read again, and whether the whole folder is to be scanned. `rules`: changes of ignore files so far."""

    paths: Sequence[str] = ()
    scan: bool = False
    rules: int = 0


class _Ended(Exception):
    """The thread is no longer needed."""


class FolderReader:
    """Reads the files of a folder into its index.

    Args:
        call: calls a function in the thread of the index.
        near: path of a file; those near it are read first.
        disabled_globs: returns patterns of files that are not indexed.
        on_listed: called with `Job.rules` once files that became hidden have left the index.
        on_scanned: called after each whole scan.
        rest_s: returns the seconds that the thread sleeps between two slices.
    """

    def __init__(
        self,
        index: WorkspaceIndex,
        call: Call,
        near: str = "",
        disabled_globs: Callable[[], Sequence[str]] = tuple,
        on_listed: Callable[[int], None] = lambda _rules: None,
        on_scanned: Callable[[], None] = lambda: None,
        rest_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._index, self._call, self._near, self._disabled_globs = index, call, near, disabled_globs
        self._on_listed, self._on_scanned, self._rest_s = on_listed, on_scanned, rest_s
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._changes: list[FileChange] = []
        self._scan = WorkspaceScan(index.folder, disabled_globs())
        self._slice_began_s = 0.0
        self._ended = False

    def start(self) -> None:
        """Start the thread, with a scan."""
        self._jobs.put(Job(scan=True))
        threading.Thread(target=self._run, name="speclsp-index", daemon=True).start()

    def put(self, job: Job) -> None:
        """Execute a job later; never blocks."""
        self._jobs.put(job)

    def end(self) -> None:
        """End the thread soon."""
        self._ended = True
        self._jobs.put(Job())

    def _run(self) -> None:
        try:
            if is_too_wide(self._index.folder):
                log.info("no index: the workspace folder contains the home directory")
                return
            interrupted_by: Job | None = None
            while not self._ended:
                interrupted_by = self.execute(interrupted_by or self._jobs.get())
        except Exception as error:  # its message may quote a file
            if not self._ended:
                log.error("the index is no longer updated: %s", type(error).__name__)

    def execute(self, job: Job) -> Job | None:
        """Execute a job; another scan interrupts it, and is returned."""
        for path in job.paths:
            self._update(path)
        interrupted_by = self._scan_folder(job) if job.scan else None
        self._apply_changes()
        return interrupted_by

    def _scan_folder(self, job: Job) -> Job | None:
        """Read the files of the folder that are new or have changed."""
        began_s = perf_counter()
        if not Path(f"{self._index.folder}/").is_dir():
            return None  # an unmounted folder may come back
        self._scan = scan = WorkspaceScan(self._index.folder, self._disabled_globs())
        scan.run(self._near, self._pause)
        states = dict(list(scan.files.items())[:MAX_FILES])
        for file in self._index.files():
            self._pause()
            if file.path not in states and (scan.is_complete or scan.file_at(file.path) is None):
                self._changes.append(FileChange(file.path))
        self._apply_changes()
        self._call(partial(self._on_listed, job.rules))
        for path, state in states.items():
            self._pause()
            while not self._jobs.empty():
                other = self._jobs.get()
                if other.scan:
                    return other
                self.execute(other)
            if self._index.state_of(path) != state:
                self._changes.append(FileChange(path, read_file(self._index.folder, path, state)))
        log.info("indexed %d files in %.1f s", len(states), perf_counter() - began_s)
        self._apply_changes()
        self._call(self._on_scanned)
        return None

    def _update(self, path: str) -> None:
        """Read a file again that was changed, created or removed."""
        self._pause()
        listed = self._scan.file_at(path)
        if listed is None:
            self._changes.append(FileChange(path))
        elif self._index.state_of(listed[0]) != listed[1]:
            self._changes.append(FileChange(listed[0], read_file(self._index.folder, *listed)))

    def _pause(self) -> None:
        """End a slice of work, if it was long enough."""
        if perf_counter() - self._slice_began_s > SLICE_S or len(self._changes) >= MAX_BATCH:
            self._apply_changes()
            time.sleep(self._rest_s())
            self._slice_began_s = perf_counter()
        if self._ended:
            raise _Ended

    def _apply_changes(self) -> None:
        if self._changes:
            self._call(partial(self._index.apply, self._changes))
            self._changes = []


def build(folder: str | Path, near: str = "") -> WorkspaceIndex:
    """The index of a folder, read at once in this thread."""
    index = WorkspaceIndex(str(folder))
    FolderReader(index, lambda function: function(), near).execute(Job(scan=True))
    return index


def read_file(folder: str, path: str, state: FileState) -> IndexedFile | None:
    """A file with its imports; None if it or its imports cannot be read."""
    try:
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)
        handle = private_files.open_plain(system_path(f"{folder}/{path}"), flags)
        try:
            data = os.read(handle, HEAD_BYTES)
        finally:
            os.close(handle)
    except (OSError, ValueError):
        return None
    text = text_windows.normal_newlines(data.decode("utf-8-sig", "replace"))
    if not is_code(text):
        return IndexedFile(path, state, None)
    if state[1] > len(data):
        text = text[: text.rfind("\n") + 1]  # without the line that is cut
    grammar = grammar_of(path)
    statements = list(file_imports.statements(grammar, text))
    try:
        imports = [imported for statement in statements for imported in file_imports.read(grammar, statement)]
    except Exception:  # a hostile file can raise anything
        return None
    leaves = set().union(*map(file_imports.leaves_of, imports))
    return IndexedFile(path, state, "\0".join(statements), tuple(map(sys.intern, leaves)))


def is_too_wide(path: str) -> bool:
    """True if a folder is the home directory or contains it. Such a folder holds far more than one project."""
    home = os.path.realpath(os.path.expanduser("~"))  # noqa: PTH111 - there may be no home at all
    real = os.path.realpath(f"{path}/")
    home, real = os.path.normcase(home), os.path.normcase(real)
    return home == real or home.startswith(real.rstrip(os.sep) + os.sep)
