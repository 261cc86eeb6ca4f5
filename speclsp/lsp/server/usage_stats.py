"""Counts suggestions that were shown and accepted, for `speclsp stats`; counts nothing if `stats.enabled` is off.

Clients report an acceptance by the command of the accepted item. A client without commands counts as one that accepts
nothing. A suggestion that the user types through counts as shown once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING

from speclsp.config import stats_path
from speclsp.errors import SpeclspError
from speclsp.observability.usage_db import NEXT_EDITS, Row, add, rows_of, week_of

if TYPE_CHECKING:
    from speclsp.lsp.completion.trace import Trace

WRITE_EVERY_S = 3.0
MAX_CHARACTERS = 100_000  # of one suggestion: clients may send anything

log = logging.getLogger("speclsp.stats")


@dataclass(eq=False, repr=False)
class UsageStats:
    """Usage counts of one server. They are written every few seconds and at the end, and lost where that fails."""

    model: Callable[[], str]  # the model that answers
    enabled: Callable[[], bool]
    _pending: defaultdict[tuple[str, str], Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    _timer: asyncio.TimerHandle | None = None
    _reported: set[str] = field(default_factory=set)

    def request_ended(self, trace: Trace) -> None:
        """Count a suggestion that was not shown before: not the rest of one that the user types through."""
        if trace.outcome == "shown" and (trace.prepared or not trace.reused):
            self._add(self.model(), "shown")

    def suggestion_accepted(self, arguments: Sequence[object]) -> None:
        """Count an acceptance: `arguments` are a suggestion's characters, and how many of them if it was not all."""
        lengths = [number for number in arguments if type(number) is int and 0 < number <= MAX_CHARACTERS]
        if 1 <= len(lengths) == len(arguments) <= 2:
            self._add(self.model(), "accepted" if len(lengths) == 1 else "partly")
            self._add(self.model(), "characters", lengths[-1])

    def next_edit(self, outcome: str) -> None:
        """Count a next edit that was "shown" or "accepted"."""
        self._add(NEXT_EDITS, outcome)

    def end(self) -> None:
        """Write everything to disk. The server ends, and the event loop has stopped."""
        self._write(self._take())

    def _add(self, model: str, name: str, count: int = 1) -> None:
        if self.enabled():
            self._pending[week_of(date.today()), model][name] += count
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(WRITE_EVERY_S, self._write_in_thread)

    def _write_in_thread(self) -> None:
        self._timer = None
        asyncio.get_running_loop().run_in_executor(None, self._write, self._take())

    def _take(self) -> list[Row]:
        rows = rows_of(self._pending)
        self._pending.clear()
        return rows

    def _write(self, rows: list[Row]) -> None:
        try:
            if rows:
                add(stats_path(), rows)
        except SpeclspError as error:
            if str(error) not in self._reported:
                self._reported.add(str(error))
                log.warning("%s", error)
