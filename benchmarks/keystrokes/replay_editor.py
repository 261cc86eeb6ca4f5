"""An editor without a person: recorded keys sent to `speclsp lsp` in real time, and what came of each.

    key ─► didChange, $/cancelRequest of the question before, inlineCompletion      in one write, at the recorded time
    answer ─► on screen until the next key, if it belongs to the newest question
    pause ─► now and then, a suggestion that says what the recording goes on with is accepted: all of it, a line, a word

The time of an answer is taken in a thread that does nothing but read; a key's is taken just before it is written.
The questions of a real editor differ little: Neovim with our plugin asks at every key and cursor move as is done here,
VS Code waits up to 50 ms after a key and does not ask at moves.
"""

from __future__ import annotations

import http.client
import itertools
import json
import math
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

from benchmarks.keystrokes.recording import Key, Recording
from speclsp import config as settings
from speclsp.config import Config
from speclsp.errors import EngineError

AUTOMATIC = 2  # LSP's InlineCompletionTriggerKind
LOADING_S, ANSWER_S = 300, 10
LOOKED_AT_MS = 700  # pauses so long are used to read what is suggested
READING_MS = 350  # from when it is seen to when it is accepted
ACCEPTED = 0.5  # of those that say what the recording goes on with
WORTH_CHARACTERS = 4  # shorter ones are typed
QUIET_S, COUNTING_S = 0.1, 0.02  # from an answer to when the engine is surely at rest; what asking for its counts takes
AHEAD_KEYS = 250  # how far the recording is looked into for what an accepted text leads to


@dataclass(slots=True)
class Press:
    """One key and its question."""

    language: str
    uri: str
    kind: str  # of the key, or "accept"
    version: int  # of the document
    number: int  # of the request
    sent_s: float
    late_ms: float  # behind its time
    along: bool  # it types what was on screen
    next_ms: float = math.inf  # until the next key
    heard_s: float = math.inf
    cancelled_s: float = math.inf
    shown: bool = False  # the answer held a suggestion
    fits: bool = True  # and it fitted the text and the cursor
    error: int = 0
    accepted: int = 0  # characters taken from the screen by this key
    counted: Mapping[str, float] | None = None  # the engine's counts at the end of the pause after it, if all was quiet

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


# ── the server ───────────────────────────────────────────────────────────────────────────────────────────────


ENDED = "the language server ended in the middle of the benchmark"


class Server:
    """`speclsp lsp` as a process, and a thread that notes when each answer came."""

    def __init__(self, config: Config, place: Path) -> None:
        """`place`: an empty directory for its log and socket. The engine is its own, and ends with it."""
        config = replace(config, engine=replace(config.engine, shared=False))
        self.runtime, self.state = place / "r", place / "s"
        places = {"XDG_RUNTIME_DIR": self.runtime, "XDG_STATE_HOME": self.state, "XDG_CONFIG_HOME": place / "c"}
        for path in places.values():
            path.mkdir(mode=0o700)
        self.answers: dict[int, tuple[float, dict[str, Any]]] = {}  # by request: when, and what
        self.stray = 0  # answers to nothing, or second ones
        self.messages: list[str] = []  # shown to the user
        self._status: dict[str, Any] = {}
        self._numbers = itertools.count(1)
        self._heard = threading.Condition()
        self._writing = threading.Lock()
        self._ended = False
        self.process = subprocess.Popen(
            [sys.executable, "-m", "speclsp", "lsp", "--stdio", "--trace", *settings.as_flags(config)],
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
                self._status = message["params"]
            elif method == "window/showMessage":
                self.messages.append(message["params"]["message"])
            elif method is None and number in self.answers:
                self.stray += 1
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
        """Whether it came true in time. Raises EngineError when the server ends instead."""
        with self._heard:
            true = self._heard.wait_for(lambda: self._ended or until(), max(0.0, timeout_s))
            if self._ended:
                raise EngineError(f"{ENDED} (exit code {self.process.poll()}).")
            return true and until()

    def answered(self, number: int, timeout_s: float) -> bool:
        """Whether a request's answer came in time."""
        return self.wait(lambda: number in self.answers, timeout_s)

    def begin(self, root: str) -> None:
        """Initialize, and wait until the model is loaded. Raises EngineError."""
        number = self.number()
        capabilities = {"general": {"positionEncodings": ["utf-16"]}, "textDocument": {"inlineCompletion": {}}}
        params = {"processId": os.getpid(), "rootUri": root, "capabilities": capabilities}
        self.send({"id": number, "method": "initialize", "params": params})
        self.answered(number, ANSWER_S)
        self.send({"method": "initialized", "params": {}})
        if not self.wait(lambda: self._status.get("state") in ("ready", "error"), LOADING_S):
            raise EngineError(f"the model was not loaded within {LOADING_S} s: {self._status.get('message')}")
        if self._status["state"] == "error":
            raise EngineError(str(self._status["message"]))

    def open(self, uri: str, language: str, text: str) -> None:
        document = {"uri": uri, "languageId": language, "version": 1, "text": text}
        self.send({"method": "textDocument/didOpen", "params": {"textDocument": document}})

    def close(self, uri: str) -> None:
        self.send({"method": "textDocument/didClose", "params": {"textDocument": {"uri": uri}}})

    def metrics(self) -> dict[str, float]:
        """The engine's own counts, by name and labels."""
        (path,) = (self.runtime / "speclsp").glob(f"lsp-{self.process.pid}-*.sock")
        connection = http.client.HTTPConnection("engine")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(ANSWER_S)
        connection.sock.connect(str(path))
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}

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

    def traces(self) -> list[dict[str, Any]]:
        """What it put down about each request, oldest first. When it has ended."""
        files = sorted(self.state.rglob("lsp.log*"), reverse=True)  # lsp.log.1 is the older one
        lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
        return [json.loads(line.partition(" trace: ")[2]) for line in lines if " trace: {" in line]


