"""Parser with errors of one line, and its commands."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NoReturn

from speclsp.cli.command_line import USER_ERROR

HIDDEN = argparse.SUPPRESS
Run = Callable[[argparse.Namespace], int]


class ArgumentParser(argparse.ArgumentParser):
    """argparse with an error message of one line, like every other error of speclsp."""

    def error(self, message: str) -> NoReturn:
        self.exit(USER_ERROR, f"{self.prog}: {message} (`{self.prog} --help` lists the options).\n")


class Commands:
    """The commands of a parser, or the actions of a command, as `list` and `pull` of `speclsp models`."""

    def __init__(self, parser: ArgumentParser, metavar: str = "ACTION") -> None:
        self._commands = parser.add_subparsers(metavar=metavar, required=True, parser_class=ArgumentParser)

    def add(self, name: str, run: Run | None, about: str) -> ArgumentParser:
        """Add a command. `run` is None for one that only has actions."""
        command: ArgumentParser = self._commands.add_parser(name, help=about, description=f"{about}.")
        if run is not None:
            command.set_defaults(run=run)
        return command
