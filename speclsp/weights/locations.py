"""Places of a model's weights: the user's models_dir, the cache, the package itself, and other programs' caches.

<cache>/models/<name>/                   complete weights
<cache>/models/<name>.prepared/<key>/    the same, packed for this CPU: made from them, and made anew at any time
<cache>/models/<name>.fetching/          the download under way or interrupted
<cache>/models/<name>.lock               held by the process that writes into any of these
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from speclsp import config
from speclsp.weights import cards, model_directory
from speclsp.weights.cards import Weights
from speclsp.weights.gguf import other_caches


def store_root() -> Path:
    """The cache's directory of all weights."""
    return config.cache_dir() / "models"


def final(weights: Weights) -> Path:
    """The directory of complete weights."""
    return store_root() / weights.name


def fetching(weights: Weights) -> Path:
    """The directory of the download under way or interrupted."""
    return store_root() / f"{weights.name}.fetching"


def lock_file(weights: Weights) -> Path:
    """The lock of the process that writes into the directories of these weights."""
    return store_root() / f"{weights.name}.lock"


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
    return "" if directory.is_dir() else f"{setting} is no directory: create it, correct the setting, or remove it."


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
    if is_current(final(weights), weights):
        yield final(weights)


def first_there(weights: Weights, models_dir: str) -> Path | None:
    """The first of `candidates` that is not empty."""
    return next(filter(model_directory.is_there, candidates(weights, models_dir)), None)


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
    return other_caches.find(weights.repo, file.name, file.bytes)


def is_current(directory: Path, weights: Weights) -> bool:
    """True when the directory holds the revision or the GGUF that the card names."""
    if not os.path.lexists(directory / model_directory.MANIFEST):
        return False
    if model_directory.unread_manifest(directory, ""):
        return True  # `damage` names the obstacle; a second download would hide it
    if weights.format == "gguf":
        return model_directory.sums_of(directory).get(weights.files[0].name) == weights.files[0].sha256
    return not weights.revision or model_directory.manifest(directory).get("revision") == weights.revision
