"""An editor for tests: `speclsp lsp` as a real process, a synchronized document, and the expected echo answers.

The model `echo` answers with hashes of the text in the request, so each answer shows whether it is stale. Editors of
one test with the same settings share an engine, as a user's editors do. It exits with the last of them at once
(`engine.shutdown_delay_seconds` = 0).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import psutil
from windows.harness.program import engine_client, linux_pid, program

from support.lsp.lsp_client import Client, gone_within
from support.waiting import PATIENCE_S

URI = "file:///project/app.py"
FIRST_URI = "untitled:first"
CAPABILITIES = {"window": {"workDoneProgress": True}}
DEADLINE_MS = 60_000  # a busy machine shows the whole text; tests of the deadline set their own


class Editor(Client):
    """A client that answers the server's requests, as editors do."""

    sharing: ClassVar[Counter[Path]] = Counter()  # number of open editors by runtime directory

    def __init__(
        self,
        *arguments: str,
        settings: object = None,
        model: str = "echo",
        warm: bool = True,
        command: list[str] | None = None,
        **popen: Any,
    ) -> None:
        """`command`: starts `speclsp` in another way."""
        self.settings = settings  # for workspace/configuration
        self.arrived: list[Any] = []  # ids of replies
        self.runtime = Path(os.environ["XDG_RUNTIME_DIR"]) / "speclsp"
        self.logs = Path(os.environ["XDG_STATE_HOME"]) / "speclsp" / "log"
        self.started = time.perf_counter()
        words = ["lsp", "--stdio", "--model", model, "--set", "engine.shutdown_delay_seconds=0"]
        words += ["--set", f"completion.timeout_ms={DEADLINE_MS}", *arguments]
        super().__init__([*command, *words] if command else program(*words), warm=warm, **popen)
        Editor.sharing[self.runtime] += 1

    @property
    def server(self) -> psutil.Process:
        return psutil.Process(self.process.pid)

    def __exit__(self, *problem: object) -> None:
        engines = self.engines()
        Editor.sharing[self.runtime] -= 1
        if self.process.poll() is None:
            self.process.stdin.close()  # as when an editor dies
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(PATIENCE_S)
        clean = self.process.poll() is not None
        super().__exit__(*problem)
        if problem[0] is None:
            assert clean, "the server outlived its editor"
            for engine in engines if not Editor.sharing[self.runtime] else []:
                assert self.gone(engine), "the engine outlived its servers"

    def gone(self, engine: psutil.Process, within_s: float = PATIENCE_S) -> bool:
        return gone_within(engine.pid, within_s)  # an orphan may stay a zombie for a while

    def _hear(self, message: dict[str, Any]) -> None:
        super()._hear(message)
        if "method" not in message:
            self.arrived.append(message["id"])
        if "id" in message and "method" in message:
            result = [self.settings] if message["method"] == "workspace/configuration" else None
            with suppress(ValueError, BrokenPipeError):  # the test has ended, and stdin is closed
                self.send({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def engines(self) -> list[psutil.Process]:
        """The engine processes of this user."""
        pids = {linux_pid(state["pid"]) for state in self._engine_states()}
        return [psutil.Process(pid) for pid in sorted(pids) if pid and not gone_within(pid, 0.02)]

    def _engine_states(self) -> list[dict[str, Any]]:
        """The contents of the engines' discovery files."""
        states = []
        for path in self.runtime.glob("engine-*.json"):
            with suppress(FileNotFoundError):
                states.append(json.loads(path.read_text("utf-8")))
        return states

    def initialize(
        self, capabilities: dict[str, Any] | None = None, starts_engine: bool = True, **params: Any
    ) -> dict[str, Any]:
        """Initialize; `starts_engine`: open an eligible document for a moment."""
        result = super().initialize(capabilities, **params)
        if starts_engine:
            self.open(FIRST_URI, "")
            self.notify("textDocument/didClose", {"textDocument": {"uri": FIRST_URI}})
        return result

    def begin(self, capabilities: Mapping[str, Any] = CAPABILITIES, **params: Any) -> Editor:
        """Initialize and wait for the engine."""
        self.initialize(dict(capabilities), **params)
        return self.until("ready")

    def statuses(self) -> list[dict[str, Any]]:
        return [message["params"] for message in list(self.notifications) if message["method"] == "speclsp/status"]

    def states(self) -> list[str]:
        return [status["state"] for status in self.statuses()]

    def progress(self) -> list[dict[str, Any]]:
        return [message["params"]["value"] for message in list(self.notifications) if message["method"] == "$/progress"]

    def until(self, state: str, after: int = 0, timeout_s: float = PATIENCE_S) -> Editor:
        """Wait for a status with this state. Statuses before index `after` do not count."""
        assert self.wait_for(lambda: state in self.states()[after:], timeout_s), f"never {state!r}: {self.statuses()}"
        return self

    def items(self, msg_id: int, timeout_s: float = PATIENCE_S) -> list[dict[str, Any]]:
        """The items of an answer. The answer is never null and never an error."""
        reply = self.reply(msg_id, timeout_s)
        assert "error" not in reply, reply
        assert set(reply["result"]) == {"items"}
        return reply["result"]["items"]

    def text(self, msg_id: int) -> str | None:
        """The insertText of the only item; None when there are no items."""
        items = self.items(msg_id)
        assert len(items) <= 1
        return items[0]["insertText"] if items else None

    def metrics(self) -> dict[str, float]:
        """The engine's metrics, by name and labels."""
        own = self.statuses()[-1]["engine_pid"]
        (state,) = [state for state in self._engine_states() if linux_pid(state["pid"]) == own]
        with engine_client(state) as http:
            lines = http.get("/metrics").text.splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}

    def request_count(self) -> float:
        """The number of completion requests that the engine has counted."""
        return sum(value for name, value in self.metrics().items() if "requests_total" in name)


def echoed(before: str, after: str) -> str:
    """The answer of echo for the text before and the text after the cursor."""
    return f"E:{digest(before)}:{digest(after)}"


def digest(text: str) -> str:
    with_lf = re.sub(r"\r\n?", "\n", text)
    return hashlib.sha256(with_lf.encode("utf-8", "surrogatepass")).hexdigest()[:8]


class Page:
    """A document on the editor's side: its text, its version, and columns in one position encoding."""

    def __init__(self, editor: Editor, text: str, encoding: str = "utf-16", uri: str = URI) -> None:
        self.editor, self.text, self.encoding, self.uri, self.version = editor, text, encoding, uri, 1
        editor.open(uri, text)

    def place(self, offset: int) -> dict[str, int]:
        """The LSP position of an offset. The offset is not inside a line end."""
        lines = re.split(r"\r\n|\n|\r", self.text[:offset])
        return {"line": len(lines) - 1, "character": units(lines[-1], self.encoding)}

    def edit(self, start: int, end: int, new: str) -> None:
        """Replace text[start:end] in this copy and in the server's."""
        span = {"start": self.place(start), "end": self.place(end)}
        self.text, self.version = self.text[:start] + new + self.text[end:], self.version + 1
        self.editor.change(self.uri, self.version, {"range": span, "text": new})

    def ask(self, cursor: int, kind: int = 2, **context: Any) -> int:
        """Request a completion at an offset."""
        params = {"textDocument": {"uri": self.uri}, "position": self.place(cursor)}
        params["context"] = {"triggerKind": kind, **context}
        return self.editor.request("textDocument/inlineCompletion", params)

    def expected(self, cursor: int) -> str:
        return echoed(self.text[:cursor], self.text[cursor:])

    def type(self, cursor: int, new: str) -> int:
        """Insert text at an offset and return the offset after it."""
        self.edit(cursor, cursor, new)
        return cursor + len(new)

    def stops(self) -> list[int]:
        """Every offset where a cursor can stand."""
        return [at for at in range(len(self.text) + 1) if self.text[at - 1 : at + 1] != "\r\n"]


def units(text: str, encoding: str) -> int:
    """The number of columns of a text in a position encoding."""
    if encoding == "utf-32":
        return len(text)
    return len(text.encode("utf-8")) if encoding == "utf-8" else len(text.encode("utf-16-le")) // 2
