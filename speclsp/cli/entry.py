"""Entry point of the `speclsp` command: the exit code and the one-line message for every error.

An error that a person can act on is one line on stderr and exit code 2. A traceback is never shown, except to a
developer who sets SPECLSP_TRACEBACK=1. Ctrl-C and Windows' Ctrl-Break end with 130 and a closed pipe with 141, all
without a message. A closed stdout or stderr discards; an stdout that cannot take the output, as on a full disk, is an
error.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence

from speclsp import process_resources
from speclsp.cli.arguments.command_tree import parser
from speclsp.cli.arguments.help_parser import ArgumentParser
from speclsp.cli.command_line import BUG, CLOSED_PIPE, INTERRUPTED, SUCCESS, USER_ERROR, complain
from speclsp.cli.terminal import streams
from speclsp.errors import MAX_MESSAGE, SpeclspError, shortened
from speclsp.private_files import os_errors

__all__ = ["ArgumentParser", "guarded", "main", "parser"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; its exit code."""

    streams.prepare_streams()
    if sys.platform == "win32":
        signal.signal(signal.SIGBREAK, signal.default_int_handler)  # else Ctrl-Break ends the process on the spot

    def run() -> int:
        options = parser().parse_args(argv)
        code: int = options.run(options)
        return code

    return guarded(run, complain, "This is a bug in speclsp; the variable SPECLSP_TRACEBACK=1 shows where.")


def guarded(run: Callable[[], int], complain: Callable[[str, int], int], bug_hint: str) -> int:
    """The exit code of `run`; every error becomes one line through `complain`, which returns its second argument."""
    code, problem = outcome(run, bug_hint)
    unwritten = streams.flush_stdout()
    if unwritten is not None and not problem:
        code, problem = of_stdout(unwritten)
    streams.write_stderr("")  # argparse drops an error of stderr, whose buffer would fail again at the end
    return complain(problem, code) if problem else code


def of_stdout(error: OSError) -> tuple[int, str]:
    """The exit code and the sentence for an error of stdout; "" where its reader has gone."""
    if streams.is_closed_pipe(error):
        return CLOSED_PIPE, ""
    return USER_ERROR, os_errors.sentence(error, "stdout", "be written")


def outcome(run: Callable[[], int], bug_hint: str) -> tuple[int, str]:
    """The exit code of `run`, and the sentence for an error; "" where there is none to print."""
    try:
        return run(), ""
    except SystemExit as leaving:  # argparse has printed its help or its error
        return leaving.code if isinstance(leaving.code, int) else SUCCESS, ""
    except SpeclspError as error:
        return USER_ERROR, str(error)
    except KeyboardInterrupt:
        return INTERRUPTED, ""
    except OSError as error:
        if os.environ.get("SPECLSP_TRACEBACK"):
            raise
        unwritten = streams.flush_stdout()  # it fails again after an error of stdout
        if unwritten is not None or isinstance(error, BrokenPipeError):
            return of_stdout(unwritten or error)
        return USER_ERROR, os_errors.sentence(error)
    except MemoryError:
        fix = process_resources.memory().limit_fix(2**62) or "close other programs"
        return USER_ERROR, f"no memory is left: {fix}, or set a smaller model."
    except Exception as error:
        if os.environ.get("SPECLSP_TRACEBACK"):
            raise
        message = (str(error).splitlines() or [""])[0]
        return BUG, f"{type(error).__name__}: {shortened(message, MAX_MESSAGE)}. {bug_hint}"
