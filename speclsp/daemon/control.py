"""What runs: asks this user's engine how it is, or to end. For `speclsp engine --status` and `--stop`. No wing here."""

from __future__ import annotations

import http.client
import json
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from speclsp.daemon import endpoint, http_client, launch, platform
from speclsp.daemon.endpoint import EngineEndpoint
from speclsp.errors import EngineError

if TYPE_CHECKING:
    import psutil

ANSWER_S = 5.0  # an engine that has not answered in this time is told by signal
ENDS_S = 5.0  # from the wish to the end of its process
POLL_S = 0.02


def alive() -> EngineEndpoint | None:
    """The engine that listens; None when none does. Raises EngineError: something else is in its place."""
    engine = endpoint.find()
    if engine is not None:
        with suppress(OSError):
            endpoint.connect(engine).close()
            return engine
    return None


def is_there() -> bool:
    """Whether an engine lives, or is just being started; one whose lock somebody has removed as well."""
    return endpoint.is_locked() or alive() is not None


def ask(engine: EngineEndpoint, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The object the engine at `found` answers with. Raises OSError, EngineError: it does not, or is none of ours."""
    try:
        with http_client.request(engine, method, path, body, timeout_s=ANSWER_S) as response:
            answer = json.loads(response.read(2**20))
    except (http.client.HTTPException, ValueError) as error:
        raise EngineError(
            "what listens in the engine's place is no speclsp engine: `speclsp engine --stop`."
        ) from error
    return answer if isinstance(answer, dict) else {}


def health(engine: EngineEndpoint) -> dict[str, Any]:
    """What it says of itself; {} when it says nothing."""
    try:
        return ask(engine, "GET", "/status")
    except (OSError, EngineError):
        return {}


# ── how it is ────────────────────────────────────────────────────────────────────────────────────────────────


def status() -> dict[str, Any] | None:
    """All that is known of the running engine; None when there is none. Raises EngineError, SpeclspError."""
    if not is_there():
        return None
    engine = endpoint.find()
    if engine is None:
        return {"status": "starting", "log": str(launch.log_path())}
    known = {"pid": engine.pid, "pair": engine.pair, "version": engine.version, "status": "silent"}
    address = {"socket": engine.socket, "port": engine.port, "settings": dict(engine.settings)}
    return known | health(engine) | address | {"log": str(launch.log_path())}


def in_words(status: Mapping[str, Any]) -> str:
    """`status` for a person."""
    state = str(status["status"])
    if state == "starting":
        return f"an engine is just starting or just ending; its log is {status['log']}"
    if state == "silent":
        return (
            f"process {status['pid']} (pair {status['pair']}) holds the engine's lock and does not answer; "
            f"`speclsp engine --stop` ends it; its log is {status['log']}"
        )
    error = status.get("error")
    message = str(error.get("message")) if isinstance(error, dict) else str(status.get("message") or "")
    progress = f" {status['progress']:.0%}" if "progress" in status else ""
    lines = [f"process   {status['pid']}, speclsp {status['version']}, up for {duration(status.get('uptime_s', 0))}"]
    lines += [f"state     {state}{progress}{': ' + message if message else ''}"]
    drafted = f", drafted by {status['draft']}" if status.get("draft") else ""
    models = f" ({status['target']}{drafted}, on {status['device']})" if status.get("target") else ""
    lines += [f"pair      {status['pair'] or 'auto'}{models}"]
    gpu = f", {status['gpu_mib']} MiB of GPU memory" if "gpu_mib" in status else ""
    reduced = f" ({status['memory']})" if status.get("memory", "full") != "full" else ""
    lines += [f"memory    {status.get('rss_mib', 0)} MiB{gpu}{reduced}"]
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
    return "\n".join([*lines, f"log       {status['log']}"])


def duration(seconds: float) -> str:
    """3720 as "1 h 2 min"."""
    minutes, hours = int(seconds) // 60, int(seconds) // 3600
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min" if minutes else f"{int(seconds)} s"


# ── its end ──────────────────────────────────────────────────────────────────────────────────────────────────


def stop() -> str | None:
    """End the running engine and wait until it is gone: what that freed, as a sentence; None when there was none.

    One that does not answer is ended by signals. Raises EngineError: it does not end, or nobody can tell which it is.
    """
    if not is_there():
        return None
    until = time.monotonic() + ANSWER_S
    while (engine := endpoint.find()) is None:  # it is just starting, or just ending
        if not endpoint.is_locked():
            return "the engine has ended"
        if time.monotonic() > until:
            raise EngineError(f"an engine holds {endpoint.lock_path()} and does not say which process it is.")
        time.sleep(POLL_S)
    status, accepted = health(engine), False
    with suppress(OSError, EngineError):
        accepted = bool(status) and ask(engine, "POST", "/leave", {"anyway": True}).get("leaving") is True
    for number in (None if accepted else signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
        if number is not None:
            send(engine.pid, number)
        if wait_for_the_end(engine.pid):
            return freed(engine.pid, status)
    raise EngineError(f"process {engine.pid} does not end: the system may be waiting for its device.")


def send(pid: int, number: signal.Signals) -> None:
    """Signal process `pid`, which holds the lock, if it is what it should be."""
    import psutil

    with suppress(psutil.Error):
        process = psutil.Process(pid)
        if not is_engine(process):
            if is_ending(process):
                return
            raise EngineError(f"process {pid} is not an engine: remove {endpoint.state_path()}.")
        process.send_signal(number)


def is_ending(process: psutil.Process) -> bool:
    """Whether a process has been killed and gives its memory back, its command line first of all. Raises psutil.Error.

    Between its death and its being a zombie lie tens of milliseconds for each gigabyte. Only the system's own threads
    have no command line while they live, and those listen nowhere.
    """
    return not process.cmdline()


def is_engine(process: psutil.Process) -> bool:
    """Whether a process is an engine, and this user's."""
    named = {"engine", "speclsp"} <= {word.rpartition("/")[2] for word in process.cmdline()}
    return named and (not hasattr(os, "getuid") or process.uids().real == os.getuid())


def end_hung(engine: EngineEndpoint) -> bool:
    """End the engine at `found`, which answers nothing; whether it is gone, by us or by another who found it so.

    Only the process that listens there, that engine.json tells of and that is an engine of this user's is ended:
    another editor may have been quicker, and the number may be another process's by now.
    """
    import psutil

    with suppress(OSError, EngineError, psutil.Error):  # it has gone meanwhile, or is not to be reached
        if endpoint.find() != engine:
            return True
        with endpoint.connect(engine) as connection:  # the system takes it, whatever the engine does
            listens = platform.peer_pid(connection)
        if listens not in (None, engine.pid):
            return endpoint.find() != engine
        process = psutil.Process(engine.pid)  # `kill` looks whether it is the same one still
        if not is_engine(process):
            return is_ending(process) and wait_for_the_end(engine.pid)
        process.kill()
    return wait_for_the_end(engine.pid)


def wait_for_the_end(pid: int) -> bool:
    """Whether the engine's process has gone, and its memory and lock with it, in ENDS_S.

    The lock alone does not say so: it may be another one's by then, or somebody has removed it.
    """
    until = time.monotonic() + ENDS_S
    while not is_gone(pid):
        if time.monotonic() > until:
            return False
        time.sleep(POLL_S)
    return True


def is_gone(pid: int) -> bool:
    """Whether no thread of process `pid` is left. The first may end while another still has memory and lock."""
    import psutil

    try:
        process = psutil.Process(pid)
        ended: bool = process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1
    except psutil.NoSuchProcess:
        return True
    return ended


def freed(pid: int, status: Mapping[str, Any]) -> str:
    """What an engine's end gave back; `before` is what it said of itself."""
    if not status:
        return f"ended process {pid}, which did not answer"
    gpu = f" and {status['gpu_mib']} MiB of GPU memory" if "gpu_mib" in status else ""
    clients = status.get("clients", 0)
    count = "1 client" if clients == 1 else f"{clients or 'no'} clients"
    memory = f": {status['rss_mib']} MiB of memory{gpu} freed" if "rss_mib" in status else ""
    return f"ended process {pid}, which had {count}{memory}"
