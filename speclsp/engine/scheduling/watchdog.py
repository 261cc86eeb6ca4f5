"""Notices a step of the engine's thread that takes far longer than it should: a device, or a kernel, that hangs.

    a step begins ─► ticks ─► more of them than TIMES x what it should take, and than FLOOR_S ─► said, once

Time is counted in this thread's own ticks, not read off a clock: a process that was stopped, suspended or starved is
not condemned for it when it goes on. A tick that comes late says nothing, nor does one in which the process waited for
pages from a disk. While no step begins for some ticks there are none. A step that hangs with the interpreter's lock
stops this thread too: then the editors notice, whom the engine no longer answers (docs/engine.md).
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

TICK_S = 0.25
TIMES = 20  # a machine may be that busy
FLOOR_S = 10.0  # and may hiccup that long; a GPU compiles the kernels that it meets for the first time
PAUSE_TICKS = 8  # without a step, and the ticks end until the next one

Step = tuple[float, Callable[[], int]]


class Watchdog:
    """Looks at one thread's steps from another.

    Args:
        hangs: told, from here, how many seconds the step has taken and how many it should have.
    """

    def __init__(self, hangs: Callable[[float, float], None]) -> None:
        self.ticks = 0  # so far
        self._hangs = hangs
        self._step: Step | None = None  # the one under way
        self._resting = False
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def begin(self, expected_s: float, passes: Callable[[], int] = lambda: 0) -> None:
        """A step begins that should take `expected_s`, or each of its passes should, which `passes` counts."""
        self._step = (expected_s, passes)
        if self._resting:
            self._wake.set()

    def end(self) -> None:
        """It has ended."""
        self._step = None

    def close(self) -> None:
        """No more ticks."""
        self._ended.set()
        self._wake.set()

    def _watch(self) -> None:
        idle, counted, passes = 0, 0, -1
        before: Step | None = None
        while not self._ended.is_set():
            if idle >= PAUSE_TICKS:
                self._rest()
                idle = 0
            on_time = self._tick()
            step = self._step
            idle = 0 if step is not None else idle + 1
            if step is None or step is not before or step[1]() != passes:
                before, counted, passes = step, 0, step[1]() if step is not None else -1
            elif on_time:
                counted += 1
                if counted * TICK_S > max(FLOOR_S, TIMES * step[0]):
                    self._hangs(counted * TICK_S, step[0])
                    return

    def _rest(self) -> None:
        """Until a step begins. Either it sees that this rests, or this sees that it has begun."""
        self._wake.clear()
        self._resting = True
        if self._step is None and not self._ended.is_set():
            self._wake.wait()
        self._resting = False

    def _tick(self) -> bool:
        """Let one tick pass; whether it was on time, and nothing was waited for but time."""
        began_s, waited = time.monotonic(), page_waits()
        self._ended.wait(TICK_S)
        self.ticks += 1
        return time.monotonic() - began_s < 2 * TICK_S and page_waits() == waited


def page_waits() -> int:
    """How often this process has waited for memory to come from a disk; 0 where that is not told."""
    if sys.platform == "win32":
        return 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt
