"""One function per subcommand. Each imports what it needs inside, so that `speclsp lsp` starts quickly.

Every function takes argparse's options and returns the exit code.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from speclsp import config
from speclsp.cli.command_line import FAILURE, SUCCESS, complain, flags
from speclsp.cli.terminal import streams
from speclsp.errors import ConfigError

if TYPE_CHECKING:
    from speclsp.cli.complete.answers import PrintedAnswer


# ── the language server and the engine ──


def run_lsp(options: argparse.Namespace) -> int:
    """Serve an editor on stdin and stdout.

    A bad flag ends it, in the editor's log. A bad config.toml does not: the server reports it and works without.
    """
    settings = flags(options)
    _, problems = config.parse(settings)
    if problems:
        raise config.BadSettings(problems)
    gc.disable()  # during the imports: `serve` enables it again
    from speclsp.lsp.protocol.opening import Opening

    opening = Opening(settings, options.copilot)  # before the other imports: one of them might print
    from speclsp.lsp.server import app

    return app.main(opening, trace=options.trace)


def run_engine(options: argparse.Namespace) -> int:
    """Serve as this user's engine for these settings; or report on the running engines, or end them."""
    if options.json and options.action != "status":
        raise ConfigError("--json", "given", "`speclsp engine status --json`")
    if options.action == "stop":
        return stop_engines()
    if options.action == "status":
        return show_engines(options.json)
    settings = config.load(flags(options))
    if options.port is not None and not 0 <= options.port <= 65535:
        raise ConfigError("--port", options.port, "a port number from 1 to 65535, or 0 for any free port")
    if options.host and options.port is None:
        raise ConfigError("--host", options.host, "--port on the same command line")
    from speclsp.daemon.engine_files import EngineFiles
    from speclsp.engine.process import daemonize, shared_engine

    lock = None if options.lock_fd is None else EngineFiles.of(settings).inherited(options.lock_fd)
    if lock is not None and options.tell_fd is not None:
        daemonize.run_as_daemon(settings, lock, options.host, options.port, options.tell_fd)
    if options.action == "start":
        return daemonize.start_detached(settings, lock, options.host, options.port)
    return shared_engine.run_foreground(settings, options.host, options.port)


def stop_engines() -> int:
    """End all running engines; exit code 1 when no engine runs."""
    from speclsp.daemon import control

    running = control.running()
    for files in running:
        print(control.stop(files))
    if not running:
        print("no engine runs")
    return SUCCESS if running else FAILURE


def show_engines(as_json: bool) -> int:
    """Print the state of each running engine; exit code 1 when no engine runs or one does not answer."""
    from speclsp.daemon import control

    statuses = control.statuses()
    if as_json:
        print(json.dumps({"engines": statuses}))
    else:
        print("\n\n".join(map(control.in_words, statuses)) or "no engine runs")
    return SUCCESS if statuses and all(status["status"] != "silent" for status in statuses) else FAILURE


# ── one completion ──


def run_complete(options: argparse.Namespace) -> int:
    """Print one suggestion, or one object with --json."""
    settings = config.load(flags(options))
    from speclsp.cli.complete import answers, backend_answer, positions

    snapshot = positions.at_position(options.spot, settings.context.max_file_bytes)  # before any model: it may be wrong
    point = answers.prepare(snapshot, settings)
    if not isinstance(point, answers.CompletionPoint):
        answer = answers.PrintedAnswer(reason=point.reason)
        about: dict[str, object] = {}
    else:
        answer, status = asyncio.run(backend_answer.answer(settings, point))
        about = answers.about(status)
    if options.json:
        print(json.dumps(as_json(options.spot, answer, about)))
    elif answer.text:
        sys.stdout.write(answer.text.replace(os.linesep, "\n") + "\n")  # Windows' stdout writes "\r\n" for "\n"
    if answer.reason and not options.json:
        complain(f"no suggestion at this position: {answer.reason.meaning}.", SUCCESS)
    return SUCCESS


def as_json(spot: str, answer: PrintedAnswer, about: Mapping[str, object]) -> dict[str, object]:
    """The object that `complete --json` prints."""
    return {
        "suggestion": answer.text,
        "replaces": answer.replaces,
        "reason": answer.reason.value if answer.reason else "",
        "place": spot,
        **about,
        "new_tokens": len(answer.result.tokens),
        "stop_type": answer.result.stop_type,
    }


def run_demo(options: argparse.Namespace) -> int:
    """Prove that speculation changes the time and not the text; exit code 1 if the text changed."""
    from speclsp.cli.first_run import demo

    if options.repeats < 1:
        raise ConfigError("--repeats", options.repeats, "a whole number, 1 or more")
    path = Path(options.hole) if options.hole else None
    return demo.main(config.load(flags(options)), path, options.repeats)


# ── setup, keys, checks and reports ──


def run_setup(options: argparse.Namespace) -> int:
    """Choose and download a model, test it, and show the lines for the editors; exit code 1 after a `no`."""
    from speclsp.cli.first_run import setup

    return setup.main(flags(options), yes=options.yes)


def run_key_set(options: argparse.Namespace) -> int:
    """Store a key from the terminal or stdin: never from the command line, which other users can see."""
    from getpass import getpass

    from speclsp.config import api_keys

    origin = api_keys.origin(options.url)
    key = getpass(f"Key for {origin}: ") if streams.is_terminal(sys.stdin) else sys.stdin.readline()
    print(f"The key for {origin} is stored in {api_keys.store(origin, key)}.")
    return SUCCESS


def run_key_forget(options: argparse.Namespace) -> int:
    """Remove a key from keys.json; exit code 1 when there is none."""
    from speclsp.config import api_keys

    origin = api_keys.origin(options.url)
    if api_keys.forget(origin):
        print(f"The key for {origin} is removed.")
        return SUCCESS
    return complain(f"there is no key for {origin}.", FAILURE)


def run_doctor(options: argparse.Namespace) -> int:
    """Check the installation; exit code 1 when a check fails."""
    from speclsp.cli.first_run import doctor

    return doctor.main(flags(options), as_json=options.json)


def run_stats(options: argparse.Namespace) -> int:
    """Print tables or one JSON object."""
    from speclsp.cli import stats

    if options.forget:
        return stats.forget()
    settings, _ = config.gather()  # an invalid line of config.toml changes nothing here
    return stats.main(settings, options.json)
