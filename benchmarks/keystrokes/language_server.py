"""`speclsp lsp` as a child process of a benchmark, with a thread that notes the time of each answer."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import Any

import psutil

from speclsp import config as settings
from speclsp.config import Config
from speclsp.errors import EngineError

LOADING_S, ANSWER_S = 300, 10
MODULE = ("speclsp",)
FIRST_URI = "untitled:first"
NO_ABILITIES: Mapping[str, bool] = MappingProxyType({})
ENDED = "the language server ended in the middle of the benchmark"


class Server:
    """`speclsp lsp` as a process, with a thread that records the time of each answer."""

    def __init__(self, config: Config, place: Path, module: Sequence[str] = MODULE) -> None:
        """`place`: an empty directory for its log and socket. No other server uses its engine, which ends with it.

        `module`: the Python module that serves, and its first arguments.
        """
        config = replace(config, engine=replace(config.engine, shutdown_delay_seconds=0))
        self.runtime, self.state = place / "r", place / "s"
        places = {"XDG_RUNTIME_DIR": self.runtime, "XDG_STATE_HOME": self.state, "XDG_CONFIG_HOME": place / "c"}
        for path in places.values():
            path.mkdir(mode=0o700)
        self.answers: dict[int, tuple[float, dict[str, Any]]] = {}  # by request: (time, answer)
        self.messages: list[str] = []  # shown to the user
        self.status: dict[str, Any] = {}  # the last one
        self.state_times_s: dict[str, float] = {}  # by state: when it was reported first
        self._numbers = itertools.count(1)
        self._heard = threading.Condition()
        self._writing = threading.Lock()
        self._ended = False
        self.process = subprocess.Popen(
            [sys.executable, "-m", *module, "lsp", "--stdio", "--trace", *settings.as_flags(config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **{name: str(path) for name, path in places.items()}},
        )
        threading.Thread(target=self._read, name="answers", daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        length = 0
        while line := self.process.stdout.readline():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
            elif line == b"\r\n":
                body = self.process.stdout.read(length)
                self._hear(perf_counter(), json.loads(body))
        with self._heard:
            self._ended = True
            self._heard.notify_all()

    def _hear(self, now_s: float, message: dict[str, Any]) -> None:
        method, number = message.get("method"), message.get("id")
        if method is not None and number is not None:
            self.send({"id": number, "result": None})
        with self._heard:
            if method == "speclsp/status":
                self.status = message["params"]
                self.state_times_s.setdefault(self.status["state"], now_s)
            elif method == "window/showMessage":
                self.messages.append(message["params"]["message"])
            elif method is None and number is not None:
                self.answers[number] = (now_s, message)
            self._heard.notify_all()

    def send(self, *messages: dict[str, Any]) -> None:
        """Write messages, all at once."""
        bodies = [json.dumps({"jsonrpc": "2.0", **message}).encode() for message in messages]
        with self._writing:
            assert self.process.stdin is not None
            framed = b"".join(b"Content-Length: %d\r\n\r\n%b" % (len(body), body) for body in bodies)
            try:
                self.process.stdin.write(framed)
                self.process.stdin.flush()
            except BrokenPipeError:
                raise EngineError(f"{ENDED} (exit code {self.process.poll()}).") from None

    def number(self) -> int:
        return next(self._numbers)

    def wait(self, until: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until `until` holds; True if it did in time. Raises EngineError when the server ends instead."""
        with self._heard:
            true = self._heard.wait_for(lambda: self._ended or until(), max(0.0, timeout_s))
            if self._ended:
                raise EngineError(f"{ENDED} (exit code {self.process.poll()}).")
            return true and until()

    def answered(self, number: int, timeout_s: float) -> bool:
        """Wait for a request's answer; True if it came in time."""
        return self.wait(lambda: number in self.answers, timeout_s)

    def begin(self, root: str, abilities: Mapping[str, bool] = NO_ABILITIES) -> None:
        """Initialize, and wait until the model is loaded. `abilities`: those beside LSP. Raises EngineError."""
        self.initialize(root, abilities)
        self.open(FIRST_URI, "python", "")  # the engine starts with a file
        self.close(FIRST_URI)
        if not self.wait(lambda: self.status.get("state") in ("ready", "error"), LOADING_S):
            raise EngineError(f"the model was not loaded within {LOADING_S} s: {self.status.get('message')}")
        if self.status["state"] == "error":
            raise EngineError(str(self.status["message"]))

    def initialize(self, root: str, abilities: Mapping[str, bool] = NO_ABILITIES) -> None:
        """Initialize the server."""
        number = self.number()
        capabilities: dict[str, Any] = {"experimental": {"speclsp": dict(abilities)}}
        capabilities |= {"general": {"positionEncodings": ["utf-16"]}, "textDocument": {"inlineCompletion": {}}}
        params = {"processId": os.getpid(), "rootUri": root, "capabilities": capabilities}
        self.send({"id": number, "method": "initialize", "params": params})
        self.answered(number, ANSWER_S)
        self.send({"method": "initialized", "params": {}})

    def open(self, uri: str, language: str, text: str) -> None:
        document = {"uri": uri, "languageId": language, "version": 1, "text": text}
        self.send({"method": "textDocument/didOpen", "params": {"textDocument": document}})

    def close(self, uri: str) -> None:
        self.send({"method": "textDocument/didClose", "params": {"textDocument": {"uri": uri}}})

    def end(self) -> None:
        """Shut down as an editor does."""
        with suppress(OSError, EngineError):
            number = self.number()
            self.send({"id": number, "method": "shutdown"})
            self.answered(number, ANSWER_S)
            self.send({"method": "exit"})
        try:
            self.process.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        with suppress(psutil.NoSuchProcess):
            if engine_pid := self.status.get("engine_pid"):
                psutil.Process(engine_pid).wait(ANSWER_S)

    def traces(self) -> list[dict[str, Any]]:
        """The server's trace of each request, oldest first. Call it after the server has ended."""
        files = sorted(self.state.rglob("lsp.log*"), reverse=True)  # lsp.log.1 is the older one
        lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
        return [json.loads(line.partition(" trace: ")[2]) for line in lines if " trace: {" in line]


@contextmanager
def serving(config: Config, module: Sequence[str] = MODULE) -> Iterator[Server]:
    """A server of our own, with a log and a socket of its own and nothing from the user's config.toml but `config`."""
    with tempfile.TemporaryDirectory(prefix="speclsp-") as place:
        server = Server(config, Path(place), module)
        try:
            yield server
        finally:
            server.end()
