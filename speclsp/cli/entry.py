"""The `speclsp` command: one function per subcommand, each importing only what it needs, so `speclsp lsp` is quick.

An error a person can act on is one line on stderr and exit code 2; a traceback is never shown (SPECLSP_TRACEBACK=1
shows it to a developer). Ctrl-C ends with 130, and a closed pipe with 141, both without a word.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from speclsp import __version__, config
from speclsp.config import Config
from speclsp.errors import ConfigError, SpeclspError

if TYPE_CHECKING:
    from speclsp.cli.complete import PrintedAnswer
    from speclsp.weights.cards import Card

OK, FAILED, WRONG, INTERNAL, INTERRUPTED, CLOSED_PIPE = 0, 1, 2, 70, 130, 141
NOBODY = "no language server runs: open a file in an editor with speclsp (`speclsp doctor` checks that it would work)"


class ArgumentParser(argparse.ArgumentParser):
    """argparse whose complaint is one line, like every other."""

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG, f"{self.prog}: {message} (`{self.prog} --help` shows how).\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; its exit code."""
    try:
        options = parser().parse_args(argv)
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except SpeclspError as error:
        return complain(str(error), WRONG)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the interpreter's last flush must not complain either
        return CLOSED_PIPE
    except OSError as error:
        if os.environ.get("SPECLSP_TRACEBACK"):
            raise
        where = f"{error.filename}: " if error.filename else ""
        return complain(f"{where}{error.strerror or error}.", WRONG)
    except Exception as error:
        if os.environ.get("SPECLSP_TRACEBACK"):
            raise
        what = (str(error).splitlines() or [""])[0][:200]
        hint = "This is a bug in speclsp; SPECLSP_TRACEBACK=1 shows where."
        return complain(f"{type(error).__name__}: {what}. {hint}", INTERNAL)


def complain(message: str, code: int) -> int:
    """One line on stderr."""
    line = " ".join(message.splitlines())
    sys.stderr.write(f"speclsp: {line}\n")
    return code


# ── the flags ────────────────────────────────────────────────────────────────────────────────────────────────


