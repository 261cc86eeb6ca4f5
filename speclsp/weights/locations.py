"""Places of a model's weights: the user's models_dir, the cache, the package itself, and other programs' caches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from speclsp import config
from speclsp.weights import cards, model_directory
from speclsp.weights.cards import Weights
from speclsp.weights.gguf import other_caches

CONVERTER = 2  # version of the GGUF conversion; raised when it writes different files, so that older ones are replaced
WITHOUT_BLOCKS = 1  # the version that widened all tensors to bf16; it still loads, as int8


def store_root() -> Path:
    """The cache's directory of all weights."""
    return config.cache_dir() / "models"


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

    A directory with a GGUF is not one: the GGUF is converted into the cache.
    """
    for name in dict.fromkeys((weights.name, weights.repo.rpartition("/")[2])):
        directory = Path(models_dir).expanduser() / name
        if models_dir and name and model_directory.is_there(directory) and not any(directory.glob("*.gguf")):
            return directory
    return None


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
    """The GGUF that can be converted without a download, by name and size; `ensure` compares its checksum."""
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
    """True when the directory holds the revision and conversion that the card names, and not an older one."""
    if not (directory / model_directory.MANIFEST).is_symlink() and not (directory / model_directory.MANIFEST).is_file():
        return False
    if model_directory.unread_manifest(directory, ""):
        return True  # `damage` names the obstacle; a second download would hide it
    manifest = model_directory.manifest(directory)
    if weights.format == "gguf":
        return manifest.get("made_from") == weights.files[0].sha256 and manifest.get("converter") in (
            WITHOUT_BLOCKS,
            CONVERTER,
        )
    return not weights.revision or manifest.get("revision") == weights.revision
