"""Workspace scan: finds the source files to index, those that may be shown while another file is completed.

Skipped: files named by ignore files (.gitignore and the rest) or by completion.disabled_globs, kinds of files that hold
secrets, links and other special files, large files, hidden directories, and directories of installed packages and
caches. Of the files found, workspace_index.py shows no binary, minified and generated ones.
"""

from __future__ import annotations

import os
import posixpath
import re
import stat
from collections.abc import Callable, Iterator, Sequence

from speclsp.lsp.documents.uri_paths import IS_WINDOWS, path_inside, system_path
from speclsp.lsp.documents.windows_names import is_link, is_placeholder, is_reserved, real_folder, real_path
from speclsp.lsp.index.file_cache import MAX_BYTES, FileState
from speclsp.lsp.syntax.grammars import grammar_of
from speclsp.lsp.syntax.languages.import_rules import distance
from speclsp.lsp.visibility import eligibility, secret_files
from speclsp.lsp.visibility.ignore_files import IgnoreWorkspace

MAX_ENTRIES = 400_000  # of directories, in one scan
MAX_FILES = 100_000  # source files among them
_MAX_DEPTH = 32
_FOREIGN_DIRECTORIES = frozenset({"node_modules", "bower_components", "__pycache__", "site-packages", "jspm_packages"})
_GENERATED_MARKERS = frozenset({"pyvenv.cfg", "CACHEDIR.TAG"})  # files in a directory that a tool generates
_MINIFIED = re.compile(r"[.-]min\.\w+\Z|\.bundle\.js\Z")


class WorkspaceScan:
    """Scan of one workspace folder, by its rules. Paths are in the folder, with forward slashes."""

    def __init__(self, root: str, disabled_globs: Sequence[str] = ()) -> None:
        self.root, self._disabled_globs = root, disabled_globs
        self._rules = IgnoreWorkspace()
        self.files: dict[str, FileState] = {}  # the nearest first
        self.is_complete = False  # the scan reached every file

    def run(self, near: str, pause: Callable[[], None] = lambda: None) -> None:
        """Find the files, those near the path `near` first. `pause` is called at every entry of a directory."""
        by_directory: dict[str, dict[str, FileState]] = {}
        self.is_complete, count = True, 0
        for path, info in self._sources(pause):
            if not self.is_indexable(path, info):
                continue
            count += 1
            if count > MAX_FILES:
                self.is_complete = False
                break
            by_directory.setdefault(posixpath.dirname(path), {})[path] = state_of(info)
        for directory in sorted(by_directory, key=lambda name: (distance(f"{name}/", near), name.count("/"), name)):
            pause()
            self.files.update(by_directory[directory])

    def file_at(self, path: str) -> tuple[str, FileState] | None:
        """Path and state of the file at `path`; None when it is not to be indexed."""
        *above, name = path.split("/")
        if path.startswith("/") or ".." in above or not grammar_of(path) or len(above) > _MAX_DEPTH:
            return None
        if any(map(_is_foreign, above)) or (IS_WINDOWS and any(map(is_reserved, (*above, name)))):
            return None
        try:
            for depth in range(1, len(above) + 1):
                directory = "/".join(above[:depth])
                info = os.lstat(system_path(f"{self.root}/{directory}"))
                if not stat.S_ISDIR(info.st_mode) or is_link(info) or self._is_generated(directory):
                    return None
            info = os.lstat(system_path(f"{self.root}/{path}"))
        except (OSError, ValueError):
            return None
        if IS_WINDOWS:
            if is_special(name, info):
                return None
            path = self._listed_path(path)
        return (path, state_of(info)) if self.is_indexable(path, info) else None

    def _listed_path(self, path: str) -> str:
        """A file's path in the spelling of the directory, which a scan lists: case does not matter on Windows."""
        return path_inside(real_path(f"{self.root}/{path}"), real_folder(self.root)) or path

    def is_indexable(self, path: str, info: os.stat_result) -> bool:
        """True for a small regular file of which a piece may be shown while another file is completed."""
        if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_BYTES:
            return False
        if secret_files.pattern_of(path) or _MINIFIED.search(path):
            return False
        if any(
            eligibility.matches(glob, path) or eligibility.matches(glob, f"{self.root}/{path}")
            for glob in self._disabled_globs
        ):
            return False
        return not self._rules.verdict(self.root, path).no_context

    def _sources(self, pause: Callable[[], None]) -> Iterator[tuple[str, os.stat_result]]:
        """Source files, and whatever else has such a name, of the directories that are not skipped."""
        pending, count = [""], 0
        while pending:
            directory = pending.pop()
            listed, below = list[os.DirEntry[str]](), list[str]()
            try:
                with os.scandir(system_path(f"{self.root}/{directory}")) as entries:
                    for entry in entries:
                        listed.append(entry)
                        count += 1
                        pause()
                        if count > MAX_ENTRIES:
                            self.is_complete = False
                            return
            except (OSError, ValueError):
                continue
            if directory and any(entry.name in _GENERATED_MARKERS for entry in listed):
                continue
            for entry in sorted(listed, key=lambda entry: entry.name):
                pause()
                path = f"{directory}/{entry.name}".lstrip("/")
                try:
                    entry.name.encode("utf-8")
                    if IS_WINDOWS and is_special(entry.name, entry.stat(follow_symlinks=False)):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        if path.count("/") < _MAX_DEPTH and not _is_foreign(entry.name) and not self._prunes(path):
                            below.append(path)
                    elif grammar_of(entry.name):
                        yield path, entry.stat(follow_symlinks=False)
                except (OSError, ValueError):
                    continue
            pending += reversed(below)

    def _prunes(self, directory: str) -> bool:
        return bool(self._rules.verdict(self.root, f"{directory}/").no_context)

    def _is_generated(self, directory: str) -> bool:
        return any(os.path.lexists(system_path(f"{self.root}/{directory}/{mark}")) for mark in _GENERATED_MARKERS)


def is_special(name: str, info: os.stat_result) -> bool:
    """True for an entry of a Windows directory that is not read: a device, a link, a junction, a placeholder."""
    return is_reserved(name) or is_link(info) or is_placeholder(info)


def _is_foreign(directory: str) -> bool:
    return directory.startswith(".") or directory in _FOREIGN_DIRECTORIES


def state_of(info: os.stat_result) -> FileState:
    """The state of a file by its stat result."""
    return info.st_mtime_ns, info.st_size
