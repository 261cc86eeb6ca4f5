"""Windows only: access rights (DACL) of private files, and files opened without sharing, by calls of Win32.

Microsoft's documentation has them under "Access Control Lists" and "Creating and Opening Files".
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import msvcrt
import os
import sys
from collections.abc import Iterator
from ctypes import wintypes
from pathlib import Path

assert sys.platform == "win32"

SE_FILE_OBJECT, OWNER, DACL, PROTECTED_DACL = 1, 0x1, 0x4, 0x80000000
TOKEN_QUERY, TOKEN_USER = 0x8, 1
ALLOW_ACES = {0, 9}  # ACCESS_ALLOWED_ACE_TYPE and its callback form, which have one layout
INHERIT_ONLY = 0x8
# Read, write, append, delete, change the rights or the owner; and the generic forms of these.
ACCESS_MASK = 0x1 | 0x2 | 0x4 | 0x10000 | 0x40000 | 0x80000 | 0x10000000 | 0x40000000 | 0x80000000
SID_OFFSET = 8  # in an ACE: after its header and its mask
# SYSTEM and Administrators reach every file, as root does. OWNER RIGHTS and CREATOR OWNER mean the owner.
SYSTEM_SIDS = {"S-1-5-18", "S-1-5-32-544", "S-1-3-4", "S-1-3-0"}
APP_SIDS = "S-1-15-"  # restrict the user's own sandboxed programs: they give no other user access
GENERIC_READ_WRITE, OPEN_EXISTING, OPEN_ALWAYS = 0xC0000000, 3, 4
NORMAL_FILE, OPEN_REPARSE_POINT = 0x80, 0x200000
ERROR_SHARING_VIOLATION = 32
INVALID_HANDLE = ctypes.c_void_p(-1).value

kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
advapi32 = ctypes.WinDLL("advapi32", use_last_error=True)
kernel32.CreateFileW.restype = wintypes.HANDLE
kernel32.CreateFileW.argtypes = [
    *(wintypes.LPCWSTR, wintypes.DWORD, wintypes.DWORD, wintypes.LPVOID),
    *(wintypes.DWORD, wintypes.DWORD, wintypes.HANDLE),
]
kernel32.GetCurrentProcess.restype = wintypes.HANDLE
kernel32.CloseHandle.argtypes = [wintypes.HANDLE]
kernel32.LocalFree.argtypes = [wintypes.LPVOID]
advapi32.OpenProcessToken.argtypes = [wintypes.HANDLE, wintypes.DWORD, wintypes.LPVOID]
advapi32.GetTokenInformation.argtypes = [
    *(wintypes.HANDLE, wintypes.DWORD, wintypes.LPVOID, wintypes.DWORD, wintypes.LPVOID),
]
advapi32.ConvertSidToStringSidW.argtypes = [wintypes.LPVOID, wintypes.LPVOID]
advapi32.ConvertStringSecurityDescriptorToSecurityDescriptorW.argtypes = [
    *(wintypes.LPCWSTR, wintypes.DWORD, wintypes.LPVOID, wintypes.LPVOID),
]
advapi32.GetNamedSecurityInfoW.argtypes = [wintypes.LPCWSTR, wintypes.DWORD, wintypes.DWORD, *[wintypes.LPVOID] * 5]
advapi32.SetFileSecurityW.argtypes = [wintypes.LPCWSTR, wintypes.DWORD, wintypes.LPVOID]
advapi32.GetAce.argtypes = [wintypes.LPVOID, wintypes.DWORD, wintypes.LPVOID]
advapi32.LookupAccountSidW.argtypes = [wintypes.LPCWSTR, *[wintypes.LPVOID] * 6]


class AclHeader(ctypes.Structure):
    """ACL."""

    _fields_ = (
        ("revision", ctypes.c_ubyte),
        ("padding", ctypes.c_ubyte),
        ("size", wintypes.WORD),
        ("count", wintypes.WORD),
        ("more_padding", wintypes.WORD),
    )


class AceHeader(ctypes.Structure):
    """ACE_HEADER with the mask that follows it."""

    _fields_ = (("kind", ctypes.c_ubyte), ("flags", ctypes.c_ubyte), ("size", wintypes.WORD), ("mask", wintypes.DWORD))


# ── access rights ────────────────────────────────────────────────────────────────────────────────────────


def restrict_to_user(path: Path) -> None:
    """Give this user all access to `path`, and nobody else any; new files of a directory inherit its rights.

    Inherited rights are removed. Raises OSError, also on a file system without access rights, as FAT.
    """
    inherit = "OICI" if path.is_dir() else ""
    descriptor = wintypes.LPVOID()
    text = f"D:P(A;{inherit};FA;;;{user_sid()})"
    check(advapi32.ConvertStringSecurityDescriptorToSecurityDescriptorW(text, 1, ctypes.byref(descriptor), None))
    try:
        check(advapi32.SetFileSecurityW(str(path), DACL | PROTECTED_DACL, descriptor))
    finally:
        kernel32.LocalFree(descriptor)


def other_accounts(path: Path) -> list[str]:
    """Names of the other accounts that own `path` or may read or write it. Raises OSError."""
    owner, dacl, descriptor = wintypes.LPVOID(), wintypes.LPVOID(), wintypes.LPVOID()
    wanted = OWNER | DACL
    code = advapi32.GetNamedSecurityInfoW(
        *(str(path), SE_FILE_OBJECT, wanted, ctypes.byref(owner), None, ctypes.byref(dacl), None),
        ctypes.byref(descriptor),
    )
    if code:
        raise ctypes.WinError(code)
    try:
        if not dacl.value:  # a file without an ACL is open to everyone
            return ["Everyone"]
        sids = [owner.value, *allowed_sids(dacl.value)] if owner.value else list(allowed_sids(dacl.value))
        names = {text: account_name(sid) for sid in sids if sid is not None and is_foreign(text := sid_text(sid))}
        return sorted(set(names.values()))
    finally:
        kernel32.LocalFree(descriptor)


def allowed_sids(dacl: int) -> Iterator[int]:
    """Addresses of the SIDs to which the ACL at address `dacl` gives access."""
    for index in range(AclHeader.from_address(dacl).count):
        entry = wintypes.LPVOID()
        check(advapi32.GetAce(dacl, index, ctypes.byref(entry)))
        assert entry.value is not None
        header = AceHeader.from_address(entry.value)
        if header.kind in ALLOW_ACES and not header.flags & INHERIT_ONLY and header.mask & ACCESS_MASK:
            yield entry.value + SID_OFFSET


def is_foreign(sid: str) -> bool:
    """True for the SID of another account than this user's and the system's."""
    return sid != user_sid() and sid not in SYSTEM_SIDS and not sid.startswith(APP_SIDS)


@functools.cache
def user_sid() -> str:
    """The SID of this process's user, as text."""
    token, size_bytes = wintypes.HANDLE(), wintypes.DWORD()
    check(advapi32.OpenProcessToken(kernel32.GetCurrentProcess(), TOKEN_QUERY, ctypes.byref(token)))
    try:
        advapi32.GetTokenInformation(token, TOKEN_USER, None, 0, ctypes.byref(size_bytes))
        user = ctypes.create_string_buffer(size_bytes.value)  # a TOKEN_USER: the address of its SID, attributes, SID
        check(advapi32.GetTokenInformation(token, TOKEN_USER, user, size_bytes, ctypes.byref(size_bytes)))
        address = wintypes.LPVOID.from_buffer(user).value
        assert address is not None
        return sid_text(address)
    finally:
        kernel32.CloseHandle(token)


