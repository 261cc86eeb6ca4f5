"""A log in the user's log directory: private, of bounded size, a line for each record, without any source text."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from speclsp import config as settings
from speclsp.errors import shortened
from speclsp.private_files import open_plain, os_errors

MAX_BYTES = 5_000_000  # and as much again in the one before it
MAX_LINE = 2000
LANGUAGE_SERVER_LOG = "lsp.log"


class PrivateFile(RotatingFileHandler):
    """A log file that only this user can read."""

    def __init__(self, path: Path) -> None:
        self._reported = False  # that it cannot be written
        self._prints: tuple[int, ...] = ()  # the descriptors that write into the file as well
        super().__init__(path, maxBytes=MAX_BYTES, backupCount=1, encoding="utf-8", errors="backslashreplace")

    def _open(self) -> TextIOWrapper:
        handle = open_plain(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        if hasattr(os, "fchmod"):
            os.fchmod(handle, 0o600)
        for number in self._prints:
            os.dup2(handle, number)
        return os.fdopen(handle, "a", encoding="utf-8", errors="backslashreplace")

    def handleError(self, record: logging.LogRecord) -> None:  # logging's own name
        """Report a log that cannot be written once, on stderr; the process goes on."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            self._report(error)
        else:
            super().handleError(record)

    def _report(self, error: OSError) -> None:
        if not self._reported and sys.stderr is not None:
            self._reported = True
            with contextlib.suppress(OSError):
                why = os_errors.sentence(error, self.baseFilename, "be written")
                sys.stderr.write(f"speclsp: {why} It continues without a log.\n")

    def doRollover(self) -> None:  # logging's own name
        """Begin a new file. Raises OSError if that is impossible: then nothing is written, prints included.

        Windows renames no file that this or another process has open. Where another one has it, the file is emptied.
        """
        self._close_stream()
        try:
            with contextlib.suppress(FileNotFoundError):
                Path(self.baseFilename).replace(f"{self.baseFilename}.1")
        except OSError:
            if sys.platform != "win32":
                raise
            os.truncate(self.baseFilename, 0)
        self.stream = self._open()

    def _close_stream(self) -> None:
        """Close the file; until `_open` the prints are discarded."""
        if self._prints:
            null = os.open(os.devnull, os.O_WRONLY)
            for number in self._prints:
                os.dup2(null, number)
            os.close(null)
        if self.stream is not None:
            stream, self.stream = self.stream, None
            stream.close()

    def take_prints(self, stderr: bool = True) -> None:
        """Redirect this process's prints into the file, crash messages of C libraries included."""
        self._prints = (1, 2) if stderr else (1,)
        assert self.stream is not None
        for number in self._prints:
            os.dup2(self.stream.fileno(), number)

    def bound(self) -> None:
        """Begin a new file if prints have made this one too large. A failure is reported as that of a record."""
        self.acquire()
        try:
            if self.stream is not None and os.fstat(self.stream.fileno()).st_size > self.maxBytes:
                self.doRollover()
        except OSError as error:
            self._report(error)
        finally:
            self.release()


class OneLine(logging.Formatter):
    """Each record on one line of bounded length, with the process: several may share the file."""

    def format(self, record: logging.LogRecord) -> str:
        text = shortened(record.getMessage(), MAX_LINE)
        head = f"{self.formatTime(record)} {os.getpid()} {record.levelname.lower()}"
        return f"{head} {record.name.removeprefix('speclsp.')}: {text}"


def open_file(path: Path) -> PrivateFile | None:
    """The log at `path`, its directory made if missing; None when there can be none."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handler = PrivateFile(path)
        handler.setFormatter(OneLine())
        return handler
    return None


def open_language_server_log() -> Path | None:
    """Start the language server's log, lsp.log in the log directory; its path, or None when it cannot be written.

    Only our own loggers write to it, and the engine's output line by line. Libraries do not: their messages may quote
    documents.
    """
    logging.getLogger().addHandler(logging.NullHandler())  # nothing goes to stderr by default
    logger = logging.getLogger("speclsp")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(logging.NullHandler())
    path = settings.log_dir() / LANGUAGE_SERVER_LOG
    handler = open_file(path)
    if handler is None:
        return None
    logger.addHandler(handler)
    return path
