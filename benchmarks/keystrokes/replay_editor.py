"""Replay editor: sends recorded keys to `speclsp lsp` in real time, and records the answer to each.

    key ─► didChange, $/cancelRequest of the previous request, inlineCompletion    in one write, at the recorded time
    answer ─► on screen until the next key, if it belongs to the newest request
    pause ─► sometimes accepts a suggestion that agrees with the recording: all of it, a line, a word
    300 ms after a change ─► speclsp/nextEdit with --next-edits, as VS Code's extension does; the edit is never accepted

The time of an answer is taken in a thread that only reads; a key's time is taken just before it is written. The
requests of a real editor differ little: Neovim with our plugin sends one at every key and cursor move, as here. VS Code
waits up to 50 ms after a key and sends none at moves.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter, sleep
from typing import Any

from benchmarks.keystrokes.language_server import ANSWER_S, Server
from benchmarks.keystrokes.recording import Key, Recording

AUTOMATIC = 2  # LSP's InlineCompletionTriggerKind
LOOKED_AT_MS = 700  # pauses of this length are used to read the suggestion
READING_MS = 350  # from when it is seen to when it is accepted
ACCEPTED = 0.5  # share of the suggestions that agree with the recording
WORTH_CHARACTERS = 4  # shorter ones are typed
QUIET_S, COUNTING_S = 0.1, 0.02  # from an answer until the engine is idle; time of reading its counters
SETTLED_S = 0.3  # from a change to the request for a next edit
AHEAD_KEYS = 250  # keys of the recording searched for the text after accepting

EditRequests = list[tuple[int, float]]  # (number of the request, time in s)


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
    along: bool  # it types through the suggestion on screen
    next_ms: float = math.inf  # until the next key
    heard_s: float = math.inf
    cancelled_s: float = math.inf
    shown: bool = False  # the answer had a suggestion
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

    def __init__(
        self, server: Server, uri: str, language: str, text: str, edit_requests: EditRequests | None = None
    ) -> None:
        """`edit_requests`: collects the requests for next edits; None: there are none."""
        self.server, self.uri, self.language, self.text = server, uri, language, text
        self.cursor, self.version = 0, 1
        self.presses: list[Press] = []
        self.edit_requests = edit_requests
        self.settling: tuple[float, dict[str, Any]] | None = None  # when the next edit is requested, and its params
        server.open(uri, language, text)

    @property
    def newest(self) -> Press | None:
        return self.presses[-1] if self.presses else None

    def screen(self) -> tuple[int, str]:
        """(end of the replaced range, text from the cursor on) of the newest request's suggestion; "" for none."""
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
        new_press = Press(self.language, self.uri, kind, self.version, number, now_s, late_ms, along, accepted=accepted)
        self.presses.append(new_press)
        self.settling = None
        if key.text or key.end > key.start:
            document = {"uri": self.uri, "version": self.version}
            edit_params = {"textDocument": document, "position": params["position"], "trigger": "edit"}
            self.settling = now_s + SETTLED_S, edit_params
        return new_press

    def rest(self, until_s: float) -> None:
        """Sleep until then. Requests the next edit when the text settles: the thread of a timer would delay keys."""
        if self.settling is not None and self.edit_requests is not None and self.settling[0] <= until_s:
            settled_s, params = self.settling
            self.settling = None
            sleep(max(0.0, settled_s - perf_counter()))
            number = self.server.number()
            self.edit_requests.append((number, perf_counter()))
            self.server.send({"id": number, "method": "speclsp/nextEdit", "params": params})
        sleep(max(0.0, until_s - perf_counter()))

    def answered(self, press: Press, until_s: float) -> bool:
        """Wait for the answer to a key; True if it came in time. The next edit is requested meanwhile."""
        settled_s = self.settling[0] if self.settling is not None else until_s
        if self.server.answered(press.number, min(settled_s, until_s) - perf_counter()):
            return True
        self.rest(min(settled_s, until_s))
        return self.server.answered(press.number, until_s - perf_counter())

    def note(self, press: Press) -> None:
        """Record the answer to a key press, if the text is still that of its request."""
        if press.number in self.server.answers and math.isinf(press.heard_s):
            press.heard_s, message = self.server.answers[press.number]
            press.error = message["error"]["code"] if "error" in message else 0
            items = (message.get("result") or {}).get("items") or []
            press.shown = bool(items)
            press.fits = not items or press is not self.newest or self.fitted(items[0]) is not None


