"""Shared engines of a test: their files, leases and answers, and engines whose model misbehaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from speclsp.config import Config, EngineConfig
from speclsp.daemon import control, engine_files, launch
from speclsp.daemon.engine_files import EngineEndpoint, EngineFiles
from support.waiting import wait_until

ECHO = Config(model="echo")
FILES = EngineFiles.of(ECHO)
HASTY = Config(model="echo", engine=EngineConfig(shutdown_delay_seconds=0.05))  # the files of ECHO
ENDS_S = 10.0  # generous: the promise is shutdown_delay_seconds and 5 s more, on an idle machine

# The command, with the model loaded by {body}'s `load`.
STRANGE = """
import sys, time
from speclsp.cli import entry as cli
from speclsp.engine.process import server_process as process
from speclsp.engine.api import Result
{body}
process.model_loader = lambda config: load
sys.exit(cli.main(["engine", "start", "--model", "echo", "--set", "engine.shutdown_delay_seconds=0.05"]))
"""
NEVER_LOADED = "def load(progress): progress(0.25, 'fetching weights'); time.sleep(600)"
NEVER_DONE = """
class Deaf:  # a round that cancel cannot reach
    model = target = 'deaf'; draft = device = ''; result = Result()
    def truncate(self, request): return request
    def complete(self, request, cancel): return self
    def __iter__(self): time.sleep(600); yield
def load(progress): return Deaf()
"""


def strange(body: str) -> Any:
    """An engine in the place of ECHO's whose model is loaded by `body`; None if it has ended."""
    program = STRANGE.format(body=body)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    return FILES.find()


def started(settings: Config = ECHO) -> EngineEndpoint:
    """An engine that starts now."""
    engine = launch.start(settings)
    assert engine is not None
    return engine


def found(files: EngineFiles = FILES) -> EngineEndpoint:
    """The engine that a client would find."""
    engine = files.find()
    assert engine is not None
    return engine


def ask(method: str, path: str, body: dict[str, Any] | None = None, files: EngineFiles = FILES) -> dict[str, Any]:
    """The running engine's answer."""
    return control.ask(found(files), method, path, body)


def engines_of(root: Path) -> list[psutil.Process]:
    """All engine and starter processes whose runtime directory lies in `root`."""
    processes = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            ours = process.environ().get("XDG_RUNTIME_DIR", "").startswith(f"{root}/")
            if ours and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
    return processes


def log_lines() -> list[str]:
    """Messages of the engines' log, without time and process."""
    return [line.partition("engine: ")[2] for line in engine_files.log_path().read_text().splitlines()]


def wait_for_its_end(files: EngineFiles = FILES) -> None:
    """A dying process frees its files one by one: the lock first, the socket a moment later."""
    wait_until(lambda: files not in control.running(), ENDS_S)


class Lease:
    """An open /lease and its events."""

    def __init__(self, client: str = "a test", pid: int = 7, files: EngineFiles = FILES) -> None:
        running = found(files)
        self.connection = engine_files.connect(running, 20.0)
        target = f"/lease?client={client.replace(' ', '+')}&pid={pid}"
        proof = f"Authorization: Bearer {running.token}\r\n" if running.token else ""
        self.connection.sendall(f"GET {target} HTTP/1.0\r\nHost: localhost\r\n{proof}\r\n".encode())
        self.file = self.connection.makefile("r", encoding="utf-8")
        self.head = self.file.readline()
        while self.file.readline().strip():
            pass

    def next(self) -> dict[str, Any] | None:
        """The next event; None at the end."""
        for line in self.file:
            if line.startswith("data: "):
                return json.loads(line.removeprefix("data: "))
        return None

    def until(self, **wanted: object) -> dict[str, Any]:
        """The first event with these fields."""
        while (event := self.next()) is not None:
            if event.items() >= wanted.items():
                return event
        raise AssertionError(f"the stream ended before {wanted}")

    def close(self) -> None:
        self.file.close()
        self.connection.close()


@contextmanager
def lease(client: str = "a test", pid: int = 7, files: EngineFiles = FILES) -> Iterator[Lease]:
    """An open lease, closed at the end of the block."""
    opened = Lease(client, pid, files)
    try:
        yield opened
    finally:
        opened.close()
