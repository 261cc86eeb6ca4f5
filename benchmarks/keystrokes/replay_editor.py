"""Editor of replayed typing: sends keys to `speclsp lsp` at their times, and records the answer to each.

    key ─► didChange, $/cancelRequest of the previous request, inlineCompletion    in one write, at its time
    answer ─► on screen until the next key, if it belongs to the newest request

The time of an answer is taken in a thread that only reads; a key's time is taken just before it is written. The
requests of a real editor differ little: Neovim with our plugin sends one at every key and cursor move, as here. VS Code
waits up to 50 ms after a key and sends none at moves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from time import perf_counter, sleep
from typing import Any

from benchmarks.keystrokes.language_server import Server

AUTOMATIC = 2  # LSP's InlineCompletionTriggerKind


@dataclass(frozen=True, slots=True)
class Key:
    """After `wait_ms`, `text` takes the place of `[start, end)`, in code points, and the cursor is at `cursor`."""

    wait_ms: int
    kind: str
    start: int
    end: int
    text: str
    cursor: int

    def on(self, text: str) -> str:
        """`text` after this key."""
        return f"{text[: self.start]}{self.text}{text[self.end :]}"


@dataclass(slots=True)
class Press:
    """One key and its question."""

    language: str
    uri: str
    kind: str  # of the key
    version: int  # of the document
    number: int  # of the request
    sent_s: float
    late_ms: float  # behind its time
    next_ms: float = math.inf  # until the next key
    heard_s: float = math.inf
    shown: bool = False  # the answer had a suggestion
    fits: bool = True  # and it fitted the text and the cursor
    suggestion: str = ""  # its text from the cursor on
    error: int = 0

    @property
    def answer_ms(self) -> float:
        return (self.heard_s - self.sent_s) * 1000

    @property
    def fresh(self) -> bool:
        """The answer came before the next key."""
        return self.answer_ms < self.next_ms and not self.error

    @property
    def on_screen(self) -> bool:
        """A suggestion for this very text was seen."""
        return self.fresh and self.shown and self.fits


# ── the editor ───────────────────────────────────────────────────────────────────────────────────────────────


def position(text: str, offset: int) -> dict[str, int]:
    """LSP's position of an offset, in UTF-16."""
    start = text.rfind("\n", 0, offset) + 1
    return {"line": text.count("\n", 0, offset), "character": len(text[start:offset].encode("utf-16-le")) // 2}


def offset_of(text: str, place: dict[str, int]) -> int:
    """The offset of an LSP position, which is inside a line."""
    start = 0
    for _ in range(place["line"]):
        start = text.index("\n", start) + 1
    end = text.find("\n", start)
    line = text[start : end if end >= 0 else len(text)]
    return start + len(line.encode("utf-16-le")[: 2 * place["character"]].decode("utf-16-le"))


class Editor:
    """One file being typed in."""

    def __init__(self, server: Server, uri: str, language: str, text: str) -> None:
        self.server, self.uri, self.language, self.text = server, uri, language, text
        self.cursor, self.version = 0, 1
        self.presses: list[Press] = []
        server.open(uri, language, text)

    @property
    def newest(self) -> Press | None:
        return self.presses[-1] if self.presses else None

    def fitted(self, item: dict[str, Any]) -> tuple[int, str] | None:
        """(end of the replaced range, text from the cursor on) of an item; None where it does not fit the text.

        An editor shows no item that does not fit.
        """
        span, new = item["range"], item["insertText"]
        here = position(self.text, self.cursor)["line"]
        if span["start"]["line"] != here or span["end"]["line"] != here:
            return None
        start, end = offset_of(self.text, span["start"]), offset_of(self.text, span["end"])
        typed = self.text[start : self.cursor]
        return (end, new[len(typed) :]) if start <= self.cursor <= end and new.startswith(typed) else None

    def press(self, key: Key, due_s: float) -> Press:
        """Send a key and its question."""
        messages: list[dict[str, Any]] = []
        if key.text or key.end > key.start:
            self.version += 1
            span = {"start": position(self.text, key.start), "end": position(self.text, key.end)}
            document = {"uri": self.uri, "version": self.version}
            changes = [{"range": span, "text": key.text}]
            messages.append(
                {"method": "textDocument/didChange", "params": {"textDocument": document, "contentChanges": changes}}
            )
        self.text, self.cursor = key.on(self.text), key.cursor
        before = self.newest
        if before is not None and before.number not in self.server.answers:
            messages.append({"method": "$/cancelRequest", "params": {"id": before.number}})
        number = self.server.number()
        params = {"textDocument": {"uri": self.uri}, "position": position(self.text, self.cursor)}
        params["context"] = {"triggerKind": AUTOMATIC}
        messages.append({"id": number, "method": "textDocument/inlineCompletion", "params": params})
        now_s = perf_counter()
        self.server.send(*messages)
        if before is not None:
            before.next_ms = (now_s - before.sent_s) * 1000
        late_ms = max(0.0, now_s - due_s) * 1000
        new_press = Press(self.language, self.uri, key.kind, self.version, number, now_s, late_ms)
        self.presses.append(new_press)
        return new_press

    def rest(self, until_s: float) -> None:
        """Sleep until then."""
        sleep(max(0.0, until_s - perf_counter()))

    def note(self, press: Press) -> None:
        """Record the answer to a key press, if the text is still that of its request."""
        if press.number in self.server.answers and math.isinf(press.heard_s):
            press.heard_s, message = self.server.answers[press.number]
            press.error = message["error"]["code"] if "error" in message else 0
            items = (message.get("result") or {}).get("items") or []
            press.shown = bool(items)
            fitted = self.fitted(items[0]) if items and press is self.newest else None
            press.suggestion = fitted[1] if fitted is not None else ""
            press.fits = not items or press is not self.newest or fitted is not None
