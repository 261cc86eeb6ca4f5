r"""File paths of document URIs: one path for all spellings of a file, and paths compared as the file system does.

    file:///c%3A/Users/a%20b/x.rs     VS Code           c:/Users/a b/x.rs
    file:///C:/Users/a%20b/x.rs       Neovim            c:/Users/a b/x.rs
    file://server/share/x.rs          UNC               //server/share/x.rs
    \\?\C:\Users\a b\x.rs           extended-length   c:/Users/a b/x.rs

Windows ignores the case of names. macOS does so on most volumes, and here its names are compared exactly.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import unquote, urlsplit

from speclsp.lsp.documents import windows_names

IS_WINDOWS = sys.platform == "win32"
_MAX_CACHED = 1024  # characters of a URI whose path is cached
_DRIVE = re.compile(r"/*([A-Za-z]):(?=/|\Z)")


def file_path(uri: str, windows: bool = IS_WINDOWS) -> str:
    """A file URI or a path, with forward slashes and without `..`.

    `windows`: names are normalized as Windows does. A short name such as PROGRA~1 costs one look at the disk.
    """
    return (_file_path if len(uri) <= _MAX_CACHED else _file_path.__wrapped__)(uri, windows)


@lru_cache(maxsize=1024)  # each keystroke converts the same few URIs several times
def _file_path(uri: str, windows: bool) -> str:
    path = _decoded(uri, windows)
    if windows and (_DRIVE.match(path) or path.startswith("//")):
        path = windows_names.normalized(path)
    return posixpath.normpath(path) if path else ""


def _decoded(uri: str, windows: bool) -> str:
    """The path of a URI, or a path, with forward slashes and a drive's letter in lower case.

    The host of a file URI is a server on Windows. POSIX has no such paths, so the host is left out there.
    """
    try:
        parts = urlsplit(uri)
    except ValueError:
        parts = urlsplit("")
    path = uri
    if len(parts.scheme) > 1:  # "c" is a drive
        path = unquote(parts.path, errors="replace")
        if windows and parts.scheme == "file" and parts.netloc.lower() not in ("", "localhost"):
            path = "//" + unquote(parts.netloc, errors="replace").lstrip("\\/") + path
    path = windows_names.without_prefix(path.replace("\\", "/"))
    drive = _DRIVE.match(path)
    return f"{drive[1].lower()}:{path[drive.end() :]}" if drive else path


def document_key(uri: str, windows: bool = IS_WINDOWS) -> str:
    """A text that is the same for all spellings of a file's URI, and for a URI of another scheme the URI itself.

    A backslash is a character of a name on POSIX; on Windows an alternate data stream is a document of its own.
    """
    if not uri.startswith("file:"):
        return uri
    if not windows:
        return "file:" + unquote(uri[len("file:") :], errors="surrogateescape")
    whole = uri.replace("?", "%3F").replace("#", "%23")  # a fragment tells documents apart
    stream = _decoded(whole, windows).rpartition("/")[2].partition(":")[2]
    return f"file:{folded(file_path(whole, windows), windows)}:{stream.lower()}"


def folded(path: str, windows: bool = IS_WINDOWS) -> str:
    """A path for comparisons: those of one file are equal."""
    return path.lower() if windows else path


def is_same_path(path: str, other: str, windows: bool = IS_WINDOWS) -> bool:
    """True for a path in two spellings: on Windows of other case and slashes, and with a prefix for long paths."""
    if windows:
        path, other = (folded(windows_names.without_prefix(name.replace("\\", "/")), windows) for name in (path, other))
    return path == other


def path_inside(path: str, folder: str, windows: bool = IS_WINDOWS) -> str | None:
    """The part of `path` below a folder, in its own spelling; None if it does not lie there."""
    base = folder.rstrip("/") + "/"
    head = path[: len(base)]
    return path[len(base) :] if folded(head, windows) == folded(base, windows) else None


def containing_folder(uri: str, folders: Iterable[str]) -> str | None:
    """The innermost of the folders, by URI, that contains a document."""
    return max((folder for folder in folders if lies_in(uri, folder)), key=len, default=None)


def lies_in(uri: str, folder: str) -> bool:
    """True if a document is in a folder; the two URIs may be spelled differently."""
    if uri.startswith(folder + "/"):
        return True
    files = uri.startswith("file:") and folder.startswith("file:")
    return files and path_inside(file_path(uri), file_path(folder)) is not None


def system_path(path: str, windows: bool = IS_WINDOWS) -> str:
    """An absolute path of `file_path` for a system call: on Windows a long one needs a prefix."""
    return windows_names.extended(path) if windows else path
