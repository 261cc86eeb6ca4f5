"""Directories of the user's cache, configuration, logs, state and sockets, by the XDG variables.

A session can have another user's environment: `su`, `sudo -E`, WSLg's XDG_RUNTIME_DIR. So the directories differ in
the use of a variable, and a relative path never counts:

    runtime         used if it is this user's own and writable; else systemd's; else `run` in the state directory
    state, logs     used if this user may write there; else the default below this user's home
    index           the same, in the cache
    config, models  used if this user may read there, because an administrator may provide them; else the default.
                    `foreign_problem` keeps root from writing there

A path is computed without an access that changes anything: only `runtime_dir` makes a directory. Windows has no such
sessions: a variable counts if it is absolute, else the directories are below %LOCALAPPDATA%.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from speclsp import private_files
from speclsp.errors import SpeclspError
from speclsp.private_files.os_errors import reason, sentence

APP = "speclsp"
RUNTIME_DIRS = "/run/user"
RUNTIME_VARIABLE = "XDG_RUNTIME_DIR"
OWN_DIRECTORY = f"Set {RUNTIME_VARIABLE} to a directory of your own."  # ends an error
BELOW_HOME = {"cache": ".cache", "config": ".config", "state": ".local/state"}  # Linux's defaults
BELOW_MAC_HOME = {  # of platformdirs, after Apple's File System Programming Guide
    "cache": "Library/Caches",
    "config": "Library/Application Support",
    "state": "Library/Application Support",
    "log": "Library/Logs",
}
VARIABLES = {"cache": "XDG_CACHE_HOME", "config": "XDG_CONFIG_HOME", "state": "XDG_STATE_HOME"}


# ── by the variables ─────────────────────────────────────────────────────────────────────────────────────────


def users_dir(kind: str) -> Path:
    """The directory for our "cache", "config" or "state", for files that may be provided by someone else.

    Below this user's home if the one of the environment can neither be entered nor made. On systems with a directory
    for logs alone, also of "log". Raises SpeclspError: this user has no home.
    """
    return first_directory(kind, is_writable if kind == "log" else is_reachable)


def own_dir(kind: str) -> Path:
    """As `users_dir`, for files that this program writes unasked: below this user's home if the other is foreign."""
    return first_directory(kind, is_writable)


def first_directory(kind: str, suits: Callable[[Path], bool]) -> Path:
    """The first directory that suits: of the environment, then below the user's homes; else that of the environment."""
    named = variable_dir(kind)
    if sys.platform == "win32" and named is not None:  # platformdirs ignores the variables there
        return named / APP
    import platformdirs

    try:
        directory: Path = getattr(platformdirs, f"user_{kind}_path")(APP, appauthor=False)
    except RuntimeError as error:  # a container's user without a name
        raise SpeclspError("this user has no home directory: set HOME to a directory of yours.") from error
    if sys.platform == "win32" or (directory.is_absolute() and suits(directory)):
        return directory
    below = BELOW_MAC_HOME if sys.platform == "darwin" else BELOW_HOME
    defaults = [home / below[kind] / APP for home in homes()]
    return next(filter(suits, defaults), directory.absolute())


def variable_dir(kind: str) -> Path | None:
    """The directory in the variable of a kind; None without one, and for a relative path, which does not count."""
    named = Path(os.environ.get(VARIABLES.get(kind, ""), ""))
    return named if named.is_absolute() else None


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
    return users_dir("cache")


def index_dir() -> Path:
    """Indexes of workspaces."""
    return own_dir("cache") / "index"


def log_dir() -> Path:
    """Logs; they hold no source text."""
    of_its_own = sys.platform == "darwin" or (sys.platform == "win32" and variable_dir("state") is None)
    return users_dir("log") if of_its_own else state_dir() / "log"


def state_dir() -> Path:
    """Measurements and counts of this machine; also the directory above `adapters`, for those trained here."""
    return own_dir("state")


def stats_path() -> Path:
    """Usage statistics for `speclsp stats`: numbers by week, language and model."""
    return state_dir() / "stats.db"


def config_path() -> Path:
    """The user's config.toml, whether or not it exists."""
    return users_dir("config") / "config.toml"


# ── ownership ────────────────────────────────────────────────────────────────────────────────────────────────


def nearest_existing(path: Path) -> Path:
    """`path`, or the first directory above it that exists. A path that this user may not reach counts as missing."""
    try:
        exists = path.exists()
    except OSError:
        exists = False
    return path if exists or path == path.parent else nearest_existing(path.parent)


def is_reachable(directory: Path) -> bool:
    """True if this user may read what is in our `directory`, or make it."""
    return os.access(directory, os.R_OK) or is_writable(directory)


def is_writable(directory: Path) -> bool:
    """True if this user may make files in our `directory`, or make it.

    Root may write everywhere. Its files in another user's directory would lock that user out, so the owner decides.
    A file in the way of the directory is no question of permission: the error that names it follows.
    """
    existing = nearest_existing(directory)
    allowed = not existing.is_dir() or os.access(existing, os.W_OK | os.X_OK)
    return allowed and foreign_owner(directory) is None