@contextmanager
def serving(config: Config) -> Iterator[Server]:
    """A server of our own, with a log and a socket of its own and nothing from the user's config.toml but `config`."""
    with tempfile.TemporaryDirectory(prefix="speclsp-") as place:
        server = Server(config, Path(place))
        try:
            yield server
        finally:
            server.end()


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

    def screen(self) -> tuple[int, str]:
        """(end of what it replaces, text from the cursor on) of the suggestion to the newest question; "" for none."""
        press = self.newest
        if press is None or press.number not in self.server.answers:
            return self.cursor, ""
        items = (self.server.answers[press.number][1].get("result") or {}).get("items") or []
        fitted = self.fitted(items[0]) if items else None
        return fitted or (self.cursor, "")

    def fitted(self, item: dict[str, Any]) -> tuple[int, str] | None:
        """The same for an item; None where it does not fit the text: editors would not show it."""
        span, new = item["range"], item["insertText"]
        here = position(self.text, self.cursor)["line"]
        if span["start"]["line"] != here or span["end"]["line"] != here:
            return None
        start, end = offset_of(self.text, span["start"]), offset_of(self.text, span["end"])
        typed = self.text[start : self.cursor]
        return (end, new[len(typed) :]) if start <= self.cursor <= end and new.startswith(typed) else None

    def press(self, key: Key, due_s: float, accepted: int = 0) -> Press:
        """Send a key and its question."""
        _, rest = self.screen()
        inserted = key.text if key.start == key.end == self.cursor == key.cursor - len(key.text) else ""
        along = not accepted and inserted != "" and rest.startswith(inserted) and rest != inserted
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
        cancels = before is not None and before.number not in self.server.answers
        if before is not None and cancels:
            messages.append({"method": "$/cancelRequest", "params": {"id": before.number}})
        number = self.server.number()
        params = {"textDocument": {"uri": self.uri}, "position": position(self.text, self.cursor)}
        params["context"] = {"triggerKind": AUTOMATIC}
        messages.append({"id": number, "method": "textDocument/inlineCompletion", "params": params})
        now_s = perf_counter()
        self.server.send(*messages)
        if before is not None:
            before.next_ms = (now_s - before.sent_s) * 1000
            before.cancelled_s = now_s if cancels else math.inf
        late_ms = max(0.0, now_s - due_s) * 1000
        kind = "accept" if accepted else key.kind
        made = Press(self.language, self.uri, kind, self.version, number, now_s, late_ms, along, accepted=accepted)
        self.presses.append(made)
        return made

    def note(self, press: Press) -> None:
        """Put down a press's answer, while the text is what it was asked about."""
        if press.number in self.server.answers and math.isinf(press.heard_s):
            press.heard_s, message = self.server.answers[press.number]
            press.error = message["error"]["code"] if "error" in message else 0
            items = (message.get("result") or {}).get("items") or []
            press.shown = bool(items)
            press.fits = not items or press is not self.newest or self.fitted(items[0]) is not None


