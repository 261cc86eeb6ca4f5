"""Asks what a look around a document will ask, before it is looked at: little by little, between what the editor says.

Much of it does not depend on where the cursor is: what the imports mean, which files are near, which words stand in
them. A look has a few milliseconds; with this done, they are enough.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from time import perf_counter

from speclsp.lsp.context import cross_file
from speclsp.lsp.index.reader import IndexReader

SLICE_S = 0.002  # no step is begun after it: a key has to wait no longer than for a slice
STEP_S = 0.004  # a question that takes longer is not answered
BETWEEN_S = 0.02  # slices
ROUNDS = 3  # what took too long, or had to come from the disk, may be there the next time
MOST_WAITING = 16  # documents

log = logging.getLogger("speclsp.index")


class IndexWarmUp:
    """One workspace folder's."""

    def __init__(self, index: IndexReader, later: Callable[[float, Callable[[], None]], object]) -> None:
        """`later` calls a function after so many seconds."""
        self._index, self._later = index, later
        self._waiting: dict[str, int] = {}  # path in the folder -> rounds to go, in order
        self._steps: Iterator[None] | None = None  # for the first of them
        self._late = False  # in this round
        self._is_called = False
        self._ended = False

    def want(self, path: str) -> None:
        """A document will be looked at."""
        if len(self._waiting) >= MOST_WAITING or self._ended or self._index.hides(path):
            return
        self._waiting.setdefault(path, ROUNDS)
        self._go_on()

    def end(self) -> None:
        """Ask nothing any more."""
        self._ended = True
        self._waiting.clear()
        self._steps = None

    def slice(self) -> bool:
        """Ask for a moment; whether there is more to ask."""
        until_s = perf_counter() + SLICE_S
        while self._waiting and perf_counter() < until_s:
            self._step(next(iter(self._waiting)))
        return bool(self._waiting)

    def _step(self, path: str) -> None:
        if self._steps is None:
            self._steps, self._late = cross_file.beforehand(path, self._index), False
        step_s = perf_counter() + STEP_S
        with self._index.look(step_s):
            done = next(self._steps, self) is self
        self._late = self._late or perf_counter() > step_s
        if done:
            self._steps = None
            rounds = self._waiting.pop(path) - 1
            if self._late and rounds:
                self._waiting[path] = rounds

    def _go_on(self) -> None:
        if not self._is_called and self._waiting:
            self._is_called = True
            self._later(BETWEEN_S, self._called)

    def _called(self) -> None:
        self._is_called = False
        try:
            self.slice()
        except Exception as error:  # its message may quote a file
            log.error("nothing is asked beforehand any more: %s", type(error).__name__)
            self.end()
        self._go_on()
