"""Reader of untrusted files: regular ones only, of bounded size, and JSON that fits in little memory.

A model's directory may contain anything. A named pipe blocks its reader for ever, a device sends bytes without end, a
link leads elsewhere, and a few megabytes of brackets become a gigabyte of objects. An error message is the end of a
sentence that begins with the file's name.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from speclsp import private_files
from speclsp.private_files import os_errors

MAX_ENTRIES = 3_000_000  # of all lists and objects together; the largest real tokenizer.json has 1.8 million
CONFIG_BYTES = 1 << 20
TOKENIZER_BYTES = 48 << 20  # real ones have 2 to 33 MB
KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class Unreadable(Exception):
    """str() continues a sentence after the file's name: "is a named pipe, not a plain file".

    `fix`: the way out where the file is whole and the system cannot read it, as with missing rights; else "".
    `path`: of the file, where `open_plain` or a read of it failed.
    """

    def __init__(self, problem: str, fix: str = "", path: Path | None = None) -> None:
        super().__init__(problem)
        self.fix, self.path = fix, path


def unreadable(error: OSError, path: Path) -> Unreadable:
    """The error for a file that the system cannot read."""
    fix = "" if error.errno == errno.ENOENT else os_errors.way_out(error, path)
    return Unreadable(f"cannot be read ({os_errors.reason(error)})", fix, path)


def open_plain(path: Path) -> BinaryIO:
    """A plain file, open for reading. Raises Unreadable: it is none, cannot be read, or is a link to another place."""
    try:
        if path.is_symlink():
            check_link(path)
        kind = stat.S_IFMT(path.stat().st_mode)
        if kind != stat.S_IFREG:
            raise Unreadable(f"is {KINDS.get(kind, 'something else')}, not a plain file", path=path)
        return os.fdopen(private_files.open_plain(path, os.O_RDONLY), "rb")  # it may be another one by now
    except OSError as error:
        raise unreadable(error, path) from None


def check_link(path: Path) -> None:
    """Raises Unreadable unless the link stays in its directory; the hub's cache may link to its blobs."""
    directory, target = path.parent.resolve(), path.resolve()
    blobs = directory.parent.parent / "blobs"
    if target.is_relative_to(directory) or (directory.parent.name == "snapshots" and target.parent == blobs):
        if not target.exists():
            raise Unreadable(f"is a link to {target}, which does not exist", path=path)
        return
    fix = "copy the file itself there, or link the whole directory"
    raise Unreadable(f"is a link out of its directory, to {target}, and is not followed: {fix}", path=path)


def read_plain(path: Path, most_bytes: int) -> bytes:
    """All of a plain file. Raises Unreadable."""
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most_bytes:
            raise Unreadable(f"has {size} bytes; the limit is {most_bytes}")
        try:
            return file.read(most_bytes + 1)
        except OSError as error:
            raise unreadable(error, path) from None


def read_json(path: Path, most_bytes: int) -> dict[str, Any]:
    """The object in a JSON file. Raises Unreadable."""
    return object_of(read_plain(path, most_bytes))


def object_of(data: bytes) -> dict[str, Any]:
    """The object that JSON text holds. Raises Unreadable."""
    if problem := not_itself(data[:64]):
        raise Unreadable(problem)
    if data.count(b",") + data.count(b"[") + data.count(b"{") > MAX_ENTRIES:
        raise Unreadable(f"has more than {MAX_ENTRIES} entries")
    try:
        content = json.loads(data)
    except RecursionError:
        raise Unreadable("is nested too deeply") from None
    except ValueError as error:
        raise Unreadable(f"is not JSON ({error})") from None
    if not isinstance(content, dict):
        raise Unreadable(f"holds a {type(content).__name__} where a JSON object is needed")
    return content


def not_itself(start: bytes) -> str:
    """The kind of a file that only stands for another (a web page, an LFS pointer), by its beginning; "" otherwise."""
    if not start:
        return "is empty (0 bytes)"
    if start.lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        return "is a web page, not the file itself"
    if start.startswith(b"version https://git-lfs"):
        return "is a Git LFS pointer, not the file itself (`git lfs pull` downloads it)"
    return ""
