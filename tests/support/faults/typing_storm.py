"""Typing at a fixed rate, and the invariants of every answer.

The pair `echo` says which text it was given, so an answer needs no record of what was typed: it is the echo of the text
of its own request, or of that text before its last characters, when those are the echo's first (typed along).
"""

from __future__ import annotations

import random
import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from support.lsp.editor_client import Editor, Page, echoed

LETTERS = "abcdxyz _.=(é𝒙\n"
SAID = 19  # characters of an echo
CANCELLED = -32800


class Clocked(Editor):
    """An editor that knows when each reply came."""

    def __init__(self, *arguments: str, pair: str = "echo") -> None:
        self.came: dict[Any, float] = {}  # by id, time.perf_counter()
        super().__init__(*arguments, pair=pair)

    def _hear(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            self.came[message["id"]] = time.perf_counter()
        super()._hear(message)


@dataclass(slots=True)
class Asked:
    """One request: what it saw, and what became of it on the client's side."""

    before: str
    after: str
    at: float
    page: Page
    version: int
    cancelled: bool = False
    left_at: float = 0.0  # when the next key, or the cancelling, said that nobody wants it any more


@dataclass(slots=True)
class Found:
    """What a storm came to."""

    keys: int = 0
    requests: int = 0
    shown: int = 0
    along: int = 0  # of those: typed along with an older one
    left: int = 0  # requests that a key, or a cancelling, came before the answer of
    last_ms: list[float] = field(default_factory=list)  # answers to the last requests of all

    def add(self, other: Found) -> None:
        self.keys += other.keys
        self.requests += other.requests
        self.shown += other.shown
        self.along += other.along
        self.left += other.left
        self.last_ms += other.last_ms


def belongs(item: dict[str, Any], before: str, after: str) -> int | None:
    """How many of an echo's characters were typed along, 0 for none; None: the item is of another text.

    What was typed along may stand in the item too: then its range begins before the cursor. It ends there.
    """
    start, end = item["range"]["start"], item["range"]["end"]
    line = re.split(r"\r\n|\n|\r", before)[-1].encode("utf-16-le")
    if start["line"] != end["line"] or 2 * end["character"] != len(line):
        return None
    covered = line[2 * start["character"] :].decode("utf-16-le")
    left = item["insertText"][len(covered) :]
    for typed in range(SAID):
        said = echoed(before[: len(before) - typed], after)
        if said == before[len(before) - typed :] + left and item["insertText"].startswith(covered):
            return typed
    return None


class Typist:
    """Types at `keys_per_s` into one document, asks after each key and judges all answers at the end.

    `cancels`: as VS Code does, the older request is cancelled before the key is sent; else only superseded, as from
    Neovim. Every `pause_every` keys or so it waits for its answer, and then mostly types along with it.
    """

    def __init__(
        self, editor: Clocked, page: Page, keys_per_s: float, *, cancels: bool, seed: int, pause_every: int = 12
    ) -> None:
        self.editor, self.page, self.cancels = editor, page, cancels
        self.dice = random.Random(seed)
        self.cursor = len(page.text)
        self.asked: dict[int, Asked] = {}
        self._newest: int | None = None
        self._gap_s = 1 / keys_per_s
        self._pause_every = pause_every
        self._along = ""  # of a suggestion that is shown, still to be typed
        self._next_key = time.perf_counter()

    def storm(self, keys: int) -> Found:
        """So many keys; what came of them. Fails when an answer is missing, stale, an error or given twice."""
        found = Found(keys=keys)
        for number in range(keys):
            self.leave()
            self.key()
            self.ask()
            if number % self._pause_every == self._pause_every - 1:
                self.look()
            if number % 200 == 199:
                found.add(self.judge())
            self._next_key += self._gap_s
            time.sleep(max(0.0, self._next_key - time.perf_counter()))
        last = self.page.version
        found.add(self.judge())
        asked = self.ask_anew()
        (item,) = self.editor.items(asked)
        assert belongs(item, *self.sides()) == 0 and self.page.version == last + 1
        found.last_ms.append((self.editor.came[asked] - self.asked.pop(asked).at) * 1000)
        del self.editor.replies[asked]
        return found

    def leave(self) -> None:
        """The older request is not wanted any more."""
        newest = self._newest
        if newest is not None and newest not in self.editor.came:
            self.asked[newest].left_at = time.perf_counter()
            if self.cancels:
                self.asked[newest].cancelled = True
                self.editor.notify("$/cancelRequest", {"id": newest})

    def key(self) -> None:
        """One key: what is suggested, a letter, or one deleted; a line break now and then."""
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
        """A request at the cursor."""
        now = time.perf_counter()
        self._newest = asked = self.page.ask(self.cursor)
        self.asked[asked] = Asked(*self.sides(), now, self.page, self.page.version)
        return asked

    def ask_anew(self) -> int:
        """A request that no older answer helps with."""
        self.cursor, self._along = self.page.type(self.cursor, "\n"), ""
        return self.ask()

    def look(self) -> None:
        """A moment's thought: wait for the answer, and like it or not."""
        assert self._newest is not None
        items = self.editor.items(self._newest)
        self._along = items[0]["insertText"] if items and self.dice.random() < 0.7 else ""
        self._next_key = time.perf_counter()

    def judge(self) -> Found:
        """Every request has exactly one reply, and every suggestion is of the request's own text."""
        editor, found = self.editor, Found()
        assert editor.wait_for(lambda: all(editor.replies[asked] for asked in self.asked), 20), "unanswered"
        for asked, seen in self.asked.items():
            (reply,) = editor.replies.pop(asked)
            found.requests += 1
            found.left += bool(seen.left_at)
            if "error" in reply:
                assert seen.cancelled and reply["error"]["code"] == CANCELLED, reply
                assert editor.came[asked] > seen.left_at, "before it was cancelled"
                continue
            for item in reply["result"]["items"]:
                typed = belongs(item, seen.before, seen.after)
                assert typed is not None, f"stale: {item['insertText']!r}"
                found.shown += 1
                found.along += typed > 0
        self.asked.clear()
        editor.arrived.clear()
        self._newest = None
        return found


def memory_mib(editor: Editor) -> float:
    """Of the language server."""
    return editor.server.memory_info().rss / 2**20


def total(editor: Editor, name: str) -> float:
    """The sum of a metric of the engine over its labels."""
    return sum(value for found, value in editor.metrics().items() if found.partition("{")[0] == f"speclsp_{name}")


def quantile(found: Sequence[float], share: float) -> float:
    """The smallest that so many of them do not exceed."""
    ordered = sorted(found)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Of the line that fits best."""
    return statistics.linear_regression([x for x, _ in points], [y for _, y in points]).slope
