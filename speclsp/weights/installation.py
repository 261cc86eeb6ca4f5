"""Installation of fetched weights in the store, their state there, and their removal.

    install   files of one source ─► a GGUF is converted ─► sums, values ─► manifest.json ─► renamed to <store>/<name>/
    remove    <store>/<name>/ ─► renamed into <store>/<name>.fetching/free-removed/ ─► deleted

The sum of a conversion is that of its file, read again after the last write. It must be the sum of the bytes that were
written, and the card's where the card has one. Without one, a fault of the memory during the conversion is not found.

Each rename is one step. An interrupted removal leaves <name>.fetching. The next download or removal deletes it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from speclsp import config
from speclsp.errors import WeightsError
from speclsp.private_files import flush, locks, retry_while_open
from speclsp.private_files.os_errors import sentence
from speclsp.weights import locations, model_directory, store_messages
from speclsp.weights.cards import Weights

WEIGHTS_FILE = "model.safetensors"  # of a conversion
READY, PARTIAL, DAMAGED, MISSING = "downloaded", "partial", "damaged", "not downloaded"


Report = Callable[[str, int, int], None]  # stage, done bytes, total bytes


@dataclass(frozen=True, slots=True)
class Source:
    """Files that were fetched and checked, ready to be installed."""

    name: str  # local | hub | mirror
    revision: str  # the hub's commit, where it came from there
    files: dict[Path, str]  # and the SHA-256, "" where it is not known yet


def install(weights: Weights, source: Source, work: Path, report: Report) -> Path:
    """Build the directory in `work`, write the manifest as its last file, and rename it. Raises WeightsError."""
    manifest: dict[str, Any] = {"repo": weights.repo, "revision": source.revision, "source": source.name}
    if weights.format == "gguf":
        ready = work / "ready"
        manifest |= {"converter": locations.CONVERTER, "made_from": weights.files[0].sha256}
        sums = _convert(weights, next(iter(source.files)), ready, report)
    else:
        ready = work / "hub"
        sums = {file.name: known or model_directory.sum_of(file) for file, known in source.files.items()}
        for stray in set(ready.iterdir()) - set(source.files):
            stray.unlink()
    sizes = {name: (ready / name).stat().st_size for name in sums}
    manifest["files"] = {name: {"bytes": sizes[name], "sha256": digest} for name, digest in sums.items()}
    if problem := model_directory.unfit(ready, "The publisher's files have this defect."):
        shutil.rmtree(work, ignore_errors=True)
        raise WeightsError(problem)
    model_directory.write_manifest(ready, manifest)
    return move_into_place(ready, work, weights)


def _convert(weights: Weights, source: Path, into: Path, report: Report) -> dict[str, str]:
    """Convert `source` into the new directory `into`; {file: SHA-256}. Raises WeightsError, and `into` is removed."""
    from speclsp.weights.gguf.convert import convert

    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    before = source.stat()
    written = convert(source, into, partial(report, "convert"))
    total = written[WEIGHTS_FILE].bytes

    def advance(done: int, *_: object) -> None:
        report("check", done, total)

    sums = {name: model_directory.sum_on_disk(into / name, advance) for name in written}
    wanted = {name: entry.sha256 for name, entry in written.items()}
    wanted[WEIGHTS_FILE] = weights.converted_sum(locations.CONVERTER) or wanted[WEIGHTS_FILE]
    problem = model_directory.unfit_values(into, store_messages.FAULTY_DISK, advance)
    if different := next((name for name in sums if sums[name] != wanted[name]), None):
        problem = store_messages.wrong_conversion(weights, into / different, sums[different], wanted[different])
    after = source.stat()
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        problem = f"{source} was changed during its conversion. Run `speclsp models pull {weights.name}` again."
    if problem:
        shutil.rmtree(into, ignore_errors=True)
        raise WeightsError(problem)
    return sums


def is_whole(directory: Path, weights: Weights) -> bool:
    """True when every byte of the directory is right: an earlier fetch was interrupted just before the final rename."""
    if not locations.is_current(directory, weights):
        return False
    return not (locations.damage(directory, weights, "") or model_directory.altered(directory, ""))


def move_into_place(ready: Path, work: Path, weights: Weights) -> Path:
    """Rename a complete directory to its final path; an older one is moved away first, also in one step.

    The directory of another process that installed the same weights meanwhile is kept.
    """
    final, aside = locations.store_root() / weights.name, work / "replaced"
    flush(ready)
    while not is_whole(final, weights):
        if final.exists():
            shutil.rmtree(aside, ignore_errors=True)
            with suppress(FileNotFoundError):  # another process moved it
                retry_while_open(lambda: final.replace(aside))
        try:
            retry_while_open(lambda: ready.replace(final))
            break
        except OSError:
            if not final.exists():  # otherwise another process has installed it: the errno differs by system
                raise
    flush(final.parent)
    shutil.rmtree(work, ignore_errors=True)
    return final


def state(weights: Weights, models_dir: str = "") -> str:
    """READY | PARTIAL | DAMAGED | MISSING, from names and sizes; takes a few milliseconds."""
    if weights.format == "none":
        return READY
    for directory in locations.candidates(weights, models_dir):
        if model_directory.is_there(directory):
            return DAMAGED if locations.damage(directory, weights, "") else READY
    final, work = _places(weights)
    if model_directory.is_there(work):
        return PARTIAL
    return DAMAGED if model_directory.is_there(final) else MISSING


def remove(weights: Weights, models_dir: str = "") -> int:
    """Delete the files in the store, also those of an interrupted download; the bytes that this freed.

    Raises WeightsError: a download holds the lock, the files are the user's own or another user's, or there are none.
    """
    if weights.format in ("none", "bundled"):
        raise WeightsError(f"{weights.name} is not in the store of downloads, so nothing is removed.")
    final, work = _places(weights)
    if not (final.exists() or final.is_symlink() or work.exists()):
        if own := locations.users_directory(weights, models_dir):
            raise WeightsError(f"{own} is in your models_dir, where speclsp removes nothing: delete it yourself.")
        raise WeightsError(f"{weights.name} is not downloaded, so there is nothing to remove.")
    if problem := config.foreign_problem("cache"):
        raise WeightsError(problem)
    try:
        lock = locks.acquire(final.with_name(f"{weights.name}.lock"))
        if lock is None:
            fix = "wait for its end or stop it, then try again."
            raise WeightsError(f"{weights.name} is being downloaded by another process: {fix}")
        try:
            freed_bytes = model_directory.size_of(final) + model_directory.size_of(work)
            if final.is_symlink():
                final.unlink()  # the directory it names is not ours
            elif final.exists():
                aside = work / "free-removed" / "replaced"
                aside.parent.mkdir(parents=True, exist_ok=True)
                shutil.rmtree(aside, ignore_errors=True)
                retry_while_open(lambda: final.replace(aside))
            if work.is_symlink():
                work.unlink()
            elif work.exists():
                shutil.rmtree(work)
        finally:
            os.close(lock)
    except OSError as error:
        raise WeightsError(sentence(error, final, "be removed")) from None
    return freed_bytes


def _places(weights: Weights) -> tuple[Path, Path]:
    """The directory of the weights and the directory of an interrupted download."""
    return locations.store_root() / weights.name, locations.downloads(weights)
