"""Directories of the user's cache, configuration, logs, state and sockets, by the XDG variables.

A session can have another user's environment: `su`, `sudo -E`, WSLg's XDG_RUNTIME_DIR. One rule holds for every
directory: that of the environment is used if it is absolute, and this user may read it or make it; else the default
below this user's home. Root uses no directory of another user, because its files would lock that user out. The runtime
directory must be this user's own, because it holds the engine's socket.

A path is computed without an access that changes anything: only `runtime_dir` makes a directory. Windows has no such
sessions: a variable counts if it is absolute, else the directories are below %LOCALAPPDATA%.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from speclsp import private_files
from speclsp.errors import SpeclspError
from speclsp.private_files.os_errors import reason, sentence

APP = "speclsp"
RUNTIME_DIRS = "/run/user"
RUNTIME_VARIABLE = "XDG_RUNTIME_DIR"
BELOW_HOME = {"cache": ".cache", "config": ".config", "state": ".local/state"}  # Linux's defaults
VARIABLES = {"cache": "XDG_CACHE_HOME", "config": "XDG_CONFIG_HOME", "state": "XDG_STATE_HOME"}


# ── by the variables ─────────────────────────────────────────────────────────────────────────────────────────


def user_directory(kind: str) -> Path:
    """The directory for our "cache", "config" or "state"; on systems with a directory for logs alone, also of "log".

    Raises SpeclspError: this user has no home.
    """
    variable = variable_dir(kind)
    if sys.platform == "win32" and variable is not None:  # platformdirs ignores the variables there
        return variable / APP
    import platformdirs

    try:
        directory: Path = getattr(platformdirs, f"user_{kind}_path")(APP, appauthor=False)
    except RuntimeError as error:  # a container's user without a name
        raise SpeclspError("this user has no home directory: set HOME to a directory of yours.") from error
    if sys.platform != "linux" or (directory.is_absolute() and is_usable(directory)):
        return directory
    defaults = [home / BELOW_HOME[kind] / APP for home in homes()]
    return next(filter(is_usable, defaults), directory.absolute())


def variable_dir(kind: str) -> Path | None:
    """The directory in the variable of a kind; None without one, and for a relative path, which does not count."""
    variable = Path(os.environ.get(VARIABLES.get(kind, ""), ""))
    return variable if variable.is_absolute() else None


def homes() -> Iterator[Path]:
    """The user's home directories: HOME, which `sudo -E` keeps, and that of the user database."""
    if sys.platform == "win32":
        raise NotImplementedError
    import pwd

    home = Path(os.environ.get("HOME", ""))
    if home.is_absolute():
        yield home
    try:
        yield Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return  # a container's user without a name


def cache_dir() -> Path:
    """Weights, and nothing that cannot be fetched again."""
    return user_directory("cache")


def log_dir() -> Path:
    """Logs; they hold no source text."""
    of_its_own = sys.platform == "darwin" or (sys.platform == "win32" and variable_dir("state") is None)
    return user_directory("log") if of_its_own else state_dir() / "log"


def state_dir() -> Path:
    """Measurements and counts of this machine; also the directory above `adapters`, for those trained here."""
    return user_directory("state")


def stats_path() -> Path:
    """Usage statistics for `speclsp stats`: numbers by week and model."""
    return state_dir() / "stats.db"


def config_path() -> Path:
    """The user's config.toml, whether or not it exists."""
    return user_directory("config") / "config.toml"


# ── rights ───────────────────────────────────────────────────────────────────────────────────────────────────


def nearest_existing(path: Path) -> Path:
    """`path`, or the first directory above it that exists. A path that this user may not reach counts as missing."""
    try:
        exists = path.exists()
    except OSError:
        exists = False
    return path if exists or path == path.parent else nearest_existing(path.parent)


def is_usable(directory: Path) -> bool:
    """True if this user may read our `directory`, or make it; for root, if it owns that one or the one above.

    A container's root has its own home, into which another user's directory may be mounted. A file in the way of the
    directory is no question of permission: the error that names it follows.
    """
    existing = nearest_existing(directory)
    if hasattr(os, "getuid") and os.getuid() == 0:
        return 0 in (existing.stat().st_uid, nearest_existing(directory.parent).stat().st_uid)
    return os.access(directory, os.R_OK) or not existing.is_dir() or os.access(existing, os.W_OK | os.X_OK)


def accepts_files(directory: Path) -> bool:
    """True if `directory` exists and this user may make files in it.

    On Windows one is made and removed, because os.access sees only the read-only attribute there.
    """
    if sys.platform != "win32":
        return directory.is_dir() and os.access(directory, os.W_OK)
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_TEMPORARY  # removed when it is closed
    try:
        os.close(os.open(directory / f".{APP}-{os.getpid()}", flags))
    except OSError:
        return False
    return True


# ── sockets ──────────────────────────────────────────────────────────────────────────────────────────────────


def runtime_path() -> Path:
    """The directory for sockets that only this user can enter, whether or not it exists.

    $XDG_RUNTIME_DIR or systemd's directory, which a session without the variable (cron, some remote shells) uses too,
    so that it finds the same engine. Without either, a directory beside the logs: never a guessable name in a shared
    /tmp.
    """
    bases = [os.environ.get(RUNTIME_VARIABLE, "")]
    if sys.platform == "linux":
        bases.append(f"{RUNTIME_DIRS}/{os.getuid()}")
    base = next((Path(base) for base in bases if base and is_own(Path(base))), None)
    return base / APP if base else state_dir() / "run"


def is_own(base: Path) -> bool:
    """True if `base` is an absolute path of this user's own directory, and writable."""
    try:
        status = base.stat()
    except OSError:
        return False
    own = not hasattr(os, "getuid") or status.st_uid == os.getuid()
    return base.is_absolute() and stat.S_ISDIR(status.st_mode) and own and os.access(base, os.W_OK | os.X_OK)


def runtime_dir() -> Path:
    """`runtime_path`, made if missing, for this user alone. Raises SpeclspError when it cannot be made, or is not ours.

    Its mode is 0700. On Windows its access rights name this user, and its files inherit them.
    """
    path = runtime_path()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        problem = private_files.exposure(path, path.lstat())
    except OSError as error:
        raise SpeclspError(sentence(error, path, "be made")) from error
    if problem.startswith("is open"):
        try:
            private_files.restrict(path)
            problem = private_files.exposure(path, path.lstat())
        except OSError as error:
            problem = f"cannot be made private ({reason(error)})"
    if problem:
        raise SpeclspError(
            f"{path} {problem}: the engine's token would not be secret. Set {RUNTIME_VARIABLE} to a directory of yours."
        )
    return path
