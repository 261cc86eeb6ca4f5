"""Shell completion: the script of a shell, generated from the parser, with the names of settings and models."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping

from speclsp import config
from speclsp.cli.arguments.help_parser import GroupedParser

SHELLS = ("bash", "zsh", "fish", "powershell")


def run(parser: GroupedParser, options: argparse.Namespace) -> int:
    """Print the script that the shell sources."""
    import shtab

    for action in actions(parser):
        if words := WORDS.get((action.dest, str(action.metavar))):
            action.choices = words()  # for the script alone: this parser parses nothing more
    print(shtab.complete(parser, shell=options.shell))
    return 0


def actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The arguments and options of a parser and of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from actions(command)


def settings() -> list[str]:
    """The names of settings."""
    return [known.key for group in config.by_group().values() for known in group]


def assignments() -> list[str]:
    """Names of settings with "=" and, where the values are few, each value."""
    return [f"{key}={value}" for key in settings() for value in values(config.KNOWN[key])]


def values(known: config.Setting) -> tuple[str, ...]:
    """The values of a setting with few; otherwise an empty one."""
    if isinstance(known.default, bool):
        return "true", "false"
    return ("",) if isinstance(known.default, tuple) else tuple(known.rule.choices) or ("",)


def models() -> list[str]:
    """The names of models that can be downloaded."""
    from speclsp.weights import cards

    return [name for name in cards.names() if cards.load(name).target.format in ("safetensors", "gguf")]


WORDS: Mapping[tuple[str, str], Callable[[], list[str]]] = {  # (dest, metavar): the words of an argument
    ("key", "KEY"): settings,
    ("assignments", "KEY=VALUE"): assignments,
    ("model", "NAME"): lambda: ["auto", *models()],
    ("name", "NAME"): models,
}
