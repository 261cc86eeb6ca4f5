"""Reads the log of lsp_tap.py: document texts, requests and answers of an editor and its server.

Tests compare the screen with it. It depends on no editor and not on the server.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATIENCE_S = 240.0
BYTES = {"utf-8": 1, "utf-16": 2, "utf-32": 4}  # bytes of one unit of a position


@dataclass(frozen=True, slots=True)
class Answer:
    """One answered request for a suggestion."""

    request_ms: float
    ms: float
    uri: str
    line: int
    kind: int  # 1 triggered manually, 2 by typing
    before: str  # the line's text before the suggestion's range
    after: str  # the line's text after it, at the request
    texts: tuple[str, ...]  # the suggestions, () for none
    document: str  # the text at the request
    documents: tuple[str, ...]  # the text after accepting each suggestion

    def lines(self, number: int = 0) -> list[str]:
        """The lines after accepting the suggestion, without the text that follows it."""
        return (self.before + self.texts[number]).split("\n")


@dataclass
class Conversation:
    """A log and the state derived from it."""

    log: Path
    _read_bytes: int = 0
    messages: list[dict[str, Any]] = field(default_factory=list)  # {"ms", "to", "message"}
    texts: dict[str, str] = field(default_factory=dict)  # the server's texts, by URI
    answers: list[Answer] = field(default_factory=list)
    cancelled: int = 0
    status: dict[str, Any] = field(default_factory=dict)  # the last speclsp/status
    encoding: str = "utf-16"
    _early: dict[Any, dict[str, Any]] = field(
        default_factory=dict
    )  # lsp_tap.py's two directions may overtake each other
    _open: dict[Any, tuple[float, str, dict[str, Any], str]] = field(default_factory=dict)

    def read(self) -> Conversation:
        """Reads the new entries of the log."""
        if not self.log.exists():
            return self
        with self.log.open("rb") as file:
            file.seek(self._read_bytes)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        for line in whole.splitlines():
            entry = json.loads(line)
            self.messages.append(entry)
            self._take(entry["ms"], entry["to"], entry["message"])
        return self

    def wait(self, condition: Callable[[Conversation], Any], what: str, timeout_s: float = PATIENCE_S) -> Any:
        """Reads until the condition is true; returns its value."""
        end = time.monotonic() + timeout_s
        while not (value := condition(self.read())):
            if time.monotonic() > end:
                raise AssertionError(f"waited {timeout_s:.0f} s for {what} on the wire")
            time.sleep(0.01)
        return value

    @property
    def waiting(self) -> int:
        """The number of open requests."""
        return len(self._open)

    def sent(self, method: str) -> list[dict[str, Any]]:
        """The params of the editor's messages of this method."""
        self.read()
        messages = (entry["message"] for entry in self.messages if entry["to"] == "server")
        return [message.get("params", {}) for message in messages if message.get("method") == method]

    def _take(self, ms: float, to: str, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params") or {}
        if to == "server" and method == "textDocument/didOpen":
            self.texts[params["textDocument"]["uri"]] = params["textDocument"]["text"]
        elif to == "server" and method == "textDocument/didChange":
            uri = params["textDocument"]["uri"]
            for change in params["contentChanges"]:
                self.texts[uri] = self._changed(self.texts[uri], change)
        elif to == "server" and method in ("initialize", "textDocument/inlineCompletion"):
            early = self._early.pop(message["id"], None)
            if method == "initialize":  # a new server has no texts and no open requests
                self.texts.clear()
                self._open.clear()
                self._early.clear()
            uri = params.get("textDocument", {}).get("uri", "")
            self._open[message["id"]] = (ms, method, params, self.texts.get(uri, ""))
            if early:
                self._take(early["ms"], early["to"], early["message"])
        elif to == "server" and method == "$/cancelRequest":
            self.cancelled += 1
        elif to == "editor" and method == "speclsp/status":
            self.status = params
        elif to == "editor" and method is None and message.get("id") not in self._open:
            self._early[message.get("id")] = {"ms": ms, "to": to, "message": message}
        elif to == "editor" and method is None:
            request_ms, method, params, text = self._open.pop(message["id"])
            result = message.get("result") or {}
            if method == "initialize":
                self.encoding = result.get("capabilities", {}).get("positionEncoding", "utf-16")
            else:
                self.answers.append(self._answer(request_ms, ms, params, text, result))

    def _answer(self, request_ms: float, ms: float, params: dict[str, Any], text: str, result: Any) -> Answer:
        items = result["items"] if isinstance(result, dict) and "items" in result else result or []
        at = params["position"]
        span = items[0]["range"] if items else {"start": at, "end": at}
        start, end = (self._offset(text, span[side]) for side in ("start", "end"))
        texts = tuple(plain(item["insertText"]) for item in items)
        return Answer(
            request_ms=request_ms,
            ms=ms,
            uri=params["textDocument"]["uri"],
            line=at["line"],
            kind=params["context"]["triggerKind"],
            before=plain(text[:start]).rpartition("\n")[2],
            after=plain(text[end:]).partition("\n")[0],
            texts=texts,
            document=plain(text),
            documents=tuple(plain(text[:start]) + suggestion + plain(text[end:]) for suggestion in texts),
        )

    def _changed(self, text: str, change: dict[str, Any]) -> str:
        if "range" not in change:
            return str(change["text"])
        start, end = (self._offset(text, change["range"][side]) for side in ("start", "end"))
        return text[:start] + str(change["text"]) + text[end:]

    def _offset(self, text: str, position: dict[str, int]) -> int:
        """The offset of a position in `text`, in characters."""
        start = 0
        for _ in range(position["line"]):
            end = text.find("\n", start)
            if end < 0:
                return len(text)
            start = end + 1
        end = text.find("\n", start)
        line = text[start : end if end >= 0 else len(text)].removesuffix("\r")
        units = line.encode(self.encoding if self.encoding == "utf-8" else f"{self.encoding}-le", "surrogatepass")
        left = units[: position["character"] * BYTES[self.encoding]]
        return start + len(left.decode(self.encoding if self.encoding == "utf-8" else f"{self.encoding}-le", "replace"))


def plain(text: str) -> str:
    """The text with LF line ends."""
    return text.replace("\r\n", "\n")
