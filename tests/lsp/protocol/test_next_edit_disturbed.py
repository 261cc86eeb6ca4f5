"""Next edits over the wire, disturbed in the middle of a rename: undo, formatters, other windows, other texts.

In each case the server is silent, or offers an edit that renames a use of the document as it is then. No answer has a
position of an older text.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import reduce
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.lsp.editor_client import Editor, Page
from support.waiting import wait_until

from speclsp.lsp.next_edit import wire

FOLDER = "file:///project/"
FILLER = "".join(f"    step_{number}()\n" for number in range(12))
TEXT = (
    f"def area(width, height):\n    width = abs(width)\n{FILLER}    log(width)\n{FILLER}    return width * height\n\n\n"
    f"def border(width):\n    return 4 * width\n\n\ndef late():\n{FILLER}\n\ndef cube(width):\n    return width ** 3\n"
)
UNLIKE = reduce(
    lambda text, names: text.replace(*names),
    (("area", "size"), ("height", "depth"), ("abs", "int"), ("log", "show")),
    TEXT,
)  # no line of it that a walk changes is one of TEXT: a change of a whole line is offered in other documents too
NUMBERS = count()


class Walk:
    """A document whose parameter `width` was renamed to `breadth` once, and the cursor behind the new name."""

    def __init__(self, editor: Editor, text: str = TEXT) -> None:
        self.editor = editor
        self.page = Page(editor, text, uri=f"{FOLDER}walk{next(NUMBERS)}.py")
        self.ask(0)  # the first request of a document reads its ignore files
        at = self.page.text.index("width")
        self.page.edit(at, at + len("width"), "breadth")
        self.cursor = at + len("breadth")

    def ask(self, cursor: int | None = None) -> dict[str, Any] | None:
        """The edit that is offered; it names the present version."""
        page = self.page
        document = {"uri": page.uri, "version": page.version}
        position = page.place(self.cursor if cursor is None else min(cursor, len(page.text)))
        edits = self.editor.call(wire.NEXT_EDIT, {"textDocument": document, "position": position})["edits"]
        assert len(edits) <= 1 and all(edit["textDocument"] == document for edit in edits)
        return edits[0] if edits else None

    def span(self, edit: dict[str, Any]) -> tuple[int, int]:
        starts = [0, *(match.end() for match in re.finditer("\n", self.page.text))]
        start, end = (
            starts[edit["range"][name]["line"]] + edit["range"][name]["character"] for name in ("start", "end")
        )
        return start, end

    def check(self, edit: dict[str, Any]) -> None:
        """The edit renames uses of one line in the first function, and nothing else."""
        start, end = self.span(edit)
        assert self.page.text[start:end].replace("width", "breadth") == edit["text"] != self.page.text[start:end]
        assert end < self.page.text.index("def border")

    def accept(self) -> tuple[int, int, str]:
        """Accept the offered edit. Returns the change that undoes it: start, end, the old text."""
        edit = self.ask()
        assert edit is not None
        self.check(edit)
        start, end = self.span(edit)
        old = self.page.text[start:end]
        self.page.edit(start, end, edit["text"])
        self.editor.notify(wire.ACCEPTED, {"id": edit["id"]})
        self.cursor = start + len(edit["text"])
        return start, self.cursor, old

    def finish(self) -> int:
        """Accept all that is offered. Returns how many edits that were."""
        for number in range(10):
            if self.ask() is None:
                return number
            self.accept()
        raise AssertionError("the walk has no end")

    def replace_all(self, text: str) -> None:
        """The client sends the whole text, as after a formatter or a change on the disk."""
        self.page.text, self.page.version = text, self.page.version + 1
        self.editor.change(self.page.uri, self.page.version, {"text": text})

    def change_many(self, *spans: tuple[int, int, str]) -> None:
        """Several changes in one didChange, the last in the text first."""
        page, changes = self.page, []
        for start, end, new in sorted(spans, reverse=True):
            changes.append({"range": {"start": page.place(start), "end": page.place(end)}, "text": new})
            page.text = page.text[:start] + new + page.text[end:]
        page.version += 1
        self.editor.change(page.uri, page.version, *changes)

    def is_renamed(self) -> bool:
        """True if the whole function has the new name, and the other one its own."""
        return (
            self.page.text
            == re.sub(r"\bwidth\b", "breadth", TEXT.partition("def border")[0])
            + "def border"
            + (TEXT.partition("def border")[2])
        )


def server() -> Editor:
    editor = Editor("--set", "completion.enabled=false")
    editor.initialize({}, workspaceFolders=[{"uri": FOLDER.rstrip("/"), "name": "project"}])
    page = Page(editor, "x = 1\n", uri=FOLDER + "first.py")
    params = {"textDocument": {"uri": page.uri, "version": 1}, "position": page.place(0)}

    def answers() -> bool:
        editor.call(wire.NEXT_EDIT, params)
        return "next_edit" in editor.call("speclsp/explain", {})

    wait_until(answers)
    return editor


@pytest.fixture
def editor() -> Iterator[Editor]:
    with server() as shared:
        Walk(shared, UNLIKE).finish()  # the first one takes longer than others
        yield shared
        assert shared.popups() == [] and shared.stray == b""


def test_an_undisturbed_walk_renames_every_use(editor: Editor):
    walk = Walk(editor)
    assert walk.finish() == 3 and walk.is_renamed()


def test_an_undo_in_the_middle_is_silent_and_a_redo_goes_on(editor: Editor):
    walk = Walk(editor)
    walk.accept()
    start, end, old = walk.accept()
    new = walk.page.text[start:end]
    walk.page.edit(start, end, old)
    assert walk.ask(start) is None
    walk.page.edit(start, start + len(old), new)
    walk.cursor = end
    assert walk.finish() == 1 and walk.is_renamed()


def test_the_undo_of_everything_is_silent_and_so_is_its_redo_until_the_rename_is_back(editor: Editor):
    walk = Walk(editor)
    first = walk.page.text
    changes = [walk.accept(), walk.accept()]
    later = walk.page.text
    for start, end, old in reversed(changes):
        walk.page.edit(start, end, old)
        assert walk.ask(start) is None
    assert walk.page.text == first
    walk.page.edit(9, 9 + len("breadth"), "width")
    assert walk.page.text == TEXT and walk.ask(9) is None
    walk.page.edit(9, 9 + len("width"), "breadth")
    for start, end, old in changes:
        new = later[start:end]
        walk.page.edit(start, start + len(old), new)
        walk.cursor = start + len(new)
    walk.finish()


@pytest.mark.parametrize("whole", [False, True], ids=["many ranges", "whole text"])
def test_a_formatter_that_touches_every_line_leaves_silence_or_the_right_edit(editor: Editor, whole: bool):
    walk = Walk(editor)
    walk.accept()
    if whole:
        walk.replace_all(walk.page.text.replace("    ", "  "))
    else:
        walk.change_many(*((match.start(), match.end(), "\t") for match in re.finditer("    ", walk.page.text)))
    edit = walk.ask(walk.page.text.index("log"))
    if edit is not None:
        walk.check(edit)
    walk.cursor = walk.page.text.index("log")
    walk.finish()
    again = Walk(editor)
    assert again.finish() == 3 and again.is_renamed(), "the formatter teaches nothing"


def test_a_code_action_that_renames_every_use_at_once_leaves_nothing_to_offer(editor: Editor):
    walk = Walk(editor)
    body = walk.page.text.partition("def border")[0]
    walk.change_many(*((match.start(), match.end(), "breadth") for match in re.finditer(r"\bwidth\b", body)))
    assert walk.ask() is None and walk.is_renamed()


def test_a_code_action_that_renames_some_uses_leaves_the_others(editor: Editor):
    walk = Walk(editor)
    places = [match.start() for match in re.finditer(r"\bwidth\b", walk.page.text)][:3]
    walk.change_many(*((at, at + len("width"), "breadth") for at in places))
    walk.cursor = walk.page.text.index("log(breadth") + len("log(breadth")
    assert walk.finish() == 1 and walk.is_renamed()


def test_lines_that_another_program_inserts_above_move_the_next_edit(editor: Editor):
    walk = Walk(editor)
    edit = walk.ask()
    assert edit is not None
    line = edit["range"]["start"]["line"]
    walk.replace_all("import os\n\n\n" + walk.page.text)
    editor.notify("workspace/didChangeWatchedFiles", {"changes": [{"uri": walk.page.uri, "type": 2}]})
    moved = walk.ask(walk.cursor + 11)
    if moved is not None:
        walk.check(moved)
        assert moved["range"]["start"]["line"] == line + 3


def test_a_document_that_comes_back_with_another_text_starts_anew(editor: Editor):
    walk = Walk(editor)
    walk.accept()
    editor.notify("textDocument/didClose", {"textDocument": {"uri": walk.page.uri}})
    walk.page = Page(editor, TEXT, uri=walk.page.uri)
    assert walk.ask(0) is None
    walk.page.edit(9, 9 + len("width"), "breadth")
    walk.cursor = 9 + len("breadth")
    assert walk.finish() == 3 and walk.is_renamed()


def test_a_document_that_is_opened_again_without_a_close_has_no_stale_edit(editor: Editor):
    walk = Walk(editor)
    walk.accept()
    walk.page = Page(editor, "def area(breadth):\n    return width\n", uri=walk.page.uri)
    edit = walk.ask(5)
    if edit is not None:
        start, end = walk.span(edit)
        assert walk.page.text[start:end] == "width" and edit["text"] == "breadth"


def test_a_checkout_of_the_old_text_in_the_middle_is_silent(editor: Editor):
    walk = Walk(editor)
    walk.accept()
    walk.replace_all(TEXT)
    editor.notify("workspace/didChangeWatchedFiles", {"changes": [{"uri": walk.page.uri, "type": 2}]})
    assert walk.ask(walk.page.text.index("log")) is None


def test_another_window_that_walks_through_the_same_file_leaves_no_stale_edit(editor: Editor):
    with server() as other:
        first = Walk(editor)
        offered = first.ask()
        second = Walk(other)
        second.finish()
        assert second.is_renamed() and offered is not None
        first.replace_all(second.page.text)  # saved there, and read from the disk here
        assert first.ask() is None
        at = first.page.text.index("cube(width") + len("cube(")
        first.page.edit(at, at + len("width"), "side")
        edit = first.ask(at + 4)
        assert edit is not None and edit["text"].count("side") == 1
        assert first.page.text[slice(*first.span(edit))].replace("width", "side") == edit["text"]


def test_a_request_that_a_change_overtakes_gets_no_edit_of_the_older_text(editor: Editor):
    walk = Walk(editor)
    page = walk.page
    params = {"textDocument": {"uri": page.uri, "version": page.version}, "position": page.place(walk.cursor)}
    request = editor.request(wire.NEXT_EDIT, params)
    page.edit(0, 0, "# a line\n")
    for edit in editor.reply(request)["result"]["edits"]:
        assert edit["textDocument"]["version"] == params["textDocument"]["version"]
    walk.cursor += len("# a line\n")
    edit = walk.ask()
    if edit is not None:
        walk.check(edit)


# ── the record of edits ───────────────────────────────────────────────────────────────────────────────────────────────

PHRASES = "import lib\n\n\n" + "".join(f"result_{n} = lib.read(open_file, {n})\n" for n in range(6))
TYPES_AFTER_S = 0.5  # a user does not type sooner after a document was opened


def change_twice(page: Page) -> int:
    """Change a phrase on the first two lines that have it; the cursor behind it."""
    cursor = 0
    for _ in range(2):
        at = page.text.index("open_file")
        page.edit(at, at + len("open_file"), "shared.file")
        cursor = at + len("shared.file")
    return cursor


def first_answer(editor: Editor, page: Page, cursor: int) -> list[dict[str, Any]]:
    document = {"uri": page.uri, "version": page.version}
    edits: list[dict[str, Any]] = editor.call(
        wire.COPILOT_INLINE_EDIT, {"textDocument": document, "position": page.place(cursor)}
    )["edits"]
    return edits


@pytest.mark.parametrize("arguments", [("--copilot",), ()], ids=["copilot", "own"])
def test_edits_before_the_first_request_count(arguments: tuple[str, ...], tmp_path: Path):
    with Editor(*arguments, "--set", "completion.enabled=false") as editor:
        editor.initialize({}, workspaceFolders=[{"uri": tmp_path.as_uri(), "name": "new"}])
        page = Page(editor, PHRASES, uri=(tmp_path / "new.py").as_uri())
        time.sleep(TYPES_AFTER_S)
        cursor = change_twice(page)
        assert len(first_answer(editor, page, cursor)) == 1


def test_edits_of_a_file_that_an_ignore_file_names_are_not_recorded(tmp_path: Path):
    (tmp_path / ".gitignore").write_text("local.py\n")
    with Editor("--copilot") as editor:
        editor.initialize({}, workspaceFolders=[{"uri": tmp_path.as_uri(), "name": "new"}])
        ignored = Page(editor, PHRASES, uri=(tmp_path / "local.py").as_uri())
        page = Page(editor, PHRASES, uri=(tmp_path / "new.py").as_uri())
        time.sleep(TYPES_AFTER_S)
        change_twice(ignored)
        assert first_answer(editor, page, 0) == []
        assert len(first_answer(editor, page, change_twice(page))) == 1
