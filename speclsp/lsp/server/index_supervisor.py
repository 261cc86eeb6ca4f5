"""The processes that keep the indexes, one for each workspace folder, and what they are told.

A process is started when the first document of its folder is open and the editor has had a moment to itself. It is told
what was saved, renamed or deleted, and what a document says that was not saved yet, when its typist pauses. It ends
when its stdin closes: with us, however we end. One that crashes is started again without the file that it was at.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from speclsp import config as settings
from speclsp.config import Config
from speclsp.daemon.launch import environment
from speclsp.lsp.context.warm_up import IndexWarmUp
from speclsp.lsp.documents.uri_paths import file_path
from speclsp.lsp.index.file_cache import MOST_BYTES
from speclsp.lsp.index.reader import IndexReader
from speclsp.lsp.server import request_context
from speclsp.lsp.visibility.eligibility import glob_off
from speclsp.lsp.visibility.ignore_files import UNREAD

if TYPE_CHECKING:
    from speclsp.lsp.server.server import CompletionServer

COMMAND = (sys.executable, "-m", "speclsp.lsp.index.worker")
START_S = 1.0  # after the first document was opened: the engine goes first
RESCAN_SHARE = 30  # and no sooner than after so many times as long as the last look took
PAUSE_S = 1.5  # in typing, after which the index is told what a document says
CHANGES_S = 0.5  # after which the index has what it was told
RESCAN_S = 120.0  # after which a save is a reason to look for changes that nobody told of
MOST_FOLDERS = 4
MOST_CRASHES = 8
MOST_NEWS = 1000  # files changed at once: all is looked at instead
MOST_WAITING = 500  # messages: a process that hangs does not read them
AGAIN_S = 10.0  # between two times that a broken index is made anew
NO_INDEX_HERE = 3  # its exit code: a full disk, a cache that cannot be written

log = logging.getLogger("speclsp.index")


class IndexSupervisor:
    """All folders' indexes, of one editor."""

    def __init__(self, ls: CompletionServer, command: Sequence[str] = COMMAND) -> None:
        self.command = tuple(command)
        self.ls = ls
        self._folders: dict[str, IndexedFolder] = {}
        self._typed: dict[str, str] = {}  # URI -> its folder, since the last pause
        self._pause: asyncio.TimerHandle | None = None
        self._edited_s = 0.0

    @property
    def globs_off(self) -> tuple[str, ...]:
        """Patterns of files that are not indexed."""
        return self.ls.config.completion.globs_off

    def index(self, root: str | None) -> IndexReader | None:
        """The index of the folder with this URI, as far as it has got."""
        folder = self._folders.get(root or "")
        return folder.index if folder is not None else None

    def opened(self, uri: str) -> None:
        """A document is open."""
        root = request_context.root(self.ls, uri)
        on = self.ls.config.context.index and self.ls.config.completion.enabled
        if on and root and root not in self._folders and is_local(root) and len(self._folders) < MOST_FOLDERS:
            folder = self._folders[root] = IndexedFolder(root, self)
            folder.begin(inside(uri, root))
        if on and root in self._folders and root is not None:
            self._soon(self._folders[root], uri, root, 0)

    def changed(self, uri: str) -> None:
        """A document is being edited."""
        root = request_context.root(self.ls, uri)
        if root in self._folders and root is not None:
            self._typed[uri] = root
            self._edited_s = time.monotonic()
            if self._pause is None:
                self._pause = asyncio.get_running_loop().call_later(PAUSE_S, self._paused)

    def saved(self, uri: str) -> None:
        """A document was written to the disk, or closed."""
        root = request_context.root(self.ls, uri)
        folder = self._folders.get(root or "")
        self._typed.pop(uri, None)
        if folder is not None and root is not None:
            folder.saved(inside(uri, root))
            self._soon(folder, uri, root)

    def files_changed(self, uris: Sequence[str]) -> None:
        """Files were made, written, renamed or deleted, says the editor."""
        by_root: dict[str, list[str]] = {}
        for uri in uris[:MOST_NEWS]:
            root = request_context.root(self.ls, uri)
            if root in self._folders and root is not None:
                by_root.setdefault(root, []).append(inside(uri, root))
        for root, paths in by_root.items():
            self._folders[root].changed(paths, many=len(uris) >= MOST_NEWS)

    def folders_changed(self) -> None:
        """The workspace has other folders: what is no folder any more needs no process."""
        there = request_context.folders(self.ls)
        for root in [root for root in self._folders if root not in there]:
            self._folders.pop(root).end()
        for document in self.ls.documents:  # in a folder that was added, or in the one around it
            self.opened(document.uri)

    def hides(self, path: str, root: str, looked: bool) -> bool:
        """Whether nothing of a file may be shown; asked of every file of which something would be.

        `looked`: its process has been through the folder since the rules were changed. Then a file whose own have not
        been read yet may be shown, but not to a server elsewhere.
        """
        if glob_off(path, self.ls.config, root):
            return True
        verdict, backend = self.ls.ignored.of(path, root), self.ls.backend
        if verdict is UNREAD:
            return not looked or (backend is not None and bool(backend.status.remote))
        return bool(verdict.no_context)

    def take(self, config: Config) -> None:
        """New settings."""
        if not (config.context.index and config.completion.enabled):
            self._end_all()
            return
        for document in self.ls.documents:
            self.opened(document.uri)
        for folder in self._folders.values():
            folder.tell({"globs_off": self.globs_off})

    def end(self) -> None:
        """Leave no process behind."""
        if self._pause is not None:
            self._pause.cancel()
        self._end_all()

    def _soon(self, folder: IndexedFolder, uri: str, root: str, wait_s: float = CHANGES_S) -> None:
        """Ask what a look around the document will ask, once the index has changed."""
        if self.ls.config.context.extra_tokens > 0:
            asyncio.get_running_loop().call_later(wait_s, folder.beforehand.want, inside(uri, root))

    def _end_all(self) -> None:
        for folder in self._folders.values():
            folder.end()
        self._folders.clear()

    def _paused(self) -> None:
        """Tell what was typed, unless typing goes on."""
        self._pause = None
        left_s = self._edited_s + PAUSE_S - time.monotonic()
        if left_s > 0.05:
            self._pause = asyncio.get_running_loop().call_later(left_s, self._paused)
            return
        typed, self._typed = self._typed, {}
        for uri, root in typed.items():
            folder, document = self._folders.get(root), self.ls.documents.get(uri)
            if folder is not None and document is not None and not request_context.is_too_large(self.ls, document):
                text = document.text
                if len(text) <= MOST_BYTES:
                    folder.tell({"path": inside(uri, root), "text": text})
                    self._soon(folder, uri, root)


