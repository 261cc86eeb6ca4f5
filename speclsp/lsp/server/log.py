"""The language server's log: a private file of bounded size in the user's log directory, without any source text.

Only our own modules write to it, and the engine, line by line. Libraries do not: their messages may quote documents.
"""

from __future__ import annotations

import logging
from pathlib import Path

from speclsp import config as settings
from speclsp.observability import logfile

NAME = "lsp.log"


def open_log() -> Path | None:
    """Begin to log; the file, or None when there can be none."""
    logging.getLogger().addHandler(logging.NullHandler())  # nothing goes to stderr by default
    ours = logging.getLogger("speclsp")
    ours.setLevel(logging.INFO)
    ours.propagate = False
    ours.addHandler(logging.NullHandler())
    path = settings.log_dir() / NAME
    handler = logfile.open_file(path)
    if handler is None:
        return None
    ours.addHandler(handler)
    return path
