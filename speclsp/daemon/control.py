"""Control of this user's engine over HTTP: its status, and its end. For `speclsp engine status` and `... stop`."""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from speclsp.daemon import endpoint, launch, platform
from speclsp.daemon.endpoint import EngineEndpoint
from speclsp.errors import EngineError
from speclsp.process_resources.programs import is_gone

if TYPE_CHECKING:
    import psutil

ANSWER_S = 5.0  # an engine that does not answer within this time gets a signal
ENDS_S = 5.0  # from the request to the end of its process
POLL_S = 0.02


def alive() -> EngineEndpoint | None:
    """The engine that listens; None when none does. Raises EngineError: the socket or file is not this user's."""
    engine = endpoint.find()
    if engine is not None:
        with suppress(OSError):
            endpoint.connect(engine).close()
            return engine
    return None


def is_there() -> bool:
    """True while an engine runs or starts; also when its lock file was removed."""
    return endpoint.is_locked() or alive() is not None


@contextmanager
def request(
    engine: EngineEndpoint, method: str, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float
) -> Iterator[http.client.HTTPResponse]:
    """Send one request; the response is read inside the `with` block. The connection closes after it.

    `timeout_s`: to connect, and between two reads. Raises OSError, http.client.HTTPException, EngineError: the socket
    belongs to another user.
    """
    connection = http.client.HTTPConnection("localhost", timeout=timeout_s)
    connection.sock = endpoint.connect(engine, timeout_s)
    headers = {"content-type": "application/json"}
    if engine.token:
        headers["authorization"] = f"Bearer {engine.token}"
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        yield connection.getresponse()
    finally:
        connection.close()


def ask(engine: EngineEndpoint, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The JSON object of the engine's answer. Raises OSError: no answer; EngineError: it is not a speclsp engine."""
    try:
        with request(engine, method, path, body, timeout_s=ANSWER_S) as response:
            answer = json.loads(response.read(2**20))
    except (http.client.HTTPException, ValueError) as error:
        raise EngineError(
            "the process on the engine's socket is not a speclsp engine: run `speclsp engine stop`."
        ) from error
    return answer if isinstance(answer, dict) else {}


def health(engine: EngineEndpoint) -> dict[str, Any]:
    """The engine's answer to GET /status; {} without one."""
    try:
        return ask(engine, "GET", "/status")
    except (OSError, EngineError):
        return {}


def status() -> dict[str, Any] | None:
    """The status of the running engine; None when there is none. Raises EngineError, SpeclspError."""
    if not is_there():
        return None
    engine = endpoint.find()
    if engine is None:
        return {"status": "starting", "log": launch.log_file()}
    known = {"pid": engine.pid, "pair": engine.model, "version": engine.version, "status": "silent"}
    address = {"socket": engine.socket, "port": engine.port, "settings": dict(engine.settings)}
    return known | health(engine) | address | {"log": launch.log_file()}


def in_words(status: Mapping[str, Any]) -> str:
    """`status` for a person."""
    state, log = str(status["status"]), status["log"]
    its_log = f"; its log is {log}" if log else ""
    if state == "starting":
        return f"an engine is starting or shutting down{its_log}"
    if state == "silent":
        return (
            f"process {status['pid']} (model {status['pair']}) holds the engine's lock and does not answer; "
            f"`speclsp engine stop` ends it{its_log}"
        )
    error = status.get("error")
    message = str(error.get("message")) if isinstance(error, dict) else str(status.get("message") or "")
    progress = f" {status['progress']:.0%}" if "progress" in status else ""
    lines = [f"process   {status['pid']}, speclsp {status['version']}, up for {duration(status.get('uptime_s', 0))}"]
    lines += [f"state     {state}{progress}{': ' + message if message else ''}"]
    drafted = f", draft model {status['draft']}" if status.get("draft") else ""
    models = f" ({status['target']}{drafted}, on {status['device']})" if status.get("target") else ""
    lines += [f"model     {status['pair'] or 'auto'}{models}"]
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


def stop() -> str | None:
    """End the running engine and wait for its exit; a sentence about the freed memory, or None without an engine.

    An engine that does not answer gets signals. Windows knows one, TerminateProcess. Raises EngineError: it does not
    end, or its process is unknown.
    """
    if not is_there():
        return None
    until = time.monotonic() + ANSWER_S
    while (engine := endpoint.find()) is None:  # it is just starting, or just ending
        if not endpoint.is_locked():
            return "the engine has ended"
        if time.monotonic() > until:
            raise EngineError(f"an engine holds {endpoint.lock_path()} but its process id is unknown.")
        time.sleep(POLL_S)
    status, accepted = health(engine), False
    with suppress(OSError, EngineError):
        accepted = bool(status) and ask(engine, "POST", "/leave", {"anyway": True}).get("leaving") is True
    for number in (None if accepted else signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
        if number is not None:
            send(engine.pid, number)
        if wait_for_the_end(engine.pid):
            endpoint.remove(engine.pid)  # left by a killed engine: it is not to be started again as it was
            return freed(engine.pid, status)
    raise EngineError(f"process {engine.pid} does not end: the system may be waiting for its device.")


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to process `pid`, which holds the lock. Raises EngineError: it is not an engine."""
    import psutil

    with suppress(psutil.Error):
        process = psutil.Process(pid)
        if not is_engine(process):
            if is_ending(process):
                return
            raise EngineError(f"process {pid} is not an engine: remove {endpoint.state_path()}.")
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


def end_hung(engine: EngineEndpoint) -> bool:
    """Kill an engine that does not answer; True once it is gone, also when another process ended it.

    Kills only a process that listens on the socket, is named in engine.json and is an engine of this user's:
    another editor may have been quicker, and the process id may belong to another process by now.
    """
    import psutil

    with suppress(OSError, EngineError, psutil.Error):  # it ended meanwhile, or cannot be reached
        if endpoint.find() != engine:
            return True
        with endpoint.connect(engine) as connection:  # the kernel accepts it, even when the engine hangs
            listens = platform.peer_pid(connection)
        if listens not in (None, engine.pid):
            return endpoint.find() != engine
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


def freed(pid: int, status: Mapping[str, Any]) -> str:
    """A sentence about the memory that an engine's end freed; `status` is its last answer to GET /status."""
    if not status:
        return f"ended process {pid}, which did not answer"
    gpu = f" and {status['gpu_mib']} MiB of GPU memory" if "gpu_mib" in status else ""
    clients = status.get("clients", 0)
    count = "1 client" if clients == 1 else f"{clients or 'no'} clients"
    private_mib = status.get("rss_mib", 0) - status.get("mapped_mib", 0)
    memory = f": {private_mib} MiB of memory{gpu} freed" if "rss_mib" in status else ""
    return f"ended process {pid}, which had {count}{memory}"