def replay(server: Server, recording: Recording, uri: str, limit_ms: float) -> list[Press]:
    """Type a recording, or its first `limit_ms`, in real time. The last key is left out: nobody knows what follows."""
    editor = Editor(server, uri, recording.language, recording.start)
    keys, at, due_s, spent_ms = recording.keys, 0, perf_counter(), 0
    while at < len(keys) and spent_ms + keys[at].wait_ms <= limit_ms:
        spent_ms += keys[at].wait_ms
        next_s = due_s + keys[at].wait_ms / 1000
        die = random.Random(f"{recording.seed}-{at}").random()
        taken = look(editor, keys[at:], next_s) if keys[at].wait_ms >= LOOKED_AT_MS and die < ACCEPTED else None
        if taken is not None:
            key, skipped = taken
            spent_ms += sum(key.wait_ms for key in keys[at + 1 : at + skipped])
            due_s = perf_counter()
            at += skipped
        else:
            key, due_s, at = keys[at], next_s, at + 1
            let_pass(editor, due_s)
        if editor.newest is not None:
            editor.note(editor.newest)
        press = editor.press(key, due_s, accepted=len(key.text) if taken is not None else 0)
        due_s = max(due_s, press.sent_s - 0.02)  # a machine that lags types on from there
    if editor.newest is not None:
        server.answered(editor.newest.number, ANSWER_S)
        editor.note(editor.newest)
    for press in editor.presses:  # those that were answered after the next key
        server.answered(press.number, ANSWER_S)
        editor.note(press)
    server.close(uri)
    return editor.presses[:-1]


def let_pass(editor: Editor, until_s: float) -> None:
    """Let the time pass; where it is long enough for the engine to be at rest, put down what it has counted."""
    sleep(max(0.0, until_s - COUNTING_S - perf_counter()))
    press, answers = editor.newest, editor.server.answers
    if press is not None and press.number in answers and answers[press.number][0] + QUIET_S < perf_counter():
        counts = editor.server.metrics()
        press.counted = counts if not counts.get("speclsp_running_requests") else None
    sleep(max(0.0, until_s - perf_counter()))


def look(editor: Editor, keys: Sequence[Key], until_s: float) -> tuple[Key, int] | None:
    """Wait for a suggestion and read it: (what is accepted of it, how many keys that saves), at the time of accepting.

    None, not later than `until_s`, where there is nothing that the recording goes on with.
    """
    press = editor.newest
    reading_s = READING_MS / 1000
    if press is None or not editor.server.answered(press.number, until_s - reading_s - perf_counter()):
        return None
    end, rest = editor.screen()
    found = landing(editor.text, editor.cursor, end, rest, keys)
    seen_s = max(editor.server.answers[press.number][0], press.sent_s + reading_s)
    if found is None or seen_s + reading_s >= until_s:
        return None
    sleep(max(0.0, seen_s + reading_s - perf_counter()))
    return found


def landing(text: str, cursor: int, end: int, rest: str, keys: Sequence[Key]) -> tuple[Key, int] | None:
    """The longest part of a suggestion that gives a text the recording comes to as well, and after how many keys."""
    passed: dict[tuple[int, str], int] = {}
    now = text
    for count, key in enumerate(keys[:AHEAD_KEYS], 1):
        now = key.on(now)
        passed.setdefault((key.cursor, now), count)
    cuts = {len(rest), *(found.end() for found in re.finditer(r"\w+|[^\w\s]+|(?=\n)", rest))}  # words, lines
    for cut in sorted(cuts, reverse=True):
        if len(rest[:cut].strip()) < WORTH_CHARACTERS:
            break
        key = Key(0, "accept", cursor, end if cut == len(rest) else cursor, rest[:cut], cursor + cut)
        count = passed.get((key.cursor, key.on(text)), 0)
        if count:
            return key, count
    return None
