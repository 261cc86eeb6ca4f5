"""The prompt style that was measured for a model's weights on this machine.

    prompt-styles.json   {machine, weights: {NAME SUM: order, heal, exact, default_exact, places}}

`tune` measures it, and `setup` does so for a model in a directory, whose order no card states. Without a
measurement, the style of the card, or of the directory's model family, is used.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from speclsp import config as settings
from speclsp import private_files
from speclsp.engine.decoding.prompt import PromptStyle
from speclsp.weights import auto_choice
from speclsp.weights.cards import Card

FILE = "prompt-styles.json"
MAX_BYTES = 1 << 16
ORDERS = ("lines", "standard", "spm")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptChoice:
    """A chosen style, and the lines that it and the card's style restored exactly."""

    order: str
    heal: bool
    exact: int
    default_exact: int
    places: int

    @property
    def style(self) -> PromptStyle:
        return PromptStyle(self.order, self.heal)


def path() -> Path:
    """The file of the measurements."""
    return settings.stats_path().with_name(FILE)


def is_stated(card: Card) -> bool:
    """True if a card states the order; False for a model in a directory, which may be tuned for another."""
    return not Path(card.name).is_absolute()


def style(card: Card) -> PromptStyle:
    """The measured style of these weights, or the card's."""
    choice = recorded(card)
    return choice.style if choice else PromptStyle.of_family(card)


def recorded(card: Card) -> PromptChoice | None:
    """The measurement of these weights on this machine; None if there is none that can be used."""
    try:
        choice = PromptChoice(**_entries()[_key(card)])
    except (KeyError, TypeError):  # none, or one that a person has edited
        return None
    counts = (choice.exact, choice.default_exact, choice.places)
    usable = choice.order in ORDERS and isinstance(choice.heal, bool) and all(type(count) is int for count in counts)
    return choice if usable else None


def record(card: Card, choice: PromptChoice) -> None:
    """Keep a measurement. Where that fails, the next `setup` measures again."""
    entries = {"machine": auto_choice.machine_name(), "weights": _entries() | {_key(card): asdict(choice)}}
    with contextlib.suppress(OSError):
        path().parent.mkdir(parents=True, exist_ok=True)
        private_files.replace(path(), json.dumps(entries).encode())


def _entries() -> dict[str, Any]:
    """The measurements of this machine."""
    try:
        content = json.loads(private_files.read_bytes(path(), MAX_BYTES))
        return dict(content["weights"]) if content["machine"] == auto_choice.machine_name() else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _key(card: Card) -> str:
    """The target's name and what identifies its files: checksum, revision, or number of parameters."""
    target = card.target
    sums = "".join(file.sha256[:12] for file in target.files)
    return f"{target.name} {sums or target.revision[:12] or target.parameters}"
