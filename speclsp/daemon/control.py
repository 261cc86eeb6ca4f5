"""Control of this user's engines over HTTP: their status, and their end. For `speclsp engine status` and `... stop`."""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from speclsp.daemon import engine_files, platform
from speclsp.daemon.engine_files import NOT_AN_ENGINE, EngineEndpoint, EngineFiles
from speclsp.errors import EngineError
from speclsp.process_resources.programs import is_gone

if TYPE_CHECKING:
    import psutil

ANSWER_S = 5.0  # an engine that does not answer within this time gets a signal
ENDS_S = 5.0  # from the request to the end of its process
POLL_S = 0.02


def alive(files: EngineFiles) -> EngineEndpoint | None:
    """The engine, if it listens. Raises EngineError: the socket or file is not this user's."""
    engine = files.find()
    if engine is not None:
        with suppress(OSError):
            engine_files.connect(engine).close()
            return engine
    return None


def running() -> list[EngineFiles]:
    """The engines that run or start; also one whose lock file was removed."""
    return [files for files in engine_files.present() if files.is_locked() or alive(files) is not None]


def ask(engine: EngineEndpoint, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The JSON object of the engine's answer. Raises OSError: no answer; EngineError: it is not a speclsp engine."""
    connection = http.client.HTTPConnection("localhost", timeout=ANSWER_S)
    connection.sock = engine_files.connect(engine, ANSWER_S)
    headers = {"content-type": "application/json"}
    if engine.token:
        headers["authorization"] = f"Bearer {engine.token}"
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = json.loads(connection.getresponse().read(2**20))
    except (http.client.HTTPException, ValueError) as error:
        raise EngineError(NOT_AN_ENGINE) from error
    finally:
        connection.close()
    return answer if isinstance(answer, dict) else {}


def health(engine: EngineEndpoint) -> dict[str, Any]:
    """The engine's answer to GET /status; {} without one."""
    try:
        return ask(engine, "GET", "/status")
    except (OSError, EngineError):
        return {}


def statuses() -> list[dict[str, Any]]:
    """The status of each running engine. Raises SpeclspError."""
    return [status(files) for files in running()]


def status(files: EngineFiles) -> dict[str, Any]:
    """The status of one running engine."""
    engine = files.find()
    if engine is None:
        return {"status": "starting", "log": engine_files.log_file()}
    known = {"pid": engine.pid, "model": engine.model, "version": engine.version, "status": "silent"}
    address = {"socket": engine.socket, "port": engine.port, "settings": dict(engine.settings)}
    return known | health(engine) | address | {"log": engine_files.log_file()}


def in_words(status: Mapping[str, Any]) -> str:
    """`status` for a person."""
    state, log = str(status["status"]), status["log"]
    its_log = f"; its log is {log}" if log else ""
    if state == "starting":
        return f"an engine is starting or shutting down{its_log}"
    if state == "silent":
        return (
            f"process {status['pid']} (model {status['model']}) holds the engine's lock and does not answer; "
            f"`speclsp engine stop` ends it{its_log}"
        )
    error = status.get("error")
    message = str(error.get("message")) if isinstance(error, dict) else str(status.get("message") or "")
    progress = f" {status['progress']:.0%}" if "progress" in status else ""
    lines = [f"process   {status['pid']}, speclsp {status['version']}, up for {duration(status.get('uptime_s', 0))}"]
    lines += [f"state     {state}{progress}{': ' + message if message else ''}"]
    drafted = f", draft model {status['draft']}" if status.get("draft") else ""
    models = f" ({status['target']}{drafted}, on {status['device']})" if status.get("target") else ""
    lines += [f"model     {status['model'] or 'auto'}{models}"]
    gpu = f", {status['gpu_mib']} MiB of GPU memory" if "gpu_mib" in status else ""
    mapped_mib = status.get("mapped_mib", 0)
    mapped = f", and {mapped_mib} MiB of mapped files, which the system may reclaim" if mapped_mib else ""
    lines += [f"memory    {status.get('rss_mib', 0) - mapped_mib} MiB{gpu}{mapped}"]
    clients = [
        f"{client['client']} (pid {client['pid']}, {duration(client['seconds'])})"
        if client["pid"]
        else str(client["client"])
        for client in status.get("leases", ())
    ]
    lines += [f"clients   {len(clients)}{': ' if clients else ''}{', '.join(clients)}"]
    if status.get("settings"):
        lines += ["settings  " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in status["settings"].items())]
    lines += ["listens   " + ", ".join(filter(None, [status["socket"], status.get("url", "")]))]
    return "\n".join([*lines, *([f"log       {log}"] if log else [])])