def accepts_files(directory: Path) -> bool:
    """True if this user may make files in an existing directory.

    On Windows one is made and removed, because os.access sees only the read-only attribute there.
    """
    if sys.platform != "win32":
        return os.access(directory, os.W_OK)
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_TEMPORARY  # removed when it is closed
    try:
        os.close(os.open(directory / f".{APP}-{os.getpid()}", flags))
    except OSError:
        return False
    return True


def foreign_owner(directory: Path) -> int | None:
    """For root: the uid of the user who owns both our `directory` and the one above it; None if root owns one.

    A container's root has its own home, into which another user's directory may be mounted: that is no foreign one.
    """
    if not hasattr(os, "getuid") or os.getuid() != 0:
        return None
    owners = [nearest_existing(path).stat().st_uid for path in (directory, directory.parent)]
    return None if 0 in owners else owners[0]


def foreign_problem(kind: str) -> str:
    """The sentence for root that is about to write into another user's cache or configuration; "" otherwise."""
    directory = users_dir(kind)
    owner = foreign_owner(directory)
    if owner is None:
        return ""
    return (
        f"{nearest_existing(directory)} belongs to another user (uid {owner}), whom files of root would lock out: "
        f"run this command as that user, or set {VARIABLES[kind]} to a directory of your own."
    )


# ── sockets ──────────────────────────────────────────────────────────────────────────────────────────────────


def systems_runtime_dir() -> str:
    """The default of XDG_RUNTIME_DIR on Linux; "" when this user has no such directory."""
    if sys.platform != "linux":
        return ""
    path = Path(RUNTIME_DIRS) / str(os.getuid())
    return "" if runtime_problem(path) else str(path)


def runtime_problem(base: Path) -> str:
    """The reason, in part of a sentence, not to use `base` for this user's sockets; "" without one."""
    try:
        status = base.stat()
    except OSError:
        return "it does not exist"
    if not base.is_absolute():
        return "it is not an absolute path"
    if not stat.S_ISDIR(status.st_mode):
        return "it is not a directory"
    if hasattr(os, "getuid") and status.st_uid != os.getuid():
        return f"it belongs to another user (uid {status.st_uid})"
    return "" if os.access(base, os.W_OK | os.X_OK) else "it cannot be written"


def unused_runtime_dir() -> str:
    """The sentence about an XDG_RUNTIME_DIR that is set and not used; "" otherwise."""
    base = os.environ.get(RUNTIME_VARIABLE, "")
    problem = runtime_problem(Path(base)) if base else ""
    return f"{RUNTIME_VARIABLE} = {base} is not used, because {problem}" if problem else ""


def runtime_path() -> Path:
    """The directory for sockets that only this user can enter, whether or not it exists.

    $XDG_RUNTIME_DIR, or without one a directory beside the logs: never a guessable name in a shared /tmp. A session
    without the variable (cron, some remote shells) uses systemd's directory, so that it finds the same engine.
    Raises SpeclspError: a link or someone else's directory is in its place.
    """
    base = os.environ.get(RUNTIME_VARIABLE, "")
    if not base or runtime_problem(Path(base)):
        base = systems_runtime_dir()
    path = Path(base) / APP if base else state_dir() / "run"
    try:
        status = path.lstat()
    except FileNotFoundError:
        return path
    except OSError as error:
        raise SpeclspError(sentence(error, path, "be entered")) from error
    check_runtime(path, status)
    return path


def check_runtime(path: Path, status: os.stat_result) -> None:
    """Raise SpeclspError unless `status` is of a directory of this user's."""
    if stat.S_ISLNK(status.st_mode):
        raise SpeclspError(f"{path} is a link and not a directory. {OWN_DIRECTORY}")
    if not stat.S_ISDIR(status.st_mode):
        raise SpeclspError(f"cannot make {path}: a file is in its place. {OWN_DIRECTORY}")
    if hasattr(os, "getuid") and status.st_uid != os.getuid():
        raise SpeclspError(f"{path} belongs to another user (uid {status.st_uid}). {OWN_DIRECTORY}")


def runtime_dir() -> Path:
    """`runtime_path`, made if missing, for this user alone. Raises SpeclspError when it cannot be made, or is not ours.

    Its mode is 0700. On Windows its access rights name this user, and its files inherit them.
    """
    path = runtime_path()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.lstat()
        check_runtime(path, status)
    except OSError as error:
        raise SpeclspError(sentence(error, path, "be made")) from error
    try:
        other_mode = sys.platform != "win32" and stat.S_IMODE(status.st_mode) != 0o700
        if other_mode or private_files.exposure(path, status):
            private_files.restrict(path)
        problem = private_files.exposure(path, path.lstat())
    except OSError as error:
        problem = f"cannot be made private ({reason(error)})"
    if problem:
        raise SpeclspError(f"{path} {problem}: the engine's token would not be secret. {OWN_DIRECTORY}")
    return path
