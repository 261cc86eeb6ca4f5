"""Reference of the command line as Markdown, generated from the parser: docs/cli.md."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from speclsp.cli.arguments.help_parser import HIDDEN, GroupedParser

HEAD = """\
# Command line

`make docs` generates this page from the parser.
Every command accepts `--help`. Errors are one line on stderr.

| exit code | meaning |
|---|---|
| 0 | success |
| 1 | the command ran, and its answer is no (a check failed, nothing was there) |
| 2 | wrong arguments, settings or input, or an stdout that takes no output; the line says how to correct it |
| 70 | a bug in speclsp; `SPECLSP_TRACEBACK=1` shows where |
| 130, 141 | interrupted with Ctrl-C; the reading end of the pipe was closed |

A closed stdout or stderr discards what is written. An escape replaces a character that the terminal's encoding lacks.
"""


def as_markdown(parser: GroupedParser) -> str:
    """The whole page."""
    lines = [HEAD]
    children = commands_of(parser)
    for heading, commands in parser.groups:
        lines += [f"## {heading}", ""]
        for name, about in commands:
            lines += [f"### speclsp {name}", "", f"{about}.", "", *section(children[name])]
    return "\n".join(lines).rstrip("\n") + "\n"


def section(command: argparse.ArgumentParser) -> Iterator[str]:
    """The lines of one command: its options, or those of its actions."""
    actions = commands_of(command)
    yield from rows(command)
    for name, action in actions.items():
        yield from (f"#### {command.prog} {name}", "", action.description or "", "", *rows(action))


def rows(command: argparse.ArgumentParser) -> Iterator[str]:
    """A table of arguments and options."""
    options = [
        action
        for action in command._actions
        if action.help != HIDDEN and action.dest != "help" and not isinstance(action, argparse._SubParsersAction)
    ]
    if not options:
        return
    yield from ("| option | action |", "|---|---|")
    for option in options:
        value = f" {option.metavar}" if option.metavar and option.nargs != 0 else ""
        name = option.option_strings[-1] + value if option.option_strings else f"{option.metavar}"
        name = "{" + ", ".join(option.choices) + "}" if option.choices and not option.option_strings else name
        yield f"| `{name}` | {(option.help or '').replace('|', chr(92) + '|')} |"
    yield ""


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """{name: parser} of the commands or actions below `parser`; {} without any."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}
