"""Typing at 15, 50 and 200 keys a second: no stale answer, each request answered once, bounded memory."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from promises import Measured
from support.faults.typing_storm import (
    CANCELLED,
    Clocked,
    StormCounts,
    Typist,
    belongs,
    memory_mib,
    total,
)
from support.lsp.editor_client import CAPABILITIES, Editor, Page
from support.soak import in_soak

SOURCE = "def f():\n    return \n"
PATIENCE_S = 180.0
ROUND_MS = 3  # echo generates 19 characters, one a round: an answer takes 60 ms
RATES = {  # keys a second: concurrent documents, and keys in each for the short run and for the long run
    15: (5, 30, 2000),
    50: (2, 40, 5000),
    200: (1, 200, 10_000),
}
LANES = ((15,), (50, 200))  # lanes run concurrently; the rates of one lane run in turn
PAUSE_S = 0.8  # the interval at which the user looks at a suggestion


def typed(editor: Clocked, rate: int, cancels: bool, keys: int, documents: int) -> StormCounts:
    """Runs a storm in several documents at once; returns its counts."""
    typists = [
        Typist(
            editor,
            Page(editor, SOURCE, uri=f"file:///storm-{number}.py"),
            rate,
            cancels=cancels,
            seed=rate + number,
            pause_every=min(round(rate * PAUSE_S), keys // 3),
        )
        for number in range(documents)
    ]
    counts = StormCounts()
    with ThreadPoolExecutor(documents) as pool:
        for storm in pool.map(lambda typist: typist.storm(keys), typists):
            counts.add(storm)
    return counts


def engine_rounds_after(editor: Editor) -> float:
    """The mean number of rounds, as an upper bound, that the engine ran for a request after it became stale."""
    count = total(editor, "stale_work_ms_count")
    return total(editor, "stale_work_ms_sum") / count / ROUND_MS if count else 0.0


@pytest.mark.promise(10, 11)
@pytest.mark.timeout(600)
def test_keys_at_three_rates_are_answered_once_and_never_for_another_text(promise: Measured, soak: bool):
    """VS Code cancels the older request with every key; Neovim leaves that to the server. Half of the keys each."""
    storms: dict[int, StormCounts] = {}
    grown: dict[int, float] = {}
    wasted: dict[int, float] = {}

    def storm(editor: Clocked, rate: int) -> None:
        documents, short, long = RATES[rate]
        keys = (long if soak else short) // 2
        typed(editor, rate, True, max(20, keys // 10), documents)  # creates everything that is set up only once
        before_mib, rounds, storms[rate] = memory_mib(editor), total(editor, "rounds_total"), StormCounts()
        for cancels in (True, False):
            storms[rate].add(typed(editor, rate, cancels, keys, documents))
        grown[rate], wasted[rate] = memory_mib(editor) - before_mib, engine_rounds_after(editor)
        assert total(editor, "rounds_total") > rounds and storms[rate].left

    with ExitStack() as stack:
        setting = ("--set", f"echo.round_ms={ROUND_MS}", "--set", "completion.timeout_ms=20000")
        editors = {}
        for number, rate in enumerate(RATES):  # one engine for each, so that each has its own figures
            own = ("--set", f"engine.threads={number}")
            editors[rate] = stack.enter_context(Clocked(*setting, *own))
        for editor in editors.values():
            editor.begin()
        with ThreadPoolExecutor(len(LANES)) as pool:
            list(pool.map(lambda lane: [storm(editors[rate], rate) for rate in lane], LANES))
        for editor in editors.values():
            assert editor.popups() == []
    assert sum(counts.along for counts in storms.values()) or not soak
    for rate, counts in storms.items():
        last_ms = max(counts.last_ms)
        assert counts.requests == counts.keys and counts.shown > counts.keys / 1000
        assert grown[rate] < 20 and wasted[rate] <= 20 and last_ms < 5000
        where = f" in each of {RATES[rate][0]} documents at once" if RATES[rate][0] > 1 else ""
        promise.measured(
            f"{counts.keys:,} keys at {rate}/s{where}: {counts.requests:,} answers, 0 stale of {counts.shown:,} shown "
            f"({counts.along:,} typed along), {max(grown[rate], 0.0):.1f} MB grown, {wasted[rate]:.1f} rounds after "
            f"each cancel, the last answer after {last_ms:.0f} ms",
            holds=grown[rate] < 20 and wasted[rate] <= 1,
        )


# ── random walk over all editor operations ──────────────────────────────────────────────────────────────────


ENDS = ("\n", "\r\n", "\r")
PIECES = (
    *("def f(x):\n", "    return ", "x = foo(", ")", "]", "}", '"', "name", "self.", "# so\n", "\n", "\n\n", "\t"),
    *("class A:\n    ", "print(", "[1, 2", "{", " ", "é", "漢字", "𝒙", "🚀", "👩\u200d🚀", "e\u0301", "\u2028", "\f"),
    *("\v", "\x85", "\ufeff", ";", ",", "'"),
)


class Walker:
    """Two documents and the cells of a notebook; each step performs a random operation in one of them."""

    def __init__(self, editor: Clocked, encoding: str) -> None:
        self.editor, self.encoding, self.dice = editor, encoding, random.Random(encoding)
        self.cells = [Cell(editor, number, encoding) for number in range(2)]
        open_book(editor, self.cells)
        texts = [SOURCE * 3, self.some_text()]
        uris = [f"file:///walk-{number}.py" for number in range(len(texts))]
        self.pages: list[Page] = [Page(editor, text, encoding, uri) for text, uri in zip(texts, uris, strict=True)]
        self.pages += self.cells
        self.cursors = dict.fromkeys(range(len(self.pages)), 0)
        self.undo: dict[int, list[tuple[int, int, str]]] = {number: [] for number in self.cursors}
        self.pending: dict[int, tuple[str, str, int]] = {}  # text before and after the cursor, and its line
        self.cancelled: set[int] = set()
        self.asked = self.shown = 0

    def some_text(self) -> str:
        """Pieces of code, with mixed line ends."""
        return "".join(self.dice.choices(PIECES, k=12)).replace("\n", self.dice.choice(ENDS))

    def stop(self, at: int, up_to: int) -> int:
        """A place for a cursor in the text up to an offset."""
        return self.dice.choice([stop for stop in self.pages[at].stops() if stop <= up_to])

    def step(self) -> None:
        """Performs one random operation."""
        at = self.dice.randrange(len(self.pages))
        self.dice.choices([way for way, _ in WAYS], [weight for _, weight in WAYS])[0](self, at)

    def edit(self, at: int, start: int, end: int, new: str, undoable: bool = True) -> None:
        page = self.pages[at]
        if undoable:
            self.undo[at].append((start, start + len(new), page.text[start:end]))
        page.edit(start, end, new)
        self.cursors[at] = start + len(new)

    def types(self, at: int) -> None:
        self.edit(at, self.cursors[at], self.cursors[at], self.dice.choice([*"abc .(é𝒙\n", self.some_text()]))
        self.asks(at)

    def deletes(self, at: int) -> None:
        cursor = self.cursors[at]
        self.edit(at, max(stop for stop in self.pages[at].stops() if stop <= max(0, cursor - 3)), cursor, "")
        self.asks(at)

    def undoes(self, at: int) -> None:
        if self.undo[at]:
            self.edit(at, *self.undo[at].pop(), undoable=False)
            self.asks(at)

    def jumps(self, at: int) -> None:
        self.cursors[at] = self.stop(at, len(self.pages[at].text))
        self.asks(at)

    def edits_with_many_cursors(self, at: int) -> None:
        page = self.pages[at]
        if isinstance(page, Cell) or len(page.stops()) < 4:
            return
        places = sorted(self.dice.sample(page.stops(), 3), reverse=True)  # last first: no edit moves another
        changes = [{"range": {"start": page.place(p), "end": page.place(p)}, "text": "zz"} for p in places]
        for place in places:
            page.text = page.text[:place] + "zz" + page.text[place:]
        page.version += 1
        self.editor.change(page.uri, page.version, *changes)
        self.undo[at].clear()
        self.cursors[at] = places[-1] + 2
        self.asks(at)

    def asks(self, at: int) -> None:
        """Requests a completion, sometimes at a column beyond the end of the cursor's line."""
        page, place = self.pages[at], self.pages[at].place(self.cursors[at])
        line = place["line"]
        if page.text[self.cursors[at] :][:1] in ("", "\r", "\n") and self.dice.random() < 0.2:
            place = {**place, "character": place["character"] + self.dice.choice([1, 99, 2**31 - 10_000])}
        params = {"textDocument": {"uri": page.uri}, "position": place, "context": {"triggerKind": 2}}
        msg_id = self.editor.request("textDocument/inlineCompletion", params)
        self.pending[msg_id] = *self.around(at), line
        self.asked += 1

    def around(self, at: int) -> tuple[str, str]:
        """The text that the engine receives at the cursor; for a cell with the cells above it."""
        page, cursor = self.pages[at], self.cursors[at]
        above = ""
        if isinstance(page, Cell):
            cells = self.cells[: self.cells.index(page)]
            above = "".join(cell.text.rstrip("\r\n") + "\n\n" for cell in cells if cell.text.strip())
        return above + page.text[:cursor], page.text[cursor:]

    def cancels(self, at: int) -> None:
        if self.pending:
            msg_id = next(reversed(self.pending))
            self.cancelled.add(msg_id)
            self.editor.notify("$/cancelRequest", {"id": msg_id})

    def accepts(self, at: int) -> None:
        """Accepts the whole suggestion, or a word of it."""
        self.asks(at)
        (item,) = self.editor.items(next(reversed(self.pending))) or [None]
        if item is not None:
            whole = item["insertText"]
            self.edit(at, self.cursors[at], self.cursors[at], whole if self.dice.random() < 0.5 else whole[:3])
            self.asks(at)

    def closes_and_opens(self, at: int) -> None:
        page = self.pages[at]
        if not isinstance(page, Cell):
            self.editor.notify("textDocument/didClose", {"textDocument": {"uri": page.uri}})
            self.pages[at] = Page(self.editor, page.text, self.encoding, page.uri)
            self.undo[at].clear()
            self.asks(at)

    def shortens(self, at: int) -> None:
        if len(self.pages[at].text) > 600:
            self.undo[at].clear()
            self.edit(at, self.stop(at, 100), len(self.pages[at].text), "", undoable=False)

    def judge(self) -> None:
        """Checks the replies to all requests so far."""
        editor = self.editor
        assert editor.wait_for(lambda: all(editor.replies[msg_id] for msg_id in self.pending), 20), "unanswered"
        for msg_id, (before, after, line) in self.pending.items():
            (reply,) = editor.replies.pop(msg_id)
            if "error" in reply:
                assert msg_id in self.cancelled and reply["error"]["code"] == CANCELLED, reply
                continue
            for item in reply["result"]["items"]:
                assert belongs(item, before, after, self.encoding) is not None, f"stale, or its range is wrong: {item}"
                assert item["range"]["start"]["line"] == line
                self.shown += 1
        self.pending.clear()


