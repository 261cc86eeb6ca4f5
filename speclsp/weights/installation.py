"""Installation of fetched weights in the store, their state there, and their removal.

    install   files in <name>.fetching/ ─► config, tokenizer of a GGUF ─► manifest.json ─► renamed to <name>/
    remove    <name>/ and every directory beside it

The sums of config.json and tokenizer.json are those of their files, read again after the last write. They must be the
sums of the bytes that were written. Each rename is one step.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speclsp.errors import WeightsError
from speclsp.private_files import flush, locks, retry_while_open
from speclsp.private_files.os_errors import sentence
from speclsp.weights import locations, model_directory
from speclsp.weights.cards import Weights

READY, PARTIAL, DAMAGED, MISSING = "downloaded", "partial", "damaged", "not downloaded"


@dataclass(frozen=True, slots=True)
class FetchedFiles:
    """Checked files in the directory of the download."""

    sums: dict[str, str]  # SHA-256 by name; "" where it is not known yet
    revision: str = ""  # the hub's commit, if it has them
    modified_ns: int = 0  # time of change before the sum was computed, of a GGUF that others may write; else 0


def install(weights: Weights, fetched: FetchedFiles) -> Path:
    """Write the manifest as the last file, and rename the directory of the download. Raises WeightsError."""
    ready = locations.fetching(weights)
    for stray in ready.iterdir():
        if stray.name not in fetched.sums:
            discard(stray)
    sums = {name: known or model_directory.sum_of(ready / name) for name, known in fetched.sums.items()}
    if weights.format == "gguf":
        sums |= _write_model_files(weights, ready)
    files: dict[str, Any] = {
        name: {"bytes": (ready / name).stat().st_size, "sha256": digest} for name, digest in sums.items()
    }
    if fetched.modified_ns:
        files[weights.files[0].name]["modified_ns"] = fetched.modified_ns
    if problem := model_directory.unfit(ready, "The publisher's files have this defect."):
        shutil.rmtree(ready, ignore_errors=True)
        raise WeightsError(problem)
    manifest = {"repo": weights.repo, "revision": fetched.revision, "files": files}
    model_directory.write_manifest(ready, manifest)
    return move_into_place(weights)


def _write_model_files(weights: Weights, ready: Path) -> dict[str, str]:
    """Write config and tokenizer of the GGUF beside it; {file: SHA-256}. Raises WeightsError."""
    from speclsp.weights.gguf.model_files import model_files

    sums = {}
    for name, content in model_files(ready / weights.files[0].name).items():
        file, wanted = ready / name, hashlib.sha256(content).hexdigest()
        file.write_bytes(content)
        sums[name] = model_directory.sum_on_disk(file)
        if sums[name] != wanted:
            raise WeightsError(
                f"{file} of {weights.name} has sha256 {sums[name]} after it was written: expected {wanted}. The disk, "
                "its connection or the memory changes bytes: check them, then run the command again."
            )
    return sums


def is_whole(directory: Path, weights: Weights, advance: Callable[[int, int, str], None] | None = None) -> bool:
    """True when every byte of the directory is right, as of a download that was interrupted before its rename."""
    if not locations.is_current(directory, weights):
        return False
    return not (model_directory.damage(directory, "") or model_directory.altered(directory, "", advance))


def move_into_place(weights: Weights) -> Path:
    """Rename the complete directory of the download, in place of damaged or older weights."""
    ready, final = locations.fetching(weights), locations.final(weights)
    flush(ready)
    discard(final)  # after a kill the next fetch finds the complete download and goes on here
    retry_while_open(lambda: ready.replace(final))
    flush(final.parent)
    return final


def discard(path: Path) -> None:
    """Remove a file, a directory or a link, but not what a link names. Raises OSError."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        retry_while_open(lambda: path.unlink(missing_ok=True))


def state(weights: Weights, models_dir: str = "") -> str:
    """READY | PARTIAL | DAMAGED | MISSING, from names and sizes; takes a few milliseconds."""
    if weights.format == "none":
        return READY
    if directory := locations.first_there(weights, models_dir):
        return DAMAGED if model_directory.damage(directory, "") else READY
    if model_directory.is_there(locations.fetching(weights)):
        return PARTIAL
    return DAMAGED if model_directory.is_there(locations.final(weights)) else MISSING


def remove(weights: Weights, models_dir: str = "") -> int:
    """Delete the files in the store, also prepared ones and an interrupted download; the bytes that this freed.

    Raises WeightsError: a download holds the lock, the files are the user's own or another user's, or there are none.
    """
    if weights.format in ("none", "bundled"):
        raise WeightsError(f"{weights.name} is not in the store of downloads, so nothing is removed.")
    final = locations.final(weights)
    places = (final, locations.fetching(weights), locations.prepared(weights.name))
    if not any(map(os.path.lexists, places)):
        if own := locations.users_directory(weights, models_dir):
            raise WeightsError(f"{own} is in your models_dir, where speclsp removes nothing: delete it yourself.")
        raise WeightsError(f"{weights.name} is not downloaded, so there is nothing to remove.")
    try:
        lock = locks.acquire(locations.lock_file(weights))
        if lock is None:
            fix = "wait for its end or stop it, then try again."
            raise WeightsError(f"{weights.name} is being downloaded by another process: {fix}")
        try:
            freed_bytes = sum(map(model_directory.size_of, places))
            for place in places:
                discard(place)
        finally:
            os.close(lock)
    except OSError as error:
        raise WeightsError(sentence(error, final, "be removed")) from None
    return freed_bytes
