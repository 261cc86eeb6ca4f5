"""Workspace scan: finds the source files to index, those that may be shown while another file is completed.

Skipped without being read: files named by ignore files (.gitignore and the rest) or by completion.disabled_globs, kinds
of files that hold secrets, links and other special files, large files, hidden directories, and directories of installed
packages and caches. Skipped after being read: binary, minified and generated files.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import process_time

from speclsp.lsp.documents.uri_paths import IS_WINDOWS, path_inside, system_path
from speclsp.lsp.documents.windows_names import is_link, is_placeholder, is_reserved, real_folder, real_path
from speclsp.lsp.index.file_cache import MAX_BYTES
from speclsp.lsp.index.file_imports import MANIFESTS
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
_LONG_LINES = 250  # characters a line, on average: longer lines are generated


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """A file, with its size and time in the directory."""

    path: str  # in the workspace folder, with forward slashes
    mtime_ns: int
    size: int


class WorkspaceScan:
    """Scan of one workspace folder, by its rules."""

    def __init__(self, root: str, disabled_globs: Sequence[str] = ()) -> None:
        self.root = root
        self.disabled_globs = tuple(disabled_globs)
        self._rules = IgnoreWorkspace()
        self.manifests: list[str] = []
        self.complete = False  # the scan reached every file

    def files(self, near: str, budget_s: float) -> list[ScannedFile]:
        """The source files that the scan reaches in `budget_s` of processor time, the nearest to `near` first."""
        files = list(self._all(process_time() + budget_s))
        files.sort(key=lambda file: (distance(file.path, near), file.path.count("/"), file.path))
        return files

    def file_at(self, path: str) -> ScannedFile | None:
        """The file at `path`; None when it is not to be indexed."""
        if path.startswith("/") or ".." in path.split("/") or not grammar_of(path):
            return None
        *above, name = path.split("/")
        if len(above) > _MAX_DEPTH or any(self._is_foreign(part) for part in above):
            return None
        if IS_WINDOWS and any(map(is_reserved, (*above, name))):
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
        if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_BYTES or not self.may_be_shown(path):
            return None
        return ScannedFile(path, info.st_mtime_ns, info.st_size)

    def _listed_path(self, path: str) -> str:
        """A file's path in the spelling of the directory, which a scan lists: case does not matter on Windows."""
        return path_inside(real_path(f"{self.root}/{path}"), real_folder(self.root)) or path

    def may_be_shown(self, path: str) -> bool:
        """True if a piece of the file may be shown while another file is completed."""
        if secret_files.pattern_of(path) or _MINIFIED.search(path):
            return False
        if any(
            eligibility.matches(glob, path) or eligibility.matches(glob, f"{self.root}/{path}")
            for glob in self.disabled_globs
        ):
            return False
        return not self._rules.verdict(self.root, path).no_context

    def _all(self, deadline_s: float) -> Iterator[ScannedFile]:
        self.manifests, self.complete = [], False
        pending, entry_count, count = [""], 0, 0
        while pending:
            directory = pending.pop()
            try:
                with os.scandir(system_path(f"{self.root}/{directory}")) as entries:
                    listed = []
                    for entry in entries:
                        listed.append(entry)
                        entry_count += 1
                        if entry_count > MAX_ENTRIES or process_time() > deadline_s:
                            return
            except (OSError, ValueError):
                continue
            if directory and any(entry.name in _GENERATED_MARKERS for entry in listed):
                continue
            below = []
            for entry in sorted(listed, key=lambda entry: entry.name):
                path = f"{directory}/{entry.name}".lstrip("/")
                try:
                    entry.name.encode("utf-8")
                    if IS_WINDOWS and is_special(entry.name, entry.stat(follow_symlinks=False)):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        deep = path.count("/") >= _MAX_DEPTH
                        if not deep and not self._is_foreign(entry.name) and not self._prunes(path):
                            below.append(path)
                    elif grammar_of(entry.name) or entry.name in MANIFESTS:
                        info = entry.stat(follow_symlinks=False)
                        if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_BYTES:
                            continue
                        if not self.may_be_shown(path):
                            continue
                        if entry.name in MANIFESTS:
                            self.manifests.append(path)
                            continue
                        count += 1
                        if count > MAX_FILES:
                            return
                        yield ScannedFile(path, info.st_mtime_ns, info.st_size)
                except (OSError, ValueError):
                    continue
            pending += reversed(below)
        self.complete = True

    def _prunes(self, directory: str) -> bool:
        return bool(self._rules.verdict(self.root, f"{directory}/").no_context)

    def _is_foreign(self, name: str) -> bool:
        return name.startswith(".") or name in _FOREIGN_DIRECTORIES

    def _is_generated(self, directory: str) -> bool:
        return any(os.path.lexists(system_path(f"{self.root}/{directory}/{mark}")) for mark in _GENERATED_MARKERS)


def is_special(name: str, info: os.stat_result) -> bool:
    """True for an entry of a Windows directory that is not read: a device, a link, a junction, a placeholder."""
    return is_reserved(name) or is_link(info) or is_placeholder(info)


def is_code(text: str, path: str) -> bool:
    """True for text that a person wrote: not binary, minified or generated."""
    if "\0" in text or eligibility.is_generated(text):
        return False
    return len(text) < 5000 or len(text) / (text.count("\n") + 1) <= _LONG_LINES
