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
        self.exit(USER_ERROR, f"{self.prog}: {message} (`{self.prog} --help` lists the options).\n")


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
            _add_set(command, "change one setting for this run, as in --set engine.threads=2 (README lists them)")
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
    lsp = add("lsp", commands.run_lsp, "run the language server on stdin and stdout; editors start it")
    lsp.add_argument(
        "--stdio", action="store_true", help="accepted and ignored: stdin and stdout are the only transport"
    )
    lsp.add_argument("--trace", action="store_true", help="log one line for each request, without source text")

    engine = add("engine", commands.run_engine, "run or control the engine, the process that holds the models")
    mode = engine.add_mutually_exclusive_group()
    mode.add_argument(
        "--foreground", action="store_true", help="serve until stopped (the default); for service managers"
    )
    mode.add_argument("--detach", action="store_true", help="start it in the background; it exits when unused")
    mode.add_argument("--detached", action="store_true", help=argparse.SUPPRESS)  # what --detach starts
    mode.add_argument(
        "--status", action="store_true", help="show the running engine's state; exit code 1 if none answers"
    )
    mode.add_argument("--stop", action="store_true", help="stop the running engine, even while editors use it")
    mode.add_argument("--socket", metavar="PATH", help="run a separate engine on this Unix socket; for experiments")
    engine.add_argument(
        "--watch-parent", metavar="PID", type=int, default=0, help="with --socket: exit when this process ends"
    )
    engine.add_argument(
        "--lock-fd", metavar="N", type=int, help=argparse.SUPPRESS
    )  # engine.lock, locked by the starter
    engine.add_argument("--tell-fd", metavar="N", type=int, help=argparse.SUPPRESS)  # a pipe to the starter
    engine.add_argument(
        "--port", metavar="N", type=int, help="also serve HTTP on this TCP port; clients must send a token"
    )
    engine.add_argument("--host", metavar="ADDRESS", default="", help="address for --port (default: loopback)")
    engine.add_argument("--json", action="store_true", help="with --status: print one JSON object")


def _add_completions(add: AddCommand) -> None:
    """Single completions, without an editor."""
    complete = add("complete", commands.run_complete, "print the suggestion for one position in a file")
    complete.add_argument("spot", metavar="FILE:LINE:COL", help="position; line and column count from 1, in characters")
    complete.add_argument(
        "--no-speculation", action="store_true", help="decode without speculation; the text is the same"
    )
    complete.add_argument(
        "--max-tokens", metavar="N", type=int, help="maximum length of the suggestion (completion.max_tokens)"
    )
    complete.add_argument("--json", action="store_true", help="print one JSON object")

    demo = add("demo", commands.run_demo, "time one completion with and without speculation")
    demo.add_argument(
        "--repeats", metavar="N", type=int, default=3, help="timed runs with and without speculation (default: 3)"
    )
    demo.add_argument(
        "hole", metavar="FILE", nargs="?", help="file with a `# <cursor>` mark (default: a bundled example)"
    )


def _add_keys(add: AddCommand) -> None:
    """Keys for remote servers."""
    key = add("key", None, "store or remove the API key of a remote server", settings=False)
    actions = key.add_subparsers(metavar="ACTION", required=True)
    for name, run, about in (
        ("set", commands.run_key_set, "store a key, read from the terminal or stdin"),
        ("forget", commands.run_key_forget, "remove the stored key; exit code 1 if there is none"),
    ):
        action = actions.add_parser(name, help=about, description=about)
        action.set_defaults(run=run)
        action.add_argument("url", metavar="URL", help="address of the server; only scheme, host and port are used")


def _add_reports(add: AddCommand) -> None:
    """Checks, measurements and reports of this installation."""
    doctor = add("doctor", commands.run_doctor, "check the machine, the weights and one completion; print fixes")
    doctor.add_argument("--json", action="store_true", help="print one JSON object")

    tune = add("tune", commands.run_tune, "measure decoding on your files and write the fastest settings")
    tune.add_argument(
        "directory", metavar="DIR", nargs="?", default=".", help="directory of source files to measure (default: .)"
    )
    tune.add_argument("--dry-run", action="store_true", help="print the measurements without writing config.toml")

    explain = add("explain", commands.run_explain, "explain the last suggestion, or why none was shown", False)
    explain.add_argument("--all", action="store_true", help="print one line for each editor window, most recent first")
    explain.add_argument("--json", action="store_true", help="print one JSON object for each window")

    verify = add("verify", commands.run_verify, "replay recent requests to check that speculation is lossless")
    verify.add_argument(
        "--last", metavar="N", type=int, default=32, help="number of requests (default and maximum: 32)"
    )
    verify.add_argument("--recorded", action="store_true", help="replay the requests that engine.record wrote to disk")
    verify.add_argument("--forget", action="store_true", help="delete the requests that engine.record wrote to disk")
    verify.add_argument("--json", action="store_true", help="print one JSON object without source text")

    about = "show usage statistics, which stay on this machine"
    stats = add("stats", commands.run_stats, about, settings=False)
    stats.add_argument("--weeks", metavar="N", type=int, default=12, help="number of weeks (default: 12)")
    stats.add_argument("--page", metavar="FILE", help="write an HTML page with plots")
    stats.add_argument("--json", action="store_true", help="print one JSON object")
    stats.add_argument("--forget", action="store_true", help="delete all statistics")


def _add_models(add: AddCommand) -> None:
    """Weights on this machine."""
    models = add("models", None, "list, download and check model weights", settings=False)
    actions = models.add_subparsers(metavar="ACTION", required=True)
    for name, run, about in (
        ("list", commands.run_models_list, "list the model pairs and whether their weights are downloaded"),
        ("pull", commands.run_models_pull, "download, check and convert a pair's weights"),
        ("path", commands.run_models_path, "print the directory of a pair's weights; exit code 1 if missing"),
        ("verify", commands.run_models_verify, "check the checksums of downloaded weights"),
    ):
        action = actions.add_parser(name, help=about, description=about)
        action.set_defaults(run=run)
        _add_set(action, "change one setting for this run")
        if name == "list":
            action.add_argument("--json", action="store_true", help="print one JSON object")
        else:
            action.add_argument("name", metavar="NAME", nargs="?", help="model pair (default: the one in the settings)")
