"""Windows only: job objects, which kill child processes with this process or limit the memory of this process.

The system closes the handles of a process that ends, and the job's limit KILL_ON_JOB_CLOSE then ends its members: see
"Job Objects" in Microsoft's documentation of Win32. Jobs nest since Windows 8.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from ctypes import wintypes

assert sys.platform == "win32"

EXTENDED_LIMITS = 9  # JobObjectExtendedLimitInformation
LIMIT_PROCESS_MEMORY, KILL_ON_JOB_CLOSE = 0x100, 0x2000
TERMINATE, SET_QUOTA = 0x1, 0x100  # rights that AssignProcessToJobObject needs

kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
kernel32.CreateJobObjectW.restype = wintypes.HANDLE
kernel32.CreateJobObjectW.argtypes = [wintypes.LPVOID, wintypes.LPCWSTR]
kernel32.SetInformationJobObject.argtypes = [wintypes.HANDLE, ctypes.c_int, wintypes.LPVOID, wintypes.DWORD]
kernel32.AssignProcessToJobObject.argtypes = [wintypes.HANDLE, wintypes.HANDLE]
kernel32.GetCurrentProcess.restype = wintypes.HANDLE
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
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION. The last three fields hold the job's limit and both peaks."""

    _fields_ = (
        ("basic", BasicLimits),
        ("io_counters", ctypes.c_uint64 * 6),
        ("process_memory", ctypes.c_size_t),
        ("job_memory", ctypes.c_size_t * 3),
    )


def kill_with_this_process(pid: int) -> None:
    """Add child `pid` to this process's job. Raises OSError."""
    process = kernel32.OpenProcess(TERMINATE | SET_QUOTA, False, pid)
    if not process:
        raise ctypes.WinError(ctypes.get_last_error())
    try:
        if not kernel32.AssignProcessToJobObject(killing_job(), process):
            raise ctypes.WinError(ctypes.get_last_error())
    finally:
        kernel32.CloseHandle(process)


@functools.cache
def killing_job() -> int:
    """The handle of the job that kills its members when this process ends. Raises OSError."""
    return new_job(BasicLimits(flags=KILL_ON_JOB_CLOSE))


def limit_own_memory(max_bytes: int) -> None:
    """Limit the committed memory of this process. Raises OSError."""
    job = new_job(BasicLimits(flags=LIMIT_PROCESS_MEMORY), process_memory=max_bytes)
    if not kernel32.AssignProcessToJobObject(job, kernel32.GetCurrentProcess()):
        raise ctypes.WinError(ctypes.get_last_error())


def new_job(basic: BasicLimits, process_memory: int = 0) -> int:
    """The handle of a new job, which stays open until this process ends. Raises OSError."""
    limits = ExtendedLimits(basic=basic, process_memory=process_memory)
    handle = kernel32.CreateJobObjectW(None, None)
    size_bytes = ctypes.sizeof(limits)
    if not handle or not kernel32.SetInformationJobObject(handle, EXTENDED_LIMITS, ctypes.byref(limits), size_bytes):
        raise ctypes.WinError(ctypes.get_last_error())
    return int(handle)
