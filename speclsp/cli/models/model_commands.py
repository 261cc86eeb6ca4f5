"""One function for each action of `speclsp models`; each returns the exit code."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from typing import TYPE_CHECKING

from speclsp import config
from speclsp.cli.command_line import FAILURE, SUCCESS, complain, flags
from speclsp.config import Config
from speclsp.errors import InputError, SpeclspError, WeightsError

if TYPE_CHECKING:
    from speclsp.weights.cards import Card, Weights


def run_list(options: argparse.Namespace) -> int:
    """Print the table, or one JSON object with the same facts."""
    from speclsp.cli.models import table
    from speclsp.weights import locations

    settings = config.load(flags(options))
    facts = table.rows(settings)
    print(json.dumps({"models": facts}) if options.json else table.as_text(facts))
    if problem := locations.models_dir_problem(settings.models_dir):
        complain(problem, SUCCESS)
    return SUCCESS


def selected(options: argparse.Namespace, download: bool = False) -> tuple[Config, Card]:
    """The settings, and the card that the command line names or that they select; see `auto_choice.auto`."""
    settings = config.load(flags(options) | ({"model": options.name} if options.name else {}))
    from speclsp.weights import auto_choice

    return settings, auto_choice.auto(settings, download)[0]


def run_pull(options: argparse.Namespace) -> int:
    """Fetch weights that are missing or damaged, and keep those that are intact."""
    settings, card = selected(options, download=True)
    from speclsp.cli import terminal
    from speclsp.cli.complete import own_model

    with terminal.progress() as bar:
        own_model.fetch(settings, card, bar, repair=True)
    print(f"{card.name} is ready")
    return SUCCESS


def run_verify(options: argparse.Namespace) -> int:
    """Hash the weights; exit code 1, with the repair command, for a wrong byte or a missing file."""
    settings, card = selected(options)
    from speclsp.cli import terminal
    from speclsp.cli.complete import own_model
    from speclsp.weights import store

    for weights in own_model.needed(settings, card):
        with terminal.progress() as bar:
            try:
                result = store.verify(weights, settings.models_dir, progress=partial(own_model.draw, bar))
            except SpeclspError as error:
                bar.close()
                return complain(str(error), FAILURE)
        print(f"{weights.name}: {result}")
    return SUCCESS


def run_remove(options: argparse.Namespace) -> int:
    """Delete a model's weights from the store, after a question. Raises SpeclspError: in use, or nothing is there."""
    settings = config.load(flags(options))
    from speclsp.cli import terminal
    from speclsp.cli.terminal import streams
    from speclsp.weights import cards, installation

    card = cards.load(options.name)
    refuse_in_use(card.target)
    if not options.yes and installation.state(card.target, settings.models_dir) != installation.MISSING:
        if not streams.is_terminal(sys.stdin):
            raise InputError(f"stdin is no terminal to confirm on: `speclsp models remove {card.name} --yes`.")
        if not terminal.confirm(f"Remove {card.name} from this machine?", default=False):
            print("Nothing is removed.")
            return FAILURE
    freed_bytes = installation.remove(card.target, settings.models_dir)
    print(f"{card.name} is removed; {terminal.in_size(freed_bytes)} are free again")
    return SUCCESS


def refuse_in_use(weights: Weights) -> None:
    """Raise WeightsError while an engine of this user's has the weights loaded."""
    from speclsp.daemon import control

    for status in control.statuses():
        loaded = [str(status.get(role) or "").partition(" ")[0] for role in ("target", "draft")]
        if weights.name in loaded:
            raise WeightsError(
                f"{weights.name} is loaded by an engine (process {status.get('pid')}): run `speclsp engine stop` first."
            )
