"""Models of a benchmark: the flags that name them, their settings, and loading them in this process."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from speclsp import config
from speclsp.cli import terminal
from speclsp.cli.complete import own_model
from speclsp.config import Config
from speclsp.weights import auto_choice

if TYPE_CHECKING:
    from speclsp.engine.decoding.completion import CompletionEngine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--model, once for each, and --set."""
    parser.add_argument(
        "--model",
        metavar="NAME",
        action="append",
        default=[],
        dest="pairs",
        help="model, can be given again (default: the one in the settings)",
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="assignments",
        help="any setting (`speclsp config list --advanced`)",
    )


def settings(options: argparse.Namespace, fixed: Mapping[str, object] | None = None) -> list[Config]:
    """The settings for each requested model; `fixed` are those that the benchmark itself needs. Raises ConfigError."""
    assignments = dict(config.from_words(words) for words in options.assignments)
    models = [{"model": name} for name in options.pairs] or [{}]
    return [config.load({**(fixed or {}), **assignments, **model}) for model in models]


def engine(settings: Config) -> CompletionEngine:
    """The model of `settings`, fetched if it must be, warmed up. Raises SpeclspError."""
    card, _ = auto_choice.auto(settings)
    with terminal.progress() as bar:
        own_model.fetch(settings, card, bar)
        bar.step(0.0, "starting")
        from speclsp.engine.loading import loading

        return loading.load(settings, card, bar.step)


def about(engine: CompletionEngine) -> dict[str, object]:
    """The models that were measured, and the cost of their passes on this machine."""
    costs = asdict(engine.costs)
    names = {name: getattr(engine, name) for name in ("target", "draft", "device")}
    return {"pair": engine.model, **names, "costs_ms": {name.removesuffix("_ms"): ms for name, ms in costs.items()}}