def attach(ls: CompletionServer) -> None:
    """Begin with what is open."""
    ls.indexing = IndexSupervisor(ls)
    assert ls.session is not None
    ls.session.pipeline.index_of = ls.indexing.index
    for document in ls.documents:
        ls.indexing.opened(document.uri)


class IndexedFolder:
    """One folder's index and the process that keeps it."""

    def __init__(self, root: str, indexing: IndexSupervisor) -> None:
        self.path = file_path(root).rstrip("/")
        self.index = IndexReader(
            self.path, hidden=lambda path: indexing.hides(f"{self.path}/{path}", root, self.looked)
        )
        self.index.broken = self._make_again
        self.index.stale = lambda path: self.tell({"changed": [path]})
        self._indexing = indexing
        self._near = ""
        self._loop = asyncio.get_running_loop()
        self.beforehand = IndexWarmUp(self.index, self._loop.call_later)
        self.index.hurried = self.beforehand.want
        self._start: asyncio.TimerHandle | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._inbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._crashes = 0
        self._scanned_s = 0.0
        self._rescan_s = RESCAN_S
        self._rules = 0  # times that the ignore files changed
        self._looked = -1  # which of these the process has seen
        self._again_s = -AGAIN_S
        self._ended = False

    @property
    def looked(self) -> bool:
        """Whether the process has been through the folder, and what is ignored by now is in the index no more."""
        return self._looked == self._rules

    def begin(self, near: str) -> None:
        """Start it soon."""
        self._near = near
        self._start = self._loop.call_later(START_S, self._run, False)

    def saved(self, path: str) -> None:
        """A file was written; now and then a reason to look at all of them."""
        self.changed([path], many=time.monotonic() - self._scanned_s > self._rescan_s)

    def changed(self, paths: list[str], many: bool) -> None:
        """Files are not as they were; `many`: others may be, too."""
        self.tell({"changed": paths})
        rules = any(path.rpartition("/")[2].startswith(".") for path in paths)  # .gitignore and its like
        self._rules += rules
        if many or rules:
            self._scanned_s = time.monotonic()
            self.tell({"scan": paths[0], "rules": self._rules})

    def tell(self, message: dict[str, object]) -> None:
        """Let it know; never waits."""
        if self._process is not None and self._inbox.qsize() < MOST_WAITING:
            self._inbox.put(json.dumps(message).encode("utf-8", "replace") + b"\n")

    def end(self) -> None:
        """Close its stdin, and see it gone."""
        self._ended = True
        self.beforehand.end()
        if self._start is not None:
            self._start.cancel()
        self.index.close()
        process, self._process = self._process, None
        self._inbox.put(None)
        if process is not None:
            process.kill()  # it may be killed at any moment
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1.0)

    def _make_again(self) -> None:
        """The index is broken. That is found again with every question until there is another."""
        if time.monotonic() - self._again_s >= AGAIN_S:
            self._again_s = time.monotonic()
            self.tell({"again": True})

    def _run(self, crashed: bool) -> None:
        """Start the process."""
        if self._ended:
            return
        first = {
            "rules": self._rules,
            "root": self.path,
            "database": str(self.index.database),
            "near": self._near,
            "globs_off": self._indexing.globs_off,
            "crashed": crashed,
        }
        self._scanned_s = time.monotonic()
        self._inbox = queue.SimpleQueue()
        self._inbox.put(json.dumps(first).encode("utf-8", "replace") + b"\n")
        threading.Thread(target=self._serve, args=(self._inbox,), name="index-words", daemon=True).start()

    def _serve(self, inbox: queue.SimpleQueue[bytes | None]) -> None:
        """Start it and write what it is told, in a thread: a disk that hangs holds up nobody else."""
        nowhere = settings.cache_dir()
        try:
            if not Path(f"{self.path}/").is_dir():
                return
            if is_too_wide(self.path):
                log.info("no index: the workspace folder is the home directory, or one that it lies in")
                return
            nowhere.mkdir(parents=True, exist_ok=True)
            process = subprocess.Popen(
                self._indexing.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=nowhere,  # -m looks for modules in the working directory: never in the user's project
                env=environment(nowhere),
                start_new_session=True,
                creationflags=getattr(subprocess, "IDLE_PRIORITY_CLASS", 0),
                bufsize=0,
            )
        except OSError as error:
            log.warning("no index: its process cannot be started (%s)", type(error).__name__)
            return
        self._process = process
        if self._ended:
            process.kill()
        threading.Thread(target=self._read, args=(process, inbox), name="index-output", daemon=True).start()
        write(process, inbox)

    def _read(self, process: subprocess.Popen[bytes], inbox: queue.SimpleQueue[bytes | None]) -> None:
        """Log what it reports; then see how it ended. In a thread."""
        assert process.stdout is not None
        with process.stdout as stream:
            while line := stream.readline(1000):
                log.info("index: %s", line.decode("utf-8", "replace").strip())
                self._hear(line)
        code = process.wait()
        inbox.put(None)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._gone, process, code)

    def _hear(self, line: bytes) -> None:
        with contextlib.suppress(ValueError, TypeError, LookupError):  # not all of it is for us
            told = json.loads(line)
            self._looked = int(told.get("looked", self._looked))
            self._rescan_s = max(RESCAN_S, RESCAN_SHARE * float(told["seconds"]))

    def _gone(self, process: subprocess.Popen[bytes], code: int) -> None:
        if self._ended or process is not self._process:
            return
        self._process = None
        self._crashes += 1
        if code in (0, NO_INDEX_HERE) or self._crashes > MOST_CRASHES:
            log.warning("no index any more: its process ended with %d", code)
            return
        log.warning("the index's process ended with %d; it is started again", code)
        self._run(True)


