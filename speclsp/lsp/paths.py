"""Where a document lies, from the URI that the editor gave it."""

from __future__ import annotations

import posixpath
import re
from urllib.parse import unquote, urlsplit


def file_path(uri: str) -> str:
    """A file URI or a path, with forward slashes and without `..`."""
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
