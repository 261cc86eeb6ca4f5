"""Limits of the index worker: lowest priority, memory, and processor time of one parse."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import functools
import os
import platform
import signal
import sys
from pathlib import Path
from typing import TextIO

MAX_MEMORY_BYTES = 2 << 30
WALL_TIME_FACTOR = 3  # Windows counts no processor time for `guard`: its limit is this many times as long


def lower_priority() -> None:
    """Set the lowest priority for processor and disk, and a limit of `MAX_MEMORY_BYTES`.

    On Windows the supervisor sets the priority class IDLE_PRIORITY_CLASS when it starts the process.
    """
    if sys.platform == "win32":
        steps = [idle_thread, limit_memory]
    else:
        autogroup = Path("/proc/self/autogroup")
        steps = [lambda: os.nice(19), lambda: autogroup.write_text("19"), idle_disk, limit_memory]
    for step in steps:
        with contextlib.suppress(Exception):  # no system has all of them
            step()


def idle_disk() -> None:
    """Set Linux's lowest class for the disk."""
    number = {"x86_64": 251, "aarch64": 30}[platform.machine()] if sys.platform == "linux" else 0
    ctypes.CDLL(None).syscall(number, 1, 0, 3 << 13) if number else None


def idle_thread() -> None:
    """Give this thread Windows' lowest priority for disk and memory.

    PROCESS_MODE_BACKGROUND_BEGIN would also limit the working set to 32 MiB.
    """
    if sys.platform == "win32":
        thread_mode_background_begin = 0x10000
        kernel32 = ctypes.windll.kernel32
        kernel32.SetThreadPriority(ctypes.c_void_p(kernel32.GetCurrentThread()), thread_mode_background_begin)


def limit_memory() -> None:
    """Limit the memory, so that a grammar without bounds ends this process and not others. Raises OSError."""
    if sys.platform == "win32":
        from speclsp.process_resources import windows_jobs

        windows_jobs.limit_own_memory(MAX_MEMORY_BYTES)
    else:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@functools.cache
def null_file() -> TextIO:
    """A file that keeps nothing, open as long as the process: faulthandler writes to a file."""
    return open(os.devnull, "w")  # noqa: PTH123


def guard(seconds: float) -> None:
    """End this process after `seconds` more of processor time, even inside C code; 0 cancels the limit."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_PROF, seconds)  # processor time: a busy machine must not end the worker
    elif seconds:
        faulthandler.dump_traceback_later(WALL_TIME_FACTOR * seconds, exit=True, file=null_file())
    else:
        faulthandler.cancel_dump_traceback_later()
