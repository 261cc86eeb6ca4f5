"""Installation of fetched weights in the store, their state there, and their removal.

    install   files of one source ─► config, tokenizer of a GGUF ─► manifest.json ─► renamed to <store>/<name>/
    remove    <store>/<name>/ ─► renamed into <store>/<name>.fetching/free-removed/ ─► deleted, <name>.prepared/ as well

The sums of config.json and tokenizer.json are those of their files, read again after the last write. They must be the
sums of the bytes that were written.

Each rename is one step. An interrupted removal leaves <name>.fetching. The next download or removal deletes it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speclsp.errors import WeightsError
from speclsp.private_files import flush, locks, retry_while_open
from speclsp.private_files.os_errors import sentence
from speclsp.weights import locations, model_directory, store_messages
from speclsp.weights.cards import Weights

READY, PARTIAL, DAMAGED, MISSING = "downloaded", "partial", "damaged", "not downloaded"


@dataclass(frozen=True, slots=True)
class Source:
    """Files that were fetched and checked, ready to be installed."""

    name: str  # local | another program | hub | mirror
    revision: str  # the hub's commit, where it came from there
    files: dict[Path, str]  # and the SHA-256, "" where it is not known yet
    modified_ns: int = 0  # time of change before the sum was computed, of a file that others may write; else 0


def install(weights: Weights, source: Source, work: Path) -> Path:
    """Build the directory in `work`, write the manifest as its last file, and rename it. Raises WeightsError."""
    manifest: dict[str, Any] = {"repo": weights.repo, "revision": source.revision, "source": source.name}
    if weights.format == "gguf":
        ready = work / "ready"
        sums = _with_model_files(weights, source, ready)
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


def _with_model_files(weights: Weights, source: Source, into: Path) -> dict[str, str]:
    """Write config and tokenizer of the source's GGUF into `into`, and move it there; {file: SHA-256}.

    Raises WeightsError.
    """
    from speclsp.weights.gguf.model_files import model_files

    ((gguf_file, gguf_sum),) = source.files.items()
    if gguf_file.parent != into:
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir(parents=True)
    sums = {}
    for name, content in model_files(gguf_file).items():
        file, wanted = into / name, hashlib.sha256(content).hexdigest()
        file.write_bytes(content)
        sums[name] = model_directory.sum_on_disk(file)
        if sums[name] != wanted:
            raise WeightsError(store_messages.wrong_file(weights, file, sums[name], wanted))
    if source.modified_ns not in (0, gguf_file.stat().st_mtime_ns):
        again = f"run `speclsp models pull {weights.name}` again."
        raise WeightsError(f"{gguf_file.name} was changed while it was installed: {again}")
    retry_while_open(lambda: gguf_file.replace(into / gguf_file.name))
    return sums | {gguf_file.name: gguf_sum}


def is_whole(directory: Path, weights: Weights) -> bool:
    """True when every byte of the directory is right: an earlier fetch was interrupted just before the final rename."""
    if not locations.is_current(directory, weights):
        return False
    return not (model_directory.damage(directory, "") or model_directory.altered(directory, ""))


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
            return DAMAGED if model_directory.damage(directory, "") else READY
    final, work = _places(weights)
    if model_directory.is_there(work):
        return PARTIAL
    return DAMAGED if model_directory.is_there(final) else MISSING


def remove(weights: Weights, models_dir: str = "") -> int:
    """Delete the files in the store, also prepared ones and an interrupted download; the bytes that this freed.

    Raises WeightsError: a download holds the lock, the files are the user's own or another user's, or there are none.
    """
    if weights.format in ("none", "bundled"):
        raise WeightsError(f"{weights.name} is not in the store of downloads, so nothing is removed.")
    final, work = _places(weights)
    prepared = locations.prepared(weights.name)
    if not (final.exists() or final.is_symlink() or work.exists() or prepared.exists()):
        if own := locations.users_directory(weights, models_dir):
            raise WeightsError(f"{own} is in your models_dir, where speclsp removes nothing: delete it yourself.")
        raise WeightsError(f"{weights.name} is not downloaded, so there is nothing to remove.")
    try:
        lock = locks.acquire(final.with_name(f"{weights.name}.lock"))
        if lock is None:
            fix = "wait for its end or stop it, then try again."
            raise WeightsError(f"{weights.name} is being downloaded by another process: {fix}")
        try:
            freed_bytes = sum(map(model_directory.size_of, (final, work, prepared)))
            if prepared.exists():
                shutil.rmtree(prepared)
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


def prepared_bytes(weights: Weights) -> int:
    """Bytes of the prepared weights on the disk."""
    return model_directory.size_of(locations.prepared(weights.name))


def _places(weights: Weights) -> tuple[Path, Path]:
    """The directory of the weights and the directory of an interrupted download."""
    return locations.store_root() / weights.name, locations.downloads(weights)
