"""Table of `speclsp models list`: size, memory, licence, fit and state of every model.

NAME     a model; `*` marks the one that the settings select
FITS     yes | no memory | no torch, on this machine now
STATUS   built in | downloaded | partial | damaged | not downloaded; and the size of prepared weights
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from speclsp.cli import terminal
from speclsp.cli.models import sizes
from speclsp.config import Config
from speclsp.errors import SpeclspError
from speclsp.weights import auto_choice, cards, installation, locations, model_directory, store
from speclsp.weights.cards import Card, Weights

HEAD = ("NAME", "SIZE", "MEMORY", "LICENSE", "FITS", "STATUS")
MIB = 1 << 20

Row = dict[str, Any]  # the facts of a model, as `models list --json` prints them


def rows(config: Config) -> list[Row]:
    """The facts of every model, smallest first."""
    machine, current = sizes.measure_machine(config), current_name(config)
    return [row(cards.load(name), config, machine) | {"current": name == current} for name in cards.names()]


def row(card: Card, config: Config, machine: sizes.Machine) -> Row:
    """The facts of one model."""
    loaded = card.weights(auto_choice.uses_draft(config, machine.device))
    lacking = sizes.obstacle(card, config, machine)
    return {
        "name": card.name,
        "title": card.title,
        "target": card.target.name,
        "draft": card.draft.name if card.draft else "",
        "here": all(store.path(weights, config.models_dir) is not None for weights in loaded),
        "bytes": sum(file.bytes for weights in loaded for file in weights.files),  # 0: not in the card
        "download_bytes": sum(weights.download_bytes() for weights in loaded),
        "prepared_bytes": sum(model_directory.size_of(locations.prepared(weights.name)) for weights in loaded),
        "memory_mib": card.needed_mib(machine.device, machine.memory_mib, config.engine.quantization),
        "licence": card.licence,
        "fits": f"no {lacking.resource}" if lacking else "yes",
        "status": status(loaded, config),
    }


def status(loaded: Sequence[Weights], config: Config) -> str:
    """The state of the files of a target and, if it is loaded, its draft."""
    if all(weights.format in ("none", "bundled") for weights in loaded):
        return "built in"
    states = [installation.state(weights, config.models_dir) for weights in loaded]
    if installation.DAMAGED in states:
        return installation.DAMAGED
    return states[0] if len(set(states)) == 1 or states[0] == installation.MISSING else installation.PARTIAL


def current_name(config: Config) -> str:
    """The model that the settings select; "" for a name without a card. Contacts no server."""
    try:
        return auto_choice.auto(config, hub_answers=lambda: True)[0].name
    except SpeclspError:
        return config.model if config.model != "auto" else ""


def as_text(models: Sequence[Row]) -> str:
    """The models under a header."""
    return terminal.aligned([HEAD, *map(cells, models)], right={1, 2})


def cells(facts: Row) -> tuple[str, ...]:
    """One line of the table. `~`: a size that is estimated."""
    download = f"{'' if facts['bytes'] else '~'}{terminal.in_size(facts['download_bytes'])}"
    prepared = f", {terminal.in_size(facts['prepared_bytes'])} prepared" if facts["prepared_bytes"] else ""
    return (
        f"{facts['name']}{' *' if facts['current'] else ''}",
        download if facts["download_bytes"] else "-",
        terminal.in_size(facts["memory_mib"] * MIB),
        facts["licence"],
        facts["fits"],
        f"{facts['status']}{prepared}",
    )