def duration(seconds: float) -> str:
    """3720 as "1 h 2 min"."""
    minutes, hours = int(seconds) // 60, int(seconds) // 3600
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min" if minutes else f"{int(seconds)} s"


def stop(files: EngineFiles) -> str:
    """End a running engine and wait for its exit; a sentence about that.

    An engine that does not answer gets signals. Windows knows one, TerminateProcess. Raises EngineError: it does not
    end, or its process is unknown.
    """
    until = time.monotonic() + ANSWER_S
    while (engine := files.find()) is None:  # it is just starting, or just ending
        if not files.is_locked():
            return "the engine has ended"
        if time.monotonic() > until:
            raise EngineError(f"an engine holds {files.lock} but its process id is unknown.")
        time.sleep(POLL_S)
    accepted = False
    with suppress(OSError, EngineError):
        accepted = ask(engine, "POST", "/leave", {"anyway": True}).get("leaving") is True
    for number in (None if accepted else signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
        if number is not None:
            send(files, engine.pid, number)
        if wait_for_the_end(engine.pid):
            files.remove(engine.pid)  # left by a killed engine
            return f"ended process {engine.pid}"
    raise EngineError(f"process {engine.pid} does not end: the system may be waiting for its device.")


def send(files: EngineFiles, pid: int, number: signal.Signals) -> None:
    """Send a signal to process `pid`, which holds the lock. Raises EngineError: it is not an engine."""
    import psutil

    with suppress(psutil.Error):
        process = psutil.Process(pid)
        if not is_engine(process):
            if is_ending(process):
                return
            raise EngineError(f"process {pid} is not an engine: remove {files.state}.")
        process.send_signal(number)


def is_ending(process: psutil.Process) -> bool:
    """True while a killed process is being torn down: its command line is already empty, its memory not yet freed.

    That takes tens of milliseconds for each gigabyte, before it is a zombie. Only the kernel's own threads have no
    command line while they live, and those do not listen on a socket. Raises psutil.Error.
    """
    return not process.cmdline()


def is_engine_command(words: Sequence[str], windows: bool = sys.platform == "win32") -> bool:
    """True for the command line of an engine. On Windows case does not matter, as in Speclsp.EXE."""
    names = [word.replace("\\", "/").rpartition("/")[2] for word in words]
    if windows:
        names = [name.lower().removesuffix(".exe") for name in names]
    return {"engine", "speclsp"} <= set(names)


def is_engine(process: psutil.Process) -> bool:
    """True for an engine process of this user."""
    if not is_engine_command(process.cmdline()):
        return False
    if sys.platform == "win32":
        import psutil

        return bool(process.username() == psutil.Process().username())
    return bool(process.uids().real == os.getuid())


def end_hung(files: EngineFiles, engine: EngineEndpoint) -> bool:
    """Kill an engine that does not answer; True once it is gone, also when another process ended it.

    Kills only a process that listens on the socket, is named in `files` and is an engine of this user's:
    another editor may have been quicker, and the process id may belong to another process by now.
    """
    import psutil

    with suppress(OSError, EngineError, psutil.Error):  # it ended meanwhile, or cannot be reached
        if files.find() != engine:
            return True
        with engine_files.connect(engine) as connection:  # the kernel accepts it, even when the engine hangs
            listens = platform.peer_pid(connection)
        if listens not in (None, engine.pid):
            return files.find() != engine
        process = psutil.Process(engine.pid)  # `kill` checks that the id was not reused
        if not is_engine(process):
            return is_ending(process) and wait_for_the_end(engine.pid)
        process.kill()
    return wait_for_the_end(engine.pid)


def wait_for_the_end(pid: int) -> bool:
    """Wait for the end of the engine's process, its memory and its lock; False after ENDS_S.

    The lock alone is not enough: another engine may hold it by then, or its file may have been removed.
    """
    until = time.monotonic() + ENDS_S
    while not is_gone(pid):
        if time.monotonic() > until:
            return False
        time.sleep(POLL_S)
    return True