def replay(
    server: Server,
    recording: Recording,
    uri: str,
    limit_ms: float,
    edit_requests: EditRequests | None = None,
) -> list[Press]:
    """Type a recording, or its first `limit_ms`, in real time. The last key is left out, because nothing follows it.

    `edit_requests`: next edits are requested too, and the requests appended to it.
    """
    editor = Editor(server, uri, recording.language, recording.start, edit_requests)
    keys, at, due_s, spent_ms = recording.keys, 0, perf_counter(), 0
    while at < len(keys) and spent_ms + keys[at].wait_ms <= limit_ms:
        spent_ms += keys[at].wait_ms
        next_s = due_s + keys[at].wait_ms / 1000
        die = random.Random(f"{recording.seed}-{at}").random()
        accepted_key = look(editor, keys[at:], next_s) if keys[at].wait_ms >= LOOKED_AT_MS and die < ACCEPTED else None
        if accepted_key is not None:
            key, skipped = accepted_key
            spent_ms += sum(key.wait_ms for key in keys[at + 1 : at + skipped])
            due_s = perf_counter()
            at += skipped
        else:
            key, due_s, at = keys[at], next_s, at + 1
            let_pass(editor, due_s)
        if editor.newest is not None:
            editor.note(editor.newest)
        press = editor.press(key, due_s, accepted=len(key.text) if accepted_key is not None else 0)
        due_s = max(due_s, press.sent_s - 0.02)  # a machine that lags types on from there
    if editor.newest is not None:
        server.answered(editor.newest.number, ANSWER_S)
        editor.note(editor.newest)
    for press in editor.presses:  # those that were answered after the next key
        server.answered(press.number, ANSWER_S)
        editor.note(press)
    for number, _ in edit_requests or ():
        server.answered(number, ANSWER_S)
    server.close(uri)
    return editor.presses[:-1]


def let_pass(editor: Editor, until_s: float) -> None:
    """Wait; if the wait is long enough for the engine to become idle, record its counters."""
    editor.rest(until_s - COUNTING_S)
    press, answers = editor.newest, editor.server.answers
    if press is not None and press.number in answers and answers[press.number][0] + QUIET_S < perf_counter():
        counts = editor.server.metrics()
        press.counted = counts if not counts.get("speclsp_running_requests") else None
    editor.rest(until_s)


def look(editor: Editor, keys: Sequence[Key], until_s: float) -> tuple[Key, int] | None:
    """Wait for a suggestion and its reading time; returns (accepted key, number of keys that it saves).

    Returns None, at `until_s` at the latest, if no suggestion agrees with the recording.
    """
    press = editor.newest
    reading_s = READING_MS / 1000
    if press is None or not editor.answered(press, until_s - reading_s):
        return None
    end, rest = editor.screen()
    accepted = landing(editor.text, editor.cursor, end, rest, keys)
    seen_s = max(editor.server.answers[press.number][0], press.sent_s + reading_s)
    if accepted is None or seen_s + reading_s >= until_s:
        return None
    editor.rest(seen_s + reading_s)
    return accepted


def landing(text: str, cursor: int, end: int, rest: str, keys: Sequence[Key]) -> tuple[Key, int] | None:
    """(the longest part of a suggestion that gives a text of the recording, number of keys until that text)."""
    passed: dict[tuple[int, str], int] = {}
    now = text
    for count, key in enumerate(keys[:AHEAD_KEYS], 1):
        now = key.on(now)
        passed.setdefault((key.cursor, now), count)
    cuts = {len(rest), *(match.end() for match in re.finditer(r"\w+|[^\w\s]+|(?=\n)", rest))}  # words, lines
    for cut in sorted(cuts, reverse=True):
        if len(rest[:cut].strip()) < WORTH_CHARACTERS:
            break
        key = Key(0, "accept", cursor, end if cut == len(rest) else cursor, rest[:cut], cursor + cut)
        count = passed.get((key.cursor, key.on(text)), 0)
        if count:
            return key, count
    return None
