"""Search for programs on PATH that never runs one of the project's own, and the check whether a process has ended.

shutil.which looks in the current directory first on Windows, and everywhere at the relative entries of PATH. The
current directory is often the user's project, whose files come from others.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath, PureWindowsPath

IS_WINDOWS = sys.platform == "win32"
STARTABLE = (".com", ".exe", ".bat", ".cmd")  # of PATHEXT: CreateProcess starts no others


def is_program(path: str) -> bool:
    """True for a file that this user may execute."""
    return os.path.isfile(path) and os.access(path, os.X_OK)  # noqa: PTH113 - no error for a folder without rights


def find_program(
    name: str,
    environment: Mapping[str, str] = os.environ,
    windows: bool = IS_WINDOWS,
    is_program: Callable[[str], bool] = is_program,
) -> str | None:
    """The absolute path of program `name` in an absolute folder on PATH; None if there is none.

    On Windows `name` has no extension, and those of PATHEXT that CreateProcess can start are tried in their order.
    """
    flavour: type[PureWindowsPath] | type[PurePosixPath] = PureWindowsPath if windows else PurePosixPath
    extensions = [""]
    if windows:
        known = environment.get("PATHEXT", ";".join(STARTABLE)).lower().split(";")
        extensions = [extension for extension in known if extension in STARTABLE]
    for entry in environment.get("PATH", os.defpath).split(";" if windows else ":"):
        folder = flavour(entry.replace('"', "") if windows else entry)
        if not folder.is_absolute():
            continue
        for extension in extensions:
            path = str(folder / f"{name}{extension}")
            if is_program(path):
                return path
    return None


def is_gone(pid: int) -> bool:
    """True when no thread of process `pid` is left. The first may end while another still has memory and lock."""
    import psutil

    if sys.platform == "win32":
        return not psutil.pid_exists(pid)
    try:
        process = psutil.Process(pid)
        ended: bool = process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1
    except psutil.NoSuchProcess:
        return True
    return ended
