"""Liveness probe of the engine: decides when a silent engine is suspected to hang, and when the hang is confirmed.

    a request past its deadline without any output      ┐
    a lease without an event (one is due every 5 s)     ┴─►  GET /health: an answer means a slow engine,
                                                             no answer within the patience means a hung one

Suspecting a hang is cheap, so it uses wall-clock time. Confirming one kills the process, so only ticks that arrived on
time count: a suspended or starved machine must not look like a hung engine. Neither must an engine that waits for its
memory to come back from a disk (Linux reports that).
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

FIRST_EVENT_S = 5.0  # an engine sends its first event at once
SILENCE_S = 15.0
PROBE_S = 5.0
LOADING_PROBE_S = 20.0  # for an engine that loads or has not reported yet: reading a library from a cold disk blocks it
SHORT_S = 1.0  # a pause that is not worth a message
TICK_S = 0.25


class LivenessProbe:
    """Time of the last output of one engine, and whether a request to it has waited too long."""

    def __init__(self) -> None:
        self.has_output = False
        self._last_output_s = time.monotonic()
        self._oldest_request_s: float | None = None  # the oldest request since the last output
        self._suspected = asyncio.Event()

    def output_received(self) -> None:
        self.has_output = True
        self._last_output_s, self._oldest_request_s = time.monotonic(), None

    def request_sent(self) -> None:
        if self._oldest_request_s is None:
            self._oldest_request_s = time.monotonic()

    def request_abandoned(self, deadline_ms: int) -> None:
        """Suspects a hang if an abandoned request had waited for its deadline, and no output came since it was sent."""
        if self._oldest_request_s is not None and time.monotonic() - self._oldest_request_s >= 0.9 * deadline_ms / 1000:
            self._oldest_request_s = None
            self._suspected.set()

    async def wait_until_suspected(self) -> None:
        """Return when there is reason to probe the engine."""
        while not self._suspected.is_set():
            left_s = self._last_output_s + (SILENCE_S if self.has_output else FIRST_EVENT_S) - time.monotonic()
            if left_s <= 0:
                break
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._suspected.wait(), left_s)
        self._suspected.clear()


async def done_in_time(answer: asyncio.Task[Any], patience_s: float, pid: int = 0) -> bool:
    """True if `answer` completes within `patience_s`.

    A tick does not count when it came late, or when process `pid` read memory from a disk during it.
    """
    ticks = patience_s / TICK_S
    while ticks > 0 and not answer.done():
        began_s, faults = time.monotonic(), major_page_faults(pid)
        await asyncio.wait([answer], timeout=TICK_S)
        if time.monotonic() - began_s < 2 * TICK_S and major_page_faults(pid) == faults:
            ticks -= 1
    return answer.done()


def major_page_faults(pid: int) -> int:
    """Page faults of a process that were served from a disk; 0 where the system does not report them."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[9])  # majflt, of all its threads
    except (OSError, ValueError, IndexError):
        return 0
