"""Daemonizes an engine (fork, setsid, fork), so that it survives the editor that started it.

    speclsp engine --detach ──fork──setsid──fork──► the engine        an editor may kill its language server with all
            └ waits for "listens", and ends                           its children: the engine is none of them

It forks before anything heavy is imported and before there is any thread, the only time when a process safely can. On
macOS the system's libraries do not survive even that, and Windows cannot fork: there `speclsp engine start` starts
another interpreter, on Windows outside the editor's job object, and ends when that one listens.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from speclsp import config
from speclsp.config import Config
from speclsp.daemon import launch, platform
from speclsp.daemon.engine_files import EngineEndpoint, EngineFiles, log_path, log_phrase, rooted
from speclsp.engine.process import shared_engine
from speclsp.errors import EngineError, SpeclspError, error_site
from speclsp.observability.logfile import open_file
from speclsp.private_files.os_errors import message, sentence

LISTENS = "listens\n"  # sent by the engine to the process that started it, once it listens
END = b"\0"  # of that message: the python.exe of a virtual environment on Windows keeps the pipe open

log = logging.getLogger("speclsp.engine")


def start_detached(settings: Config, lock: int | None, host: str = "", port: int | None = None) -> int:
    """Start the engine in a process of its own and wait until it listens; returns the exit code.

    `lock`: the lock's handle, where the starter has taken it. Without one, a running engine with the same settings is
    a success. Raises SpeclspError with the reason when the engine cannot start.
    """
    settings = rooted(settings)
    lock_or_engine = shared_engine.lock_or_running_engine(EngineFiles.of(settings)) if lock is None else lock
    if isinstance(lock_or_engine, EngineEndpoint):
        runs = shared_engine.running_message(lock_or_engine)
        if port is not None:
            raise EngineError(f"{runs}, and --port {port} needs one that starts now. `speclsp engine stop` ends it.")
        print(runs)
        return 0
    read_end, write_end = os.pipe()
    if sys.platform == "win32" or not platform.CAN_FORK:
        return spawn(command(settings, host, port), lock_or_engine, read_end, write_end)
    intermediate = os.fork()
    if not intermediate:
        os.close(read_end)
        os.setsid()
        if os.fork():
            os._exit(0)  # so init is the engine's parent from the start, and it can get no terminal
        run_as_daemon(settings, lock_or_engine, host, port, platform.number_of(write_end))
    os.close(write_end)
    os.close(lock_or_engine)
    os.waitpid(intermediate, 0)
    return await_listening(read_end)


def await_listening(read_end: int) -> int:
    """Wait until the engine listens; returns the exit code. Raises EngineError with its message if it does not."""
    with os.fdopen(read_end, "rb") as pipe:
        message = b"".join(iter(lambda: pipe.read(1).replace(END, b""), b"")).decode("utf-8", "replace")
    if message.startswith(LISTENS):
        sys.stdout.write(message.removeprefix(LISTENS))
        return 0
    raise EngineError(message.strip() or f"the engine ended before it listened{log_phrase()}.")


def run_as_daemon(settings: Config, lock: int, host: str, port: int | None, tell: int) -> NoReturn:
    """Run the engine in a detached process. `tell`: the number of the pipe to the starter, in the starter."""
    failure, write_end = "", platform.descriptor(tell)
    try:
        close_others(lock, write_end)
        os.umask(0o077)
        os.chdir(config.runtime_dir())
        open_log()

        def report_listening(lines: list[str]) -> None:
            nonlocal write_end
            with suppress(BrokenPipeError):  # the starter has been killed since
                os.write(write_end, (LISTENS + "".join(f"{line}\n" for line in lines)).encode() + END)
            os.close(write_end)
            write_end = -1

        grace_s = settings.engine.shutdown_delay_seconds
        files = EngineFiles.of(settings)
        shared_engine.serve(settings, files, host, port, grace_s=grace_s, on_listening=report_listening)
    except (SpeclspError, OSError) as error:
        failure = message(error)
    except BaseException as error:
        failure = f"the engine failed: {error_site(error)}."
    finally:
        if failure:
            log.error("%s", failure)
            with suppress(OSError):
                os.write(write_end, failure.encode())
        logging.shutdown()
        os._exit(1 if failure else 0)  # not through the interpreter's shutdown, which a library's thread can block


def close_others(*kept: int) -> None:
    """Close inherited handles, as a shell has open: a pipe's reader would wait for us, a lock would stay held."""
    if sys.platform == "win32":  # it inherits only the named handles, and \dev\fd may be anybody's directory there
        return
    with suppress(OSError):
        for handle in [int(entry.name) for entry in Path("/dev/fd").iterdir()]:
            if handle > 2 and handle not in kept:
                with suppress(OSError):  # the listing's own
                    os.close(handle)


# ── starting another interpreter ─────────────────────────────────────────────────────────────────────────


def command(settings: Config, host: str, port: int | None) -> list[str]:
    """The command line of the process that stays."""
    words = [sys.executable, "-m", "speclsp", "engine", *launch.engine_flags(settings)]
    words += [] if port is None else ["--port", str(port)]
    return words + (["--host", host] if host else [])


def spawn(words: list[str], lock: int, read_end: int, write_end: int) -> int:
    """`start_detached` without fork: start the process that stays, and wait until it listens."""
    directory = config.runtime_dir()
    try:
        words = [*words, "--lock-fd", str(platform.number_of(lock)), "--tell-fd", str(platform.number_of(write_end))]
        platform.spawn_detached(words, directory, launch.environment(directory), [lock, write_end])
    except OSError as error:
        raise EngineError(sentence(error, words[0], "be run")) from error
    os.close(write_end)
    os.close(lock)
    return await_listening(read_end)


# ── its log ──────────────────────────────────────────────────────────────────────────────────────────────


def open_log() -> None:
    """Log to engine.log and redirect everything printed to it; discard both where there can be no log."""
    handler = open_file(log_path())
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    if handler is not None:
        logging.getLogger().addHandler(handler)
        handler.take_prints()
    else:
        os.dup2(null, 1)
        os.dup2(null, 2)
        logging.getLogger().addHandler(logging.NullHandler())
    os.close(null)
    logging.getLogger("speclsp").setLevel(logging.INFO)
    shared_engine.quiet_libraries()