def write(process: subprocess.Popen[bytes], inbox: queue.SimpleQueue[bytes | None]) -> None:
    """Write what there is to tell: a process that is busy does not read, and this waits. None closes its stdin."""
    assert process.stdin is not None
    with contextlib.suppress(OSError, ValueError):
        while (line := inbox.get()) is not None:
            view = memoryview(line)
            while view:
                view = view[os.write(process.stdin.fileno(), view) :]
    with contextlib.suppress(OSError, ValueError):
        process.stdin.close()


def is_local(root: str) -> bool:
    """Whether a folder's URI may name a directory of this machine."""
    try:
        parts = urlsplit(root)
    except ValueError:
        return False
    return parts.scheme == "file" and parts.netloc in ("", "localhost")


def is_too_wide(path: str) -> bool:
    """Whether a folder is the home directory, or one that it lies in: those hold more than anybody works on."""
    home = os.path.realpath(os.path.expanduser("~"))  # noqa: PTH111 - there may be no home at all
    real = os.path.realpath(f"{path}/")
    return home == real or home.startswith(real.rstrip(os.sep) + os.sep)


def inside(uri: str, root: str) -> str:
    """A document's path in its folder, in whole characters."""
    path = file_path(uri).removeprefix(file_path(root).rstrip("/") + "/")
    return path.encode("utf-8", "replace").decode("utf-8")
