"""Cache of the text of workspace files, read in a thread of its own: nobody waits long for a slow disk."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from sys import getsizeof

from speclsp import private_files
from speclsp.lsp.documents.uri_paths import is_same_path, system_path
from speclsp.lsp.documents.windows_names import real_folder, real_path
from speclsp.lsp.syntax import text_windows

RECHECK_S = 2.0  # age after which a text is checked again before it is returned
AT_ONCE_S = 60.0  # the same for a caller that cannot wait; the check runs meanwhile
MAX_BYTES = 512 * 1024
MAX_FILES = 128
MAX_CACHED_BYTES = 4 * 1024 * 1024  # of all texts
_MAX_PENDING = 32  # reads

FileState = tuple[int, int]  # modification time in ns, and size


@dataclass(frozen=True, slots=True)
class _CachedText:
    """A file's text, and the time when the file was last seen in this state."""

    state: FileState
    checked_s: float
    text: str


class FileCache:
    """Recently read texts of one folder's files."""

    def __init__(self, folder: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock = folder, clock
        self._texts: OrderedDict[str, _CachedText] = OrderedDict()
        self._bytes = 0
        self._reads: queue.SimpleQueue[tuple[str, FileState, str | None, Future[_CachedText | None]]] = (
            queue.SimpleQueue()
        )
        self._pending: dict[str, tuple[FileState, Future[_CachedText | None]]] = {}
        self._thread: threading.Thread | None = None
        self._is_hanging = False  # the disk, as far as the last read shows

    def text(self, path: str, state: FileState, wait_s: float, at_once: bool = False) -> str | None:
        """The text, newlines as \\n, if the file is in this state; None if it is in another.

        "" if the disk takes longer than `wait_s`; the text is there for a later call. With `at_once`, a text that was
        checked a minute ago will do.
        """
        for done in [other for other, (_, future) in self._pending.items() if future.done()]:
            self._store(done, self._pending.pop(done)[1].result())
        cached = self._texts.get(path)
        if cached is not None and cached.state == state:
            age_s = self._clock() - cached.checked_s
            if age_s < RECHECK_S or (at_once and age_s < AT_ONCE_S):
                self._texts.move_to_end(path)
                if age_s >= RECHECK_S:
                    self._request(path, state)
                return cached.text
        future = self._request(path, state)
        if future is None or (not future.done() and (self._is_hanging or wait_s <= 0)):
            return ""
        try:
            result = future.result(max(wait_s, 0))
        except (FutureTimeoutError, TimeoutError):
            self._is_hanging = not future.done()
            return ""
        self._pending.pop(path, None)
        self._store(path, result)
        return result.text if result is not None else None

    def _request(self, path: str, state: FileState) -> Future[_CachedText | None] | None:
        """Have the thread read a file; None if too many reads are pending."""
        pending = self._pending.get(path)
        if pending is not None and pending[0] == state:
            return pending[1]
        if len(self._pending) >= _MAX_PENDING:
            return None
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="speclsp-text", daemon=True)
            self._thread.start()
        cached = self._texts.get(path)
        known_text = cached.text if cached is not None and cached.state == state else None
        future: Future[_CachedText | None] = Future()
        self._pending[path] = state, future
        self._reads.put((path, state, known_text, future))
        return future

    def _store(self, path: str, result: _CachedText | None) -> None:
        """Cache a result, and drop the least recently used texts."""
        previous = self._texts.pop(path, None)
        if previous is not None:
            self._bytes -= getsizeof(previous.text)
        if result is None:
            return
        self._texts[path] = result
        self._bytes += getsizeof(result.text)
        while len(self._texts) > MAX_FILES or self._bytes > MAX_CACHED_BYTES:
            _, oldest = self._texts.popitem(last=False)
            self._bytes -= getsizeof(oldest.text)

    def _run(self) -> None:
        while True:
            path, state, known_text, future = self._reads.get()
            checked_s = self._clock()  # before the read: its result may be collected much later
            try:
                text = read(self._folder, path, state, known_text)
            except Exception:
                text = None
            future.set_result(_CachedText(state, checked_s, text) if text is not None else None)
            self._is_hanging = False


def read(folder: str, path: str, state: FileState, known_text: str | None = None) -> str | None:
    """The text of a regular file inside the folder in this state, else None; `known_text` saves the read."""
    full = system_path(f"{folder}/{path}")
    info = os.lstat(full)
    if (info.st_mtime_ns, info.st_size) != state:
        return None
    if known_text is not None:
        return known_text
    if not is_same_path(real_path(full), f"{real_folder(folder)}/{path}"):
        return None
    data = private_files.read_bytes(full, MAX_BYTES, follow=False)
    return text_windows.normal_newlines(data.decode("utf-8-sig", "replace"))
