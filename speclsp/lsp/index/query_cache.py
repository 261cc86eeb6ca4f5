"""Time budget and answer cache of index queries: a query that takes too long answers with a default.

    get_or ─► answer cached ─► returned
           ─► time left ─► query, which may call get_or again: nested queries share the deadline of the outermost
           ─► late, locked or broken ─► the outermost query returns its default

Clocks are parameters, so a test can decide what is late.
"""

from __future__ import annotations

import math
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeVar, cast

BUDGET_MS = 10.0  # of one query
_MAX_ANSWERS = 4096
_MAX_ROWS = 15_000  # in all answers: about 10 MiB

Answer = TypeVar("Answer")
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point in time, in seconds of `clock`."""

    at_s: float
    clock: Callable[[], float] = perf_counter

    def passed(self) -> bool:
        return self.clock() > self.at_s

    def left_s(self) -> float:
        return self.at_s - self.clock()


NEVER = Deadline(math.inf)


class QueryCache:
    """Answers by query, the least recently used dropped first, and the time that queries may take."""

    def __init__(
        self, is_ready: Callable[[], bool], on_broken: Callable[[], None], clock: Callable[[], float] = perf_counter
    ) -> None:
        """`is_ready` opens the database; `on_broken` is called when its rows are not those of an index."""
        self.query_ms = BUDGET_MS
        self._is_ready, self._on_broken, self._clock = is_ready, on_broken, clock
        self._shared: Deadline | None = None  # of the current group
        self._deadline_s = 0.0  # of the outermost query; 0 while none is running
        self._answers: OrderedDict[tuple[object, ...], Any] = OrderedDict()
        self._rows = 0  # in all answers

    @property
    def is_shared(self) -> bool:
        """True inside `share`."""
        return self._shared is not None

    @property
    def is_late(self) -> bool:
        """True if the running query has used up its time."""
        return 0 < self._deadline_s < self._clock()

    def left_s(self) -> float:
        """Seconds that one query may take now."""
        left_s = self.query_ms / 1000
        return left_s if self._shared is None else min(left_s, self._shared.left_s())

    @contextmanager
    def share(self, deadline: Deadline) -> Iterator[None]:
        """Queries in this block end at `deadline`, in sum."""
        self._shared = deadline
        try:
            yield
        finally:
            self._shared = None

    def get_or(self, key: tuple[object, ...], query: Callable[[], Answer], default: Answer) -> Answer:
        """The answer of `query`, cached under `key`; `default` if there is no index, no time, or a broken row.

        A nested query raises instead, so that the outermost one returns its default.
        """
        is_nested = self._deadline_s > 0
        if not is_nested and not self._is_ready():
            return default
        if key in self._answers:
            self._answers.move_to_end(key)
            return cast(Answer, self._answers[key])
        if is_nested:
            if self.is_late:
                raise sqlite3.OperationalError("interrupted")
            return self._store(key, query())
        if self._shared is not None and self._shared.passed():
            return default
        self._deadline_s = max(self._clock() + self.left_s(), math.ulp(0.0))
        try:
            answer = query()
        except (sqlite3.OperationalError, UnicodeError):  # interrupted, or locked; or a key with half a character
            return default
        except (sqlite3.Error, ValueError, TypeError, LookupError, AttributeError):  # not the rows of an index
            self._on_broken()
            return default
        finally:
            self._deadline_s = 0.0
        return self._store(key, answer)

    def get_list(self, key: tuple[object, ...], query: Callable[[], list[Item]]) -> list[Item]:
        """The same for a list, empty by default. Callers must not change it."""
        empty: list[Item] = []
        return self.get_or(key, query, empty)

    def clear(self) -> None:
        """Drop all answers."""
        self._answers.clear()
        self._rows = 0

    def _store(self, key: tuple[object, ...], answer: Answer) -> Answer:
        self._answers[key] = answer
        self._rows += _rows(answer)
        while len(self._answers) > _MAX_ANSWERS or self._rows > _MAX_ROWS:
            self._rows -= _rows(self._answers.popitem(last=False)[1])
        return answer


def _rows(answer: object) -> int:
    return len(answer) if isinstance(answer, list) else 1
