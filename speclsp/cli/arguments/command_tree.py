"""Tree of commands and options: every name, default and help sentence of the `speclsp` command line.

`make docs` writes the reference from this tree; a test compares the two.
"""

from __future__ import annotations

import argparse

from speclsp import __version__
from speclsp.cli import commands, config_command
from speclsp.cli.arguments.help_parser import HIDDEN, ArgumentParser, Commands
from speclsp.cli.models import model_commands as models

DESCRIPTION = "Local code completion for your editor."
EPILOG = """\
First step: speclsp setup
Settings: speclsp config list
Options of a command: speclsp COMMAND --help"""


def parser() -> ArgumentParser:
    """Every command and option, in the order of the help."""
    top = ArgumentParser("speclsp", None, DESCRIPTION, EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--version", action="version", version=f"speclsp {__version__}", help="Show the version and exit")
    tree = Commands(top, "COMMAND")
    _add_setup(tree)
    _add_doctor(tree)
    _add_demo(tree)
    _add_models(tree)
    _add_config(tree)
    _add_complete(tree)
    _add_stats(tree)
    _add_lsp(tree)
    _add_engine(tree)
    _add_key(tree)
    return top


# ── options of several commands ──


def _add_settings(command: ArgumentParser) -> None:
    """The options that change settings for one run."""
    command.add_argument("--model", metavar="NAME", help="Use this model (`speclsp models list` shows the names)")
    command.add_argument("--device", metavar="DEVICE", help="Run the model on auto, cpu, cuda or cuda:N")
    _add_set(command)


def _add_set(command: ArgumentParser) -> None:
    command.add_argument(
        *("--set",), metavar="KEY=VALUE", action="append", default=[], dest="assignments",
        help="Change one setting for this run, as in --set engine.threads=2",
    )  # fmt: skip


def _add_json(command: ArgumentParser, about: str = "Print one JSON object") -> None:
    command.add_argument("--json", action="store_true", help=about)


# ── commands ──


def _add_setup(tree: Commands) -> None:
    setup = tree.add("setup", commands.run_setup, "Choose and download a model, then show how to connect your editor")
    setup.add_argument("--yes", action="store_true", help="Download without a question")
    _add_settings(setup)


def _add_doctor(tree: Commands) -> None:
    doctor = tree.add("doctor", commands.run_doctor, "Check this machine, the model and a test completion")
    _add_settings(doctor)
    _add_json(doctor)


def _add_demo(tree: Commands) -> None:
    demo = tree.add("demo", commands.run_demo, "Complete an example with and without speculative decoding")
    demo.add_argument(
        "hole", metavar="FILE", nargs="?", help="Complete this file at its `# <cursor>` mark (default: an example)"
    )
    demo.add_argument("--repeats", metavar="N", type=int, default=3, help="Measure N runs of each kind (default: 3)")
    _add_settings(demo)


def _add_models(tree: Commands) -> None:
    actions = Commands(tree.add("models", None, "List, download, verify or remove models"))
    listing = actions.add("list", models.run_list, "List the models: size, memory, license, fit and state")
    _add_json(listing)
    _add_set(listing)
    for name, run, about in (
        ("pull", models.run_pull, "Download a model, or repair a damaged download"),
        ("verify", models.run_verify, "Check every byte of a downloaded model against its checksums"),
    ):
        action = actions.add(name, run, about)
        action.add_argument("name", metavar="NAME", nargs="?", help="Name the model (default: the current one)")
        _add_set(action)
    removal = actions.add("remove", models.run_remove, "Delete a downloaded model and say how much disk that freed")
    removal.add_argument("name", metavar="NAME", help="Name the model")
    removal.add_argument("--yes", action="store_true", help="Delete without a question")
    _add_set(removal)


def _add_config(tree: Commands) -> None:
    actions = Commands(tree.add("config", None, "Show or change settings"))
    listing = actions.add("list", config_command.run_list, "Show the settings in groups, with value and source")
    listing.add_argument("--advanced", action="store_true", help="Show advanced settings too")
    _add_json(listing)
    for name, run, about in (
        ("get", config_command.run_get, "Print the value of one setting"),
        ("set", config_command.run_set, "Write one setting into config.toml; comments and other lines stay"),
        ("unset", config_command.run_unset, "Remove one setting from config.toml; exit code 1 if it is not there"),
    ):
        action = actions.add(name, run, about)
        action.add_argument("key", metavar="KEY", help="Name the setting, as in completion.eagerness")
        if name == "set":
            action.add_argument(
                "value", metavar="VALUE", help="Give the new value; commas separate the items of a list"
            )
    actions.add("path", config_command.run_path, "Print the path of config.toml")


def _add_complete(tree: Commands) -> None:
    complete = tree.add("complete", commands.run_complete, "Complete at FILE:LINE:COL and print the suggestion")
    complete.add_argument("spot", metavar="FILE:LINE:COL", help="Complete here (line and column count from 1)")
    _add_json(complete)
    _add_settings(complete)


def _add_stats(tree: Commands) -> None:
    stats = tree.add(
        "stats",
        commands.run_stats,
        "Show how many suggestions you accepted (counted on this machine only)",
    )
    stats.add_argument("--forget", action="store_true", help="Delete all statistics")
    _add_json(stats)


def _add_lsp(tree: Commands) -> None:
    lsp = tree.add("lsp", commands.run_lsp, "Run the language server on stdin and stdout (started by editors)")
    lsp.add_argument("--stdio", action="store_true", help="Accept the flag that editors send; it changes nothing")
    lsp.add_argument(
        "--copilot",
        action="store_true",
        help="Serve next edits only, to a client written for Copilot's language server",
    )
    lsp.add_argument("--trace", action="store_true", help="Log one line for each request, without source text")
    _add_settings(lsp)


def _add_engine(tree: Commands) -> None:
    engine = tree.add(
        "engine", commands.run_engine, "Run, start, stop or inspect the model processes; HTTP API with --port"
    )
    engine.add_argument(
        *("action",), metavar="ACTION", nargs="?", choices=("start", "stop", "status"),
        help="start: run in the background until unused; stop: end all engines, even while editors use them; status: "
        "show their states (exit code 1 if none runs or one is silent). Default: run in the foreground",
    )  # fmt: skip
    engine.add_argument(
        "--port", metavar="N", type=int, help="Serve an HTTP API on this TCP port too (clients must send a token)"
    )
    engine.add_argument("--host", metavar="ADDRESS", default="", help="Bind --port to this address (default: loopback)")
    engine.add_argument("--lock-fd", metavar="N", type=int, help=HIDDEN)  # the lock, taken by the starter
    engine.add_argument("--tell-fd", metavar="N", type=int, help=HIDDEN)  # a pipe to the starter
    _add_json(engine, "Print one JSON object; needs status")
    _add_settings(engine)


def _add_key(tree: Commands) -> None:
    actions = Commands(tree.add("key", None, "Store or remove the API key of a remote server"))
    for name, run, about in (
        ("set", commands.run_key_set, "Store a key, read from the terminal or from stdin"),
        ("forget", commands.run_key_forget, "Remove the stored key; exit code 1 if there is none"),
    ):
        action = actions.add(name, run, about)
        action.add_argument("url", metavar="URL", help="Name the server; only scheme, host and port are used")
