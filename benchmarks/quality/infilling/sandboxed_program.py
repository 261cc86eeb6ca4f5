"""Child process of the sandbox: limits itself, then runs one untrusted program that it reads from stdin.

    python -I -S -B sandboxed_program.py MODE CPU_S MEMORY_BYTES < {"program": ..., "token": ...}

It writes the token to stdout after the last statement of the program, and nothing else. MODE is "namespaces" inside
`unshare` (own network, mounts, processes), where all mounts become read-only, or "hooks" without. Both modes deny
files, processes, sockets and ctypes by an audit hook, and set resource limits. Only the standard library is used.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from typing import Any

NOBODY = 65_534
MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1  # linux/mount.h; every architecture
PR_SET_KEEPCAPS, PR_SET_NO_NEW_PRIVS = 8, 38
CAPABILITY_VERSION_3, CAP_DAC_READ_SEARCH = 0x20080522, 2
OUT_OF_TIME = 124  # exit status, as that of timeout(1)
GRACE_S = 1  # the kernel ends a program that does not react to SIGXCPU
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
DENIED = (
    "socket.", "subprocess.", "ctypes.", "shutil.", "tempfile.", "signal.pthread_kill", "_thread.start_new_thread",
    "_posixsubprocess.", "pty.", "webbrowser.", "urllib.", "ftplib.", "smtplib.", "http.client.",
    *(f"os.{name}" for name in (
        "system", "exec", "fork", "posix_spawn", "spawn", "kill", "remove", "rename", "rmdir", "mkdir", "chmod",
        "chown", "chflags", "link", "symlink", "truncate", "utime", "setxattr", "removexattr", "putenv", "lockf",
    )),
)  # fmt: skip


def make_mounts_read_only(libc: Any) -> None:
    """Every mounted file system becomes read-only in this mount namespace. Raises OSError."""
    attributes = (ctypes.c_uint64 * 4)(MOUNT_ATTR_RDONLY, 0, 0, 0)
    size = ctypes.sizeof(attributes)
    if libc.syscall(MOUNT_SETATTR, AT_FDCWD, b"/", AT_RECURSIVE, attributes, size) != 0:
        raise OSError(ctypes.get_errno(), "the mounts cannot be made read-only")


def leave_root(libc: Any) -> None:
    """Become `nobody`, because the kernel limits no processes of root; may still read every file to import from it."""
    libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    only_reading = 1 << CAP_DAC_READ_SEARCH
    sets = (ctypes.c_uint32 * 6)(only_reading, only_reading, 0, 0, 0, 0)  # effective, permitted, inheritable; twice
    if libc.capset(header, sets) != 0:
        raise OSError(ctypes.get_errno(), "the capabilities of root cannot be dropped")


def limit_resources(cpu_s: int, memory_bytes: int) -> None:
    """Processor time, address space, files, processes. The kernel enforces them."""
    signal.signal(signal.SIGXCPU, lambda _number, _frame: os._exit(OUT_OF_TIME))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + GRACE_S))
    for name, value in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_FSIZE, 0),  # no byte of a regular file can be written
        (resource.RLIMIT_NPROC, 0),  # no process or thread can start
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(name, (value, value))


def deny(event: str, arguments: tuple[Any, ...]) -> None:
    """Audit hook: refuses what no HumanEval solution needs. A hook cannot be removed."""
    if event == "open":
        _path, mode, flags = arguments
        if set(mode or "") & set("wax+") or (isinstance(flags, int) and flags & WRITE_FLAGS):
            raise PermissionError("the sandbox has no writable files")
    elif event.startswith(DENIED):
        raise PermissionError(f"the sandbox denies {event}")


def main(mode: str, cpu_s: int, memory_bytes: int) -> None:
    """Run the program of stdin under all limits."""
    job = json.loads(sys.stdin.read())
    report = os.dup(1)
    for number in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), number)
    libc = ctypes.CDLL(None, use_errno=True)
    is_root = os.getuid() == 0 and os.environ.get("SANDBOX_MAPPED") != "1"
    if mode == "namespaces":
        make_mounts_read_only(libc)
    if is_root:
        leave_root(libc)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    code = compile(job["program"], "<program>", "exec")
    limit_resources(cpu_s, memory_bytes)
    sys.addaudithook(deny)
    exec(code, {"__name__": "<program>"})
    os.write(report, job["token"].encode())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
