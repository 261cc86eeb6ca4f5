"""Typing at 15, 50 and 200 keys a second: no stale answer, each request answered once, bounded memory."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from promises import Measured
from support.faults.typing_storm import CANCELLED, SAID, Clocked, Found, Typist, belongs, memory_mib, total
from support.lsp.editor_client import CAPABILITIES, Editor, Page, echoed

SOURCE = "def f():\n    return \n"
PATIENCE_S = 60.0
ROUND_MS = 3  # echo says 19 characters, one a round: an answer takes 60 ms
RATES = {  # keys a second: documents typed into at once, and keys in each: in the short run, in the long one
    15: (5, 40, 2000),
    50: (2, 60, 5000),
    200: (1, 400, 10_000),
}
LANES = ((15,), (50, 200))  # at the same time; what is in one lane, one after the other
PAUSE_S = 0.8  # so often somebody looks at what is suggested


def typed(editor: Clocked, rate: int, cancels: bool, keys: int, documents: int) -> Found:
    """What a storm in so many documents at once came to."""
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
    found = Found()
    with ThreadPoolExecutor(documents) as pool:
        for one in pool.map(lambda typist: typist.storm(keys), typists):
            found.add(one)
    return found


def engine_rounds_after(editor: Editor) -> float:
    """How long the engine went on, at most and in rounds, for a request that nobody wanted any more; on average."""
    count = total(editor, "stale_work_ms_count")
    return total(editor, "stale_work_ms_sum") / count / ROUND_MS if count else 0.0


@pytest.mark.promise(10, 11)
@pytest.mark.timeout(600)
def test_keys_at_three_rates_are_answered_once_and_never_for_another_text(promise: Measured, soak: bool):
    """VS Code cancels the older request with every key, Neovim leaves that to the server: half of the keys each."""
    storms: dict[int, Found] = {}
    grown: dict[int, float] = {}
    wasted: dict[int, float] = {}

    def storm(editor: Clocked, rate: int) -> None:
        documents, short, long = RATES[rate]
        keys = (long if soak else short) // 2
        typed(editor, rate, True, max(20, keys // 10), documents)  # what is set up once is there
        before_mib, rounds, storms[rate] = memory_mib(editor), total(editor, "rounds_total"), Found()
        for cancels in (True, False):
            storms[rate].add(typed(editor, rate, cancels, keys, documents))
        grown[rate], wasted[rate] = memory_mib(editor) - before_mib, engine_rounds_after(editor)
        assert total(editor, "rounds_total") > rounds and storms[rate].left

    with ExitStack() as stack:
        own = "engine.shared=false"  # each with an engine of its own, whose figures are its own
        setting = ("--set", f"echo.round_ms={ROUND_MS}", "--set", own, "--set", "completion.deadline_ms=20000")
        editors = {rate: stack.enter_context(Clocked(*setting)) for rate in RATES}
        for editor in editors.values():
            editor.begin()
        with ThreadPoolExecutor(len(LANES)) as pool:
            list(pool.map(lambda lane: [storm(editors[rate], rate) for rate in lane], LANES))
        for editor in editors.values():
            assert editor.popups() == []
    assert sum(found.along for found in storms.values()) or not soak
    for rate, found in storms.items():
        last_ms = max(found.last_ms)
        assert found.requests == found.keys and found.shown > found.keys / 1000
        assert grown[rate] < 20 and wasted[rate] <= 20 and last_ms < 5000
        where = f" in each of {RATES[rate][0]} documents at once" if RATES[rate][0] > 1 else ""
        promise.measured(
            f"{found.keys:,} keys at {rate}/s{where}: {found.requests:,} answers, 0 stale of {found.shown:,} shown "
            f"({found.along:,} typed along), {max(grown[rate], 0.0):.1f} MB grown, {wasted[rate]:.1f} rounds after "
            f"each cancel, the last answer after {last_ms:.0f} ms",
            holds=grown[rate] < 20 and wasted[rate] <= 1,
        )


# ── somebody who does everything an editor can ──────────────────────────────────────────────────────────────────


class Walker:
    """Two documents and the cells of a notebook, in one of which something happens at each step."""

    def __init__(self, editor: Clocked, seed: int) -> None:
        self.editor, self.dice = editor, random.Random(seed)
        self.cells = [Cell(editor, number) for number in range(2)]
        open_book(editor, self.cells)
        self.pages: list[Page] = [Page(editor, SOURCE * 3, uri=f"file:///walk-{number}.py") for number in range(2)]
        self.pages += self.cells
        self.cursors = dict.fromkeys(range(len(self.pages)), 9)
        self.undo: dict[int, list[tuple[int, int, str]]] = {number: [] for number in self.cursors}
        self.asked: dict[int, tuple[str, str]] = {}
        self.closing: set[int] = set()  # asked when a close was on its way
        self.cancelled: set[int] = set()
        self.shown = 0

    def step(self) -> None:
        """Something happens."""
        at = self.dice.randrange(len(self.pages))
        self.dice.choices([way for way, _ in WAYS], [weight for _, weight in WAYS])[0](self, at)

    def edit(self, at: int, start: int, end: int, new: str, undoable: bool = True) -> None:
        page = self.pages[at]
        if undoable:
            self.undo[at].append((start, start + len(new), page.text[start:end]))
        page.edit(start, end, new)
        self.cursors[at] = start + len(new)

    def types(self, at: int) -> None:
        self.edit(at, self.cursors[at], self.cursors[at], self.dice.choice("abc .(é𝒙\n"))
        self.asks(at)

    def deletes(self, at: int) -> None:
        cursor = self.cursors[at]
        self.edit(at, max(0, cursor - self.dice.randrange(1, 5)), cursor, "")
        self.asks(at)

    def undoes(self, at: int) -> None:
        if self.undo[at]:
            self.edit(at, *self.undo[at].pop(), undoable=False)
            self.asks(at)

    def jumps(self, at: int) -> None:
        self.cursors[at] = self.dice.randrange(len(self.pages[at].text) + 1)
        self.asks(at)

    def edits_with_many_cursors(self, at: int) -> None:
        page = self.pages[at]
        if isinstance(page, Cell):
            return
        places = sorted(self.dice.sample(range(len(page.text)), 3), reverse=True)  # so that none moves another
        changes = [{"range": {"start": page.place(p), "end": page.place(p)}, "text": "zz"} for p in places]
        for place in places:
            page.text = page.text[:place] + "zz" + page.text[place:]
        page.version += 1
        self.editor.change(page.uri, page.version, *changes)
        self.undo[at].clear()
        self.cursors[at] = places[-1] + 2
        self.asks(at)

    def asks(self, at: int) -> None:
        asked = self.pages[at].ask(self.cursors[at])
        self.asked[asked] = self.around(at)

    def around(self, at: int) -> tuple[str, str]:
        """What the engine is given at the cursor: of a cell, with the cells above it."""
        page, cursor = self.pages[at], self.cursors[at]
        above = ""
        if isinstance(page, Cell):
            cells = self.cells[: self.cells.index(page)]
            above = "".join(cell.text.rstrip("\r\n") + "\n\n" for cell in cells if cell.text.strip())
        return above + page.text[:cursor], page.text[cursor:]

    def cancels(self, at: int) -> None:
        if self.asked:
            asked = next(reversed(self.asked))
            self.cancelled.add(asked)
            self.editor.notify("$/cancelRequest", {"id": asked})

    def accepts(self, at: int) -> None:
        """All of it, or a word."""
        self.asks(at)
        (item,) = self.editor.items(next(reversed(self.asked))) or [None]
        if item is not None:
            whole = item["insertText"]
            self.edit(at, self.cursors[at], self.cursors[at], whole if self.dice.random() < 0.5 else whole[:3])
            self.asks(at)

    def closes_and_opens(self, at: int) -> None:
        page = self.pages[at]
        if not isinstance(page, Cell):
            self.editor.notify("textDocument/didClose", {"textDocument": {"uri": page.uri}})
            self.pages[at] = Page(self.editor, page.text, uri=page.uri)
            self.undo[at].clear()
            self.asks(at)

    def shortens(self, at: int) -> None:
        if len(self.pages[at].text) > 600:
            self.undo[at].clear()
            self.edit(at, 100, len(self.pages[at].text), "", undoable=False)

    def judge(self) -> None:
        """All that was asked so far."""
        editor = self.editor
        assert editor.wait_for(lambda: all(editor.replies[asked] for asked in self.asked), 20), "unanswered"
        for asked, (before, after) in self.asked.items():
            (reply,) = editor.replies.pop(asked)
            if "error" in reply:
                assert asked in self.cancelled and reply["error"]["code"] == CANCELLED, reply
                continue
            for item in reply["result"]["items"]:
                assert belongs(item, before, after) is not None, f"stale: {item['insertText']!r}"
                self.shown += 1
        self.asked.clear()


class Cell(Page):
    """A cell of a notebook, as the editor has it."""

    def __init__(self, editor: Editor, number: int) -> None:
        self.editor, self.encoding, self.version = editor, "utf-16", 1
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


@pytest.mark.promise(11)
def test_no_answer_belongs_to_another_text_whatever_happens_between_two_keys(promise: Measured, soak: bool):
    steps = 3000 if soak else 250
    with Clocked("--set", "echo.round_ms=1", "--set", "completion.deadline_ms=20000") as editor:
        editor.begin(NOTEBOOKS)
        walker = Walker(editor, seed=11)
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
            f"{steps:,} steps of a random walk over 2 documents and 2 cells: 0 stale of {walker.shown:,} shown",
            holds=True,
        )


def test_the_oracle_detects_a_stale_answer():
    def item(text: str, start: int, end: int) -> dict[str, object]:
        return {
            "insertText": text,
            "range": {"start": {"line": 0, "character": start}, "end": {"line": 0, "character": end}},
        }

    said = echoed("ab", "c")
    assert len(said) == SAID
    assert belongs(item(said, 2, 2), "ab", "c") == 0
    assert belongs(item(said[2:], 4, 4), "ab" + said[:2], "c") == 2
    assert belongs(item(said, 2, 4), "ab" + said[:2], "c") == 2, "with what was typed"
    for stale, before in (
        (item(said, 3, 3), "abx"),
        (item(said, 2, 3), "abx"),
        (item(said[2:], 5, 5), "abx" + said[:2]),
        (item(said, 4, 4), "ab" + said[:2]),
        (item(said[2:], 2, 4), "ab" + said[:2]),
        (item(said, 2, 3), "ab"),
    ):
        assert belongs(stale, before, "c") is None
