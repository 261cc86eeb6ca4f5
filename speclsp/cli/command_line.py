"""Parts that every command shares: its exit codes, its line on stderr, and the settings that its flags give."""

from __future__ import annotations

import argparse

from speclsp import config
from speclsp.cli.terminal import streams

SUCCESS, FAILURE, USER_ERROR, BUG, INTERRUPTED, CLOSED_PIPE = 0, 1, 2, 70, 130, 141  # exit codes


def complain(message: str, code: int) -> int:
    """Write one line on stderr; returns `code`."""
    line = " ".join(message.splitlines())
    streams.write_stderr(f"speclsp: {line}\n")
    return code


def flags(options: argparse.Namespace) -> dict[str, object]:
    """The settings of the command line, by dotted key; --model and --device win over --set."""
    assigned = dict(config.from_words(words) for words in options.assignments)
    named = {"model": getattr(options, "model", None), "device": getattr(options, "device", None)}
    return assigned | {key: value for key, value in named.items() if value is not None}
