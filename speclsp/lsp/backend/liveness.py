"""Whether an engine that keeps us waiting is hung: what gives reason to doubt, and how long its answer is waited for.

    a question past its deadline without a word of an answer    ┐
    a lease without a word, which the engine gives every 5 s    ┴─►  GET /health: it answers, and is only slow; or it
                                                                     does not, and is hung

To doubt costs nothing, so the clock may say when. To be sure ends a process: that counts the ticks that came in time
here. A machine that was suspended, or has no time for us either, is not its engine's fault; nor is it when the engine
has to wait for its memory to come back from a disk (Linux tells).
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

FIRST_WORD_S = 5.0  # it is due at once
SILENCE_S = 15.0
PROBE_S = 5.0
LOADING_PROBE_S = 20.0  # for one that loads, or has not said yet: a library from a cold disk may hold it up
SHORT_S = 1.0  # a pause that nobody needs to hear of
TICK_S = 0.25


class LivenessProbe:
    """When one engine was last heard, and whether a question to it has waited too long."""

    def __init__(self) -> None:
        self.heard = False  # it has said something
        self._last_s = time.monotonic()
        self._asked_s: float | None = None  # the oldest question since
        self._doubt = asyncio.Event()

    def beat(self) -> None:
        """It has said something."""
        self.heard = True
        self._last_s, self._asked_s = time.monotonic(), None

    def asked(self) -> None:
        """It owes us a word."""
        if self._asked_s is None:
            self._asked_s = time.monotonic()

    def given_up(self, deadline_ms: int) -> None:
        """A question was not waited for any longer, which should have had an answer after `deadline_ms`."""
        if self._asked_s is not None and time.monotonic() - self._asked_s >= 0.9 * deadline_ms / 1000:
            self._asked_s = None
            self._doubt.set()

    async def doubtful(self) -> None:
        """Until there is reason to ask how it is."""
        while not self._doubt.is_set():
            left_s = self._last_s + (SILENCE_S if self.heard else FIRST_WORD_S) - time.monotonic()
            if left_s <= 0:
                break
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._doubt.wait(), left_s)
        self._doubt.clear()


async def in_time(answer: asyncio.Task[Any], patience_s: float, pid: int = 0) -> bool:
    """Whether `answer` is there within `patience_s`; no tick counts that came late, or in which `pid` read memory."""
    ticks = patience_s / TICK_S
    while ticks > 0 and not answer.done():
        began_s, waited = time.monotonic(), page_waits(pid)
        await asyncio.wait([answer], timeout=TICK_S)
        if time.monotonic() - began_s < 2 * TICK_S and page_waits(pid) == waited:
            ticks -= 1
    return answer.done()


def page_waits(pid: int) -> int:
    """How often a process has waited for memory to come from a disk; 0 where that is not told."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[9])  # majflt, of all its threads
    except (OSError, ValueError, IndexError):
        return 0