def sid_text(sid: int) -> str:
    """The SID at an address as text, such as "S-1-5-18"."""
    text = wintypes.LPWSTR()
    check(advapi32.ConvertSidToStringSidW(sid, ctypes.byref(text)))
    try:
        return text.value or ""
    finally:
        kernel32.LocalFree(ctypes.cast(text, wintypes.LPVOID))


def account_name(sid: int) -> str:
    """The name of the account at an address; its SID where it has no name."""
    name, domain, kind = ctypes.create_unicode_buffer(256), ctypes.create_unicode_buffer(256), wintypes.DWORD()
    sizes = wintypes.DWORD(256), wintypes.DWORD(256)
    with contextlib.suppress(OSError):
        pointers = [ctypes.byref(size) for size in sizes]
        check(advapi32.LookupAccountSidW(None, sid, name, pointers[0], domain, pointers[1], ctypes.byref(kind)))
        return name.value or sid_text(sid)
    return sid_text(sid)


def check(succeeded: int) -> None:
    """Raise OSError with the system's message unless a call has succeeded."""
    if not succeeded:
        raise ctypes.WinError(ctypes.get_last_error())


# ── locks ────────────────────────────────────────────────────────────────────────────────────────────────


def open_unshared(path: Path, create: bool) -> int | None:
    """A descriptor of `path`, which no other open succeeds on before its last handle is closed; None: it is open now.

    An inherited handle keeps the file closed to others too, as an inherited flock does. A byte lock of
    `msvcrt.locking` would belong to one process. Raises OSError; FileNotFoundError: it is missing, and not `create`.
    """
    disposition = OPEN_ALWAYS if create else OPEN_EXISTING
    attributes = NORMAL_FILE | OPEN_REPARSE_POINT
    handle = kernel32.CreateFileW(str(path), GENERIC_READ_WRITE, 0, None, disposition, attributes, None)
    if handle == INVALID_HANDLE:
        code = ctypes.get_last_error()
        if code == ERROR_SHARING_VIOLATION:
            return None
        raise ctypes.WinError(code)
    return msvcrt.open_osfhandle(handle, os.O_RDWR | os.O_NOINHERIT)
