"""The language server's log: a private file of bounded size in the user's log directory, without any source text.

Only our own modules write to it, and the engine, line by line. Libraries do not: their messages may quote documents.
"""

from __future__ import annotations

import contextlib
import logging
import os
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from speclsp import config as settings

NAME = "lsp.log"
LARGEST_BYTES = 5_000_000  # and as much again in the one before it
START_NEW_BYTES = 1_000_000  # a server that starts leaves a log of this size behind
LONGEST_LINE = 2000


class PrivateFile(RotatingFileHandler):
    """A log file that only this user can read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=LARGEST_BYTES, backupCount=1, encoding="utf-8", errors="backslashreplace")

    def _open(self) -> TextIOWrapper:
        handle = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.fchmod(handle, 0o600)
        return os.fdopen(handle, "a", encoding="utf-8", errors="backslashreplace")


class OneLine(logging.Formatter):
    """Each record on one line of bounded length, with the process: several editors share the file."""

    def format(self, record: logging.LogRecord) -> str:
        text = " ".join(record.getMessage().splitlines())[:LONGEST_LINE]
        head = f"{self.formatTime(record)} {os.getpid()} {record.levelname.lower()}"
        return f"{head} {record.name.removeprefix('speclsp.')}: {text}"


def open_log() -> Path | None:
    """Begin to log; the file, or None when there can be none."""
    logging.getLogger().addHandler(logging.NullHandler())  # nothing goes to stderr by default
    ours = logging.getLogger("speclsp")
    ours.setLevel(logging.INFO)
    ours.propagate = False
    ours.addHandler(logging.NullHandler())
    path = settings.log_dir() / NAME
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > START_NEW_BYTES:
            path.replace(path.with_name(NAME + ".1"))
        handler = PrivateFile(path)
        handler.setFormatter(OneLine())
        ours.addHandler(handler)
        return path
    return None
