"""`speclsp setup`: from an installed package to a first suggestion.

    choose a model ─► check memory ─► ask ─► download ─► test completion ─► config.toml
    ─► lines for editors

Every step can be repeated: a complete download is kept, an interrupted one continues, and `model` is written only where
the settings would select another model.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from speclsp import config as settings
from speclsp.cli import terminal
from speclsp.cli.complete import own_model
from speclsp.cli.first_run import doctor, editors
from speclsp.cli.first_run.doctor_check import FAIL
from speclsp.cli.models import sizes
from speclsp.cli.terminal import streams
from speclsp.config import Config
from speclsp.engine.loading import cpu_speed
from speclsp.errors import InputError, SpeclspError, WeightsError
from speclsp.process_resources import gpus
from speclsp.weights import auto_choice, locations, store
from speclsp.weights.cards import Card, Weights

DECLINED = 1  # exit code after a `no`


def main(flags: Mapping[str, object], yes: bool = False) -> int:
    """Set up; 0 when a completion works, 1 after a `no`. Raises SpeclspError for everything that prevents it."""
    config = settings.load(flags)
    with terminal.progress() as bar:
        bar.step(0.0, "choosing a model for this machine")
        card, why = cpu_speed.choose_card(config, download=True)
    machine = sizes.measure_machine(config)
    print(f"Machine: {machine.device}, {machine.memory_mib} MiB of memory free")
    if problem := gpus.pick_device(config.device)[1]:
        print(f"GPU:     {problem}")
    print(f"Model:   {card.name} ({card.licence}), {why.removeprefix(f'{card.name}, ')}")
    missing = [weights for weights in own_model.needed(config, card) if store.path(weights, config.models_dir) is None]
    if not allowed(card, config, machine, missing, yes):
        print("Nothing was downloaded or changed.")
        return DECLINED
    with terminal.progress() as bar:
        own_model.fetch(config, card, bar, repair=bool(missing))
    test_completion(config, card)
    save_choice(card)
    show_editors()
    return 0


def allowed(card: Card, config: Config, machine: sizes.Machine, missing: list[Weights], yes: bool) -> bool:
    """True when the download may begin. Raises SpeclspError: it does not fit, or there is nobody to ask."""
    obstacle = sizes.obstacle(card, config, machine)
    asks = streams.is_terminal(sys.stdin) and not yes
    if obstacle and (not asks or obstacle.resource != "memory"):
        raise WeightsError(obstacle.sentence)
    if obstacle:
        print(obstacle.sentence[0].upper() + obstacle.sentence[1:])
        if not terminal.confirm("Use it anyway?", default=False):
            return False
    if not missing:
        print("Download: nothing, the model is on this machine")
        return True
    place = locations.store_root()
    existing = settings.nearest_existing(place)
    if not settings.accepts_files(existing):
        raise WeightsError(f"{existing} cannot be written: set XDG_CACHE_HOME to a directory of your own.")
    total_bytes = sum(store.download_bytes(weights, config.models_dir) for weights in missing)
    print(f"Download: {terminal.in_size(total_bytes)} into {place}")
    if yes or not total_bytes:
        return True
    if not streams.is_terminal(sys.stdin):
        raise InputError("setup asks before a download and stdin is no terminal: run `speclsp setup --yes`.")
    return terminal.confirm("Download it now?", default=True)


def test_completion(config: Config, card: Card) -> None:
    """Load the model and print a completion and its times. Raises SpeclspError when it is wrong."""
    check = doctor.completion(config, card)
    if check.status == FAIL:
        raise SpeclspError(f"{check.found}: {check.fix}.")
    print(f"Test:    {check.found}")


def save_choice(card: Card) -> None:
    """Write `model` into config.toml where the settings would select another one. Raises SpeclspError."""
    from speclsp.config import toml_edit

    stored, _ = settings.gather()
    try:
        current = auto_choice.auto(stored)[0].name
    except SpeclspError:
        current = ""  # config.toml names a model that does not exist
    path = settings.config_path()
    if current == card.name:
        print(f"Settings: unchanged, {card.name} is selected already")
        return
    try:
        toml_edit.change(path, {"model": card.name})
    except SpeclspError as error:
        hint = f"The model is ready; select it with `speclsp lsp --model {card.name}`."
        raise SpeclspError(f"{error} {hint}") from None
    print(f"Settings: model = {card.name!r} is written to {path}")


def show_editors() -> None:
    """Print the lines for the editors on this machine."""
    sections = list(editors.installed())
    if not sections:
        print("\nNo known editor is on PATH. Any editor with a language client can start `speclsp lsp`.")
        return
    for text in sections:
        print(f"\n{text}")
