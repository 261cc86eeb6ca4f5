"""File paths of document URIs."""

from __future__ import annotations

import posixpath
import re
from functools import lru_cache
from urllib.parse import unquote, urlsplit

_MAX_CACHED = 1024  # characters of a URI whose path is cached


def file_path(uri: str) -> str:
    """A file URI or a path, with forward slashes and without `..`."""
    return _file_path(uri) if len(uri) <= _MAX_CACHED else _file_path.__wrapped__(uri)


@lru_cache(maxsize=1024)  # each keystroke converts the same few URIs several times
def _file_path(uri: str) -> str:
    try:
        parts = urlsplit(uri)
    except ValueError:
        parts = urlsplit("")
    path = unquote(parts.path, errors="replace") if len(parts.scheme) > 1 else uri
    path = path.replace("\\", "/")
    if re.match(r"/?[A-Za-z]:", path):  # a Windows drive, in either case
        path = path.lstrip("/")
        path = path[0].lower() + path[1:]
    return posixpath.normpath(path) if path else ""
