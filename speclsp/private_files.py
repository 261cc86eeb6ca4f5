"""Opens ordinary files only: a pipe or a device that somebody put in the place of one is never waited for."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
FLAGS |= getattr(os, "O_BINARY", 0)  # Windows would change line ends, and end at a Ctrl-Z


def open_plain(path: str | Path, flags: int, mode: int = 0o600) -> int:
    """As os.open. Raises OSError, EINVAL where there is something else than a file."""
    handle = os.open(path, flags | FLAGS, mode)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not an ordinary file", str(path))
    return handle


def read_bytes(path: str | Path, most_bytes: int, *, follow: bool = True) -> bytes:
    """What is in the file. Raises OSError, EFBIG where it is more than `most_bytes`; ELOOP for a link not followed."""
    flags = os.O_RDONLY | (0 if follow else getattr(os, "O_NOFOLLOW", 0))
    with os.fdopen(open_plain(path, flags), "rb") as file:
        found = file.read(most_bytes + 1)
    if len(found) > most_bytes:
        raise OSError(errno.EFBIG, f"larger than {most_bytes} bytes", str(path))
    return found
