"""Directories in which this user may make no file."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest


def deny_new_files(patch: pytest.MonkeyPatch) -> None:
    """Let every directory refuse new files: in os.access, or on Windows the file that is made to find it out."""
    if sys.platform != "win32":
        patch.setattr(os, "access", lambda path, mode: False)
        return
    open_file = os.open

    def refuse(path: str | Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_TEMPORARY:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return open_file(path, flags, mode)

    patch.setattr(os, "open", refuse)
