"""Directories of the user's cache, configuration, logs, state and sockets, by the XDG variables."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from speclsp.errors import SpeclspError

APP = "speclsp"
RUNTIME_DIRS = "/run/user"


def users_dir(kind: str) -> Path:
    """The user's directory for our "cache", "config", "log" or "state". Raises SpeclspError: no home is known."""
    import platformdirs

    try:
        directory: Path = getattr(platformdirs, f"user_{kind}_path")(APP, appauthor=False)
    except RuntimeError as error:  # a container's user without a name
        raise SpeclspError("this user has no home directory: set HOME to a directory of yours.") from error
    return directory


def cache_dir() -> Path:
    """Weights, and nothing that cannot be fetched again."""
    return users_dir("cache")


def log_dir() -> Path:
    """Logs; they hold no source text."""
    return users_dir("log")


def stats_path() -> Path:
    """Usage statistics for `speclsp stats`: numbers by week, language and pair."""
    return users_dir("state") / "stats.db"


def own_adapters_root() -> Path:
    """The directory above `adapters`, where adapters that were trained on this machine lie."""
    return users_dir("state")


def config_path() -> Path:
    """The user's config.toml, whether or not it exists."""
    return users_dir("config") / "config.toml"


def systems_runtime_dir() -> str:
    """The default of XDG_RUNTIME_DIR on Linux; "" when this user has no such directory."""
    path = Path(RUNTIME_DIRS) / str(os.getuid()) if sys.platform == "linux" else None
    try:
        return str(path) if path is not None and path.stat().st_uid == os.getuid() else ""
    except OSError:
        return ""


def runtime_dir() -> Path:
    """A directory for sockets that only this user can enter; made if missing.

    $XDG_RUNTIME_DIR, or without one a directory beside the logs: never a guessable name in a shared /tmp. A session
    without the variable (cron, some remote shells) uses systemd's directory, so that it finds the same engine.
    Raises SpeclspError when it cannot be made, or belongs to someone else.
    """
    base = os.environ.get("XDG_RUNTIME_DIR", "") or systems_runtime_dir()
    parent = Path(base) if base and Path(base).is_dir() else users_dir("state")
    path = parent / APP if parent == Path(base) else parent / "run"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode):
            raise SpeclspError(f"{path} is a link and not a directory. Set XDG_RUNTIME_DIR to a directory of your own.")
        if hasattr(os, "getuid") and status.st_uid != os.getuid():
            raise SpeclspError(f"{path} belongs to another user. Set XDG_RUNTIME_DIR to a directory of your own.")
        if stat.S_IMODE(status.st_mode) != 0o700:
            path.chmod(0o700)
    except OSError as error:
        raise SpeclspError(
            f"cannot make {path}: {error.strerror}. Set XDG_RUNTIME_DIR to a writable directory."
        ) from error
    return path
