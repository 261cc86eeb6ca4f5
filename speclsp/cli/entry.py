"""The `speclsp` command: its flags, and the exit code and one-line message for every error.

An error that a person can act on is one line on stderr and exit code 2. A traceback is never shown, except to a
developer who sets SPECLSP_TRACEBACK=1. Ctrl-C ends with 130 and a closed pipe with 141, both without a message.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol

from speclsp import __version__
from speclsp.cli import commands
from speclsp.cli.commands import BUG, CLOSED_PIPE, INTERRUPTED, USER_ERROR, complain
from speclsp.errors import SpeclspError

Run = Callable[[argparse.Namespace], int]


class ArgumentParser(argparse.ArgumentParser):
    """argparse with a complaint of one line, like every other error."""

    def error(self, message: str) -> NoReturn:
        self.exit(USER_ERROR, f"{self.prog}: {message} (`{self.prog} --help` shows how).\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; its exit code."""
    try:
        options = parser().parse_args(argv)
        code: int = options.run(options)
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
        hint = "This is a bug in speclsp; SPECLSP_TRACEBACK=1 shows where."
        return complain(f"{type(error).__name__}: {message}. {hint}", BUG)


# ── the flags ──


class AddCommand(Protocol):
    """Adds one subcommand; with the flags for settings, unless `settings` is false."""

    def __call__(self, name: str, run: Run | None, about: str, settings: bool = True) -> argparse.ArgumentParser: ...


def parser() -> ArgumentParser:
    """Every subcommand and flag."""
    top = ArgumentParser(prog="speclsp", description="Local code completion with lossless speculative decoding.")
    top.add_argument("--version", action="version", version=f"speclsp {__version__}")
    subcommands = top.add_subparsers(metavar="COMMAND", required=True)

    def add(name: str, run: Run | None, about: str, settings: bool = True) -> argparse.ArgumentParser:
        command = subcommands.add_parser(name, help=about, description=about)
        command.set_defaults(run=run)
        if settings:
            command.add_argument("--pair", metavar="NAME", help="model pair (`speclsp models list`; default: auto)")
            command.add_argument("--device", metavar="DEVICE", help="auto, cpu, cuda or cuda:N")
            _add_set(command, "any setting of the README's table, as in --set engine.threads=2")
        return command

    _add_servers(add)
    _add_completions(add)
    _add_keys(add)
    _add_reports(add)
    _add_models(add)
    return top


def _add_set(command: argparse.ArgumentParser, about: str) -> None:
    command.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], dest="assignments", help=about)


def _add_servers(add: AddCommand) -> None:
    """The language server and the engine."""
    lsp = add("lsp", commands.run_lsp, "the language server, for editors; speaks on stdin and stdout")
    lsp.add_argument("--stdio", action="store_true", help="accepted for editors that pass it; there is no other way")
    lsp.add_argument("--trace", action="store_true", help="log one line about each request; never source text")

    engine = add("engine", commands.run_engine, "the model's process, one for all editors; `speclsp lsp` starts it")
    mode = engine.add_mutually_exclusive_group()
    mode.add_argument("--foreground", action="store_true", help="serve until told to stop, as without it; for services")
    mode.add_argument("--detach", action="store_true", help="let go of it when it listens; it ends when unused")
    mode.add_argument("--detached", action="store_true", help=argparse.SUPPRESS)  # what --detach starts
    mode.add_argument("--status", action="store_true", help="show the running engine; exit code 1 when none answers")
    mode.add_argument("--stop", action="store_true", help="end the running engine, whoever uses it")
    mode.add_argument("--socket", metavar="PATH", help="listen there and be nobody else's; for experiments")
    engine.add_argument("--watch-parent", metavar="PID", type=int, default=0, help="with --socket: end when it ends")
    engine.add_argument(
        "--lock-fd", metavar="N", type=int, help=argparse.SUPPRESS
    )  # engine.lock, locked by the starter
    engine.add_argument("--tell-fd", metavar="N", type=int, help=argparse.SUPPRESS)  # a pipe to the starter
    engine.add_argument("--port", metavar="N", type=int, help="on this TCP port too, for who sends the token it names")
    engine.add_argument("--host", metavar="ADDRESS", default="", help="of the port (default: loopback)")
    engine.add_argument("--json", action="store_true", help="with --status: print one JSON object")


