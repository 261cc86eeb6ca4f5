"""Warms the index query cache for a newly opened document, in 2 ms slices while the event loop is idle.

Many queries do not depend on the cursor: the files that imports mean, the files nearby, the words in them. The context
of one completion has a few milliseconds; with these answers cached, they are enough.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from time import perf_counter

from speclsp.lsp.context import cross_file
from speclsp.lsp.index.query_cache import Deadline
from speclsp.lsp.index.reader import IndexReader

SLICE_S = 0.002  # no step starts after it: a keystroke waits no longer than for one slice
STEP_S = 0.004  # a query that takes longer gets no answer
BETWEEN_S = 0.02  # slices
ROUNDS = 3  # an answer that was late, or came from the disk, may be there in the next round
MAX_WAITING = 16  # documents

log = logging.getLogger("speclsp.index")


class IndexWarmUp:
    """Warm-up of one workspace folder's index."""

    def __init__(
        self,
        index: IndexReader,
        call_later: Callable[[float, Callable[[], None]], object],
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """`call_later` calls a function after a number of seconds."""
        self._index, self._call_later, self._clock = index, call_later, clock
        self._waiting: dict[str, int] = {}  # path in the folder -> rounds left, in order
        self._steps: Iterator[None] | None = None  # for the first of them
        self._is_late = False  # a step of this round took too long
        self._is_scheduled = False
        self._is_stopped = False

    def add(self, path: str) -> None:
        """Warm the cache for a document of the folder."""
        if len(self._waiting) >= MAX_WAITING or self._is_stopped or self._index.is_hidden(path):
            return
        self._waiting.setdefault(path, ROUNDS)
        self._schedule()

    def stop(self) -> None:
        """Run no more queries."""
        self._is_stopped = True
        self._waiting.clear()
        self._steps = None

    def run_slice(self) -> bool:
        """Run queries for one slice; True if there are more."""
        end = Deadline(self._clock() + SLICE_S, self._clock)
        while self._waiting and not end.passed():
            self._step(next(iter(self._waiting)))
        return bool(self._waiting)

    def _step(self, path: str) -> None:
        if self._steps is None:
            self._steps, self._is_late = cross_file.warm_up_steps(path, self._index), False
        deadline = Deadline(self._clock() + STEP_S, self._clock)
        with self._index.shared_deadline(deadline):
            is_done = next(self._steps, self) is self
        self._is_late = self._is_late or deadline.passed()
        if is_done:
            self._steps = None
            rounds = self._waiting.pop(path) - 1
            if self._is_late and rounds:
                self._waiting[path] = rounds

    def _schedule(self) -> None:
        if not self._is_scheduled and self._waiting:
            self._is_scheduled = True
            self._call_later(BETWEEN_S, self._on_timer)

    def _on_timer(self) -> None:
        self._is_scheduled = False
        try:
            self.run_slice()
        except Exception as error:  # its message may quote a file
            log.error("stopped warming the index cache: %s", type(error).__name__)
            self.stop()
        self._schedule()