class Cell(Page):
    """A cell of a notebook, as the editor holds it."""

    def __init__(self, editor: Editor, number: int, encoding: str) -> None:
        self.editor, self.encoding, self.version = editor, encoding, 1
        self.uri, self.text = f"vscode-notebook-cell:/project/walk.ipynb#{number}", f"x{number} = 1\n"

    def edit(self, start: int, end: int, new: str) -> None:
        span = {"start": self.place(start), "end": self.place(end)}
        self.text, self.version = self.text[:start] + new + self.text[end:], self.version + 1
        document = {"uri": self.uri, "version": self.version}
        cells = {"textContent": [{"document": document, "changes": [{"range": span, "text": new}]}]}
        book = {"uri": BOOK, "version": self.version}
        self.editor.notify("notebookDocument/didChange", {"notebookDocument": book, "change": {"cells": cells}})


BOOK = "file:///project/walk.ipynb"
NOTEBOOKS = {**CAPABILITIES, "notebookDocument": {"synchronization": {}}}
WAYS: tuple[tuple[Callable[[Walker, int], None], int], ...] = (
    (Walker.types, 60),
    (Walker.deletes, 10),
    (Walker.undoes, 6),
    (Walker.jumps, 6),
    (Walker.edits_with_many_cursors, 4),
    (Walker.cancels, 10),
    (Walker.accepts, 6),
    (Walker.closes_and_opens, 3),
    (Walker.shortens, 4),
)