def _add_completions(add: AddCommand) -> None:
    """Single completions, without an editor."""
    complete = add("complete", commands.run_complete, "complete at a place in a file, and print the suggestion")
    complete.add_argument("spot", metavar="FILE:LINE:COL", help="both count from 1, columns in characters")
    complete.add_argument("--no-speculation", action="store_true", help="decode token by token; the text is the same")
    complete.add_argument("--max-tokens", metavar="N", type=int, help="longest suggestion (completion.max_tokens)")
    complete.add_argument("--json", action="store_true", help="print one JSON object")

    demo = add("demo", commands.run_demo, "complete a hole with and without speculation, and compare")
    demo.add_argument("--repeats", metavar="N", type=int, default=3, help="measured runs of each kind (default: 3)")
    demo.add_argument("hole", metavar="FILE", nargs="?", help="a file with a `# <cursor>` mark (default: an example)")


def _add_keys(add: AddCommand) -> None:
    """Keys for remote servers."""
    key = add("key", None, "the key for a server at backend.url, kept for that server alone", settings=False)
    actions = key.add_subparsers(metavar="ACTION", required=True)
    for name, run, about in (
        ("set", commands.run_key_set, "store the key that is typed, or comes on stdin"),
        ("forget", commands.run_key_forget, "remove it; exit code 1 if there is none"),
    ):
        action = actions.add_parser(name, help=about, description=about)
        action.set_defaults(run=run)
        action.add_argument("url", metavar="URL", help="the server's address; its scheme, host and port count")


def _add_reports(add: AddCommand) -> None:
    """Checks, measurements and reports of this installation."""
    doctor = add(
        "doctor", commands.run_doctor, "check this machine, the weights and a completion; say how to fix what fails"
    )
    doctor.add_argument("--json", action="store_true", help="print one JSON object")

    tune = add(
        "tune", commands.run_tune, "measure this machine on your own files once, and write what is fastest to config"
    )
    tune.add_argument("directory", metavar="DIR", nargs="?", default=".", help="whose files to try (default: here)")
    tune.add_argument("--dry-run", action="store_true", help="measure and show; write nothing")

    explain = add(
        "explain", commands.run_explain, "why the last suggestion is what it is, or why there was none", False
    )
    explain.add_argument("--all", action="store_true", help="one line for each window, the last used first")
    explain.add_argument("--json", action="store_true", help="print one JSON object for each window shown")

    verify = add(
        "verify", commands.run_verify, "make the last requests again, plainly and speculatively: the same text?"
    )
    verify.add_argument("--last", metavar="N", type=int, default=32, help="how many (default, and most kept: 32)")
    verify.add_argument("--recorded", action="store_true", help="those that engine.record has kept on disk")
    verify.add_argument("--forget", action="store_true", help="delete what engine.record has kept")
    verify.add_argument("--json", action="store_true", help="print one JSON object; it holds no text")

    about = "what was suggested in your editors and what became of it; counted and kept on this machine"
    stats = add("stats", commands.run_stats, about, settings=False)
    stats.add_argument("--weeks", metavar="N", type=int, default=12, help="how far back (default: 12)")
    stats.add_argument("--page", metavar="FILE", help="write one HTML page of plots")
    stats.add_argument("--json", action="store_true", help="print one JSON object")
    stats.add_argument("--forget", action="store_true", help="delete all that was counted")


def _add_models(add: AddCommand) -> None:
    """Weights on this machine."""
    models = add("models", None, "the model pairs and their weights", settings=False)
    actions = models.add_subparsers(metavar="ACTION", required=True)
    for name, run, about in (
        ("list", commands.run_models_list, "every pair, and whether its weights are here"),
        ("pull", commands.run_models_pull, "fetch a pair's weights, check and convert them"),
        ("path", commands.run_models_path, "where a pair's weights are; exit code 1 if they are not"),
        ("verify", commands.run_models_verify, "check every byte of the weights that are here"),
    ):
        action = actions.add_parser(name, help=about, description=about)
        action.set_defaults(run=run)
        _add_set(action, "any setting")
        if name == "list":
            action.add_argument("--json", action="store_true", help="print one JSON object")
        else:
            action.add_argument("name", metavar="NAME", nargs="?", help="the pair (default: the one in the settings)")
