"""Supervisor of the index workers: one process per workspace folder, started, informed and restarted from here.

A worker starts shortly after the first document of its folder was opened. It receives the paths of files that were
saved, renamed or deleted. index/worker.py is the other side.
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
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from speclsp import config as settings
from speclsp.config import Config
from speclsp.daemon import platform
from speclsp.daemon.launch import environment
from speclsp.lsp.context.warm_up import IndexWarmUp
from speclsp.lsp.documents.uri_paths import IS_WINDOWS, file_path, path_inside
from speclsp.lsp.index.reader import IndexReader
from speclsp.lsp.server.request_context import WorkspaceDocuments
from speclsp.lsp.visibility.eligibility import glob_off
from speclsp.lsp.visibility.ignore_files import UNREAD
from speclsp.private_files import os_errors

COMMAND = (sys.executable, "-m", "speclsp.lsp.index.worker")
START_S = 1.0  # after the first document was opened: the engine starts first
INDEXED_S = 0.5  # from a message to the worker until the index usually contains the change
RESCAN_S = 120.0  # after which a save triggers a scan for changes that no editor reported
RESCAN_SHARE = 30  # a scan starts no sooner than after this many times the duration of the last one
MAX_FOLDERS = 4
MAX_CRASHES = 8
MAX_CHANGED_FILES = 1000  # in one notification; above it the whole folder is scanned
MAX_QUEUED_MESSAGES = 500  # a worker that hangs does not read
REBUILD_S = 10.0  # between two rebuilds of a damaged index
CANNOT_INDEX = 3  # the worker's exit code for a full disk or a cache that cannot be written

log = logging.getLogger("speclsp.index")


class IndexSupervisor:
    """The indexed folders of one editor. `is_remote` returns whether the backend sends prompts to another machine."""

    def __init__(self, documents: WorkspaceDocuments, is_remote: Callable[[], bool]) -> None:
        self._documents, self._is_remote = documents, is_remote
        self._folders: dict[str, IndexedFolder] = {}

    def index(self, root: str | None) -> IndexReader | None:
        """The index of the workspace folder with this URI, complete or not."""
        folder = self._folders.get(root or "")
        return folder.index if folder is not None else None

    def document_opened(self, uri: str) -> None:
        """Index the document's folder, unless that is done already or disabled."""
        config, root = self._documents.config, self._documents.root(uri)
        if root is None or not (config.context.index_workspace and config.completion.enabled):
            return
        folder = self._folders.get(root)
        if folder is None and is_local(root) and len(self._folders) < MAX_FOLDERS:
            folder = self._folders[root] = IndexedFolder(root, COMMAND, self._globs_off, self.is_hidden)
            folder.start(folder.path_of(uri))
        if folder is not None:
            self._schedule_warm_up(folder, uri, 0)

    def file_saved(self, uri: str) -> None:
        """A document was written to the disk."""
        if (folder := self._folder_of(uri)) is not None:
            folder.file_saved(folder.path_of(uri))
            self._schedule_warm_up(folder, uri)

    def files_changed(self, uris: Sequence[str]) -> None:
        """The editor reports files that were created, written, renamed or deleted."""
        by_folder: dict[IndexedFolder, list[str]] = {}
        for uri in uris[:MAX_CHANGED_FILES]:
            if (folder := self._folder_of(uri)) is not None:
                by_folder.setdefault(folder, []).append(folder.path_of(uri))
        for folder, paths in by_folder.items():
            folder.files_changed(paths, scan=len(uris) >= MAX_CHANGED_FILES)

    def folders_changed(self) -> None:
        """The workspace has other folders: end the workers of removed ones, and index those that were added."""
        folders = self._documents.folders()
        for root in [root for root in self._folders if root not in folders]:
            self._folders.pop(root).end()
        for document in self._documents.documents:  # in a folder that was added, or in the one around it
            self.document_opened(document.uri)

    def is_hidden(self, path: str, root: str, rules_applied: bool) -> bool:
        """True if a file must not be shown to the model. Called for every file of which something would be shown.

        `rules_applied`: the worker has scanned the folder since the ignore files changed. Then a file whose own rules
        have not been read yet may be shown, but not to a remote server.
        """
        if glob_off(path, self._documents.config, root):
            return True
        verdict = self._documents.ignore_files.of(path, root)
        return (not rules_applied or self._is_remote()) if verdict is UNREAD else bool(verdict.no_context)

    def apply_config(self, config: Config) -> None:
        """Start or end workers under new settings."""
        if not (config.context.index_workspace and config.completion.enabled):
            self.end()
            return
        for document in self._documents.documents:
            self.document_opened(document.uri)
        for folder in self._folders.values():
            folder.send({"disabled_globs": self._globs_off()})

    def end(self) -> None:
        """End all workers."""
        for folder in self._folders.values():
            folder.end()
        self._folders.clear()

    def _folder_of(self, uri: str) -> IndexedFolder | None:
        return self._folders.get(self._documents.root(uri) or "")

    def _globs_off(self) -> tuple[str, ...]:
        """Patterns of files that are not indexed."""
        return self._documents.config.completion.disabled_globs

    def _schedule_warm_up(self, folder: IndexedFolder, uri: str, wait_s: float = INDEXED_S) -> None:
        """Warm the query cache for a document, once the index contains the latest change."""
        if self._documents.config.context.cross_file_tokens > 0:
            asyncio.get_running_loop().call_later(wait_s, folder.warm_up.add, folder.path_of(uri))


