"""Imported by each Windows Python at its start: records the process id that Linux has for it, and hides faults of Wine.

Linux tests signal and inspect processes by this id, and the program reports Windows' own.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

GETPID = bytes.fromhex("b827000000 0f05 c3")  # mov eax, 39; syscall; ret: Wine runs Linux's system calls
MEM_COMMIT_RESERVE, PAGE_EXECUTE_READWRITE = 0x3000, 0x40


def linux_pid() -> int:
    """The process id of this process on Linux."""
    kernel = ctypes.WinDLL("kernel32")
    kernel.VirtualAlloc.restype = ctypes.c_void_p
    kernel.VirtualAlloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32, ctypes.c_uint32]
    code = kernel.VirtualAlloc(None, len(GETPID), MEM_COMMIT_RESERVE, PAGE_EXECUTE_READWRITE)
    ctypes.memmove(code, GETPID, len(GETPID))
    return ctypes.CFUNCTYPE(ctypes.c_int)(code)()


if sys.platform == "win32":
    import _winapi

    del _winapi.CopyFile2  # Wine 8 ends a process that calls it; shutil then copies by itself
if sys.platform == "win32" and (folder := os.environ.get("SPECLSP_TESTS_PIDS")):
    Path(folder, str(os.getpid())).write_text(str(linux_pid()))
