"""The lines of files of a workspace folder, read in a thread that may hang with the disk: nobody waits for it long."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import OrderedDict
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late

from speclsp import plainfile
from speclsp.lsp import excerpt

RECHECK_S = 2.0  # as old as what is known may be
MOST_BYTES = 512 * 1024
_KEPT = 48  # files

State = tuple[int, int]  # a file's modification time in ns, and its size


class FileText:
    """What was read lately of one folder's files."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._kept: OrderedDict[str, tuple[State, float, list[str]]] = OrderedDict()
        self._asked: queue.SimpleQueue[tuple[str, State, Future[list[str] | None]]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._hangs = False

    def lines(self, path: str, state: State, wait_s: float) -> list[str] | None:
        """Its lines, if the file is in this state; None if it is in another. Empty where the disk takes longer."""
        known = self._kept.get(path)
        if known is not None and known[0] == state and time.monotonic() - known[1] < RECHECK_S:
            self._kept.move_to_end(path)
            return known[2]
        if self._hangs:
            return []
        if self._thread is None:
            self._thread = threading.Thread(target=self._read, name="speclsp-text", daemon=True)
            self._thread.start()
        answer: Future[list[str] | None] = Future()
        self._asked.put((path, state, answer))
        try:
            found = answer.result(wait_s)
        except (Late, TimeoutError):
            self._hangs = not answer.done()
            return []
        if found is not None:
            self._kept[path] = state, time.monotonic(), found
            self._kept.move_to_end(path)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return found

    def _read(self) -> None:
        while True:
            path, state, answer = self._asked.get()
            known = self._kept.get(path)
            try:
                held = known[2] if known is not None and known[0] == state else None
                answer.set_result(read(self._folder, path, state, held))
            except Exception:
                answer.set_result(None)
            self._hangs = False


def read(folder: str, path: str, state: State, held: list[str] | None = None) -> list[str] | None:
    """A file's lines if it is an ordinary one, inside the folder, in this state; `held` if they are known."""
    full = f"{folder}/{path}"
    now = os.lstat(full)
    inside = os.path.realpath(full) == f"{os.path.realpath(folder)}/{path}".replace("/", os.sep)
    if (now.st_mtime_ns, now.st_size) != state or not inside:
        return None
    if held is not None:
        return held
    data = plainfile.read_bytes(full, MOST_BYTES, follow=False)
    return excerpt.normal_newlines(data.decode("utf-8-sig", "replace")).split("\n")
