"""Messages between the windows of one folder and their servers, for comparison with a screen.

They come from lsp_tap.py's logs. A window has its own server, and another after a crash, so a folder has many logs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

Position = dict[str, int]


def offset(text: str, at: Position) -> int:
    """The index in `text` of a position counted in UTF-16 units."""
    starts = [0, *(match.end() for match in re.finditer(r"\r\n|\n|\r", text))]
    start = starts[at["line"]]
    return start + len(text[start:].encode("utf-16-le")[: 2 * at["character"]].decode("utf-16-le"))


def edited(text: str, new: str, range_: dict[str, Position] | None) -> str:
    """`text` with `range_` replaced, or all of it."""
    return new if range_ is None else text[: offset(text, range_["start"])] + new + text[offset(text, range_["end"]) :]


def lines(text: str) -> list[str]:
    return re.split(r"\r\n|\n|\r", text)


@dataclass
class Question:
    """One request for a suggestion, its document, and its answer."""

    ms: float
    uri: str
    version: int
    text: str
    position: Position
    context: dict[str, Any]
    answered_ms: float | None = None
    items: list[dict[str, Any]] = field(default_factory=list)
    failed: bool = False  # cancelled or an error

    def accepted(self, index: int = 0) -> str:
        """The document with this answer inserted."""
        return edited(self.text, self.items[index]["insertText"], self.items[index]["range"])

    def rest(self, index: int = 0) -> str:
        """The text that this answer adds after the cursor."""
        item = self.items[index]
        typed = self.text[offset(self.text, item["range"]["start"]) : offset(self.text, self.position)]
        assert item["insertText"].startswith(typed), (item, typed)
        return str(item["insertText"][len(typed) :])


@dataclass
class Document:
    """A document as the server holds it."""

    text: str
    version: int
    language: str = ""


class Wire:
    """All messages of the servers of one folder: lsp_tap.py writes `LOGS/PID.jsonl`, one for each server."""

    def __init__(self, logs: Path, folder: Path) -> None:
        self._logs = logs
        self._folder = folder.as_uri()
        self._read_bytes: dict[Path, int] = {}
        self._heard: list[dict[str, Any]] = []
        self._others: set[Path] = set()

    def messages(self) -> list[dict[str, Any]]:
        """{"ms", "to", "message", "pid" of the tap}, oldest first."""
        for log in set(self._logs.glob("*.jsonl")) - self._others:
            with log.open("rb") as file:
                start = file.seek(self._read_bytes.get(log, 0))
                new = file.read()
            new = new[: new.rfind(b"\n") + 1]
            if new and not start and self._folder not in json.dumps(json.loads(new.partition(b"\n")[0])):
                self._others.add(log)
                continue
            self._read_bytes[log] = start + len(new)
            self._heard += [json.loads(line) | {"pid": int(log.stem)} for line in new.splitlines()]
        self._heard.sort(key=lambda one: float(one["ms"]))
        return self._heard

    def told(self, method: str, to: str = "editor") -> list[dict[str, Any]]:
        """The parameters of all messages of one kind."""
        messages = (entry["message"] for entry in self.messages() if entry["to"] == to)
        return [message.get("params") or {} for message in messages if message.get("method") == method]

    def replay(self) -> tuple[dict[str, Document], list[Question]]:
        """The server's present documents, and all requests, each with its text."""
        documents: dict[str, Document] = {}
        questions: dict[tuple[int, Any], Question] = {}
        for entry in self.messages():
            message, pid = entry["message"], entry["pid"]
            method, params = message.get("method", ""), message.get("params") or {}
            if entry["to"] == "editor":
                question = None if method else questions.get((pid, message.get("id")))
                if question:
                    result = message.get("result") or []
                    question.answered_ms, question.failed = entry["ms"], "error" in message
                    question.items = list(result["items"] if isinstance(result, dict) else result)
            elif method == "textDocument/inlineCompletion":
                uri = params["textDocument"]["uri"]
                document = documents[uri]
                questions[pid, message["id"]] = Question(
                    entry["ms"], uri, document.version, document.text, params["position"], params["context"]
                )
            else:
                documents.update(changed(method, params, documents))
        return documents, list(questions.values())

    def newest(self) -> Question | None:
        """The request about the present document if it is answered and not superseded; else None."""
        documents, questions = self.replay()
        last = questions[-1] if questions else None
        if last is None or last.answered_ms is None or last.failed or documents[last.uri].version != last.version:
            return None
        return last

    def servers(self) -> list[psutil.Process]:
        """The running servers."""
        processes = []
        for pid in sorted({entry["pid"] for entry in self.messages()}):
            try:
                processes += psutil.Process(pid).children()
            except psutil.NoSuchProcess:
                continue
        return [server for server in processes if server.status() != psutil.STATUS_ZOMBIE]

    def server(self) -> psutil.Process:
        """The only running server."""
        (server,) = self.servers()
        return server

    def engine(self) -> psutil.Process:
        """The engine process."""
        return psutil.Process(self.told("speclsp/status")[-1]["engine_pid"])


def changed(method: str, params: dict[str, Any], before: dict[str, Document]) -> Iterator[tuple[str, Document]]:
    """The documents that one notification opens or changes."""
    if method == "textDocument/didOpen":
        opened = params["textDocument"]
        yield opened["uri"], Document(opened["text"], opened["version"], opened["languageId"])
    elif method == "textDocument/didChange":
        yield after(before, params["textDocument"], params["contentChanges"])
    elif method == "notebookDocument/didOpen":
        for cell in params["cellTextDocuments"]:
            yield cell["uri"], Document(cell["text"], cell["version"], cell["languageId"])
    elif method == "notebookDocument/didChange":
        cells = params["change"].get("cells") or {}
        for cell in (cells.get("structure") or {}).get("didOpen") or []:
            yield cell["uri"], Document(cell["text"], cell["version"], cell["languageId"])
        for content in cells.get("textContent") or []:
            yield after(before, content["document"], content["changes"])


def after(before: dict[str, Document], named: dict[str, Any], changes: list[dict[str, Any]]) -> tuple[str, Document]:
    """The named document after its changes in order."""
    document = before[named["uri"]]
    text = document.text
    for change in changes:
        text = edited(text, change["text"], change.get("range"))
    return named["uri"], Document(text, named["version"], document.language)
