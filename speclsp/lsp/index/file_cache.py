"""The text of files of a workspace folder, read in a thread that may hang with the disk: nobody waits for it long."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import OrderedDict
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass
from sys import getsizeof

from speclsp import private_files
from speclsp.lsp.syntax import text_windows

RECHECK_S = 2.0  # as old as what is known may be
AT_ONCE_S = 60.0  # the same for who cannot wait: it is looked at again meanwhile
MOST_BYTES = 512 * 1024
MOST_FILES = 128
MOST_KEPT_BYTES = 4 * 1024 * 1024  # of all texts
_UNDER_WAY = 32  # files asked for that have not come yet

State = tuple[int, int]  # a file's modification time in ns, and its size


@dataclass(frozen=True, slots=True)
class _Read:
    """A file's text as it was read, or looked at again, and when."""

    state: State
    checked_s: float
    text: str


class FileCache:
    """What was read lately of one folder's files."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._kept: OrderedDict[str, _Read] = OrderedDict()
        self._bytes = 0
        self._asked: queue.SimpleQueue[tuple[str, State, str | None, Future[_Read | None]]] = queue.SimpleQueue()
        self._under_way: dict[str, tuple[State, Future[_Read | None]]] = {}
        self._thread: threading.Thread | None = None
        self._hangs = False

    def text(self, path: str, state: State, wait_s: float, at_once: bool = False) -> str | None:
        """Its text, newlines as \\n, if the file is in this state; None if it is in another.

        Empty where the disk takes longer; what has been asked for comes for the next who asks. `at_once`: what was
        known a minute ago will do.
        """
        for done in [one for one, (_, answer) in self._under_way.items() if answer.done()]:
            self._take(done, self._under_way.pop(done)[1].result())
        known = self._kept.get(path)
        if known is not None and known.state == state:
            age_s = time.monotonic() - known.checked_s
            if age_s < RECHECK_S or (at_once and age_s < AT_ONCE_S):
                self._kept.move_to_end(path)
                if age_s >= RECHECK_S:
                    self._ask(path, state)
                return known.text
        answer = self._ask(path, state)
        if answer is None or (not answer.done() and (self._hangs or wait_s <= 0)):
            return ""
        try:
            found = answer.result(max(wait_s, 0))
        except (Late, TimeoutError):
            self._hangs = not answer.done()
            return ""
        self._under_way.pop(path, None)
        self._take(path, found)
        return found.text if found is not None else None

    def _ask(self, path: str, state: State) -> Future[_Read | None] | None:
        """Have it read; None where too much is being read already."""
        asked = self._under_way.get(path)
        if asked is not None and asked[0] == state:
            return asked[1]
        if len(self._under_way) >= _UNDER_WAY:
            return None
        if self._thread is None:
            self._thread = threading.Thread(target=self._read, name="speclsp-text", daemon=True)
            self._thread.start()
        known = self._kept.get(path)
        held = known.text if known is not None and known.state == state else None
        answer: Future[_Read | None] = Future()
        self._under_way[path] = state, answer
        self._asked.put((path, state, held, answer))
        return answer

    def _take(self, path: str, found: _Read | None) -> None:
        """Keep what has come, and let the oldest go."""
        before = self._kept.pop(path, None)
        if before is not None:
            self._bytes -= getsizeof(before.text)
        if found is None:
            return
        self._kept[path] = found
        self._bytes += getsizeof(found.text)
        while len(self._kept) > MOST_FILES or self._bytes > MOST_KEPT_BYTES:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= getsizeof(oldest.text)

    def _read(self) -> None:
        while True:
            path, state, held, answer = self._asked.get()
            checked_s = time.monotonic()  # of the look: who asked for it may come for it much later
            try:
                text = read(self._folder, path, state, held)
            except Exception:
                text = None
            answer.set_result(_Read(state, checked_s, text) if text is not None else None)
            self._hangs = False


def read(folder: str, path: str, state: State, held: str | None = None) -> str | None:
    """A file's text if it is an ordinary one, inside the folder, in this state; `held` if it is known."""
    full = f"{folder}/{path}"
    now = os.lstat(full)
    if (now.st_mtime_ns, now.st_size) != state:
        return None
    if held is not None:
        return held
    if os.path.realpath(full) != f"{os.path.realpath(folder)}/{path}".replace("/", os.sep):
        return None
    data = private_files.read_bytes(full, MOST_BYTES, follow=False)
    return text_windows.normal_newlines(data.decode("utf-8-sig", "replace"))
