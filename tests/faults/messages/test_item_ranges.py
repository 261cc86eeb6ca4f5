"""Ranges of items: on one line, around the cursor, inside the document, over random texts.

Checked as an editor would: a cursor can stand at both ends of the range, on the line of the cursor's position as LSP
reads it. The text between the range's start and the cursor must be a prefix of the inserted text.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any

import pytest
from support.lsp.editor_client import CAPABILITIES, Editor, Page
from support.soak import in_soak

INVOKED, AUTOMATIC = 1, 2
ENDS = ("\n", "\r\n", "\r")
PIECES = (
    *("def f(x):\n", "    return ", "x = foo(", ")", "]", "}", '"', "name", "self.", "# so\n", "\n", "\n\n", "\t"),
    *("class A:\n    ", "print(", "[1, 2", "{", " ", "é", "漢字", "𝒙", "🚀", "👩\u200d🚀", "e\u0301", "\u2028", "\f"),
    *("\v", "\v", "if (a) {\n", "}\n", "<div>", "</div>\n", "- a: ", "\x85", "\ufeff", ";", ",", "'"),
)
FAST = ("completion.max_tokens=24", "completion.max_tokens_single_line=12", "completion.timeout_ms=20000")
LANGUAGES = ("python", "javascript", "html", "yaml", "cobol")
BOOK = "file:///project/book.ipynb"


class RangeChecker:
    """Counts of requests and items, each checked for a range that an editor can apply."""

    def __init__(self) -> None:
        self.counts = Counter[str]()

    def check_items(self, page: Page, cursor: int, items: list[dict[str, Any]]) -> None:
        """Checks the items of an answer at an offset of a page."""
        self.counts["questions"] += 1
        for item in items:
            self.counts["items"] += 1
            self.check(page, cursor, item["range"], item["insertText"])

    def check(self, page: Page, cursor: int, span: dict[str, Any], text: str) -> tuple[int, int]:
        """Checks a range and its text; returns the range's offsets."""
        here = page.place(cursor)
        assert span["start"]["line"] == span["end"]["line"] == here["line"], "on the cursor's line"
        assert span["start"]["character"] <= here["character"] <= span["end"]["character"], "around the cursor"
        stands = {tuple(page.place(at).values()): at for at in page.stops()}
        ends = [stands.get(tuple(span[side].values())) for side in ("start", "end")]
        assert None not in ends, f"not places in the document: {span}"
        start, end = ends
        assert text.startswith(page.text[start:cursor]), "what was typed of it already begins it"
        assert text
        self.counts["reach back"] += start < cursor
        self.counts["replace"] += end > cursor
        return start, end

    def summary(self) -> str:
        counts = self.counts
        return (
            f"{counts['questions']} questions, {counts['items']} items, {counts['reach back']} reach back, "
            f"{counts['replace']} replace what follows: each on one line around the cursor"
        )


def some_text(rng: random.Random, pieces: int) -> str:
    """Pieces of code, with uniform or mixed line ends."""
    ends = [rng.choice(ENDS)] if rng.random() < 0.7 else ENDS
    return re.sub("\n", lambda _: rng.choice(ends), "".join(rng.choices(PIECES, k=pieces)))


def beyond(rng: random.Random, page: Page, cursor: int) -> tuple[dict[str, int], int]:
    """A position as editors send it, sometimes beyond a line or the text, and the offset that it means."""
    place = page.place(cursor)
    ends = cursor == len(page.text) or page.text[cursor] in "\r\n"
    if ends and rng.random() < 0.3:
        return {**place, "character": place["character"] + rng.choice([1, 99, 2**31 - 100])}, cursor
    if rng.random() < 0.05:
        return {"line": 2**31 - 1, "character": rng.choice([0, 7])}, len(page.text)
    return place, cursor


def type_along(
    editor: Editor, page: Page, cursor: int, items: list[dict[str, Any]], checker: RangeChecker, rng: random.Random
):
    """Types the first characters of a suggestion: later ranges may reach back to where it began."""
    if not items or items[0]["range"]["start"] != items[0]["range"]["end"]:
        return
    text = items[0]["insertText"]
    for _ in range(rng.randrange(3)):
        typed, text = text[:2], text[2:]
        if not text or "\n" in typed or "\r" in typed:
            return
        cursor = page.type(cursor, typed)
        checker.check_items(page, cursor, editor.items(page.ask(cursor), 60))


def ask_everywhere(
    editor: Editor, rng: random.Random, checker: RangeChecker, encoding: str, texts: int, questions: int
) -> None:
    for number in range(texts):
        page = Page(editor, some_text(rng, rng.randrange(30)), encoding, uri=f"file:///project/{encoding}/{number}.py")
        editor.open(page.uri, page.text, language=rng.choice(LANGUAGES))
        for _ in range(questions):
            position, cursor = beyond(rng, page, rng.choice(page.stops()))
            kind = rng.choice([INVOKED, AUTOMATIC])
            msg_id = editor.complete(page.uri, position["line"], position["character"], kind)
            items = editor.items(msg_id, 60)
            checker.check_items(page, cursor, items)
            type_along(editor, page, cursor, items, checker, rng)
        editor.notify("textDocument/didClose", {"textDocument": {"uri": page.uri}})


