"""Reads and indexes the files near a newly opened document, in 2 ms slices of the event loop.

The context of one completion has a few milliseconds. With the words of the near files in a cache, they are enough.
"""

from __future__ import annotations

import asyncio
import logging

from speclsp.lsp.context import cross_file
from speclsp.lsp.index.deadline import Deadline
from speclsp.lsp.index.workspace_index import WorkspaceIndex

SLICE_MS = 2.0  # no step starts after it: a keystroke waits no longer than for one slice
BETWEEN_S = 0.02  # slices
ROUNDS = 2  # the second one has the files for which the disk took too long in the first
MAX_WAITING = 16  # documents

log = logging.getLogger("speclsp.index")


class WarmUp:
    """Warm-up of one workspace folder's documents."""

    def __init__(self, index: WorkspaceIndex) -> None:
        self._index = index
        self._waiting: dict[str, None] = {}  # paths in the folder, in order
        self._task: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """True while documents are being warmed."""
        return self._task is not None and not self._task.done()

    def add(self, path: str) -> None:
        """Warm the cache for a document of the folder."""
        if len(self._waiting) >= MAX_WAITING or self._index.is_hidden(path):
            return
        self._waiting[path] = None
        if not self.is_busy:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Warm no more documents."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            while self._waiting:
                path = next(iter(self._waiting))
                for _round in range(ROUNDS):
                    await asyncio.sleep(BETWEEN_S)
                    slice_end = Deadline.after_ms(SLICE_MS)
                    for _step in cross_file.warm_up_steps(path, self._index):
                        if slice_end.passed():
                            await asyncio.sleep(BETWEEN_S)
                            slice_end = Deadline.after_ms(SLICE_MS)
                self._waiting.pop(path, None)
        except Exception as error:  # its message may quote a file
            self._waiting.clear()
            log.error("stopped warming the index cache: %s", type(error).__name__)
