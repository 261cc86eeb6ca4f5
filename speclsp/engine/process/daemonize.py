"""Letting go of the engine: in a process that is in nobody's child tree, group or session, until nobody uses it.

    speclsp engine --detach ──fork──setsid──fork──► the engine        an editor may kill its language server with all of
            └ waits for "listens", and ends                           that one's children: the engine is none of them

It forks before anything heavy is imported and before there is any thread, the only time when a process may. On macOS
the system's libraries do not bear even that, so the engine is a fresh interpreter there; Windows cannot fork at all.
"""

from __future__ import annotations

import logging
import os
import select
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from speclsp import config
from speclsp.config import Config
from speclsp.daemon import endpoint, launch, platform
from speclsp.daemon.endpoint import EngineEndpoint
from speclsp.engine.process import shared_engine
from speclsp.errors import EngineError, SpeclspError, error_site
from speclsp.observability.logfile import open_file

LISTENS = "listens\n"  # what the engine tells the process that started it, if it does

log = logging.getLogger("speclsp.engine")


def detach(settings: Config, lock: int | None, host: str = "", port: int | None = None) -> int:
    """Start the engine in a process of its own and wait until it listens; the exit code.

    `lock`: the handle of the lock where the starter has taken it. Without one, an engine that runs and suits is well.
    Raises SpeclspError with what kept the engine from starting.
    """
    settings = launch.rooted(settings)
    taken = shared_engine.lock_or_found() if lock is None else lock
    if isinstance(taken, EngineEndpoint):
        shared_engine.check_suits(taken, settings, port)
        print(shared_engine.runs(taken))
        return 0
    if not platform.CAN_FORK:
        os.close(taken)  # it cannot be handed on: the process that stays takes it
        return spawn(command(settings, host, port))
    told, tell = os.pipe()
    between = os.fork()
    if not between:
        os.close(told)
        os.setsid()
        if os.fork():
            os._exit(0)  # so that the engine is nobody's child from its first moment, and can get no terminal
        if platform.FORK_NEEDS_EXEC:
            begin_afresh(command(settings, host, port), taken, tell)
        stay(settings, taken, host, port, tell)
    os.close(tell)
    os.close(taken)
    os.waitpid(between, 0)
    code = hear(told)
    if lock is not None and is_unread(2):  # who wanted it has died: it need not wait for a first user
        from speclsp.daemon import control

        with suppress(OSError, SpeclspError):
            found = endpoint.find()
            if found is not None:
                control.ask(found, "POST", "/leave", {"pid": found.pid})
    return code


def is_unread(handle: int) -> bool:
    """Whether it is a pipe that nobody can read any more."""
    watched = select.poll()
    watched.register(handle, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in watched.poll(0))


def hear(told: int) -> int:
    """Wait for the engine's word; the exit code. Raises EngineError with what it said instead."""
    with os.fdopen(told, "rb") as pipe:
        said = pipe.read().decode("utf-8", "replace")
    if said.startswith(LISTENS):
        sys.stdout.write(said.removeprefix(LISTENS))
        return 0
    raise EngineError(said.strip() or ended_early())


def ended_early() -> str:
    """The sentence about an engine that did not say why."""
    return f"the engine ended before it listened; its log is {launch.log_path()}."


def detached(settings: Config, lock: int | None, tell: int | None, host: str = "", port: int | None = None) -> int:
    """Be the engine: what `spawn` and `begin_afresh` start. Without a lock it takes it, or leaves to who has it."""
    taken = shared_engine.lock_or_found() if lock is None else lock
    if not isinstance(taken, EngineEndpoint):
        stay(settings, taken, host, port, -1 if tell is None else tell)
    return 0  # another was quicker


