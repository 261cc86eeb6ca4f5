"""Tables of `speclsp models list`: size, memory, licence, fit and state of every model; and the adapters.

NAME     a model; `*` marks the one that the settings select
FITS     yes | no memory | no disk, on this machine now
STATUS   built in | downloaded | partial | damaged | not downloaded; and the size of prepared weights
ADAPTER  an adapter; `*` marks those that the settings select for that model and its draft model
"""

from __future__ import annotations

from collections.abc import Sequence

from speclsp.cli import terminal
from speclsp.cli.models import sizes
from speclsp.config import Config
from speclsp.errors import SpeclspError
from speclsp.weights import adapters, auto_choice, cards, installation, store
from speclsp.weights.adapters import AdapterCard, AdapterError
from speclsp.weights.cards import Card, Weights

ADAPTER_HEAD = ("ADAPTER", "WEIGHTS", "JOBS", "SIZE", "LICENSE", "STATUS")
HEAD = ("NAME", "SIZE", "MEMORY", "LICENSE", "FITS", "STATUS")
MIB = 1 << 20


def rows(config: Config) -> list[dict[str, object]]:
    """The facts of every model, smallest first; `models list --json` prints them."""
    machine = sizes.measure_machine(config)
    current = current_name(config, machine)
    listed = [cards.load(name) for name in cards.names()]
    return [row(card, config, machine, current) for card in listed]


def row(card: Card, config: Config, machine: sizes.Machine, current: str) -> dict[str, object]:
    """The facts of one model."""
    loaded = card.weights(auto_choice.uses_draft(config, machine.device))
    return {
        "name": card.name,
        "title": card.title,
        "target": card.target.name,
        "draft": card.draft.name if card.draft else "",
        "here": all(store.path(weights, config.models_dir) is not None for weights in loaded),
        "bytes": sum(file.bytes for weights in loaded for file in weights.files),  # 0: not in the card
        "download_bytes": sum(weights.download_bytes() for weights in loaded),
        "prepared_bytes": sum(map(installation.prepared_bytes, loaded)),  # on the disk, beside the download
        "memory_mib": sizes.needed_mib(card, config, machine),
        "licence": card.licence,
        "fits": sizes.fits(card, config, machine),
        "status": status(loaded, config),
        "current": card.name == current,
    }


def status(loaded: Sequence[Weights], config: Config) -> str:
    """The state of the files of a target and, if it is loaded, its draft."""
    if all(weights.format in ("none", "bundled") for weights in loaded):
        return "built in"
    states = [installation.state(weights, config.models_dir) for weights in loaded]
    for state in (installation.DAMAGED, installation.PARTIAL):
        if state in states:
            return state
    if installation.MISSING in states:
        return installation.MISSING if states[0] == installation.MISSING else installation.PARTIAL
    return installation.READY


def current_name(config: Config, machine: sizes.Machine) -> str:
    """The model that the settings select; "" for a name without a card. Contacts no server."""
    if config.model != "auto":
        return config.model
    try:
        return auto_choice.choose_by_settings(config, machine.memory_mib, machine.device, lambda: True)[0].name
    except SpeclspError:
        return ""


def adapter_rows(config: Config, current: str) -> tuple[list[dict[str, object]], list[str]]:
    """The facts of every adapter, and a sentence for each defect. `current`: the model that the settings select."""
    known, problems = adapters.listing(config.models_dir)
    try:
        loaded = cards.load(current).weights() if current not in ("", "echo") else ()
    except SpeclspError:
        loaded = ()
    usable = [card for card in known if card.file.exists()]
    used = {next((card.name for card in usable if card.belongs_to(weights)), "") for weights in loaded}
    used = set() if config.engine.adapter == "none" else used
    listed = []
    for card in known:
        try:
            adapters.read(card)
            state = "ready"
        except AdapterError as error:
            state = "damaged" if card.file.exists() else "missing"
            problems.append(str(error))
        listed.append(adapter_row(card, state, card.name in used))
    return listed, problems


def adapter_row(card: AdapterCard, state: str, used: bool) -> dict[str, object]:
    """The facts of one adapter."""
    return {
        "name": card.name,
        "weights": card.weights,
        "jobs": list(card.jobs),
        "bytes": card.file.stat().st_size if card.file.exists() else 0,
        "licence": card.licence,
        "data": card.data,
        "status": state,
        "current": used,
    }


def as_text(facts: Sequence[dict[str, object]], of_adapters: Sequence[dict[str, object]] = ()) -> str:
    """The models under a header, and below them the adapters if there are any."""
    models = terminal.aligned([HEAD, *map(cells, facts)], right={1, 2})
    if not of_adapters:
        return models
    return f"{models}\n\n{terminal.aligned([ADAPTER_HEAD, *map(adapter_cells, of_adapters)], right={3})}"


def cells(facts: dict[str, object]) -> tuple[str, ...]:
    """One line of the table."""
    download, memory = int(str(facts["download_bytes"])), int(str(facts["memory_mib"]))
    estimate = "" if facts["bytes"] else "~"
    prepared = int(str(facts["prepared_bytes"]))
    return (
        f"{facts['name']}{' *' if facts['current'] else ''}",
        f"{estimate}{terminal.in_size(download)}" if download else "-",
        terminal.in_size(memory * MIB),
        str(facts["licence"]),
        str(facts["fits"]),
        f"{facts['status']}{f', {terminal.in_size(prepared)} prepared' if prepared else ''}",
    )


def adapter_cells(facts: dict[str, object]) -> tuple[str, ...]:
    """One line of the adapters' table."""
    return (
        f"{facts['name']}{' *' if facts['current'] else ''}",
        str(facts["weights"]),
        ", ".join(map(str, facts["jobs"])) if isinstance(facts["jobs"], list) else "",
        terminal.in_size(int(str(facts["bytes"]))),
        str(facts["licence"]),
        str(facts["status"]),
    )
