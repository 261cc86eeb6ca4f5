"""Indexes of the workspace folders: created, updated and dropped as the editor's documents and folders change.

A folder is read from shortly after its first document was opened. index/folder_reader.py is its background thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from speclsp.config import Config
from speclsp.lsp.context import cross_file
from speclsp.lsp.documents.uri_paths import IS_WINDOWS, file_path, path_inside
from speclsp.lsp.index.folder_reader import FolderReader, Job
from speclsp.lsp.index.workspace_index import WorkspaceIndex
from speclsp.lsp.server.request_context import WorkspaceDocuments
from speclsp.lsp.visibility.eligibility import glob_off
from speclsp.lsp.visibility.ignore_files import UNREAD

START_S = 1.0  # after the first document was opened: the engine starts first
RESCAN_S = 120.0  # after which a save triggers a scan for changes that no editor reported
REST_S, TYPING_REST_S = 0.003, 0.1  # of the thread that reads a folder, between two slices of work
TYPING_S = 2.0  # after a key
MAX_FOLDERS = 4
MAX_CHANGED_FILES = 200  # in one notification; above it the whole folder is scanned


class WorkspaceIndexes:
    """The indexed folders of one editor. `is_remote` returns whether the backend sends prompts to another machine."""

    def __init__(self, documents: WorkspaceDocuments, is_remote: Callable[[], bool]) -> None:
        self.documents, self._is_remote = documents, is_remote
        self._folders: dict[str, IndexedFolder] = {}
        self._typed_s = 0.0

    def index(self, root: str | None) -> WorkspaceIndex | None:
        """The index of the workspace folder with this URI, complete or not."""
        folder = self._folders.get(root or "")
        return folder.index if folder is not None else None

    def document_opened(self, uri: str) -> None:
        """Index the document's folder, unless that is done already or disabled."""
        config, root = self.documents.config, self.documents.root(uri)
        if root is None or not is_indexed(config):
            return
        folder = self._folders.get(root)
        if folder is None and is_local(root) and len(self._folders) < MAX_FOLDERS:
            folder = self._folders[root] = IndexedFolder(root, uri, self)
        elif folder is not None:
            folder.index_near(folder.path_of(uri))

    def document_edited(self) -> None:
        """A document was edited: let the threads rest for longer."""
        self._typed_s = time.monotonic()

    def file_saved(self, uri: str) -> None:
        """A document was written to the disk."""
        if (folder := self._folder_of(uri)) is not None:
            folder.file_saved(folder.path_of(uri))

    def files_changed(self, uris: Sequence[str]) -> None:
        """The editor reports files that were created, written, renamed or deleted."""
        by_folder: dict[IndexedFolder, list[str]] = {}
        for uri in uris[:MAX_CHANGED_FILES]:
            if (folder := self._folder_of(uri)) is not None:
                by_folder.setdefault(folder, []).append(folder.path_of(uri))
        for folder, paths in by_folder.items():
            folder.files_changed(paths, scan=len(uris) > MAX_CHANGED_FILES)

    def folders_changed(self) -> None:
        """The workspace has other folders: drop the indexes of removed ones, and index those that were added."""
        folders = self.documents.folders()
        for root in [root for root in self._folders if root not in folders]:
            self._folders.pop(root).end()
        for document in self.documents.documents:  # in a folder that was added, or in the one around it
            self.document_opened(document.uri)

    def is_hidden(self, path: str, root: str, rules_applied: bool) -> bool:
        """True if a file must not be shown to the model. Called for every file of which something would be shown.

        `rules_applied`: the folder was scanned since the ignore files changed. Then a file whose own rules have not
        been read yet may be shown, but not to a remote server.
        """
        if glob_off(path, self.documents.config, root):
            return True
        verdict = self.documents.ignore_files.of(path, root)
        return (not rules_applied or self._is_remote()) if verdict is UNREAD else bool(verdict.no_context)

    def apply_config(self, config: Config, old: Config) -> None:
        """Create or drop indexes under new settings."""
        if not is_indexed(config):
            self.end()
            return
        for document in self.documents.documents:
            self.document_opened(document.uri)
        if config.completion.disabled_globs != old.completion.disabled_globs:
            for folder in self._folders.values():
                folder.scan_again()

    def end(self) -> None:
        """Drop all indexes."""
        for folder in self._folders.values():
            folder.end()
        self._folders.clear()

    def rest_s(self) -> float:
        """The time that a thread sleeps between two slices of work."""
        return TYPING_REST_S if time.monotonic() - self._typed_s < TYPING_S else REST_S

    def _folder_of(self, uri: str) -> IndexedFolder | None:
        return self._folders.get(self.documents.root(uri) or "")


