"""Index worker process, `python -m speclsp.lsp.index.worker`: keeps the index of one workspace folder up to date.

    server ──── lines of JSON on stdin ───►  walk the folder, outline what is new, write tables; then wait
                {"root", "database", "near", "disabled_globs", "crashed", "rules"}     the first one
                {"changed": [path, …]}  {"text": …, "path": …}  {"again": true}  {"scan": …, "rules": which}

It has the lowest priority and may be killed at any moment: a damaged database is built again. A grammar that
crashes or hangs ends only this process. The file being parsed is recorded first, and the next worker skips it. The
worker ends when its stdin does, and blocks while it has no work.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import queue
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from speclsp.lsp.index import index_schema
from speclsp.lsp.index.writer import IndexWriter, Outliner

MOST_MEMORY_BYTES = 2 << 30
MOST_LINE_BYTES = 8 << 20  # of what the server says
MOST_CHANGED = 200  # at once: more is a reason to look at all of it


def main(outliner: Outliner | None = None) -> NoReturn:
    """Execute the messages on stdin until it ends. Exit code 0: stdin ended; 3: no index is possible here."""
    inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    first = parse_message(sys.stdin.buffer.readline(MOST_LINE_BYTES))
    if not first:
        os._exit(0)
    humble()
    threading.Thread(target=listen, args=(inbox,), name="stdin", daemon=True).start()
    try:
        work(first, inbox, outliner)
    except (OSError, sqlite3.Error) as error:  # a full disk, a cache that cannot be written
        report(trouble=type(error).__name__)
    os._exit(3)  # the thread that reads is not waited for


def work(first: dict[str, Any], inbox: queue.SimpleQueue[dict[str, Any]], outliner: Outliner | None) -> None:
    """Never returns but by an exception; the thread that reads stdin ends the process."""
    database = Path(first["database"])
    index_schema.private_directory(database.parent)
    index_schema.remove_old(database.parent, database)
    turn = Turn(database.with_suffix(".lock"), inbox)
    crashed = bool(first.get("crashed"))
    while True:
        with IndexWriter(first["root"], database, first.get("disabled_globs", ()), None, outliner, guard) as keeper:
            with contextlib.suppress(OSError):
                os.utime(database)  # it is in use
            if crashed and turn.ours:
                keeper.blame()
            crashed = False
            try:
                follow(keeper, inbox, turn, first)
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError:  # broken on the disk
                pass
        index_schema.throw_away(database)


def follow(keeper: IndexWriter, inbox: queue.SimpleQueue[dict[str, Any]], turn: Turn, first: dict[str, Any]) -> None:
    """Do what comes, and in between bring all of it up to date, a file at a time. Returns to have it made anew."""
    near, rules, looked = str(first.get("near", "")), first.get("rules", 0), False
    scan: Iterator[None] | None = keeper.steps(near) if turn.ours else None
    began_s = time.monotonic()
    while True:
        if scan is not None and inbox.empty():
            try:
                next(scan)
                if not looked:
                    looked = True
                    report(looked=rules)
            except StopIteration:
                scan = None
                report(outlined=keeper.outlined, seconds=round(time.monotonic() - began_s, 3))
            continue
        message = inbox.get()  # without waking until there is one
        changed = [path for path in message.get("changed", ()) if isinstance(path, str)]
        if message.get("again"):
            return
        if "text" in message:
            keeper.unsaved(str(message.get("path", "")), str(message["text"]))
        if "disabled_globs" in message and message["disabled_globs"] != list(keeper.walk.disabled_globs):
            keeper.walk.disabled_globs = tuple(message["disabled_globs"])
            message["scan"] = ""
        if "turn" in message or "scan" in message or len(changed) > MOST_CHANGED:
            rules, looked = message.get("rules", rules), False
            # From where it was first: else those that a budget leaves out would be others with each look.
            scan, began_s = (keeper.steps(near) if turn.ours else scan), time.monotonic()
            continue
        for path in changed:
            keeper.update(path)


class Turn:
    """Of the processes for two windows on one folder, one looks at all of it: whether it is this one."""

    def __init__(self, path: Path, inbox: queue.SimpleQueue[dict[str, Any]]) -> None:
        self.ours = True
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            import fcntl
        except ImportError:  # Windows: both look
            return
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.ours = False
            threading.Thread(target=self._wait, args=(inbox,), name="turn", daemon=True).start()

    def _wait(self, inbox: queue.SimpleQueue[dict[str, Any]]) -> None:
        import fcntl

        with contextlib.suppress(OSError):
            fcntl.flock(self._handle, fcntl.LOCK_EX)  # until the other one has ended
            self.ours = True
            inbox.put({"turn": True})


def listen(inbox: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Put the server's messages into `inbox`. The end of stdin ends this process at once."""
    while line := sys.stdin.buffer.readline(MOST_LINE_BYTES):
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
    """Numbers and names for the server's log; nothing of a file."""
    with contextlib.suppress(OSError, ValueError):
        print(json.dumps(facts), flush=True)


def humble() -> None:
    """Nice 19, idle I/O class, and an address space of `MOST_MEMORY_BYTES`."""
    for group in (lambda: os.nice(19), lambda: Path("/proc/self/autogroup").write_text("19"), idle_disk, limit_memory):
        with contextlib.suppress(Exception):  # no system has all of them
            group()


def idle_disk() -> None:
    """Linux's lowest class for the disk."""
    import ctypes
    import platform

    number = {"x86_64": 251, "aarch64": 30}[platform.machine()] if sys.platform == "linux" else 0
    ctypes.CDLL(None).syscall(number, 1, 0, 3 << 13) if number else None


def limit_memory() -> None:
    """Limit the address space, so that a grammar without bounds ends this process and not others."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def guard(seconds: float) -> None:
    """End this process after `seconds` more of processor time, even inside C code; 0 cancels the limit."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)  # processor time: a busy machine must not end the worker
    elif seconds:
        faulthandler.dump_traceback_later(3 * seconds, exit=True, file=Path(os.devnull).open("w"))  # noqa: SIM115
    else:
        faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
