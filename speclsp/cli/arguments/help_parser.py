"""Parser with grouped help: one line for each command under its group, and errors of one line.

Tree.group("Use")             a heading of `speclsp --help`
Tree.command("stats", ...)    a command under the last heading; its parser is returned for its own options
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NoReturn

from speclsp.cli.command_line import USER_ERROR

NAME_COLUMNS = 12  # width of a command's name in the help
HIDDEN = argparse.SUPPRESS
Run = Callable[[argparse.Namespace], int]


class ArgumentParser(argparse.ArgumentParser):
    """argparse with an error message of one line, like every other error of speclsp."""

    def error(self, message: str) -> NoReturn:
        self.exit(USER_ERROR, f"{self.prog}: {message} (`{self.prog} --help` lists the options).\n")


class GroupedParser(ArgumentParser):
    """The top-level parser, whose help lists the commands under headings."""

    groups: list[tuple[str, list[tuple[str, str]]]]  # (heading, [(command, sentence)])

    def format_help(self) -> str:
        lines = [f"{self.prog} – {self.description}", "", f"Usage: {self.prog} COMMAND [OPTIONS]", ""]
        for heading, commands in self.groups:
            lines += [heading, *(f"  {name:<{NAME_COLUMNS}}{about}" for name, about in commands), ""]
        return "\n".join([*lines, *(self.epilog or "").splitlines()]) + "\n"


class Tree:
    """Builder of the whole parser; `parser` is complete once every command is added."""

    def __init__(self, prog: str, description: str, epilog: str) -> None:
        self.parser = GroupedParser(prog=prog, description=description, epilog=epilog)
        self.parser.groups = []
        self._commands = self.parser.add_subparsers(metavar="COMMAND", required=True, parser_class=ArgumentParser)

    def group(self, heading: str) -> None:
        """Start a heading of the help."""
        self.parser.groups.append((heading, []))

    def command(self, name: str, run: Run | None, about: str) -> ArgumentParser:
        """Add a command under the last heading. `run` is None for a command that only has actions."""
        command: ArgumentParser = self._commands.add_parser(name, help=about, description=f"{about}.")
        if run is not None:
            command.set_defaults(run=run)
        self.parser.groups[-1][1].append((name, about))
        return command


class Actions:
    """The actions of a command, as `list` and `pull` of `speclsp models`."""

    def __init__(self, command: ArgumentParser) -> None:
        self._actions = command.add_subparsers(metavar="ACTION", required=True, parser_class=ArgumentParser)

    def add(self, name: str, run: Run, about: str) -> ArgumentParser:
        """Add one action."""
        action: ArgumentParser = self._actions.add_parser(name, help=about, description=f"{about}.")
        action.set_defaults(run=run)
        return action
