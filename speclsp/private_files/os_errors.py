"""Sentences for errors of the operating system: the file, the cause and the way out.

A call on an open file raises an OSError without a name: `naming` adds it. So every message of this program can name
the file. Python's words for an errno give neither the cause (a quota, a limit, a mount) nor a way out.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

MAX_PATH = 259  # characters on Windows, without the final NUL
# ERROR_ACCESS_DENIED, ERROR_SHARING_VIOLATION and ERROR_LOCK_VIOLATION of Windows: another program has the file open.
OPEN_ELSEWHERE = {5, 32, 33}
PATH_TOO_LONG = {3, 206}  # ERROR_PATH_NOT_FOUND, ERROR_FILENAME_EXCED_RANGE of Windows
LOCKLESS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}  # of flock: the file system has no locks


class Cause(NamedTuple):
    """One row of the table of errors."""

    cause: str
    action: str  # the first way out; "": only another directory helps
    directory: str = ""  # "a directory ...", the second way out; "": no other directory helps


CAUSES = {
    errno.EACCES: Cause("permission denied", "correct its access rights", "of yours"),
    errno.EPERM: Cause("operation not permitted", "correct its access rights", "of yours"),
    errno.EROFS: Cause("its file system is read-only", "", "that is writable"),
    errno.ENOSPC: Cause("the disk is full", "free some space", "on a larger disk"),
    errno.EDQUOT: Cause("your disk quota is used up", "remove some of your files", "on another disk"),
    errno.EIO: Cause("the disk reports an input/output error", "check the disk", "on another disk"),
    errno.ESTALE: Cause("the network file system has lost it", "mount the file system again", "on a local disk"),
    errno.ENOTCONN: Cause("its file system is not connected", "mount it again", "on a local disk"),
    errno.ENAMETOOLONG: Cause("its name or path is too long", "", "with a shorter path"),
    errno.ELOOP: Cause("its path has a symbolic link that is not followed", "remove it, or put what it names there"),
    errno.ENOTDIR: Cause("a file is in the place of a directory on its path", "remove that file", "of yours"),
    errno.EISDIR: Cause("a directory is in its place", "remove it, or rename it"),
    errno.EEXIST: Cause("a file or a broken link is in its place", "remove it, or rename it"),
    errno.ENOENT: Cause("no such file or directory", "correct its path, or create it"),
    errno.EMFILE: Cause("too many open files in this process", "raise the limit (`ulimit -n 4096`)"),
    errno.ENFILE: Cause("too many open files on this system", "close other programs"),
    errno.ENOMEM: Cause("no memory is left", "close other programs, or raise the limit (`ulimit -v unlimited`)"),
    errno.EAGAIN: Cause("no process or thread is left", "close other programs, or raise the limit (`ulimit -u`)"),
    errno.EFBIG: Cause("the limit of a file's size is reached", "raise the limit (`ulimit -f unlimited`)"),
    errno.ETXTBSY: Cause("a program runs from it", "end that program"),
    errno.EBUSY: Cause("another program uses it", "end that program"),
    **dict.fromkeys(LOCKLESS, Cause("its file system does not support this", "", "on a local disk")),
}  # fmt: skip
UNKNOWN = Cause("", "check the file and its file system")
ROOTS = {  # variables of directories, and a part of the path without the variable
    "XDG_RUNTIME_DIR": "/run/user/",
    "XDG_CACHE_HOME": "/.cache/",
    "XDG_STATE_HOME": "/.local/state/",
    "XDG_CONFIG_HOME": "/.config/",
}


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Add `path` to an OSError of the block that names no file."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise


def reason(error: Exception) -> str:
    """The cause in part of a sentence, without the path: "no such file or directory"."""
    if not isinstance(error, OSError):
        return str(error)
    row = CAUSES.get(error.errno or 0, UNKNOWN)
    words = error.strerror or type(error).__name__
    if row.cause and (not error.strerror or words == os.strerror(error.errno or 0)):
        return row.cause
    return words.lower().rstrip(".")


def way_out(error: OSError, path: str | Path = "") -> str:
    """The sentence with the way out. `path`: of the file, where the error does not name it."""
    file = _file(error, path)
    code = getattr(error, "winerror", None)
    if code in OPEN_ELSEWHERE:
        return (
            "Another program has it open, or you have no right to it: end the engine (`speclsp engine stop`) or wait "
            "for the virus scanner, then try again."
        )
    if code in PATH_TOO_LONG and max(len(file), len(str(error.filename2 or ""))) > MAX_PATH:
        return f"Its path has more than {MAX_PATH} characters: set XDG_CACHE_HOME to a directory with a shorter path."
    row = CAUSES.get(error.errno or 0, UNKNOWN)
    variable = variable_of(file)
    move = f"{f'set {variable} to' if variable else 'use'} a directory {row.directory}" if row.directory else ""
    ways = ", or ".join(filter(None, (row.action, move)))
    return f"{ways[0].upper()}{ways[1:]}."


def variable_of(file: str) -> str:
    """The environment variable that moves the directory of `file` elsewhere; "" without one."""
    text = file.replace("\\", "/")
    for variable, default in ROOTS.items():
        root = os.environ.get(variable, "").replace("\\", "/").rstrip("/")
        if (root and f"{text}/".startswith(f"{root}/")) or default in text:
            return variable
    temporary = os.environ.get("TMPDIR") or "/tmp"  # tempfile.gettempdir() writes a file, which may fail here too
    return "TMPDIR" if f"{text}/".startswith(f"{temporary.rstrip('/')}/") else ""


def sentence(error: OSError, path: str | Path = "", verb: str = "be read or written") -> str:
    """ "FILE cannot VERB: CAUSE. WAY OUT." `path`: where the error does not name the file."""
    text = _file(error, path)
    subject = f"{text} cannot {verb}" if text else "the system refuses an operation"
    return f"{subject}: {reason(error)}. {way_out(error, text)}"


def _file(error: OSError, path: str | Path) -> str:
    """The file that an error names, else `path`. A number in its place is a descriptor."""
    file = error.filename if isinstance(error.filename, str | bytes | Path) else path
    return os.fsdecode(file) if file else ""


def message(error: Exception) -> str:
    """The message of our own error, or the sentence for one of the operating system."""
    return sentence(error) if isinstance(error, OSError) else str(error)