class IndexedFolder:
    """The index of one workspace folder, and the worker process that writes it.

    `disabled_globs` returns patterns of files that are not indexed; `is_hidden(path, root, rules_applied)` whether a
    file must not be shown.
    """

    def __init__(
        self,
        root: str,
        command: tuple[str, ...],
        disabled_globs: Callable[[], tuple[str, ...]],
        is_hidden: Callable[[str, str, bool], bool],
    ) -> None:
        self.path = file_path(root).rstrip("/")
        self.index = IndexReader(
            self.path, hidden_rule=lambda path: is_hidden(f"{self.path}/{path}", root, self.rules_applied)
        )
        self.index.on_broken = self._rebuild
        self.index.on_stale = lambda path: self.send({"changed": [path]})
        self._command, self._globs_off = command, disabled_globs
        self._near = ""  # path of the first document: the worker reads files near it first
        self._loop = asyncio.get_running_loop()
        self.warm_up = IndexWarmUp(self.index, self._loop.call_later)
        self.index.on_late = self.warm_up.add
        self._start_timer: asyncio.TimerHandle | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()  # for the worker; None closes its stdin
        self._crashes = 0
        self._scanned_s = 0.0
        self._rescan_s = RESCAN_S
        self._rules = 0  # number of changes of the ignore files
        self._rules_scanned = -1  # number of these changes that the last scan has applied
        self._rebuilt_s = -REBUILD_S
        self._ended = False

    @property
    def rules_applied(self) -> bool:
        """True if the worker has scanned the folder under the current ignore files."""
        return self._rules_scanned == self._rules

    def path_of(self, uri: str) -> str:
        """A document's path in the folder; lone surrogates are replaced."""
        path = file_path(uri)
        path = path_inside(path, self.path) or path
        return path.encode("utf-8", "replace").decode("utf-8")

    def start(self, near: str) -> None:
        """Start the worker after START_S. It reads files near the path `near` first."""
        self._near = near
        self._start_timer = self._loop.call_later(START_S, self._run, False)

    def file_saved(self, path: str) -> None:
        """A file was written. After RESCAN_S this triggers a scan of the whole folder."""
        self.files_changed([path], scan=time.monotonic() - self._scanned_s > self._rescan_s)

    def files_changed(self, paths: list[str], scan: bool) -> None:
        """Read these files again. `scan`: others may have changed, too."""
        self.send({"changed": paths})
        rules = any(path.rpartition("/")[2].startswith(".") for path in paths)  # .gitignore and the like
        self._rules += rules
        if scan or rules:
            self._scanned_s = time.monotonic()
            self.send({"scan": paths[0], "rules": self._rules})

    def send(self, message: dict[str, object]) -> None:
        """Queue a message for the worker; never blocks. Dropped while the worker does not read."""
        if self._process is not None and self._messages.qsize() < MAX_QUEUED_MESSAGES:
            self._messages.put(as_line(message))

    def end(self) -> None:
        """Close the index and kill the worker: its database survives that at any moment."""
        self._ended = True
        self.warm_up.stop()
        if self._start_timer is not None:
            self._start_timer.cancel()
        self.index.close()
        process, self._process = self._process, None
        self._messages.put(None)
        if process is not None:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1.0)

    def _rebuild(self) -> None:
        """The index is damaged. Every query notices that until the worker has rebuilt it."""
        if time.monotonic() - self._rebuilt_s >= REBUILD_S:
            self._rebuilt_s = time.monotonic()
            self.send({"rebuild": True})

    def _run(self, crashed: bool) -> None:
        """Start the worker's thread."""
        if self._ended:
            return
        job = {
            "rules": self._rules,
            "root": self.path,
            "database": str(self.index.database),
            "near": self._near,
            "disabled_globs": self._globs_off(),
            "crashed": crashed,
        }
        self._scanned_s = time.monotonic()
        self._messages = queue.SimpleQueue()
        self._messages.put(as_line(job))
        threading.Thread(target=self._serve, args=(self._messages,), name="index-messages", daemon=True).start()

    def _serve(self, messages: queue.SimpleQueue[bytes | None]) -> None:
        """Start the worker and write its messages until None, which closes its stdin; in a thread.

        A disk that hangs must not block the event loop, and neither must a worker that is busy.
        """
        directory = settings.index_dir().parent
        try:
            if not Path(f"{self.path}/").is_dir():
                return
            if is_too_wide(self.path):
                log.info("no index: the workspace folder contains the home directory")
                return
            directory.mkdir(parents=True, exist_ok=True)
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=directory,  # -m searches the working directory for modules: never in the user's project
                env=environment(directory),
                start_new_session=True,
                bufsize=0,
                **platform.child_options(flags=getattr(subprocess, "IDLE_PRIORITY_CLASS", 0)),
            )
        except OSError as error:
            log.warning("no index: %s", os_errors.sentence(error, directory))
            return
        self._process = process
        platform.end_with_this_process(process.pid)
        if self._ended:
            process.kill()
        threading.Thread(target=self._read_output, args=(process, messages), name="index-output", daemon=True).start()
        assert process.stdin is not None
        with contextlib.suppress(OSError, ValueError), process.stdin as stream:
            while (line := messages.get()) is not None:
                view = memoryview(line)
                while view:
                    view = view[os.write(stream.fileno(), view) :]

    def _read_output(self, process: subprocess.Popen[bytes], messages: queue.SimpleQueue[bytes | None]) -> None:
        """Log the worker's output until it ends, in a thread, and read the reports of its scans."""
        assert process.stdout is not None
        with process.stdout as stream:
            while line := stream.readline(1000):
                log.info("index: %s", line.decode("utf-8", "replace").strip())
                with contextlib.suppress(ValueError, TypeError, LookupError):  # no report of a scan: it is only logged
                    report = json.loads(line)
                    self._rules_scanned = int(report.get("scanned_rules", self._rules_scanned))
                    self._rescan_s = max(RESCAN_S, RESCAN_SHARE * float(report["seconds"]))
        code = process.wait()
        messages.put(None)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._worker_ended, process, code)

    def _worker_ended(self, process: subprocess.Popen[bytes], code: int) -> None:
        if self._ended or process is not self._process:
            return
        self._process = None
        self._crashes += 1
        if code in (0, CANNOT_INDEX) or self._crashes > MAX_CRASHES:
            log.warning("no index: its process ended with %d", code)
            return
        log.warning("the index's process ended with %d; restarting it", code)
        self._run(True)


def as_line(message: dict[str, object]) -> bytes:
    """A message for the worker: one line of JSON."""
    return json.dumps(message).encode("utf-8", "replace") + b"\n"


def is_local(root: str, windows: bool = IS_WINDOWS) -> bool:
    """True if a folder's URI has a path on this machine. On Windows a share of the network has one."""
    try:
        parts = urlsplit(root)
    except ValueError:
        return False
    return parts.scheme == "file" and (windows or parts.netloc in ("", "localhost"))


def is_too_wide(path: str) -> bool:
    """True if a folder is the home directory or contains it. Such a folder holds far more than one project."""
    home = os.path.realpath(os.path.expanduser("~"))  # noqa: PTH111 - there may be no home at all
    real = os.path.realpath(f"{path}/")
    home, real = os.path.normcase(home), os.path.normcase(real)
    return home == real or home.startswith(real.rstrip(os.sep) + os.sep)
