"""Runs a command without network access: `python no_network.py COMMAND ...`.

Where the system allows it, the command gets its own network namespace, without even loopback. A seccomp filter kills
the process at the creation of an IP socket (SIGSYS), so an attempt cannot go unnoticed. Both apply to its children too.
Prints to stderr which of them apply.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

CLONE_NEWNET, CLONE_NEWUSER = 0x40000000, 0x10000000
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
ALLOW, KILL_PROCESS = 0x7FFF0000, 0x80000000
SOCKET = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}  # (audit architecture, the system call's number)
AF_INET, AF_INET6 = 2, 10
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06  # classic BPF: load a word of the call, compare, return

libc = ctypes.CDLL(None, use_errno=True)


def leave_the_network() -> bool:
    """Enters a new network namespace; False where the system allows none."""
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWNET) == 0:
        return True
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
        return False
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123 - one write, as the kernel wants it
            file.write(text)
    return True


def forbid_sockets() -> None:
    """Installs a filter that kills a process at the creation of an IP socket."""
    machine, number = SOCKET[platform.machine()]
    program = [
        (LOAD, 0, 0, 4),  # the architecture
        (EQUAL, 0, 5, machine),  # another architecture: allowed, as it does not run here
        (LOAD, 0, 0, 0),  # the call
        (EQUAL, 0, 3, number),
        (LOAD, 0, 0, 16),  # its first argument, the address family
        (EQUAL, 2, 0, AF_INET),
        (EQUAL, 1, 0, AF_INET6),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, KILL_PROCESS),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))

    filter_program = Program(len(program), ctypes.addressof(code))
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(filter_program), 0, 0
    ):
        raise OSError(ctypes.get_errno(), "no seccomp filter")


if __name__ == "__main__":
    alone = leave_the_network()
    forbid_sockets()
    print("sealed: no IP sockets" + (", no network" if alone else ""), file=sys.stderr, flush=True)
    os.execvp(sys.argv[1], sys.argv[1:])
