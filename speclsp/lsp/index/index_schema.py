"""Schema of the index database: tables, path, privacy, and removal of broken, foreign or old files.

One sqlite file for each workspace folder, in a directory of the user's cache that only this user may enter. It
contains the paths and the imports of source files, so it is as private as they are. It can be rebuilt at any time, and
any sign of damage is a reason to rebuild it.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import stat
import sys
import time
from contextlib import closing, suppress
from pathlib import Path, PurePath

from speclsp import config as settings
from speclsp import private_files
from speclsp.lsp.documents.uri_paths import folded

APPLICATION = 0x53504C58  # "SPLX"
VERSION = 4  # of the tables and of the readers of imports; an index of another version is rebuilt
SUFFIX = ".sqlite"
SIDE_FILES = ("-wal", "-shm", "-journal", "-new")  # endings of sqlite's files beside a database
MAX_PAGES = 65_536  # 256 MiB
BUSY_S = 120.0  # another window's process may write, and has the lowest priority too
FREE_S = 10.0  # Windows: until other processes close a file that is to be replaced
UNUSED_S = 30 * 24 * 3600.0
MAX_ALL_BYTES = 1 << 30  # of all indexes

OK, SKIPPED = 0, 1  # a file's state

# On Windows case does not matter: a document that the editor spells otherwise has the row of its file.
_COLLATION = "NOCASE" if sys.platform == "win32" else "BINARY"
_TABLES = f"""
CREATE TABLE files(
    id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE COLLATE {_COLLATION}, stem TEXT NOT NULL,
    mtime_ns INTEGER NOT NULL, size INTEGER NOT NULL, state INTEGER NOT NULL);
CREATE INDEX files_stem ON files(stem);
CREATE TABLE imports(
    file INTEGER NOT NULL, number INTEGER NOT NULL, module TEXT NOT NULL, names TEXT NOT NULL,
    PRIMARY KEY(file, number)) WITHOUT ROWID;
CREATE TABLE leaves(leaf TEXT NOT NULL, file INTEGER NOT NULL, PRIMARY KEY(leaf, file)) WITHOUT ROWID;
CREATE INDEX leaves_file ON leaves(file);
CREATE TABLE roots(kind TEXT NOT NULL, name TEXT NOT NULL, path TEXT NOT NULL, PRIMARY KEY(kind, name, path));
CREATE TABLE metadata(key TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


def index_path(folder: str) -> Path:
    """Path of a workspace folder's index database."""
    name = hashlib.sha256(os.fsencode(folded(folder.rstrip("/") or "/"))).hexdigest()[:32]
    return settings.index_dir() / (name + SUFFIX)


def open_to_write(path: Path) -> sqlite3.Connection:
    """The database; a missing, damaged or foreign one is replaced. Raises OSError, sqlite3.Error."""
    private_directory(path.parent)
    _remove_special_files(path)
    if path.exists():
        with suppress(sqlite3.Error):
            existing = _connect(path)
            if _is_intact(existing):
                return existing
            existing.close()
        remove_database(path)
    _create(path)
    return _connect(path)


def _create(path: Path) -> None:
    """Create an empty index in one step: a reader that saw half of its tables would request a rebuild."""
    new = path.with_name(path.name + "-new")
    new.unlink(missing_ok=True)
    os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with closing(sqlite3.connect(new, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA journal_mode = MEMORY")  # no file beside it
        connection.executescript(f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};{_TABLES}")
    private_files.retry_while_open(lambda: new.replace(path), FREE_S)


def sqlite_uri(path: PurePath) -> str:
    """The URI by which SQLite opens an absolute path. It refuses the host of file://server/share/a, a UNC path."""
    return path.as_uri().replace("file://", "file:////" if path.drive.startswith("\\\\") else "file://", 1)


def open_to_read(path: Path) -> sqlite3.Connection | None:
    """The database, None where there is none yet. Raises sqlite3.Error where it is broken or not ours."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return None
    except OSError:
        return None
    connection = sqlite3.connect(
        f"{sqlite_uri(path.absolute())}?mode=ro", uri=True, timeout=0, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA query_only = 1")
        connection.execute("PRAGMA cache_size = -4096")  # KiB
        connection.execute("PRAGMA mmap_size = 0")  # truncating a mapped file would end the language server: SIGBUS
        current = _is_current(connection)
    except sqlite3.Error:
        connection.close()
        raise
    if not current:
        connection.close()
        raise sqlite3.DatabaseError("not an index of this version")
    return connection


def remove_database(path: Path, wait_s: float = FREE_S) -> None:
    """Remove a database and sqlite's files beside it. Raises OSError."""
    for name in (path, *(path.with_name(path.name + ending) for ending in SIDE_FILES)):
        private_files.remove(name, wait_s)


def private_directory(path: Path) -> None:
    """Create a directory for this user alone. Raises OSError when it is a link or another user's."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode) or (hasattr(os, "getuid") and info.st_uid != os.getuid()):
        raise NotADirectoryError(f"{path} is not a directory of this user")
    if stat.S_IMODE(info.st_mode) & 0o077:
        path.chmod(0o700)


def remove_old(directory: Path, current: Path) -> None:
    """Remove indexes that were not used for long, and the least recently used ones above the limit; never `current`."""
    databases = []
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.name.endswith(SUFFIX) and entry.name != current.name:
                    info = entry.stat(follow_symlinks=False)
                    databases.append((info.st_mtime, info.st_size, directory / entry.name))
    databases.sort(reverse=True)
    total_bytes, latest = 0, time.time()
    for used_s, size, path in databases:
        total_bytes += size
        if total_bytes > MAX_ALL_BYTES or latest - used_s > UNUSED_S:
            with suppress(OSError):
                remove_database(path, wait_s=0)
                path.with_suffix(".lock").unlink(missing_ok=True)
                path.with_suffix(".at").unlink(missing_ok=True)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")  # a power cut may damage it; then it is rebuilt
        connection.execute("PRAGMA cache_size = -16384")  # KiB
        connection.execute(f"PRAGMA max_page_count = {MAX_PAGES}")
        connection.execute("PRAGMA wal_autocheckpoint = 1000")
        connection.execute("PRAGMA journal_size_limit = 4194304")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA secure_delete = ON")  # text that a rule now excludes must not stay in a free page
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _is_intact(connection: sqlite3.Connection) -> bool:
    """True for an intact index of this version."""
    with closing(connection.execute("PRAGMA quick_check(1)")) as rows:
        return _is_current(connection) and rows.fetchone() == ("ok",)


def _is_current(connection: sqlite3.Connection) -> bool:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return (application, version) == (APPLICATION, VERSION)


def _remove_special_files(path: Path) -> None:
    """Remove links and special files where sqlite would write, since it follows links."""
    for name in (path, *(path.with_name(path.name + ending) for ending in SIDE_FILES)):
        with suppress(FileNotFoundError):
            info = name.lstat()
            if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1:
                name.unlink()
