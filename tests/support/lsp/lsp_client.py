"""A raw LSP client for tests: a real process, plain dicts, every byte of its stdout checked. It does not use pygls."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from windows.harness.program import IS_FOREIGN, PREFIX, incoming, outgoing

from support.lsp import warm_server
from support.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
FIXTURE = [*(PREFIX or [sys.executable]), str(ROOT / "tests/support/lsp/bare_server.py")]


def frame(message: object) -> bytes:
    """A message in LSP framing. Bytes are used as the body unchanged."""
    body = message if isinstance(message, bytes) else outgoing(json.dumps(message).encode())
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


class Client:
    """One server process and its output so far: `replies` by id, `notifications`, `requests`, `stray` bytes."""

    def __init__(
        self, command: list[str] | None = None, env: dict[str, str] | None = None, warm: bool = True, **popen: Any
    ) -> None:
        """`warm`: the server is a fork of a process that has imported its modules (warm_server.py)."""
        self.replies: dict[Any, list[dict[str, Any]]] = defaultdict(list)
        self.notifications: list[dict[str, Any]] = []
        self.requests: list[dict[str, Any]] = []
        self.stray = b""
        self._ids = itertools.count(1)
        self._heard = threading.Condition()
        self._reading = threading.Event()
        self._reading.set()
        self._stderr = tempfile.TemporaryFile("a+b", buffering=0)  # noqa: SIM115  closed in __exit__
        env = {**os.environ, "PYTHONPATH": warm_server.python_path(os.environ), **(env or {})}
        command = command or FIXTURE
        if warm and not popen.keys() - {"cwd"} and warm_server.can_run(command, env):
            self.process: Any = warm_server.WarmServer(command, env, self._stderr.fileno(), **popen)
        else:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if IS_FOREIGN else self._stderr,  # Wine needs a pipe
                env=env,
                **popen,
            )
            if IS_FOREIGN:
                threading.Thread(target=self._copy_stderr, daemon=True).start()
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self._stderr.close()

    def _read(self) -> None:
        stdout, length = self.process.stdout, None
        while line := stdout.readline():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
            elif line == b"\r\n" and length is not None:
                body = stdout.read(length)
                if len(body) < length:  # the server was killed while it wrote
                    break
                self._hear(json.loads(incoming(body)))
                length = None
            else:
                self.stray += line
            self._reading.wait()
        stdout.close()

    def _copy_stderr(self) -> None:
        with contextlib.suppress(ValueError):  # the file was closed
            while piece := self.process.stderr.read1():
                self._stderr.write(piece)

    def _hear(self, message: dict[str, Any]) -> None:
        with self._heard:
            if "method" not in message:
                self.replies[message["id"]].append(message)
            elif "id" in message:
                self.requests.append(message)
            else:
                self.notifications.append(message)
            self._heard.notify_all()

    def raw(self, data: bytes) -> None:
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, message: object) -> None:
        self.raw(frame(message))

    def notify(self, method: str, params: Any = None) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def request(self, method: str, params: Any = None, **fields: Any) -> int:
        """Send a request and return its id."""
        msg_id = next(self._ids)
        self.send({"jsonrpc": "2.0", "id": msg_id, "method": method, "params": params, **fields})
        return msg_id

    def wait_for(self, condition: Any, timeout_s: float = PATIENCE_S) -> bool:
        with self._heard:
            return self._heard.wait_for(condition, timeout_s)

    def reply(self, msg_id: Any, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        """The first reply to a request. Fails the test when none arrives in time."""
        assert self.wait_for(lambda: self.replies[msg_id], timeout_s), f"request {msg_id!r} was not answered"
        return self.replies[msg_id][0]

    def call(self, method: str, params: Any = None, timeout_s: float = PATIENCE_S) -> Any:
        """The result of a request."""
        reply = self.reply(self.request(method, params), timeout_s)
        assert "error" not in reply, reply["error"]
        return reply["result"]

    def error(self, method: str, params: Any = None) -> dict[str, Any]:
        """The error of a request. It is always one line and never has data."""
        error = self.reply(self.request(method, params))["error"]
        assert set(error) == {"code", "message"}
        assert "\n" not in error["message"]
        return error

    def initialize(self, capabilities: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
        initialize_params = {"processId": None, "rootUri": None, "capabilities": capabilities or {}, **params}
        result = self.call("initialize", initialize_params)
        self.notify("initialized", {})
        return result

    def open(self, uri: str, text: str, version: int = 1, language: str = "python") -> None:
        document = {"uri": uri, "languageId": language, "version": version, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": document})

    def change(self, uri: str, version: int | None, *changes: dict[str, Any]) -> None:
        document = {"uri": uri, "version": version}
        self.notify("textDocument/didChange", {"textDocument": document, "contentChanges": list(changes)})

    def insert(self, uri: str, version: int, line: int, character: int, text: str) -> None:
        position = {"line": line, "character": character}
        self.change(uri, version, {"range": {"start": position, "end": position}, "text": text})

    def complete(self, uri: str, line: int, character: int, kind: int = 2, **document: Any) -> int:
        """Request an inline completion and return the request's id."""
        params = {"textDocument": {"uri": uri, **document}, "position": {"line": line, "character": character}}
        return self.request("textDocument/inlineCompletion", {**params, "context": {"triggerKind": kind}})

    def stop_reading(self, stopped: bool = True) -> None:
        self._reading.clear() if stopped else self._reading.set()

    def rss_kib(self) -> int:
        """The server's resident memory in KiB (Linux)."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024

    def ended(self, timeout_s: float) -> int:
        """The exit code. Fails the test when the process still runs after `timeout_s`."""
        return self.process.wait(timeout_s)

    def stderr(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace")

    def popups(self) -> list[dict[str, Any]]:
        return [message for message in self.notifications if message["method"] == "window/showMessage"]


def gone_within(pid: int, timeout_s: float) -> bool:
    """True if the process ends within the time. A zombie counts as ended."""
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.02)
    return False
