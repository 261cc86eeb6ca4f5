"""The model of demo, doctor and setup: its choice, its weights on the disk, and an engine in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speclsp.config import Config
from speclsp.engine.api import Completer

if TYPE_CHECKING:
    from speclsp.cli.terminal import ProgressLine
    from speclsp.weights.cards import Card, Weights
    from speclsp.weights.store import Progress


def needed(config: Config, card: Card) -> tuple[Weights, ...]:
    """The weights that a completion with `card` uses."""
    from speclsp.weights import auto_choice

    return card.weights(auto_choice.uses_draft(config, auto_choice.device_of(config.device)))


def fetch(config: Config, card: Card, bar: ProgressLine, repair: bool = False) -> None:
    """Fetch missing weights and show size, rate and time left. `repair` hashes the weights that are here.

    Raises WeightsError.
    """
    from speclsp.weights import store

    for weights in needed(config, card):
        store.ensure(
            weights,
            models_dir=config.models_dir,
            offline=config.engine.offline,
            progress=lambda step: draw(bar, step),
            repair=repair,
        )


def draw(bar: ProgressLine, step: Progress) -> None:
    """Draw one step of fetching or checking weights."""
    from speclsp.weights.store_messages import STAGES

    if step.total_bytes:
        bar.bytes(step.done_bytes, step.total_bytes, f"{STAGES[step.stage]} {step.detail}")
    else:
        bar.show(step.detail, 0.0, "")


def open_engine(config: Config, bar: ProgressLine, card: Card | None = None) -> tuple[Completer, str]:
    """An engine in this process, and the reason for its model. Fetches missing weights. Raises SpeclspError."""
    if config.model == "echo":
        from speclsp.engine.decoding.echo import EchoCompleter

        return EchoCompleter(config), "no model"
    from speclsp.engine.loading import cpu_speed

    chosen, why = (card, "") if card else cpu_speed.choose_card(config)
    fetch(config, chosen, bar)
    bar.step(0.0, "starting")
    from speclsp.engine.loading import loading

    return loading.load(config, chosen, bar.step), why
