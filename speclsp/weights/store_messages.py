"""Error sentences of the weights store: what happened, the figures, and the command or action that fixes it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from speclsp.weights import cards
from speclsp.weights.cards import Weights

FAULTY_DISK = "The disk, its connection or the memory changes bytes: check them, then run the command again."
STAGES = {"fetch": "fetching", "check": "checking"}  # of store.Progress


def repair(weights: Weights, is_users_own: bool) -> str:
    """The fix for a damaged directory; `is_users_own`: it is in the user's models_dir, where nothing is changed."""
    pull = f"`speclsp models pull {weights.name}`"
    if weights.format == "bundled" and Path(weights.name).is_absolute():
        return cards.DIRECTORY
    if weights.format == "bundled":
        return "Install speclsp again."
    if is_users_own:
        return (
            f"The directory is yours, so speclsp changes nothing there: restore its files, or remove it and run {pull}."
        )
    return f"Repair: {pull}."


def how_to_fetch(weights: Weights, fix: str = "") -> str:
    """The fix for weights that could not be fetched. `fix`: a sentence; "" where a network connection is missing."""
    by_hand = f"{weights.files[0].name} into" if weights.format == "gguf" else f"its files into {weights.name}/ in"
    first = f"{fix} Then" if fix else "Go online and"
    return f"{first} run `speclsp models pull {weights.name}`, or put {by_hand} models_dir."


def not_here(weights: Weights) -> str:
    """For a command that needs weights which were never fetched."""
    return f"{weights.name} is not on this machine: `speclsp models pull {weights.name}` downloads it."


def wrong_gguf(weights: Weights, file: Path, size_bytes: int, digest: str) -> str:
    """For a GGUF in models_dir that is not the card's; `digest` is "" where the size differs already."""
    wanted = weights.files[0]
    bytes_wanted = f"{wanted.bytes} bytes and " if wanted.bytes else ""
    return (
        f"{file} has {size_bytes} bytes{f' and sha256 {digest}' if digest else ''}: expected {bytes_wanted}"
        f"sha256 {wanted.sha256}. Replace it, or remove it and run `speclsp models pull {weights.name}`."
    )


def wrong_file(weights: Weights, file: Path, digest: str, wanted: str) -> str:
    """For a file that is not the one that was written."""
    return f"{file} of {weights.name} has sha256 {digest} after it was written: expected {wanted}. {FAULTY_DISK}"


def verified(sums: Mapping[str, str]) -> str:
    """The result of a check without a fault."""
    return "all checksums match" if sums else "complete and its values are finite; no checksums are known"


def no_space(weights: Weights, need_bytes: int, free_bytes: int, directory: Path) -> str:
    """For a disk that is too small, found before the fetch."""
    return (
        f"{weights.name} needs {need_bytes} free bytes in {directory}, which has {free_bytes}: "
        f"free {need_bytes - free_bytes} bytes more, or set XDG_CACHE_HOME to a larger disk."
    )