class IndexedFolder:
    """The index of one workspace folder, and the thread that reads the folder. `first`: URI of its first document."""

    def __init__(self, root: str, first: str, owner: WorkspaceIndexes) -> None:
        self.path = file_path(root).rstrip("/")
        self._loop = asyncio.get_running_loop()
        self._documents = owner.documents
        self._scanned_s = time.monotonic()
        self._rules = 0  # number of changes of the ignore files
        self._rules_scanned = -1  # number of these changes that the last scan has applied
        self.index = WorkspaceIndex(
            self.path, lambda path: owner.is_hidden(f"{self.path}/{path}", root, self.rules_applied)
        )
        self._indexing, near = self._loop.create_future(), self.path_of(first)
        self._reader = FolderReader(
            self.index,
            self._loop.call_soon_threadsafe,
            near,
            lambda: self._documents.config.completion.disabled_globs,
            self._files_listed,
            lambda: self.index_near(near),
            owner.rest_s,
        )
        self.index.on_stale = lambda path: self._reader.put(Job([path]))
        self._start_timer = self._loop.call_later(START_S, self._reader.start)

    @property
    def rules_applied(self) -> bool:
        """True if the folder was scanned under the current ignore files."""
        return self._rules_scanned == self._rules

    def path_of(self, uri: str) -> str:
        """A document's path in the folder; lone surrogates are replaced."""
        path = file_path(uri)
        path = path_inside(path, self.path) or path
        return path.encode("utf-8", "replace").decode("utf-8")

    def index_near(self, path: str) -> None:
        """Index the words of the files near a document, unless another is opened meanwhile."""
        self._indexing.cancel()
        if self._documents.config.context.cross_file_tokens > 0 and not self.index.is_hidden(path):
            self._indexing = self._loop.create_task(cross_file.index_near(path, self.index))

    def file_saved(self, path: str) -> None:
        """A file was written. After RESCAN_S this triggers a scan of the whole folder."""
        self.files_changed([path], scan=time.monotonic() - self._scanned_s > RESCAN_S)

    def files_changed(self, paths: list[str], scan: bool) -> None:
        """Read these files again. `scan`: others may have changed, too."""
        rules = any(path.rpartition("/")[2].startswith(".") for path in paths)  # .gitignore and the like
        self._rules += rules
        if scan or rules:
            self._scanned_s = time.monotonic()
        self._reader.put(Job(paths, scan or rules, self._rules))

    def scan_again(self) -> None:
        """Scan the folder: other files may be disabled."""
        self._reader.put(Job(scan=True, rules=self._rules))

    def end(self) -> None:
        """End the thread."""
        self._indexing.cancel()
        self._start_timer.cancel()
        self._reader.end()

    def _files_listed(self, rules: int) -> None:
        self._rules_scanned = max(rules, self._rules_scanned)


def is_indexed(config: Config) -> bool:
    """True if suggestions or next edits use an index."""
    return config.context.index_workspace and (config.completion.enabled or config.next_edit.enabled)


def is_local(root: str, windows: bool = IS_WINDOWS) -> bool:
    """True if a folder's URI has a path on this machine. On Windows a share of the network has one."""
    try:
        parts = urlsplit(root)
    except ValueError:
        return False
    return parts.scheme == "file" and (windows or parts.netloc in ("", "localhost"))
