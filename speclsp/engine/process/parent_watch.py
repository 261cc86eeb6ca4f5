"""Parent watch: ends the engine when the process that started it ends, whatever the engine is doing then."""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

PARENT_POLL_S = 0.5


def watch(parent: int, stop: Callable[[], None]) -> None:
    """Call `stop` from a thread when process `parent` ends, or when standard input, being a pipe or socket, ends."""
    threading.Thread(target=wait_for_process, args=(parent, stop), name="parent", daemon=True).start()
    with suppress(OSError):  # there may be no standard input at all
        mode = os.fstat(0).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            threading.Thread(target=wait_for_stdin, args=(stop,), name="stdin", daemon=True).start()


def wait_for_process(parent: int, stop: Callable[[], None]) -> None:
    """Wait for the end of `parent`. A zombie has ended, and so has one whose pid another process now has.

    Windows waits for a process of any parent; elsewhere it is checked every PARENT_POLL_S.
    """
    import psutil  # 15 ms that only a watched engine pays, and not before its socket answers

    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(parent)
        if sys.platform == "win32":
            process.wait()
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(PARENT_POLL_S)
    stop()


def wait_for_stdin(stop: Callable[[], None]) -> None:
    """Read standard input to its end and ignore its content."""
    with suppress(OSError):
        while os.read(0, 65536):
            pass
    stop()


def exit_now(code: int = 0) -> None:
    """End the process without waiting for threads."""
    with suppress(Exception):
        sys.stderr.flush()
    os._exit(code)
