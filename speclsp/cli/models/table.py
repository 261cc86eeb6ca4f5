"""Tables of `speclsp models list`: size, memory, licence, fit and state of every model; and the adapters.

NAME     a model; `*` marks the one that the settings select
FITS     yes | no memory | no disk | no torch, on this machine now
STATUS   built in | downloaded | partial | damaged | not downloaded; and the size of prepared weights
ADAPTER  an adapter; `*` marks those that the settings select for that model and its draft model
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from speclsp.cli import terminal
from speclsp.cli.models import sizes
from speclsp.config import Config
from speclsp.errors import SpeclspError
from speclsp.weights import adapters, auto_choice, cards, installation, locations, model_directory, store
from speclsp.weights.adapters import AdapterError
from speclsp.weights.cards import Card, Weights

ADAPTER_HEAD = ("ADAPTER", "WEIGHTS", "SIZE", "LICENSE", "STATUS")
HEAD = ("NAME", "SIZE", "MEMORY", "LICENSE", "FITS", "STATUS")
MIB = 1 << 20

Row = dict[str, Any]  # the facts of a model or an adapter, as `models list --json` prints them


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


def adapter_rows(config: Config, current: str) -> tuple[list[Row], list[str]]:
    """The facts of every adapter, and a sentence for each defect. `current`: the model that the settings select."""
    known, problems = adapters.listing(config.models_dir)
    try:
        with_draft = auto_choice.uses_draft(config, auto_choice.device_of(config.device))
        loaded = cards.load(current).weights(with_draft) if config.engine.adapter != "none" else ()
    except SpeclspError:
        loaded = ()
    used = [adapters.of_weights(weights, known) for weights in loaded]
    listed = []
    for card in known:
        try:
            adapters.read(card)
            state = "ready"
        except AdapterError as error:
            state = "damaged" if card.file.exists() else "missing"
            problems.append(str(error))
        size = card.file.stat().st_size if card.file.exists() else 0
        facts = {"name": card.name, "weights": card.weights, "bytes": size, "licence": card.licence}
        listed.append(facts | {"data": card.data, "status": state, "current": card in used})
    return listed, problems


def as_text(models: Sequence[Row], of_adapters: Sequence[Row]) -> str:
    """The models under a header, and below them the adapters if there are any."""
    text = terminal.aligned([HEAD, *map(cells, models)], right={1, 2})
    if not of_adapters:
        return text
    return f"{text}\n\n{terminal.aligned([ADAPTER_HEAD, *map(adapter_cells, of_adapters)], right={2})}"


def cells(facts: Row) -> tuple[str, ...]:
    """One line of the table. `~`: a size that is estimated."""
    download = f"{'' if facts['bytes'] else '~'}{terminal.in_size(facts['download_bytes'])}"
    prepared = f", {terminal.in_size(facts['prepared_bytes'])} prepared" if facts["prepared_bytes"] else ""
    return (
        marked(facts),
        download if facts["download_bytes"] else "-",
        terminal.in_size(facts["memory_mib"] * MIB),
        facts["licence"],
        facts["fits"],
        f"{facts['status']}{prepared}",
    )


def adapter_cells(facts: Row) -> tuple[str, ...]:
    """One line of the adapters' table."""
    return (marked(facts), facts["weights"], terminal.in_size(facts["bytes"]), facts["licence"], facts["status"])


def marked(facts: Row) -> str:
    """The name, marked if the settings select it."""
    return f"{facts['name']}{' *' if facts['current'] else ''}"
