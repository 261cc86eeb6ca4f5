"""Removal of downloaded weights: deletes one model's files in the store, and nothing outside it.

    <store>/<name>/  ─► renamed into <store>/<name>.fetching/replaced  ─► deleted

The rename is one step. An interrupted removal leaves <name>.fetching, which counts as a partial download: `ensure`
fetches the model again, and another removal deletes the rest.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from speclsp import config
from speclsp.errors import WeightsError
from speclsp.private_files import locks, retry_while_open
from speclsp.private_files.os_errors import sentence
from speclsp.weights import locations, model_directory
from speclsp.weights.cards import Weights

READY, PARTIAL, DAMAGED, MISSING = "downloaded", "partial", "damaged", "not downloaded"


def state(weights: Weights, models_dir: str = "") -> str:
    """READY | PARTIAL | DAMAGED | MISSING, from names and sizes; takes a few milliseconds."""
    if weights.format == "none":
        return READY
    for directory in locations.candidates(weights, models_dir):
        if model_directory.is_there(directory):
            return DAMAGED if model_directory.damage(directory, "") else READY
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
            freed_bytes = size_of(final) + size_of(work)
            if final.is_symlink():
                final.unlink()  # the directory it names is not ours
            elif final.exists():
                work.mkdir(exist_ok=True)
                shutil.rmtree(work / "replaced", ignore_errors=True)
                retry_while_open(lambda: final.replace(work / "replaced"))
            if work.is_symlink():
                work.unlink()
            elif work.exists():
                shutil.rmtree(work)
        finally:
            os.close(lock)
    except OSError as error:
        raise WeightsError(sentence(error, final, "be removed")) from None
    return freed_bytes


def size_of(directory: Path) -> int:
    """Bytes of the files below `directory`; links count nothing."""
    if directory.is_symlink():
        return 0
    return sum(file.lstat().st_size for file in directory.rglob("*") if file.is_file() and not file.is_symlink())


def partial_bytes(weights: Weights) -> int:
    """Bytes of an interrupted download, which the next one continues."""
    return size_of(_places(weights)[1])


def _places(weights: Weights) -> tuple[Path, Path]:
    """The directory of the weights and the directory of an interrupted download."""
    directory = locations.store_root() / weights.name
    return directory, directory.with_name(f"{weights.name}.fetching")
