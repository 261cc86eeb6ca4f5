"""Typing at a fixed rate, and the invariants of every answer.

The model `echo` names the text it received, so checking an answer needs no record of the keys. A valid answer echoes
its own request's text, or that text before its last characters, if those are the echo's first (typed through).
"""

from __future__ import annotations

import random
import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from support.lsp.editor_client import Editor, Page, echoed, units

LETTERS = "abcdxyz _.=(é𝒙\n"
ECHO_CHARACTERS = 19  # characters of an echo
CANCELLED = -32800


class Clocked(Editor):
    """An editor that records the arrival time of each reply."""

    def __init__(self, *arguments: str, model: str = "echo") -> None:
        self.came: dict[Any, float] = {}  # by id, time.perf_counter()
        super().__init__(*arguments, model=model)

    def _hear(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            self.came[message["id"]] = time.perf_counter()
        super()._hear(message)


@dataclass(slots=True)
class PendingRequest:
    """One request: its text, and whether the client still wanted its answer."""

    before: str
    after: str
    at: float
    page: Page
    version: int
    cancelled: bool = False
    left_at: float = 0.0  # when the next key or the cancellation made it stale


@dataclass(slots=True)
class StormCounts:
    """Counts of a storm."""

    keys: int = 0
    requests: int = 0
    shown: int = 0
    along: int = 0  # of those: typing through an older one
    left: int = 0  # requests made stale by a key or a cancellation before their answer
    last_ms: list[float] = field(default_factory=list)  # answer times of the last requests

    def add(self, other: StormCounts) -> None:
        self.keys += other.keys
        self.requests += other.requests
        self.shown += other.shown
        self.along += other.along
        self.left += other.left
        self.last_ms += other.last_ms


def belongs(item: dict[str, Any], before: str, after: str, encoding: str = "utf-16") -> int | None:
    """The number of the echo's characters typed through, 0 for none; None: the item belongs to another text.

    The item may contain the characters typed through: then its range begins before the cursor and ends there.
    """
    start, end = item["range"]["start"], item["range"]["end"]
    line = re.split(r"\r\n|\n|\r", before)[-1]
    starts = [at for at in range(len(line) + 1) if units(line[:at], encoding) == start["character"]]
    if start["line"] != end["line"] or end["character"] != units(line, encoding) or not starts:
        return None
    covered = line[starts[0] :]
    left = item["insertText"][len(covered) :]
    for typed in range(ECHO_CHARACTERS):
        expected = echoed(before[: len(before) - typed], after)
        if expected == before[len(before) - typed :] + left and item["insertText"].startswith(covered):
            return typed
    return None


class Typist:
    """Types at `keys_per_s` into one document, requests a completion after each key and checks all answers at the end.

    `cancels`: as VS Code does, the older request is cancelled before the key is sent; else only superseded, as from
    Neovim. About every `pause_every` keys it waits for its answer, and then mostly types through the suggestion.
    """

    def __init__(
        self, editor: Clocked, page: Page, keys_per_s: float, *, cancels: bool, seed: int, pause_every: int = 12
    ) -> None:
        self.editor, self.page, self.cancels = editor, page, cancels
        self.dice = random.Random(seed)
        self.cursor = len(page.text)
        self.pending: dict[int, PendingRequest] = {}
        self._newest: int | None = None
        self._gap_s = 1 / keys_per_s
        self._pause_every = pause_every
        self._along = ""  # rest of the shown suggestion, still to be typed
        self._next_key = time.perf_counter()

    def storm(self, keys: int) -> StormCounts:
        """Types `keys` keys and returns their counts. Fails on a missing, stale or doubled answer, and on an error."""
        counts = StormCounts(keys=keys)
        for number in range(keys):
            self.leave()
            self.key()
            self.ask()
            if number % self._pause_every == self._pause_every - 1:
                self.look()
            if number % 200 == 199:
                counts.add(self.judge())
            self._next_key += self._gap_s
            time.sleep(max(0.0, self._next_key - time.perf_counter()))
        last = self.page.version
        counts.add(self.judge())
        msg_id = self.ask_anew()
        (item,) = self.editor.items(msg_id)
        assert belongs(item, *self.sides()) == 0 and self.page.version == last + 1
        counts.last_ms.append((self.editor.came[msg_id] - self.pending.pop(msg_id).at) * 1000)
        del self.editor.replies[msg_id]
        return counts

    def leave(self) -> None:
        """Marks the older request as stale, and cancels it if the editor does."""
        newest = self._newest
        if newest is not None and newest not in self.editor.came:
            self.pending[newest].left_at = time.perf_counter()
            if self.cancels:
                self.pending[newest].cancelled = True
                self.editor.notify("$/cancelRequest", {"id": newest})

    def key(self) -> None:
        """Types one key: the suggested one, a random letter or line break, or a deletion."""
        if len(self.page.text) > 2000:
            self.page.edit(20, len(self.page.text), "")
            self.cursor, self._along = 20, ""
        elif self._along and self.dice.random() < 0.9:
            self.cursor, self._along = self.page.type(self.cursor, self._along[0]), self._along[1:]
        elif self.dice.random() < 0.1 and self.cursor > 20:
            self.page.edit(self.cursor - 1, self.cursor, "")
            self.cursor, self._along = self.cursor - 1, ""
        else:
            self.cursor, self._along = self.page.type(self.cursor, self.dice.choice(LETTERS)), ""

    def sides(self) -> tuple[str, str]:
        """The text on either side of the cursor."""
        return self.page.text[: self.cursor], self.page.text[self.cursor :]

    def ask(self) -> int:
        """Sends a request at the cursor."""
        now = time.perf_counter()
        self._newest = msg_id = self.page.ask(self.cursor)
        self.pending[msg_id] = PendingRequest(*self.sides(), now, self.page, self.page.version)
        return msg_id

    def ask_anew(self) -> int:
        """Sends a request that no older answer can serve."""
        self.cursor, self._along = self.page.type(self.cursor, "\n"), ""
        return self.ask()

    def look(self) -> None:
        """Waits for the answer and, mostly, begins to type through it."""
        assert self._newest is not None
        items = self.editor.items(self._newest)
        self._along = items[0]["insertText"] if items and self.dice.random() < 0.7 else ""
        self._next_key = time.perf_counter()

    def judge(self) -> StormCounts:
        """Checks that every request has exactly one reply, and every suggestion belongs to its request's text."""
        editor, counts = self.editor, StormCounts()
        assert editor.wait_for(lambda: all(editor.replies[msg_id] for msg_id in self.pending), 20), "unanswered"
        for msg_id, request in self.pending.items():
            (reply,) = editor.replies.pop(msg_id)
            counts.requests += 1
            counts.left += bool(request.left_at)
            if "error" in reply:
                assert request.cancelled and reply["error"]["code"] == CANCELLED, reply
                assert editor.came[msg_id] > request.left_at, "before it was cancelled"
                continue
            for item in reply["result"]["items"]:
                typed = belongs(item, request.before, request.after)
                assert typed is not None, f"stale: {item['insertText']!r}"
                counts.shown += 1
                counts.along += typed > 0
        self.pending.clear()
        editor.arrived.clear()
        self._newest = None
        return counts


def memory_mib(editor: Editor) -> float:
    """Resident memory of the language server."""
    return editor.server.memory_info().rss / 2**20


def total(editor: Editor, name: str) -> float:
    """The sum of a metric of the engine over its labels."""
    return sum(value for label, value in editor.metrics().items() if label.partition("{")[0] == f"speclsp_{name}")


def quantile(found: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    ordered = sorted(found)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the least-squares line."""
    return statistics.linear_regression([x for x, _ in points], [y for _, y in points]).slope
