"""Watchdog of the engine's thread: detects a step that takes far longer than expected, such as a hung device or kernel.

    a step begins ─► ticks ─► more of them than TIMES x the expected time, and than FLOOR_S ─► reported, once

Time is counted in this thread's own ticks, not read off a clock: a process that was stopped, suspended or starved must
not look hung when it continues. A late tick does not count, nor does one in which the process waited for pages from a
disk. Between steps, the thread sleeps. A step that hangs with the interpreter's lock stops this thread too; then the
editors notice that the engine no longer answers (docs/engine.md).
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

TICK_S = 0.25
TIMES = 20  # a machine may be that busy
FLOOR_S = 10.0  # and may stall that long; a GPU compiles the kernels that it meets for the first time

Step = tuple[float, Callable[[], int]]


class Watchdog:
    """Observes one thread's steps from another thread.

    Args:
        on_hang: called in the watchdog's thread with the seconds that the step has taken and those it should have.
    """

    def __init__(self, on_hang: Callable[[float, float], None]) -> None:
        self._on_hang = on_hang
        self._step: Step | None = None  # the one under way
        self._begun = threading.Event()  # is set while a step is under way
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def begin(self, expected_s: float, passes: Callable[[], int] = lambda: 0) -> None:
        """A step begins. It, or each of its passes, which `passes` counts, should take `expected_s`."""
        self._step = (expected_s, passes)
        self._begun.set()

    def end(self) -> None:
        """The step has ended."""
        self._step = None
        self._begun.clear()

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self._begun.set()

    def _watch(self) -> None:
        step_ticks, passes = 0, -1
        watched: Step | None = None
        while not self._closed.is_set():
            self._begun.wait()
            on_time = self._tick()
            step = self._step
            if step is None or step is not watched or step[1]() != passes:
                watched, step_ticks, passes = step, 0, step[1]() if step is not None else -1
            elif on_time:
                step_ticks += 1
                if step_ticks * TICK_S > max(FLOOR_S, TIMES * step[0]):
                    self._on_hang(step_ticks * TICK_S, step[0])
                    return

    def _tick(self) -> bool:
        """Let one tick pass; True when it was on time and the process did not wait for a disk."""
        start_s, faults = time.monotonic(), major_page_faults()
        self._closed.wait(TICK_S)
        return time.monotonic() - start_s < 2 * TICK_S and major_page_faults() == faults


def major_page_faults() -> int:
    """Number of times this process has waited for memory to come from a disk; 0 on Windows."""
    if sys.platform == "win32":
        return 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt
