"""Cache of the text of workspace files, read in a thread of its own: nobody waits long for a slow disk."""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass

from speclsp import private_files
from speclsp.lsp.documents.uri_paths import is_same_path, system_path
from speclsp.lsp.documents.windows_names import real_folder, real_path
from speclsp.lsp.syntax import text_windows
from speclsp.lsp.visibility import eligibility

RECHECK_S = 2.0  # age after which a text is read again before it is returned
AT_ONCE_S = 60.0  # the same for a caller that cannot wait; the file is read again meanwhile
MAX_BYTES = 512 * 1024  # of a file
FILE_CHARACTERS = 60_000  # of its text, from the start
MAX_FILES = 128
_LONG_LINES = 250  # characters a line, on average: longer lines are generated

FileState = tuple[int, int]  # modification time in ns, and size


@dataclass(frozen=True, slots=True)
class _CachedText:
    """A file's text, and the time when it was read."""

    state: FileState
    read_s: float
    text: str


class FileCache:
    """Recently read texts of one folder's files."""

    def __init__(self, folder: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock = folder, clock
        self._texts: OrderedDict[str, _CachedText] = OrderedDict()
        self._executor = ThreadPoolExecutor(1, "speclsp-text")
        self._pending: dict[str, tuple[FileState, Future[_CachedText | None]]] = {}
        self._is_hanging = False  # the disk, as far as the last read shows

    def text(self, path: str, state: FileState, wait_s: float, at_once: bool = False) -> str | None:
        """The text, newlines as \\n, if a person wrote it and the file is in this state; None otherwise.

        "" if the disk takes longer than `wait_s`; the text is there for a later call. With `at_once`, a text that was
        read a minute ago will do.
        """
        for done in [other for other, (_, future) in self._pending.items() if future.done()]:
            self._store(done, self._pending.pop(done)[1].result())
        cached = self._texts.get(path)
        if cached is not None and cached.state == state:
            age_s = self._clock() - cached.read_s
            if age_s < RECHECK_S or (at_once and age_s < AT_ONCE_S):
                self._texts.move_to_end(path)
                if age_s >= RECHECK_S:
                    self._request(path, state)
                return cached.text
        future = self._request(path, state)
        if wait_s <= 0 or (self._is_hanging and not future.done()):
            return ""
        try:
            result = future.result(max(wait_s, 0))
        except (FutureTimeoutError, TimeoutError):
            self._is_hanging = not future.done()
            return ""
        self._pending.pop(path, None)
        self._store(path, result)
        return result.text if result is not None else None

    def _request(self, path: str, state: FileState) -> Future[_CachedText | None]:
        """Have the thread read a file."""
        pending = self._pending.get(path)
        if pending is None or pending[0] != state:
            pending = self._pending[path] = state, self._executor.submit(self._read, path, state)
        return pending[1]

    def _store(self, path: str, result: _CachedText | None) -> None:
        """Cache a result, and drop the least recently used texts."""
        self._texts.pop(path, None)
        if result is not None:
            self._texts[path] = result
            while len(self._texts) > MAX_FILES:
                self._texts.popitem(last=False)

    def _read(self, path: str, state: FileState) -> _CachedText | None:
        """Read a file, in the thread."""
        read_s = self._clock()  # before the read: its result may be collected much later
        try:
            text = read(self._folder, path, state)
        except Exception:
            text = None
        self._is_hanging = False
        return _CachedText(state, read_s, text) if text is not None else None


def read(folder: str, path: str, state: FileState, characters: int = FILE_CHARACTERS) -> str | None:
    """The text of a regular file inside the folder in this state, if a person wrote it; None otherwise."""
    full = system_path(f"{folder}/{path}")
    info = os.lstat(full)
    if (info.st_mtime_ns, info.st_size) != state:
        return None
    if not is_same_path(real_path(full), f"{real_folder(folder)}/{path}"):
        return None
    data = private_files.read_bytes(full, MAX_BYTES, follow=False)
    text = text_windows.normal_newlines(data.decode("utf-8-sig", "replace"))
    return text[:characters] if is_code(text) else None


def is_code(text: str) -> bool:
    """True for text that a person wrote: not binary, minified or generated."""
    if "\0" in text or eligibility.is_generated(text):
        return False
    return len(text) < 5000 or len(text) / (text.count("\n") + 1) <= _LONG_LINES
