"""Positions to complete: FILE:LINE:COL, or the mark of an example, become a Snapshot."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from pathlib import Path

from speclsp.errors import InputError
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.syntax import grammars
from speclsp.private_files.os_errors import sentence

CURSOR = re.compile(r"[^\S\r\n]*# <cursor>")  # with the blanks before it; see `at_mark`


def read_text(path: Path, max_bytes: int) -> str:
    """A source file's text. Raises InputError for anything else."""
    try:
        if not path.exists():
            raise InputError(f"{path}: no such file.")
        if path.is_dir():
            raise InputError(f"{path} is a directory; name a file in it.")
        if not path.is_file():
            raise InputError(f"{path} is not a regular file.")
        size = path.stat().st_size
        if size > max_bytes:
            raise InputError(f"{path} has {size} bytes, more than context.max_file_bytes = {max_bytes}.")
        data = path.read_bytes()
    except OSError as error:
        raise InputError(sentence(error, path, "be read")) from error
    if b"\0" in data:
        raise InputError(f"{path} is a binary file (it holds a NUL byte); only text can be completed.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte {error.start} is 0x{data[error.start]:02x}).") from error


def snapshot_of(path: Path, text: str, cursor: int) -> Snapshot:
    """The snapshot of an editor that has `path` open with this text."""
    language = grammars.language_id(path.name)
    return Snapshot(uri=path.resolve().as_uri(), language=language, version=1, text=text, cursor=cursor)


def see_that_it_may_be_shown(path: Path) -> None:
    """Raise InputError for a file that holds secrets: no model may read one."""
    from speclsp.lsp.visibility import secret_files

    names = [path.absolute().as_posix()]
    with contextlib.suppress(OSError, ValueError):  # a name that no file can have: opening it reports that
        names.append(Path(os.path.realpath(path)).as_posix())  # a link's target; on Windows the long form of a name
    pattern = next(filter(None, map(secret_files.pattern_of, names)), "")
    if pattern:
        raise InputError(f"{path} is a kind of file that holds secrets ({pattern}); no model reads it.")


def at_position(spot: str, max_bytes: int) -> Snapshot:
    """The position FILE:LINE:COL; both count from 1, columns in characters. Raises InputError."""
    match = re.fullmatch(r"(?s)(.+?):(-?\d+):(-?\d+)", spot)
    if not match:
        raise InputError(f"{spot!r} is not a position: expected FILE:LINE:COL, as in src/app.py:12:5.")
    path, line, column = Path(match[1]), int(match[2][:12]), int(match[3][:12])
    if sys.platform == "win32" and ":" in path.name:  # `.env::$DATA` is another name of .env
        raise InputError(f"{path} is a stream of a file; name the file itself.")
    see_that_it_may_be_shown(path)
    text = read_text(path, max_bytes)
    return snapshot_of(path, text, offset(text, line, column, str(path)))


def offset(text: str, line: int, column: int, name: str) -> int:
    """The index of a position in `text`; both count from 1, columns in characters. Raises InputError."""
    lines = re.split(r"\r\n|\n|\r", text)
    if not 1 <= line <= len(lines):
        raise InputError(f"{name} has no line {line}: it has {len(lines)}, counted from 1.")
    last = len(lines[line - 1]) + 1
    if not 1 <= column <= last:
        raise InputError(f"line {line} of {name} has no column {column}: it has 1 to {last}, counted in characters.")
    starts = [0] + [end.end() for end in re.finditer(r"\r\n|\n|\r", text)]
    return starts[line - 1] + column - 1


def at_mark(path: Path, max_bytes: int) -> Snapshot:
    """The position of the comment `# <cursor>`, which is removed; the blanks before it stay. Raises InputError."""
    see_that_it_may_be_shown(path)
    text = read_text(path, max_bytes)
    mark = CURSOR.search(text)
    if mark is None:
        raise InputError(f"{path} has no `# <cursor>` mark; give a position as FILE:LINE:COL.")
    cursor = mark.end() - len("# <cursor>")
    return snapshot_of(path, text[:cursor] + text[mark.end() :], cursor)
