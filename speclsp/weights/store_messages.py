"""Error sentences of the weights store: what happened, the figures, and the command or action that fixes it."""

from __future__ import annotations

from pathlib import Path

from speclsp.errors import WeightsError
from speclsp.weights import cards
from speclsp.weights.cards import Weights

STAGES = {"fetch": "fetching", "check": "checking"}  # of store.Progress
UNCHANGED_BYTES = "The file was deleted. A proxy or a mirror that changes downloads must be avoided."


class SourceError(Exception):
    """The hub or the package index cannot give the files; str() says why, in part of a sentence.

    `fix`: a sentence with the way out. `final`: asking again will not help.
    """

    def __init__(self, why: str, fix: str = "", final: bool = True) -> None:
        super().__init__(why)
        self.fix, self.final = fix, final


def wrong_download(source: str, name: str, received: str, wanted: str, fix: str = "") -> SourceError:
    """For a file with another size or checksum than expected."""
    return SourceError(f"{source} sent {name} with {received}: expected {wanted}", f"{UNCHANGED_BYTES} {fix}".rstrip())


def repair(weights: Weights, is_users_own: bool) -> str:
    """The fix for a damaged directory; `is_users_own`: it is in the user's models_dir, where nothing is changed."""
    pull = f"`speclsp models pull {weights.name}`"
    if weights.format == "bundled":
        return cards.DIRECTORY if Path(weights.name).is_absolute() else "Install speclsp again."
    if is_users_own:
        return (
            f"The directory is yours, so speclsp changes nothing there: restore its files, or remove it and run {pull}."
        )
    return f"Repair: {pull}."


def not_fetched(weights: Weights, reasons: list[str], fixes: list[str]) -> WeightsError:
    """For weights that no source has given: the reasons in their order, and the first source's way out."""
    by_hand = f"{weights.files[0].name} into" if weights.format == "gguf" else f"its files into {weights.name}/ in"
    return WeightsError(
        f"{weights.name} is not on this machine: {'; '.join(reasons)}. {next(filter(None, fixes), '')} "
        f"Then run `speclsp models pull {weights.name}`, or put {by_hand} models_dir."
    )


def not_here(weights: Weights) -> str:
    """For a command that needs weights which were never fetched."""
    return f"{weights.name} is not on this machine: `speclsp models pull {weights.name}` downloads it."
