r"""Windows' names of files: prefixes of long paths, short names, streams, and names of devices.

"Naming Files, Paths, and Namespaces" and "File path formats on Windows systems", learn.microsoft.com.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable

IS_WINDOWS = sys.platform == "win32"
MAX_PLAIN_PATH = 247  # characters; a longer path of a directory needs the prefix \\?\ where LongPathsEnabled is off
NOT_HERE = 0x1000 | 0x40000 | 0x400000  # FILE_ATTRIBUTE_OFFLINE, _RECALL_ON_OPEN, _RECALL_ON_DATA_ACCESS
NAME_SURROGATE = 0x20000000  # bit of a reparse tag: the entry stands for another one, as links and junctions do

_PREFIX = re.compile(r"//[?.]/(?:(UNC)/|(?=[A-Za-z]:))", re.IGNORECASE)
_STREAM = re.compile(r"(?<=/)([^/:]+):[^/]*")  # name:stream:$TYPE
_TRAILING = re.compile(r"(?<=[^/. ])[. ]+(?=/|\Z)")  # Windows drops them
_SHORT_NAME = re.compile(r"/[^/.]{1,6}~[0-9a-z]{1,4}(?:\.[^/.]{0,3})?(?=/|\Z)", re.IGNORECASE)  # PROGRA~1
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$) *(?:[.:].*)?\Z", re.IGNORECASE)


def normalized(path: str) -> str:
    """An absolute path with forward slashes, in the spelling that all names of one file share, except for case."""
    head = re.match(r"//[^/]*|[A-Za-z]:", path)
    end = head.end() if head else 0
    below = _TRAILING.sub("", _STREAM.sub(r"\1", path[end:]))
    path = path[:end] + below
    return long_names(path) if _SHORT_NAME.search(below) else path


def without_prefix(path: str) -> str:
    r"""A path with forward slashes, without the prefix \\?\ of long paths."""
    prefix = _PREFIX.match(path)
    return ("//" if prefix[1] else "") + path[prefix.end() :] if prefix else path


def extended(path: str) -> str:
    r"""An absolute path, with the prefix \\?\ if it is so long that Windows requires it. It has no `..`."""
    if len(path) <= MAX_PLAIN_PATH or path.startswith("\\\\?\\"):
        return path
    path = path.replace("/", "\\")
    return "\\\\?\\UNC" + path[1:] if path.startswith("\\\\") else "\\\\?\\" + path


def real_path(path: str, windows: bool = IS_WINDOWS, realpath: Callable[[str], str] = os.path.realpath) -> str:
    """The real path with forward slashes, without a prefix, and without a slash at its end. Raises OSError, ValueError.

    The root of a drive is "D:", and that of POSIX is "".
    """
    real = realpath(extended(path) if windows else path)
    return (without_prefix(real.replace("\\", "/")) if windows else real).rstrip("/")


def real_folder(folder: str, windows: bool = IS_WINDOWS, realpath: Callable[[str], str] = os.path.realpath) -> str:
    """`real_path` of a folder. For "d:" that is the drive's root: without a slash it is D's current directory."""
    return real_path(f"{folder}/", windows, realpath)


def is_reserved(name: str) -> bool:
    """True for a name of a device, as "nul.txt". Windows 10 opens the device in any directory."""
    return _RESERVED.match(name) is not None


def is_link(info: os.stat_result) -> bool:
    """True if `os.lstat` met a symbolic link, a junction or a mounted folder."""
    return stat.S_ISLNK(info.st_mode) or bool(getattr(info, "st_reparse_tag", 0) & NAME_SURROGATE)


def is_placeholder(info: os.stat_result) -> bool:
    """True for a file of OneDrive and the like whose content is not on this machine: reading would fetch it."""
    return bool(getattr(info, "st_file_attributes", 0) & NOT_HERE)


def long_names(path: str) -> str:
    """The path with each short name replaced; a name that does not exist stays. Only Windows knows them."""
    if sys.platform == "win32":
        import ctypes

        above, _, name = path.rpartition("/")
        long_path = ctypes.create_unicode_buffer(32_768)
        if ctypes.windll.kernel32.GetLongPathNameW(extended(path), long_path, len(long_path)):
            return without_prefix(long_path.value.replace("\\", "/"))
        if _SHORT_NAME.search(above):  # a file that is not saved yet
            return f"{long_names(above)}/{name}"
    return path
