"""Places of a model's weights: the user's models_dir, the cache, the package itself, and other programs' caches.

    <cache>/models/<name>/                     complete weights
    <cache>/models/<name>.prepared/<key>/      the same, packed for this CPU: made from them, and made anew at any time
    <cache>/models/<name>.fetching/<writer>/   one download under way; <writer> is MACHINE-PROCESS-NUMBER
    <cache>/models/<name>.fetching/free-<hex>/ the files of a download that failed

Two downloads never write into one directory, also where locks do not work. The next download renames the directory of
a process that has ended. It copies the files of any other: such a process may still write, to its own files.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import platform
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from speclsp import config
from speclsp.private_files import LEFT_BEHIND_S
from speclsp.process_resources.programs import is_gone
from speclsp.weights import cards, model_directory
from speclsp.weights.cards import Weights
from speclsp.weights.gguf import other_caches

NUMBERS = itertools.count()  # of the downloads of this process
NOT_RESUMED = ("ready", "replaced", "local", "pip-*")  # parts of a download that the next one makes again


def store_root() -> Path:
    """The cache's directory of all weights."""
    return config.cache_dir() / "models"


def prepared(name: str) -> Path:
    """The directory of a model's prepared weights, one directory for each format, by the name of the weights.

    The engine writes them (engine/loading/prepared), also for a model in a directory of the user's: its name is a path.
    """
    plain = name if Path(name).name == name else f"{Path(name).name}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return store_root() / f"{plain}.prepared"


def models_dir_problem(models_dir: str) -> str:
    """The sentence about a models_dir in which no model can be found; "" otherwise."""
    directory = Path(models_dir).expanduser()
    if not models_dir or (model_directory.is_there(directory) and not (directory / "config.json").is_file()):
        return ""
    setting = f"models_dir = {models_dir!r}"
    if (directory / "config.json").is_file():
        return f"{setting} is itself a model's directory: set it to its parent, {str(directory.parent)!r}."
    if not directory.exists():
        return f"{setting} does not exist: create it, correct the setting, or remove it."
    if not directory.is_dir():
        return f"{setting} is not a directory: set it to the directory that has the models' directories."
    return ""


def users_directory(weights: Weights, models_dir: str) -> Path | None:
    """The directory in models_dir with these weights, under their own name or the hub's.

    A directory with a GGUF and no config.json is not one: `users_gguf` is the file in it.
    """
    for name in dict.fromkeys((weights.name, weights.repo.rpartition("/")[2])):
        directory = Path(models_dir).expanduser() / name
        if models_dir and name and model_directory.is_there(directory) and not _is_only_gguf(directory, weights):
            return directory
    return None


def _is_only_gguf(directory: Path, weights: Weights) -> bool:
    names = {file.name for file in directory.glob("*.gguf")}
    is_whole = names == {file.name for file in weights.files} and (directory / "config.json").is_file()
    return bool(names) and not is_whole


def candidates(weights: Weights, models_dir: str) -> Iterator[Path]:
    """The directories to load these weights from, best first; each may be damaged or empty."""
    if weights.format == "bundled":
        yield cards.models_root() / weights.name
        return
    if local := users_directory(weights, models_dir):
        yield local
    directory = store_root() / weights.name
    if is_current(directory, weights):
        yield directory


def local_gguf(weights: Weights, models_dir: str) -> Path | None:
    """The GGUF that can be installed without a download, by name and size; `ensure` compares its checksum."""
    file = users_gguf(weights, models_dir)
    return file if file and file.stat().st_size == weights.files[0].bytes else others_gguf(weights)


def users_gguf(weights: Weights, models_dir: str) -> Path | None:
    """The GGUF in the user's models_dir, whatever its size; a link is resolved."""
    if weights.format != "gguf" or not models_dir:
        return None
    base, name = Path(models_dir).expanduser(), weights.files[0].name
    file = next((file for file in (base / name, base / weights.name / name) if file.is_file()), None)
    return file.resolve() if file else None


def others_gguf(weights: Weights) -> Path | None:
    """The GGUF in the cache of another program, with the size that the card names."""
    if weights.format != "gguf":
        return None
    file = weights.files[0]
    return other_caches.find(weights.repo, file.name, file.bytes, file.sha256)