def stay(settings: Config, lock: int, host: str, port: int | None, tell: int) -> NoReturn:
    """Be the engine, in a process that was let go; `tell` is the pipe to who waits for it, -1: its stderr is."""
    said = ""
    try:
        close_others(lock, tell)
        os.umask(0o077)
        os.chdir(config.runtime_dir())
        open_log(keep_stderr=tell < 0)

        def listens(told: list[str]) -> None:
            nonlocal tell
            handle, tell = tell, -1
            if handle >= 0:
                with suppress(BrokenPipeError):  # whoever started it has been killed since
                    os.write(handle, (LISTENS + "".join(f"{line}\n" for line in told)).encode())
                os.close(handle)

        shared_engine.serve(settings, lock, host, port, grace_s=settings.engine.grace_seconds, listens=listens)
    except SpeclspError as error:
        said = str(error)
    except BaseException as error:
        said = f"the engine failed: {error_site(error)}."
    finally:
        if said:
            log.error("%s", said)
            with suppress(OSError):
                os.write(tell if tell >= 0 else 2, said.encode())
        logging.shutdown()
        os._exit(1 if said else 0)  # not by way of the interpreter's end, which a library's thread can hold up


def close_others(*kept: int) -> None:
    """Close what our starter happened to have open, as a shell has: its reader would wait for us, its lock be held."""
    with suppress(OSError):  # Windows has no such directory, and hands nothing on
        for handle in [int(entry.name) for entry in Path("/dev/fd").iterdir()]:
            if handle > 2 and handle not in kept:
                with suppress(OSError):  # the listing's own
                    os.close(handle)


# ── by starting another interpreter ──────────────────────────────────────────────────────────────────────────


def command(settings: Config, host: str, port: int | None) -> list[str]:
    """The command line of the process that stays."""
    words = [sys.executable, "-m", "speclsp", "engine", "--detached", *launch.engine_flags(settings)]
    words += [] if port is None else ["--port", str(port)]
    return words + (["--host", host] if host else [])


def begin_afresh(words: list[str], lock: int, tell: int) -> NoReturn:
    """Be a new interpreter, with what this one holds."""
    for handle in (lock, tell):
        os.set_inheritable(handle, True)
    try:
        nowhere = config.runtime_dir()
        os.chdir(nowhere)  # -m looks for modules in the working directory
        given = ["--lock-fd", str(lock), "--tell-fd", str(tell)]
        os.execve(words[0], [*words, *given], launch.environment(nowhere))
    except (OSError, SpeclspError) as error:
        os.write(tell, f"cannot start {words[0]}: {error}".encode())
    os._exit(1)


def spawn(words: list[str]) -> int:
    """`detach` where there is no fork (Windows): start the process that stays, and wait until it listens."""
    nowhere = config.runtime_dir()
    said = nowhere / "engine.err"  # a pipe would end with us
    with said.open("wb") as stderr:
        process = platform.spawn_detached(words, nowhere, launch.environment(nowhere), stderr)
    until, ended = time.monotonic() + launch.START_WAIT_S, False
    while not ended and time.monotonic() < until:
        ended = process.poll() is not None
        if endpoint.find() is not None:  # itself, or another that was quicker
            return 0
        time.sleep(shared_engine.POLL_S)
    why = said.read_text(encoding="utf-8", errors="replace").strip().removeprefix("speclsp: ")
    raise EngineError(why or ended_early())


# ── its log ──────────────────────────────────────────────────────────────────────────────────────────────────


def open_log(keep_stderr: bool = False) -> None:
    """Log to engine.log, and let everything that is printed go there; where there can be no log, nowhere."""
    handler = open_file(launch.log_path())
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    if handler is not None:
        logging.getLogger().addHandler(handler)
        handler.take_prints(stderr=not keep_stderr)
    else:
        os.dup2(null, 1)
        os.dup2(null, 2)
        logging.getLogger().addHandler(logging.NullHandler())
    os.close(null)
    logging.getLogger("speclsp").setLevel(logging.INFO)
    shared_engine.quiet_libraries()