def parser() -> ArgumentParser:
    """Every subcommand and flag."""
    top = ArgumentParser(prog="speclsp", description="Local code completion with lossless speculative decoding.")
    top.add_argument("--version", action="version", version=f"speclsp {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, run: object, about: str, settings: bool = True) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=about, description=about)
        made.set_defaults(run=run)
        if settings:
            made.add_argument("--pair", metavar="NAME", help="model pair (`speclsp models list`; default: auto)")
            made.add_argument("--device", metavar="DEVICE", help="auto, cpu, cuda or cuda:N")
            made.add_argument(
                "--set",
                metavar="KEY=VALUE",
                action="append",
                default=[],
                dest="assignments",
                help="any setting of the README's table, as in --set engine.threads=2",
            )
        return made

    lsp = command("lsp", run_lsp, "the language server, for editors; speaks on stdin and stdout")
    lsp.add_argument("--stdio", action="store_true", help="accepted for editors that pass it; there is no other way")
    lsp.add_argument("--trace", action="store_true", help="log one line about each request; never source text")

    engine = command("engine", run_engine, "the model's process, one for all editors; `speclsp lsp` starts it")
    what = engine.add_mutually_exclusive_group()
    what.add_argument("--foreground", action="store_true", help="serve until told to stop, as without it; for services")
    what.add_argument("--detach", action="store_true", help="let go of it when it listens; it ends when unused")
    what.add_argument("--detached", action="store_true", help=argparse.SUPPRESS)  # what --detach starts
    what.add_argument("--status", action="store_true", help="show the running engine; exit code 1 when none answers")
    what.add_argument("--stop", action="store_true", help="end the running engine, whoever uses it")
    what.add_argument("--socket", metavar="PATH", help="listen there and be nobody else's; for experiments")
    engine.add_argument("--watch-parent", metavar="PID", type=int, default=0, help="with --socket: end when it ends")
    engine.add_argument("--lock-fd", metavar="N", type=int, help=argparse.SUPPRESS)  # engine.lock, held by our starter
    engine.add_argument("--tell-fd", metavar="N", type=int, help=argparse.SUPPRESS)  # a pipe to it
    engine.add_argument("--port", metavar="N", type=int, help="on this TCP port too, for who sends the token it names")
    engine.add_argument("--host", metavar="ADDRESS", default="", help="of the port (default: loopback)")
    engine.add_argument("--json", action="store_true", help="with --status: print one JSON object")

    complete = command("complete", run_complete, "complete at a place in a file, and print the suggestion")
    complete.add_argument("spot", metavar="FILE:LINE:COL", help="both count from 1, columns in characters")
    complete.add_argument("--no-speculation", action="store_true", help="decode token by token; the text is the same")
    complete.add_argument("--max-tokens", metavar="N", type=int, help="longest suggestion (completion.max_tokens)")
    complete.add_argument("--json", action="store_true", help="print one JSON object")

    demo = command("demo", run_demo, "complete a hole with and without speculation, and compare")
    demo.add_argument("--repeats", metavar="N", type=int, default=3, help="measured runs of each kind (default: 3)")
    demo.add_argument("hole", metavar="FILE", nargs="?", help="a file with a `# <cursor>` mark (default: an example)")

    key = command("key", None, "the key for a server at backend.url, kept for that server alone", settings=False)
    actions = key.add_subparsers(metavar="ACTION", required=True)
    for name, run, about in (
        ("set", run_key_set, "store the key that is typed, or comes on stdin"),
        ("forget", run_key_forget, "remove it; exit code 1 if there is none"),
    ):
        action = actions.add_parser(name, help=about, description=about)
        action.set_defaults(run=run)
        action.add_argument("url", metavar="URL", help="the server's address; its scheme, host and port count")

    doctor = command(
        "doctor", run_doctor, "check this machine, the weights and a completion; say how to fix what fails"
    )
    doctor.add_argument("--json", action="store_true", help="print one JSON object")

    tune = command("tune", run_tune, "measure this machine on your own files once, and write what is fastest to config")
    tune.add_argument("directory", metavar="DIR", nargs="?", default=".", help="whose files to try (default: here)")
    tune.add_argument("--dry-run", action="store_true", help="measure and show; write nothing")

    explain = command("explain", run_explain, "why the last suggestion is what it is, or why there was none", False)
    explain.add_argument("--all", action="store_true", help="one line for each window, the last used first")
    explain.add_argument("--json", action="store_true", help="print one JSON object for each window shown")

    verify = command("verify", run_verify, "make the last requests again, plainly and speculatively: the same text?")
    verify.add_argument("--last", metavar="N", type=int, default=32, help="how many (default, and most kept: 32)")
    verify.add_argument("--recorded", action="store_true", help="those that engine.record has kept on disk")
    verify.add_argument("--forget", action="store_true", help="delete what engine.record has kept")
    verify.add_argument("--json", action="store_true", help="print one JSON object; it holds no text")

    about = "what was suggested in your editors and what became of it; counted and kept on this machine"
    shown = command("stats", run_stats, about, settings=False)
    shown.add_argument("--weeks", metavar="N", type=int, default=12, help="how far back (default: 12)")
    shown.add_argument("--page", metavar="FILE", help="write one HTML page of plots")
    shown.add_argument("--json", action="store_true", help="print one JSON object")
    shown.add_argument("--forget", action="store_true", help="delete all that was counted")

    models = command("models", None, "the model pairs and their weights", settings=False)
    actions = models.add_subparsers(metavar="ACTION", required=True)
    for name, run, about in (
        ("list", run_models_list, "every pair, and whether its weights are here"),
        ("pull", run_models_pull, "fetch a pair's weights, check and convert them"),
        ("path", run_models_path, "where a pair's weights are; exit code 1 if they are not"),
        ("verify", run_models_verify, "check every byte of the weights that are here"),
    ):
        action = actions.add_parser(name, help=about, description=about)
        action.set_defaults(run=run)
        action.add_argument(
            "--set", metavar="KEY=VALUE", action="append", default=[], dest="assignments", help="any setting"
        )
        if name == "list":
            action.add_argument("--json", action="store_true", help="print one JSON object")
        else:
            action.add_argument("name", metavar="NAME", nargs="?", help="the pair (default: the one in the settings)")
    return top


def flags(options: argparse.Namespace) -> dict[str, object]:
    """The settings given on the command line, by dotted key; the particular flags win over --set."""
    given = dict(config.from_words(words) for words in options.assignments)
    named = {"pair": getattr(options, "pair", None), "device": getattr(options, "device", None)}
    return given | {key: value for key, value in named.items() if value is not None}


# ── editors and their engine ─────────────────────────────────────────────────────────────────────────────────


def run_lsp(options: argparse.Namespace) -> int:
    """A bad flag stops it, in the editor's log; a bad config.toml does not: the server says so and goes on without."""
    given = flags(options)
    check(given)
    from speclsp.lsp.protocol.stdio import take_stdio

    wire = take_stdio()  # before the imports: one of them might print
    from speclsp.lsp.server import server

    return server.main(given, trace=options.trace, wire=wire)


def check(given: Mapping[str, object]) -> None:
    """Raise ConfigError for flags that are no settings."""
    _, problems = config.parse(given)
    if problems:
        raise config.BadSettings(problems)


def run_engine(options: argparse.Namespace) -> int:
    """This user's engine, or one on a socket of its own; or what became of it."""
    if options.json and not options.status:
        raise ConfigError("--json", "given", "--status to go with it")
    if options.status or options.stop:
        return run_running(options)
    settings = config.load(flags(options))
    if options.watch_parent < 0 or (options.watch_parent and not options.socket):
        raise ConfigError("--watch-parent", options.watch_parent, "a process id, together with --socket")
    if options.port is not None and not 0 <= options.port <= 65535:
        raise ConfigError("--port", options.port, "a port number, 1 to 65535, or 0 for any that is free")
    if options.host and options.port is None:
        raise ConfigError("--host", options.host, "a --port to go with it")
    if options.socket:
        if options.port is not None:
            raise ConfigError("--port", options.port, "no --socket: a port is opened by this user's shared engine")
        from speclsp.engine.process import server_process

        return server_process.main(settings, Path(options.socket), options.watch_parent or None)
    from speclsp.engine.process import daemonize, shared_engine

    if options.detach or options.detached:
        lock = None
        if options.lock_fd is not None:
            from speclsp.daemon import endpoint

            lock = endpoint.inherited(options.lock_fd)
        if options.detached:
            return daemonize.detached(settings, lock, options.tell_fd, options.host, options.port)
        return daemonize.detach(settings, lock, options.host, options.port)
    return shared_engine.foreground(settings, options.host, options.port)


def run_running(options: argparse.Namespace) -> int:
    """Exit code 1 when no engine runs."""
    from speclsp.daemon import control

    if options.stop:
        said = control.stop()
        print(said or "no engine runs")
        return OK if said else FAILED
    told = control.status()
    if options.json:
        print(json.dumps(told or {"status": "none"}))
    else:
        print(control.in_words(told) if told else "no engine runs")
    return OK if told and told["status"] != "silent" else FAILED


# ── one completion ───────────────────────────────────────────────────────────────────────────────────────────


def run_complete(options: argparse.Namespace) -> int:
    """Bright on a terminal, bare text in a pipe, one object with --json."""
    given = flags(options)
    if options.no_speculation:
        given["engine.speculation"] = False
    if options.max_tokens is not None:
        given |= {"completion.max_tokens": options.max_tokens, "completion.max_tokens_single_line": options.max_tokens}
    settings = config.load(given)
    from speclsp.cli import complete as once
    from speclsp.cli import terminal

    snapshot = once.at_position(options.spot, settings.context.max_file_bytes)  # before any model: it may be wrong
    hole = once.prepare(snapshot, settings)
    live = not options.json and terminal.coloured(sys.stdout)
    if not isinstance(hole, once.CompletionPoint):
        made = once.PrintedAnswer(reason=hole.reason)
        about: dict[str, object] = {}
    else:
        with terminal.progress() as bar:
            completer, _ = once.open_engine(settings, bar)
        about = once.about(completer)
        made = once.show(completer, hole) if live else once.answer(completer, hole)
    if options.json:
        print(json.dumps(as_json(options.spot, made, about, settings)))
    elif not live:
        sys.stdout.write(made.text + "\n" if made.text else "")
    if made.reason and not options.json:
        complain(f"nothing to suggest here: {made.reason.meaning}.", OK)
    return OK


def as_json(spot: str, made: PrintedAnswer, about: Mapping[str, object], settings: Config) -> dict[str, object]:
    """What `complete --json` prints."""
    result = made.result
    return {
        "suggestion": made.text,
        "replaces": made.replaces,
        "reason": made.reason.value if made.reason else "",
        "place": spot,
        **about,
        "speculation": settings.engine.speculation,
        "prompt_tokens": result.prompt_tokens,
        "new_tokens": len(result.tokens),
        "stop_type": result.stop_type,
        "rounds": result.rounds,
        "drafted_tokens": result.drafted,
        "accepted_tokens": result.accepted,
        "by_source": result.by_source,
        "ttft_ms": round(result.ttft_ms, 1),
        "prompt_ms": round(result.prompt_ms, 1),
        "decode_ms": round(result.decode_ms, 1),
    }


def run_explain(options: argparse.Namespace) -> int:
    """Exit code 1 when no language server runs."""
    from speclsp.cli import terminal
    from speclsp.observability import explanation

    told = explanation.running()
    chosen = told if options.all else told[:1]
    if options.json:
        print(json.dumps(chosen if options.all else (chosen or [{}])[0]))
    elif options.all and told:
        print("\n".join(explanation.in_a_line(one) for one in told))
    else:
        colour = terminal.coloured(sys.stdout)
        print(
            explanation.in_words(told[0], lambda text, style: terminal.paint(text, style, colour)) if told else NOBODY
        )
    return OK if told else FAILED


def run_verify(options: argparse.Namespace) -> int:
    """Exit code 1 when a text differs, 2 when there was nothing to compare."""
    from speclsp.cli import verify

    if options.forget:
        return verify.forget()
    if options.last < 1:
        raise ConfigError("--last", options.last, "a whole number, 1 or more")
    return verify.main(config.load(flags(options)), options.last, options.json, options.recorded)


def run_demo(options: argparse.Namespace) -> int:
    """The proof that speculation changes the time and not the text; exit code 1 if it did change it."""
    from speclsp.cli import demo

    if options.repeats < 1:
        raise ConfigError("--repeats", options.repeats, "a whole number, 1 or more")
    path = Path(options.hole) if options.hole else None
    return demo.main(config.load(flags(options)), path, options.repeats)


def run_doctor(options: argparse.Namespace) -> int:
    """Exit code 1 when a line says fail."""
    from speclsp.cli import doctor

    return doctor.main(flags(options), as_json=options.json)


def run_key_set(options: argparse.Namespace) -> int:
    """The key is never a word of the command line, which other users can see."""
    from getpass import getpass

    from speclsp.config import api_keys

    place = api_keys.origin(options.url)
    typed = getpass(f"Key for {place}: ") if sys.stdin.isatty() else sys.stdin.readline()
    print(f"The key for {place} is kept in {api_keys.store(place, typed)}.")
    return OK


def run_key_forget(options: argparse.Namespace) -> int:
    """Wherever it is kept."""
    from speclsp.config import api_keys

    place = api_keys.origin(options.url)
    if api_keys.forget(place):
        print(f"The key for {place} is forgotten.")
        return OK
    return complain(f"there is no key for {place}.", FAILED)


def run_tune(options: argparse.Namespace) -> int:
    """Writes to config.toml unless --dry-run; exit code 1 when the machine was too busy to tell."""
    settings = config.load(flags(options))
    from speclsp.cli import tune

    return tune.main(settings, Path(options.directory), dry_run=options.dry_run)


def run_stats(options: argparse.Namespace) -> int:
    """Tables, one JSON object, or a page; exit code 1 when there is nothing to make a page of."""
    from speclsp.cli import stats

    if options.forget:
        return stats.forget()
    settings, _ = config.gather()  # a line of config.toml that cannot be used changes nothing here
    return stats.main(settings, options.weeks, options.json, Path(options.page) if options.page else None)


# ── weights ──────────────────────────────────────────────────────────────────────────────────────────────────


def run_models_list(options: argparse.Namespace) -> int:
    """One line for each pair, or one JSON object."""
    settings = config.load(flags(options))
    from speclsp.cli import terminal
    from speclsp.weights import store

    rows = [
        {
            "name": card.name,
            "title": card.title,
            "target": card.target.name,
            "draft": card.draft.name if card.draft else "",
            "here": here,
            "bytes": sum(file.bytes for one in card.weights() for file in one.files),  # 0: not known before fetching
            "licence": card.licence,
        }
        for card, here in store.listing(settings.models_dir)
    ]
    if options.json:
        print(json.dumps({"pairs": rows}))
        return OK
    width = max(len(str(row["name"])) for row in rows)
    for row in rows:
        size = terminal.in_size(int(str(row["bytes"]))) if row["bytes"] else "to fetch"
        drafted = f"drafted by {row['draft']} and n-grams" if row["draft"] else "drafted by n-grams"
        print(f"{row['name']:<{width}}  {'here' if row['here'] else size:>9}  {row['licence']:<20}  {drafted}")
    return OK


def chosen(options: argparse.Namespace) -> tuple[Config, Card]:
    """The settings, and the card that was named or that they choose."""
    settings = config.load(flags(options) | ({"pair": options.name} if options.name else {}))
    from speclsp.weights import store

    card, why = store.auto(settings)
    if settings.pair == "auto":
        complain(why, OK)
    return settings, card


def run_models_pull(options: argparse.Namespace) -> int:
    """Fetch what is missing, and again what is damaged; what is here and right stays."""
    settings, card = chosen(options)
    from speclsp.cli import complete as once
    from speclsp.cli import terminal

    with terminal.progress() as bar:
        once.fetch(settings, card, bar, repair=True)
    print(f"{card.name} is ready")
    return OK


def run_models_path(options: argparse.Namespace) -> int:
    """The target's directory, then the draft's; a line each."""
    settings, card = chosen(options)
    from speclsp.cli import complete as once
    from speclsp.weights import store

    found = {one.name: store.path(one, settings.models_dir) for one in once.needed(settings, card)}
    for name, path in found.items():
        if path is None:
            return complain(f"{name} is not on this machine: `speclsp models pull {card.name}` fetches it.", FAILED)
    sys.stdout.writelines(f"{path}\n" for path in found.values())
    return OK


def run_models_verify(options: argparse.Namespace) -> int:
    """Exit code 1, and how to repair it, when a byte is wrong or a file is missing."""
    settings, card = chosen(options)
    from speclsp.cli import complete as once
    from speclsp.cli import terminal
    from speclsp.weights import model_directory, store

    for one in once.needed(settings, card):
        with terminal.progress() as bar:
            try:
                store.verify(one, settings.models_dir, progress=partial(once.draw, bar))
            except SpeclspError as error:
                bar.close()
                return complain(str(error), FAILED)
        path = store.path(one, settings.models_dir)
        summed = path is not None and (path / model_directory.MANIFEST).is_file()
        print(f"{one.name}: every byte is right" if summed else f"{one.name}: whole; no sums are known")
    return OK
