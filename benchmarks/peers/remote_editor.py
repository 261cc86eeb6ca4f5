"""An editor whose `speclsp lsp` uses a server behind `remote.url`, with its own settings; keeps each status shown."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.keystrokes.language_server import Server
from benchmarks.keystrokes.replay_editor import position
from benchmarks.peers.upstreams import KEY, START_S
from speclsp import config
from speclsp.errors import EngineError

ANSWER_S = 90
AUTOMATIC = 2


class Editor(Server):
    """`speclsp lsp` and every status it has shown."""

    def __init__(self, settings: Mapping[str, object], place: Path, key: str = KEY) -> None:
        self.shown: list[tuple[float, dict[str, Any]]] = []
        self.versions: dict[str, int] = {}
        os.environ["SPECLSP_API_KEY"] = key
        try:
            super().__init__(config.load({"engine.shared": False, **settings}), place)
        finally:
            del os.environ["SPECLSP_API_KEY"]

    def _hear(self, now_s: float, message: dict[str, Any]) -> None:
        if message.get("method") == "speclsp/status":
            self.shown.append((now_s, message["params"]))
        super()._hear(now_s, message)

    @property
    def phase(self) -> str:
        return str(self.shown[-1][1]["state"]) if self.shown else ""

    def start(self, until: tuple[str, ...] = ("ready", "error")) -> Editor:
        """Initialize, then wait for one of these states."""
        number = self.number()
        capabilities = {"general": {"positionEncodings": ["utf-16"]}, "textDocument": {"inlineCompletion": {}}}
        params = {"processId": os.getpid(), "rootUri": "file:///backends", "capabilities": capabilities}
        self.send({"id": number, "method": "initialize", "params": params})
        self.answered(number, ANSWER_S)
        self.send({"method": "initialized", "params": {}})
        self.wait(lambda: self.phase in until, START_S)
        return self

    def ask(self, uri: str, text: str, cursor: int) -> int:
        """The document as it is now, and a question at the cursor; the request's number."""
        if uri in self.versions:
            self.versions[uri] += 1
            change = {"uri": uri, "version": self.versions[uri]}
            self.send(
                {
                    "method": "textDocument/didChange",
                    "params": {"textDocument": change, "contentChanges": [{"text": text}]},
                }
            )
        else:
            self.versions[uri] = 1
            self.open(uri, "python", text)
        number = self.number()
        params = {
            "textDocument": {"uri": uri},
            "position": position(text, cursor),
            "context": {"triggerKind": AUTOMATIC},
        }
        self.send({"id": number, "method": "textDocument/inlineCompletion", "params": params})
        return number

    def complete(self, uri: str, text: str, cursor: int) -> tuple[float, str]:
        """(ms, the suggestion's text after the cursor)."""
        began_s = perf_counter()
        number = self.ask(uri, text, cursor)
        if not self.answered(number, ANSWER_S):
            raise EngineError("no answer within the time")
        heard_s, message = self.answers[number]
        items = (message.get("result") or {}).get("items") or []
        if not items:
            return (heard_s - began_s) * 1000, ""
        line = text[text.rfind("\n", 0, cursor) + 1 : cursor]
        start = items[0]["range"]["start"]["character"]
        return (heard_s - began_s) * 1000, items[0]["insertText"].removeprefix(line[start:])


@contextlib.contextmanager
def editing(settings: Mapping[str, object], place: Path, key: str = KEY) -> Iterator[Editor]:
    """An editor of its own, ready or in error; ended."""
    with tempfile.TemporaryDirectory(prefix="sb-", dir=place) as own:
        editor = Editor(settings, Path(own), key)
        try:
            yield editor.start()
        finally:
            editor.end()