def begun(editor: Editor, encoding: str) -> Editor:
    notebooks = {"notebookDocument": {"synchronization": {"dynamicRegistration": True}}}
    return editor.begin({**CAPABILITIES, **notebooks, "general": {"positionEncodings": [encoding]}})


@pytest.fixture
def fast() -> list[str]:
    return [word for setting in FAST for word in ("--set", setting)]


@pytest.mark.promise(16)
@pytest.mark.parametrize("encoding", ["utf-16", *in_soak("utf-8", "utf-32")])
def test_every_item_has_a_range_on_one_line_around_the_cursor(encoding: str, fast, promise, soak: bool):
    checker, rng = RangeChecker(), random.Random(encoding)
    with Editor(*fast) as editor:
        ask_everywhere(begun(editor, encoding), rng, checker, encoding, texts=100 if soak else 8, questions=8)
    if soak:  # the echo model's text is inserted unchanged; this text is fitted to its surroundings
        with Editor(*fast, "--set", "completion.eagerness=high", model="tiny") as editor:
            ask_everywhere(begun(editor, encoding), rng, checker, encoding, texts=8, questions=6)
    promise.measured(f"{encoding}: {checker.summary()}", holds=True)
    assert checker.counts["items"] > checker.counts["questions"] // 2
    assert checker.counts["reach back"], "nothing was typed along"


@pytest.mark.promise(16)
def test_an_item_that_extends_the_selected_completion_has_its_range(fast, promise, soak: bool):
    checker, rng = RangeChecker(), random.Random(16)
    with Editor(*fast) as editor:
        begun(editor, "utf-16")
        for number in range(150 if soak else 8):
            page = Page(editor, some_text(rng, 12), uri=f"file:///project/{number}.py")
            cursor = rng.choice(page.stops())
            line = [at for at in page.stops() if page.place(at)["line"] == page.place(cursor)["line"]]
            start = rng.choice([at for at in line if at <= cursor])
            end = rng.choice([at for at in line if at >= cursor])
            chosen = page.text[start:cursor] + rng.choice(["log", "漢𝒙", "f(", ""])
            span = {"start": page.place(start), "end": page.place(end)}
            items = editor.items(page.ask(cursor, selectedCompletionInfo={"range": span, "text": chosen}))
            for item in items:
                assert item["range"] == span and item["insertText"].startswith(chosen)
            checker.check_items(page, cursor, items)
            editor.notify("textDocument/didClose", {"textDocument": {"uri": page.uri}})
    promise.measured(f"on from the selected item: {checker.summary()}", holds=True)
    assert checker.counts["items"] > checker.counts["questions"] // 2


@pytest.mark.promise(16)
def test_the_menu_item_has_a_range_that_contains_the_word_at_the_cursor(fast, promise, soak: bool):
    checker, rng = RangeChecker(), random.Random(17)
    with Editor(*fast, "--set", "completion.show_in_menu=true") as editor:
        begun(editor, "utf-16")
        for number in range(150 if soak else 8):
            page = Page(editor, some_text(rng, 12), uri=f"file:///project/{number}.py")
            cursor = rng.choice(page.stops())
            params = {"textDocument": {"uri": page.uri}, "position": page.place(cursor)}
            checker.counts["questions"] += 1
            for item in editor.call("textDocument/completion", params)["items"]:
                checker.counts["items"] += 1
                edit = item["textEdit"]
                start, _ = checker.check(page, cursor, edit["range"], edit["newText"])
                word = page.text[start:cursor]
                assert word == "" or word.isidentifier() or all(c.isalnum() or c == "_" for c in word)
            editor.notify("textDocument/didClose", {"textDocument": {"uri": page.uri}})
    promise.measured(f"in the menu: {checker.summary()}", holds=True)
    assert checker.counts["items"] > checker.counts["questions"] // 2 and checker.counts["reach back"]


@pytest.mark.promise(16)
def test_a_notebook_item_has_a_range_inside_its_cell(fast, promise, soak: bool):
    checker, rng = RangeChecker(), random.Random(18)
    with Editor(*fast) as editor:
        begun(editor, "utf-16")
        for number in range(60 if soak else 4):
            cells = [Cell(editor, some_text(rng, rng.randrange(12)), f"{BOOK}#{number}-{cell}") for cell in range(4)]
            documents = [cell.document for cell in cells]
            book = {"uri": f"{BOOK}{number}", "notebookType": "jupyter-notebook", "version": 1}
            book["cells"] = [{"kind": 2, "document": cell.uri} for cell in cells]
            editor.notify("notebookDocument/didOpen", {"notebookDocument": book, "cellTextDocuments": documents})
            for cell in cells:
                cursor = rng.choice(cell.stops())
                checker.check_items(cell, cursor, editor.items(cell.ask(cursor)))
            ids = [{"uri": cell.uri} for cell in cells]
            editor.notify(
                "notebookDocument/didClose", {"notebookDocument": {"uri": book["uri"]}, "cellTextDocuments": ids}
            )
    promise.measured(f"in cells of notebooks: {checker.summary()}", holds=True)
    assert checker.counts["items"] == checker.counts["questions"]


class Cell(Page):
    """A page that is opened with its notebook and not by itself."""

    def __init__(self, editor: Editor, text: str, uri: str) -> None:
        self.editor, self.text, self.encoding, self.uri, self.version = editor, text, "utf-16", uri, 1
        self.document = {"uri": uri, "languageId": "python", "version": 1, "text": text}
