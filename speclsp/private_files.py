"""Reads and replaces files that only this user may touch.

A pipe or a device in the place of a file is refused and never waited for. A file is replaced in one step: its reader
sees the old content or the new one, and never a part.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import stat
import tempfile
import time
from pathlib import Path

from speclsp.errors import EngineError

PLAIN_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
PLAIN_FLAGS |= getattr(os, "O_BINARY", 0)  # Windows would change line ends, and end at a Ctrl-Z
LEFT_BEHIND_S = 3600.0  # age of a new file that no process still writes
NO_LINK_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


def open_plain(path: str | Path, flags: int, mode: int = 0o600) -> int:
    """Open a regular file, as os.open does. Raises OSError; its errno is EINVAL for anything but a regular file."""
    handle = os.open(path, flags | PLAIN_FLAGS, mode)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not an ordinary file", str(path))
    return handle


def read_bytes(path: str | Path, most_bytes: int, *, follow: bool = True) -> bytes:
    """The file's content. Raises OSError: EFBIG for more than `most_bytes`, ELOOP for a link that is not followed."""
    flags = os.O_RDONLY | (0 if follow else getattr(os, "O_NOFOLLOW", 0))
    with os.fdopen(open_plain(path, flags), "rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"larger than {most_bytes} bytes", str(path))
    return content


def replace(path: Path, data: bytes, *, mode: int = 0o600, sync: bool = False) -> None:
    """Write `data` to a new file beside `path` and rename it over `path`.

    `sync`: flush it to the disk first, so that a power cut cannot leave an empty file. Raises OSError; `path` is then
    as it was, and the new file is removed. A process that is killed leaves its new file; an hour later the next
    replacement of `path` removes it.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        if mode != 0o600:
            Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
    with contextlib.suppress(OSError):
        for left in path.parent.glob(f".{glob.escape(path.name)}.????????"):  # as mkstemp names them
            if time.time() - left.stat().st_mtime > LEFT_BEHIND_S:
                left.unlink()


def check_private(path: Path, status: os.stat_result) -> None:
    """Raise EngineError unless `status` is of a regular file of this user's that nobody else can read or write."""
    if not stat.S_ISREG(status.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "not a plain file"
        raise EngineError(f"{path} is {kind}: remove it.")
    if hasattr(os, "getuid"):
        if status.st_uid != os.getuid():
            raise EngineError(f"{path} belongs to another user (uid {status.st_uid}): remove it.")
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise EngineError(f"{path} is open to others (mode {stat.S_IMODE(status.st_mode):04o}): remove it.")


def reason(error: OSError) -> str:
    """The system's message in lower case, without the path: "no such file or directory"."""
    return (error.strerror or type(error).__name__).lower()
