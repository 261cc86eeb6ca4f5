"""Shell completion: the script for bash, zsh or fish, generated from the parser."""

from __future__ import annotations

import argparse

from speclsp.cli.arguments.help_parser import GroupedParser

SHELLS = ("bash", "zsh", "fish")


def run(parser: GroupedParser, options: argparse.Namespace) -> int:
    """Print the script that the shell sources."""
    import shtab

    print(shtab.complete(parser, shell=options.shell))
    return 0
