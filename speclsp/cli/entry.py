"""Entry point of the `speclsp` command: the exit code and the one-line message for every error.

An error that a person can act on is one line on stderr and exit code 2. A traceback is never shown, except to a
developer who sets SPECLSP_TRACEBACK=1. Ctrl-C ends with 130 and a closed pipe with 141, both without a message.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from speclsp.cli.arguments.command_tree import parser
from speclsp.cli.arguments.help_parser import ArgumentParser
from speclsp.cli.commands import BUG, CLOSED_PIPE, INTERRUPTED, USER_ERROR, complain
from speclsp.errors import SpeclspError

__all__ = ["ArgumentParser", "guarded", "main", "parser"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; its exit code."""

    def run() -> int:
        options = parser().parse_args(argv)
        code: int = options.run(options)
        return code

    return guarded(run, complain, "This is a bug in speclsp; SPECLSP_TRACEBACK=1 shows where.")


def guarded(run: Callable[[], int], complain: Callable[[str, int], int], bug_hint: str) -> int:
    """The exit code of `run`; every error becomes one line through `complain`, which returns its second argument."""
    try:
        code = run()
        sys.stdout.flush()
        return code
    except SpeclspError as error:
        return complain(str(error), USER_ERROR)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the interpreter's last flush must not complain either
        return CLOSED_PIPE
    except OSError as error:
        if os.environ.get("SPECLSP_TRACEBACK"):
            raise
        file = f"{error.filename}: " if error.filename else ""
        return complain(f"{file}{error.strerror or error}.", USER_ERROR)
    except Exception as error:
        if os.environ.get("SPECLSP_TRACEBACK"):
            raise
        message = (str(error).splitlines() or [""])[0][:200]
        return complain(f"{type(error).__name__}: {message}. {bug_hint}", BUG)
