"""engine.record: the last requests on disk, with their text, so that another session can replay them. Off by default.

JSON lines in the state directory, readable by this user alone, in two files of LARGEST_BYTES at most: the newer one
takes the older one's place in one step. A disk that is full or gone ends the recording, never a completion.
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
from speclsp.engine.http.replay import DeliveredCompletion
from speclsp.errors import SpeclspError

LARGEST_BYTES = 4 * 2**20  # and as much again in the one before it
WAITING = 64  # to be written; what comes when so many wait is not recorded

log = logging.getLogger("speclsp.engine")


def paths() -> tuple[Path, Path]:
    """The older file and the newer one. Raises SpeclspError: no home is known."""
    directory = config.users_dir("state")
    return directory / "recorded-1.jsonl", directory / "recorded.jsonl"


class Recorder:
    """Writes in a thread of its own: the engine's does not wait for a disk."""

    def __init__(self) -> None:
        self._waiting: queue.Queue[DeliveredCompletion] = queue.Queue(WAITING)
        self._ended = False
        threading.Thread(target=self._run, name="recording", daemon=True).start()

    def keep(self, one: DeliveredCompletion) -> None:
        """Have it written, soon."""
        if self._ended:  # nothing is held in memory for a file that will not come
            return
        try:
            self._waiting.put_nowait(one)
        except queue.Full:
            log.debug("not recorded: the disk is slow")

    def _run(self) -> None:
        try:
            while True:
                write(self._waiting.get())
        except (OSError, SpeclspError) as error:
            why = private_files.reason(error) if isinstance(error, OSError) else str(error)
            log.warning("requests are not recorded any more: %s", why)
            self._ended = True
            while not self._waiting.empty():
                self._waiting.get()


def write(one: DeliveredCompletion) -> None:
    """Add it to the newer file. Raises OSError, SpeclspError: something else is in the file's place."""
    older, newer = paths()
    newer.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    line = json.dumps(asdict(one), separators=(",", ":")).encode("ascii") + b"\n"  # a lone surrogate as its escape
    if len(line) > LARGEST_BYTES:
        return
    handle = os.open(newer, os.O_WRONLY | os.O_APPEND | os.O_CREAT | private_files.NO_LINK_FLAGS, 0o600)
    try:
        private_files.check_private(newer, os.fstat(handle))
        if os.fstat(handle).st_size + len(line) > LARGEST_BYTES:
            newer.replace(older)
            os.close(handle)
            handle = os.open(newer, os.O_WRONLY | os.O_APPEND | os.O_CREAT | private_files.NO_LINK_FLAGS, 0o600)
        os.write(handle, line)
    finally:
        os.close(handle)


def read(count: int) -> list[DeliveredCompletion]:
    """The last `count` that were recorded, the oldest of them first. Raises SpeclspError: they cannot be read."""
    found: list[DeliveredCompletion] = []
    for path in paths():
        try:
            handle = os.open(path, os.O_RDONLY | private_files.NO_LINK_FLAGS)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise SpeclspError(f"{path} cannot be read: {private_files.reason(error)}.") from error
        with os.fdopen(handle, "rb") as file:
            private_files.check_private(path, os.fstat(handle))
            found += given(file.read(2 * LARGEST_BYTES))
    return found[-count:] if count > 0 else []


def given(data: bytes) -> Iterator[DeliveredCompletion]:
    """Each line that is one; what a full disk or another version left is passed over."""
    for line in data.split(b"\n"):
        try:
            told = json.loads(line)
            asked = told.pop("request")
            extra = tuple(Extra(**one) for one in asked.pop("extra"))
            asked |= {name: tuple(asked.get(name, ())) for name in ("stop", "sources", "begin")}
            for name in ("tokens", "made_by"):
                told[name] = tuple(told[name])
            yield DeliveredCompletion(request=Request(**asked, extra=extra), **told)
        except (ValueError, LookupError, TypeError, AttributeError):
            continue


def forget() -> int:
    """Delete all that was recorded; how many bytes that was. Raises SpeclspError."""
    size = 0
    for path in paths():
        try:
            size += path.lstat().st_size
            path.unlink()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise SpeclspError(f"{path} cannot be deleted: {private_files.reason(error)}.") from error
    return size
