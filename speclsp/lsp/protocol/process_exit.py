"""Exit of the process: stop the event loop, run the last steps, and kill the process when the grace period is over.

`ProcessExit.end` may be called by the client's `exit`, a signal, a closed pipe, or the watcher of the client's process.
The first call decides the exit code. GRACE_S later the process is gone, whatever still hangs.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator

GRACE_S = 1.5  # from the request to stop until os._exit
LAST_STEPS_S = 0.4  # for on_exit, after the grace period
WATCH_INTERVAL_S = 1.0  # between two checks of the client's process

logger = logging.getLogger("speclsp.lsp.stdio")


class ProcessExit:
    """Ends the process once. `end` may be called from any thread and from signal handlers."""

    def __init__(self) -> None:
        self.code: int | None = None
        self.wake: Callable[[], None] = lambda: None  # set by the event loop: stops it
        self._on_exit: Callable[[], None] = lambda: None
        self._grace_started: queue.SimpleQueue[None] = queue.SimpleQueue()  # its put is safe in signal handlers
        self._threads_joined = threading.Event()  # set by the interpreter's exit: nothing can hang any more

    def begin(self, on_exit: Callable[[], None]) -> None:
        """Arm the grace period. `on_exit` runs once, when the process ends."""
        self._on_exit = on_exit
        atexit.register(self._threads_joined.set)
        threading.Thread(target=self._enforce_grace, name="speclsp-exit", daemon=True).start()

    def start_grace(self) -> None:
        """Start the grace period: at its end the process is killed, whether `end` was called or not."""
        self._grace_started.put(None)

    def end(self, code: int) -> None:
        """Stop with this exit code; the first call decides."""
        if self.code is None:
            self.code = code
            self.start_grace()
            self.wake()

    def finish(self, join: Callable[[], None]) -> int:
        """The loop has stopped: run `on_exit`, then `join` within the grace period. Returns the exit code."""
        self.end(1)
        self._run_on_exit()
        join()
        return self.code or 0

    def watch(self, pid: int) -> None:
        """End when the client's process has ended: it may die while another process keeps our stdin open."""
        if pid > 0:
            threading.Thread(target=self._watch, args=(pid,), name="speclsp-watch", daemon=True).start()

    def _watch(self, pid: int) -> None:
        import psutil  # in the thread: the import takes 20 ms

        try:
            client = psutil.Process(pid)
            while not self._threads_joined.wait(WATCH_INTERVAL_S):
                if not client.is_running() or client.status() == psutil.STATUS_ZOMBIE:
                    logger.info("the client's process %d has ended", pid)
                    return self.end(1)
        except (psutil.Error, OverflowError):  # in another container, or of another user
            logger.info("the client's process %d is not visible: only its end of the pipe is watched", pid)

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Inside, SIGTERM, SIGINT, SIGHUP and Windows' SIGBREAK end the process with code 0."""
        names = [name for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGBREAK") if hasattr(signal, name)]
        before = {name: signal.signal(getattr(signal, name), lambda *_: self.end(0)) for name in names}
        try:
            yield
        finally:
            for name, handler in before.items():
                signal.signal(getattr(signal, name), handler)

    def _run_on_exit(self) -> None:
        on_exit, self._on_exit = self._on_exit, lambda: None
        try:
            on_exit()
        except Exception as error:
            logger.error("stopping: %s", type(error).__name__)

    def _enforce_grace(self) -> None:
        self._grace_started.get()
        if not self._threads_joined.wait(GRACE_S):
            last_steps = threading.Thread(target=self._run_on_exit, daemon=True)
            last_steps.start()
            last_steps.join(LAST_STEPS_S)
            os._exit(1 if self.code is None else self.code)
