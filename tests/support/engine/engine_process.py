"""A real `speclsp engine` process on a socket of its own, with a client of its HTTP routes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from windows.harness.program import IS_FOREIGN, engine_client, program

from speclsp.daemon import platform
from support.waiting import wait_until

COMMAND = program("engine")
PORT = re.compile(r"http://127\.0\.0\.1:(\d+)")
HTTP = {"timeout": 20}
# A program: after a line of stdin, five threads request an engine at once, and it prints the process id of each one's.
# Argument: how long a start may take, in seconds; by default the product's time.
WANT_ONE = """
import sys, threading, time
from speclsp.config import Config
from speclsp.daemon import control, launch
launch.START_WAIT_S = float(sys.argv[1]) if sys.argv[1:] else launch.START_WAIT_S
pids = []
def want():
    while (engine := control.alive()) is None:
        launch.start(Config(model="echo"))
        time.sleep(0.02)
    pids.append(engine.pid)
threads = [threading.Thread(target=want) for _ in range(5)]
print("ready", flush=True)
sys.stdin.readline()
for thread in threads: thread.start()
for thread in threads: thread.join()
print(*pids, flush=True)
"""
ABC = {"input_prefix": "a", "prompt": "bc", "input_suffix": "def"}
ANSWER = "E:ba7816bf:cb8379ac"  # echo's completion of ABC


class EngineProcess:
    """The process and its client. `more`: further command-line arguments; `program`: another command."""

    def __init__(
        self, socket: Path, *more: str, round_ms: int = 0, program: list[str] | None = None, stdin: int | None = None
    ) -> None:
        self.socket = socket
        address = ["--port", "0"] if IS_FOREIGN else ["--socket", str(socket)]
        command = program or [*COMMAND, "--model", "echo", *address, "--set", f"echo.round_ms={round_ms}"]
        self.process = subprocess.Popen(
            [*command, *more],
            stdin=stdin or subprocess.DEVNULL,
            stdout=subprocess.PIPE if IS_FOREIGN else None,
            stderr=subprocess.PIPE,
            text=True,
            env=own_runtime(socket) if IS_FOREIGN else None,
        )
        self.http = engine_client({"socket": str(socket)}, **HTTP)

    def wait(self) -> EngineProcess:
        """Wait until its socket answers; on Windows, its port, whose number is in a file in the socket's place."""
        if IS_FOREIGN:
            match = next(filter(None, (PORT.search(line) for line in self.process.stdout)), None)
            if match:
                token = (Path(os.environ["XDG_STATE_HOME"]) / "speclsp" / "token").read_text().strip()
                self.http = engine_client({"port": match[1], "token": token}, **HTTP)
        else:
            wait_until(lambda: self.socket.exists() or self.process.poll() is not None)
            if not platform.HAS_UNIX_SOCKETS and self.socket.exists():
                self.http = engine_client(json.loads(self.socket.read_text("utf-8")), **HTTP)
        if self.process.poll() is not None:
            raise AssertionError(f"the engine ended: {self.process.stderr.read()}")
        self.http.get("/health")
        return self

    def infill(self, **fields: Any) -> dict[str, Any]:
        """The answer to one POST /infill about ABC."""
        reply = self.http.post("/infill", content=json.dumps(ABC | fields))
        assert reply.status_code == 200, reply.text
        return reply.json()

    def stream(self, **fields: Any) -> Iterator[dict[str, Any]]:
        """The events of a streamed answer; closing the iterator closes the connection."""
        with self.http.stream("POST", "/infill", json=ABC | {"stream": True} | fields) as reply:
            assert reply.status_code == 200
            yield from events(reply)

    def metric(self, name: str) -> float:
        """The sum of a metric's series in /metrics; 0 when it is not there yet. `name` may end in {labels}."""
        lines = self.http.get("/metrics").text.splitlines()
        pattern = re.compile(rf"speclsp_{re.escape(name)}({{.*}})? (\S+)$")
        return sum(float(match[2]) for line in lines if (match := pattern.match(line)))

    def busy(self) -> tuple[int, int]:
        """Numbers of running and waiting requests."""
        return int(self.metric("running_requests")), int(self.metric("waiting_requests"))

    def ended(self, seconds: float) -> tuple[int, str]:
        """The exit code and stderr; fails when it has not ended in `seconds`."""
        _, stderr = self.process.communicate(timeout=seconds)
        return self.process.returncode, stderr

    def close(self) -> None:
        """Kill the process if it still runs."""
        self.http.close()
        if self.process.poll() is None:
            self.process.kill()
        if not self.process.stderr.closed:
            self.process.communicate()


def own_runtime(socket: Path) -> dict[str, str]:
    """The environment of an engine on a port beside others: a runtime directory has one."""
    folder = socket.with_name(f"{socket.name}.run")
    folder.mkdir(mode=0o700, exist_ok=True)
    return {**os.environ, "XDG_RUNTIME_DIR": str(folder)}


def events(reply: httpx.Response) -> Iterator[dict[str, Any]]:
    """The JSON of each server-sent event."""
    for line in reply.iter_lines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


@contextmanager
def engine_starter(directory: Path) -> Iterator[Callable[..., EngineProcess]]:
    """A function that starts engines on sockets of their own in `directory`; they end with the context.

    Its `program` is Python source that runs with the socket's path as its argument, in place of the command.
    """
    engines: list[EngineProcess] = []

    def start(*more: str, program: str = "", **how: Any) -> EngineProcess:
        path = directory / f"e{len(engines)}"
        command = [sys.executable, "-c", program, str(path)] if program else None
        engines.append(EngineProcess(path, *more, program=command, **how))
        return engines[-1]

    try:
        yield start
    finally:
        for engine in engines:
            engine.close()
