"""Index worker process, `python -m speclsp.lsp.index.worker`: keeps the index of one workspace folder up to date.

    server ──── lines of JSON on stdin ───►  scan the folder, parse what is new, write tables; then wait
                {"root", "database", "near", "disabled_globs", "crashed", "rules"}     the first message
                {"changed": [path, …]}  {"rebuild": true}  {"scan": …, "rules": number}

The process has the lowest priority, and any signal may end it: a damaged database is rebuilt. A grammar that crashes or
hangs ends only this process. The file being parsed is recorded first, and the next worker skips it. The worker ends
when its stdin does, and blocks while it has no work.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from speclsp.lsp.index import index_schema
from speclsp.lsp.index.process_limits import guard, lower_priority
from speclsp.lsp.index.writer import ImportReader, IndexWriter
from speclsp.private_files import locks

LOCK_RETRY_S = 2.0
MAX_LINE_BYTES = 8 << 20  # of a message from the server
MAX_CHANGED = 200  # files in one message; above it the whole folder is scanned

Inbox: TypeAlias = "queue.SimpleQueue[dict[str, Any]]"


def main(read_imports: ImportReader | None = None) -> NoReturn:
    """Execute the messages on stdin until it ends. Exit code 0: stdin ended; 3: no index is possible here."""
    inbox: Inbox = queue.SimpleQueue()
    first = parse_message(sys.stdin.buffer.readline(MAX_LINE_BYTES))
    if not first:
        os._exit(0)
    lower_priority()
    threading.Thread(target=read_messages, args=(inbox,), name="stdin", daemon=True).start()
    try:
        maintain(first, inbox, read_imports)
    except (OSError, sqlite3.Error) as error:  # a full disk, a cache that cannot be written
        report(error=type(error).__name__)
    os._exit(3)  # without a wait for the thread that reads


def maintain(first: dict[str, Any], inbox: Inbox, read_imports: ImportReader | None) -> None:
    """Build the index, and rebuild it when it is damaged. Never returns; an exception ends it."""
    database = Path(first["database"])
    index_schema.private_directory(database.parent)
    index_schema.remove_old(database.parent, database)
    lock = ScanLock(database.with_suffix(".lock"), inbox)
    crashed = bool(first.get("crashed"))
    while True:
        with IndexWriter(first["root"], database, first.get("disabled_globs", ()), None, read_imports, guard) as writer:
            with contextlib.suppress(OSError):
                os.utime(database)  # the time of its last use
            if crashed and lock.owned:
                writer.skip_suspect()
            crashed = False
            try:
                process_messages(writer, inbox, lock, first)
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError:  # damaged on the disk
                pass
        index_schema.remove_database(database)


def process_messages(writer: IndexWriter, inbox: Inbox, lock: ScanLock, first: dict[str, Any]) -> None:
    """Execute messages, and in between scan the folder, a file at a time. Returns when the index must be rebuilt."""
    near, rules, reported = str(first.get("near", "")), first.get("rules", 0), False
    scan: Iterator[None] | None = writer.steps(near) if lock.owned else None
    began_s = time.monotonic()
    while True:
        if scan is not None and inbox.empty():
            try:
                next(scan)
                if not reported:
                    reported = True
                    report(scanned_rules=rules)
            except StopIteration:
                scan = None
                report(parsed=writer.parsed, seconds=round(time.monotonic() - began_s, 3))
            continue
        message = inbox.get()  # blocks without waking
        changed = [path for path in message.get("changed", ()) if isinstance(path, str)]
        if message.get("rebuild"):
            return
        if "disabled_globs" in message and message["disabled_globs"] != list(writer.scan.disabled_globs):
            writer.scan.disabled_globs = tuple(message["disabled_globs"])
            message["scan"] = ""
        if "locked" in message or "scan" in message or len(changed) > MAX_CHANGED:
            rules, reported = message.get("rules", rules), False
            # Every scan starts near the same file: else the budget would leave out other files each time.
            scan, began_s = (writer.steps(near) if lock.owned else scan), time.monotonic()
            continue
        for path in changed:
            writer.update(path)


class ScanLock:
    """Lock file of one folder's scans: of the workers of several windows, only its owner scans the whole folder."""

    def __init__(self, path: Path, inbox: Inbox) -> None:
        self.owned = locks.acquire(path) is not None  # its handle stays open until this process ends
        if not self.owned:
            threading.Thread(target=self._wait, args=(path, inbox), name="scan-lock", daemon=True).start()

    def _wait(self, path: Path, inbox: Inbox) -> None:
        with contextlib.suppress(OSError):
            while locks.acquire(path) is None:  # until the other worker ends
                time.sleep(LOCK_RETRY_S)
            self.owned = True
            inbox.put({"locked": True})


def read_messages(inbox: Inbox) -> None:
    """Put the server's messages into `inbox`. The end of stdin ends this process at once."""
    while line := sys.stdin.buffer.readline(MAX_LINE_BYTES):
        message = parse_message(line)
        if message:
            inbox.put(message)
    os._exit(0)


def parse_message(line: bytes) -> dict[str, Any]:
    """The JSON object in a line; {} when the line is not one."""
    with contextlib.suppress(ValueError, RecursionError):
        message = json.loads(line)
        if isinstance(message, dict):
            return message
    return {}


def report(**facts: object) -> None:
    """Print numbers and names for the server's log, nothing of a file."""
    with contextlib.suppress(OSError, ValueError):
        print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