def is_current(directory: Path, weights: Weights) -> bool:
    """True when the directory holds the revision or the GGUF that the card names, or a conversion of that GGUF."""
    if not (directory / model_directory.MANIFEST).is_symlink() and not (directory / model_directory.MANIFEST).is_file():
        return False
    if model_directory.unread_manifest(directory, ""):
        return True  # `damage` names the obstacle; a second download would hide it
    manifest = model_directory.manifest(directory)
    if weights.format == "gguf":
        sums = model_directory.sums_of(directory)
        return sums.get(weights.files[0].name, manifest.get("made_from")) == weights.files[0].sha256
    return not weights.revision or manifest.get("revision") == weights.revision


# ── directories of downloads ──


def downloads(weights: Weights) -> Path:
    """The directory with one directory for each unfinished download of these weights."""
    return store_root() / f"{weights.name}.fetching"


@contextmanager
def download_directory(weights: Weights) -> Iterator[Path]:
    """A directory for one download, with the files of an earlier one that did not end. Raises OSError."""
    base = downloads(weights)
    names = (f"{_machine()}-{os.getpid()}-{number}" for number in NUMBERS)
    # a restarted container has the numbers of before
    own = next(base / name for name in names if not (base / name).exists())
    base.mkdir(parents=True, exist_ok=True)
    if not any(_resumes(earlier, own) for earlier in _unfinished(base)):
        own.mkdir()
    try:
        yield own
    finally:
        free = base / f"free-{secrets.token_hex(4)}"
        with suppress(OSError):  # it was renamed to its final path, or has files that are kept
            own.replace(free)
            free.rmdir()
        with suppress(OSError):
            base.rmdir()


def remove_downloads(weights: Weights) -> None:
    """Remove unfinished downloads, but none of a process that may still write."""
    for directory in _unfinished(base := downloads(weights)):
        if _has_ended(directory) or _is_old(directory):
            shutil.rmtree(directory, ignore_errors=True)
    with suppress(OSError):  # fails while another process downloads
        base.rmdir()


def partial_bytes(weights: Weights) -> int:
    """Bytes of interrupted downloads, without older weights that a removal has left."""
    directories = _unfinished(downloads(weights))
    return sum(model_directory.size_of(part) for part in directories) - sum(
        model_directory.size_of(part / "replaced") for part in directories
    )


def _unfinished(base: Path) -> list[Path]:
    """The directories of downloads, largest first."""
    return sorted(base.glob("*-*"), key=model_directory.size_of, reverse=True)


def _has_ended(directory: Path) -> bool:
    """True when no process can write to the directory any more.

    Its download failed, its process ended on this machine, or that of another machine has not written for long: so the
    download of before a restart is resumed.
    """
    machine, _, process = directory.name.partition("-")
    if machine == _machine():
        return is_gone(int(process.partition("-")[0]))
    return machine == "free" or _is_old(directory)


def _is_old(directory: Path) -> bool:
    """True when no file of the directory was changed for LEFT_BEHIND_S."""
    try:
        changed_s = max(path.stat().st_mtime for path in (directory, *directory.rglob("*")))
    except OSError:  # another process has renamed it
        return False
    return time.time() - changed_s > LEFT_BEHIND_S


@cache
def _machine() -> str:
    """8 hexadecimal digits for the processes with one numbering: of a container, on a machine since its start."""
    parts = [platform.node()]
    if sys.platform == "linux":
        try:
            boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
            parts += [boot, str(Path("/proc/self/ns/pid").readlink())]
        except OSError:  # no process of another start is known to have ended
            parts = [secrets.token_hex(16)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


def _resumes(earlier: Path, own: Path) -> bool:
    """Rename or copy an earlier download to `own`; False if another process has taken it, or it cannot be copied."""
    if _has_ended(earlier):
        with suppress(OSError):  # Windows renames no directory with a file that is open
            earlier.replace(own)
            return True
    try:
        shutil.copytree(earlier, own, ignore=shutil.ignore_patterns(*NOT_RESUMED))
    except OSError:
        shutil.rmtree(own, ignore_errors=True)
        return False
    return True
