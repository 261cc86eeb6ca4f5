"""Recorder of requests (engine.record_requests): the last requests on disk, with their text. Off by default.

JSON lines in the state directory, readable by this user only, in two files of at most MAX_FILE_BYTES: the newer one
replaces the older one in one step. A full or missing disk ends the recording, never a completion.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from speclsp import config, private_files
from speclsp.engine.api import Extra, Request
from speclsp.engine.http.request_log import DeliveredCompletion
from speclsp.errors import SpeclspError

MAX_FILE_BYTES = 4 * 2**20  # and as much again in the older file
MAX_WAITING = 64  # entries to be written; further ones are not recorded

log = logging.getLogger("speclsp.engine")


def paths() -> tuple[Path, Path]:
    """The older file and the newer one. Raises SpeclspError when the state directory is not known."""
    directory = config.state_dir()
    return directory / "recorded-1.jsonl", directory / "recorded.jsonl"


class Recorder:
    """Writes in a thread of its own: the engine's thread does not wait for a disk."""

    def __init__(self) -> None:
        self._waiting: queue.Queue[DeliveredCompletion] = queue.Queue(MAX_WAITING)
        self._ended = False
        threading.Thread(target=self._run, name="recording", daemon=True).start()

    def add(self, entry: DeliveredCompletion) -> None:
        """Write the entry soon."""
        if self._ended:  # hold nothing in memory for a file that cannot be written
            return
        try:
            self._waiting.put_nowait(entry)
        except queue.Full:
            log.debug("not recorded: the disk is slow")

    def _run(self) -> None:
        try:
            while True:
                write(self._waiting.get())
        except (OSError, SpeclspError) as error:
            why = private_files.reason(error) if isinstance(error, OSError) else str(error)
            log.warning("stopped recording requests: %s", why)
            self._ended = True
            while not self._waiting.empty():
                self._waiting.get()


def write(entry: DeliveredCompletion) -> None:
    """Append the entry to the newer file. Raises OSError, and SpeclspError when the path is not our plain file."""
    older, newer = paths()
    newer.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    line = json.dumps(asdict(entry), separators=(",", ":")).encode("ascii") + b"\n"  # a lone surrogate as its escape
    if len(line) > MAX_FILE_BYTES:
        return
    handle = open_for_append(newer)
    try:
        private_files.check_private(newer, os.fstat(handle))
        if os.fstat(handle).st_size + len(line) > MAX_FILE_BYTES:
            newer.replace(older)
            os.close(handle)
            handle = open_for_append(newer)
        os.write(handle, line)
    finally:
        os.close(handle)


def open_for_append(path: Path) -> int:
    """A handle that appends to the file at `path`, created 0600 if missing. Raises OSError."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | private_files.NO_LINK_FLAGS, 0o600)


def read(count: int) -> list[DeliveredCompletion]:
    """The last `count` recorded entries, the oldest of them first. Raises SpeclspError when they cannot be read."""
    entries: list[DeliveredCompletion] = []
    for path in paths():
        try:
            handle = os.open(path, os.O_RDONLY | private_files.NO_LINK_FLAGS)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise SpeclspError(f"{path} cannot be read: {private_files.reason(error)}.") from error
        with os.fdopen(handle, "rb") as file:
            private_files.check_private(path, os.fstat(handle))
            entries += parse(file.read(2 * MAX_FILE_BYTES))
    return entries[-count:] if count > 0 else []


def parse(data: bytes) -> Iterator[DeliveredCompletion]:
    """The entry of each line; lines left by a full disk or another version are skipped."""
    for line in data.split(b"\n"):
        try:
            fields = json.loads(line)
            request = fields.pop("request")
            extra = tuple(Extra(**item) for item in request.pop("extra"))
            request |= {name: tuple(request.get(name, ())) for name in ("stop", "sources", "begin")}
            for name in ("tokens", "made_by"):
                fields[name] = tuple(fields[name])
            yield DeliveredCompletion(request=Request(**request, extra=extra), **fields)
        except (ValueError, LookupError, TypeError, AttributeError):
            continue


def delete_all() -> int:
    """Delete all recorded requests; returns their size in bytes. Raises SpeclspError."""
    size_bytes = 0
    for path in paths():
        try:
            size_bytes += path.lstat().st_size
            path.unlink()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise SpeclspError(f"{path} cannot be deleted: {private_files.reason(error)}.") from error
    return size_bytes
