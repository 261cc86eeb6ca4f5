"""Windows only: a job object that kills child processes when this process ends, however it ends.

The system closes the handles of a process that ends, and the job's limit KILL_ON_JOB_CLOSE then ends its members: see
"Job Objects" in Microsoft's documentation of Win32.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from ctypes import wintypes

assert sys.platform == "win32"

EXTENDED_LIMITS = 9  # JobObjectExtendedLimitInformation
KILL_ON_JOB_CLOSE = 0x2000
TERMINATE, SET_QUOTA = 0x1, 0x100  # rights that AssignProcessToJobObject needs

kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
kernel32.CreateJobObjectW.restype = wintypes.HANDLE
kernel32.CreateJobObjectW.argtypes = [wintypes.LPVOID, wintypes.LPCWSTR]
kernel32.SetInformationJobObject.argtypes = [wintypes.HANDLE, ctypes.c_int, wintypes.LPVOID, wintypes.DWORD]
kernel32.AssignProcessToJobObject.argtypes = [wintypes.HANDLE, wintypes.HANDLE]
kernel32.OpenProcess.restype = wintypes.HANDLE
kernel32.OpenProcess.argtypes = [wintypes.DWORD, wintypes.BOOL, wintypes.DWORD]
kernel32.CloseHandle.argtypes = [wintypes.HANDLE]


class BasicLimits(ctypes.Structure):
    """JOBOBJECT_BASIC_LIMIT_INFORMATION."""

    _fields_ = (
        ("process_time", wintypes.LARGE_INTEGER),
        ("job_time", wintypes.LARGE_INTEGER),
        ("flags", wintypes.DWORD),
        ("min_working_set", ctypes.c_size_t),
        ("max_working_set", ctypes.c_size_t),
        ("active_processes", wintypes.DWORD),
        ("affinity", ctypes.c_size_t),
        ("priority", wintypes.DWORD),
        ("scheduling", wintypes.DWORD),
    )


class ExtendedLimits(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

    _fields_ = (
        ("basic", BasicLimits),
        ("io_counters", ctypes.c_uint64 * 6),
        ("memory", ctypes.c_size_t * 4),
    )


def kill_with_this_process(pid: int) -> None:
    """Add child `pid` to this process's job. Raises OSError."""
    process = kernel32.OpenProcess(TERMINATE | SET_QUOTA, False, pid)
    if not process:
        raise ctypes.WinError(ctypes.get_last_error())
    try:
        if not kernel32.AssignProcessToJobObject(job(), process):
            raise ctypes.WinError(ctypes.get_last_error())
    finally:
        kernel32.CloseHandle(process)


@functools.cache
def job() -> int:
    """The handle of this process's job, which closes with the process. Raises OSError."""
    handle = kernel32.CreateJobObjectW(None, None)
    limits = ExtendedLimits()
    limits.basic.flags = KILL_ON_JOB_CLOSE
    size_bytes = ctypes.sizeof(limits)
    if not handle or not kernel32.SetInformationJobObject(handle, EXTENDED_LIMITS, ctypes.byref(limits), size_bytes):
        raise ctypes.WinError(ctypes.get_last_error())
    return int(handle)