def open_book(editor: Editor, cells: list[Cell]) -> None:
    book = {
        "uri": BOOK,
        "notebookType": "jupyter-notebook",
        "version": 1,
        "cells": [{"kind": 2, "document": cell.uri} for cell in cells],
    }
    texts = [{"uri": cell.uri, "languageId": "python", "version": 1, "text": cell.text} for cell in cells]
    editor.notify("notebookDocument/didOpen", {"notebookDocument": book, "cellTextDocuments": texts})


@pytest.mark.promise(11, 16)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("encoding", ["utf-16", *in_soak("utf-8", "utf-32")])
def test_no_answer_belongs_to_another_text_whatever_happens_between_two_keys(
    encoding: str, promise: Measured, soak: bool
):
    steps = 2000 if soak else 250
    with Clocked("--set", "echo.round_ms=1", "--set", "completion.timeout_ms=20000") as editor:
        editor.begin({**NOTEBOOKS, "general": {"positionEncodings": [encoding]}})
        walker = Walker(editor, encoding)
        for number in range(steps):
            walker.step()
            if number % 20 == 19:
                walker.judge()
            elif walker.dice.random() < 0.7:
                time.sleep(walker.dice.choice((0.0, 0.005, 0.03)))
        walker.judge()
        assert walker.shown > steps / 10
        assert editor.popups() == []
        promise.measured(
            f"{encoding}: {walker.asked} questions, {walker.shown} items in {steps:,} steps of a random walk over 2 "
            f"documents and 2 cells: 0 stale, each on one line around the cursor",
            holds=True,
        )
