"""A real `speclsp engine` process in a runtime directory of its own, with a client of its HTTP routes."""

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
from speclsp.daemon.engine_files import EngineFiles
launch.START_WAIT_S = float(sys.argv[1]) if sys.argv[1:] else launch.START_WAIT_S
ECHO, pids = Config(model="echo"), []
def want():
    while (engine := control.alive(EngineFiles.of(ECHO))) is None:
        launch.start(ECHO)
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
        self, place: Path, *more: str, model: str = "echo", round_ms: int = 0, program: list[str] | None = None
    ) -> None:
        """`place`: a runtime directory for this engine, made if missing."""
        place.mkdir(mode=0o700, exist_ok=True)
        self.place, self.socket = place, Path()
        port = ["--port", "0"] if IS_FOREIGN else []
        command = program or [*COMMAND, "--model", model, *port, "--set", f"echo.round_ms={round_ms}"]
        self.process = subprocess.Popen(
            [*command, *more],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if IS_FOREIGN else None,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "XDG_RUNTIME_DIR": str(place)},
        )
        self.http = httpx.Client()

    def wait(self) -> EngineProcess:
        """Wait until it answers."""
        if IS_FOREIGN:
            match = next(filter(None, (PORT.search(line) for line in self.process.stdout)), None)
            state = {"port": match[1], "token": own_token()} if match else {}
        else:
            wait_until(lambda: self._state() or self.process.poll() is not None)
            state = self._state()
        if self.process.poll() is not None:
            raise AssertionError(f"the engine ended: {self.process.stderr.read()}")
        self.socket, self.http = Path(state.get("socket", "")), engine_client(state, **HTTP)
        self.http.get("/health")
        return self

    def _state(self) -> dict[str, Any]:
        """The content of its discovery file; {} before it listens."""
        paths = list(self.place.glob("speclsp/engine-*.json"))
        return json.loads(paths[0].read_text("utf-8")) if paths else {}

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


def own_token() -> str:
    """The token of an engine's requested port."""
    return (Path(os.environ["XDG_STATE_HOME"]) / "speclsp" / "token").read_text().strip()


def events(reply: httpx.Response) -> Iterator[dict[str, Any]]:
    """The JSON of each server-sent event."""
    for line in reply.iter_lines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


@contextmanager
def engine_starter(directory: Path) -> Iterator[Callable[..., EngineProcess]]:
    """A function that starts engines in runtime directories of their own in `directory`; they end with the context.

    Its `program` is Python source that runs in place of the command, with the runtime directory as its argument.
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


class TcpEngine:
    """A real `speclsp engine --port 0` with directories of its own, and an authenticated client of its TCP port.

    `root`: a short, empty directory.
    """

    def __init__(self, root: Path, *more: str, model: str = "echo") -> None:
        self.root = root
        places = {f"XDG_{name}_HOME": str(root / name.lower()) for name in ("CONFIG", "STATE", "CACHE")}
        (root / "run").mkdir(mode=0o700)
        command = program("engine", "--model", model, "--port", "0", *more)
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=(root / "stderr").open("w"),
            text=True,
            env=os.environ | places | {"XDG_RUNTIME_DIR": str(root / "run")},
        )
        self.port = 0
        for line in self.process.stdout:
            if match := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                self.port = int(match[1])
                break
        assert self.port, (root / "stderr").read_text()
        self.token = (root / "state" / "speclsp" / "token").read_text().strip()
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = httpx.Client(base_url=self.url, timeout=30, headers={"authorization": f"Bearer {self.token}"})

    def post(self, path: str, **fields: Any) -> httpx.Response:
        """The answer to a POST of `fields`."""
        return self.http.post(path, json=fields)

    def close(self) -> None:
        """End the process."""
        self.http.close()
        self.process.terminate()
        self.process.communicate(timeout=30)
