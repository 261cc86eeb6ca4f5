"""Next edits over the wire, disturbed in the middle of a rename: undo, formatters, other windows, other texts.

In each case the server is silent, or offers an edit that renames a use of the document as it is then. No answer has a
position of an older text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from support.lsp.edited_document import EditPage, edit_server
from support.lsp.editor_client import Editor

FILLER = "".join(f"    step_{number}()\n" for number in range(12))
FIRST = (
    f"def area(width, height):\n    width = abs(width)\n{FILLER}    log(width)\n{FILLER}    return width * height\n\n\n"
)
REST = (
    f"def border(width):\n    return 4 * width\n\n\ndef late():\n{FILLER}\n\ndef cube(width):\n    return width ** 3\n"
)
TEXT = FIRST + REST
NUMBERS = count()


class Walk(EditPage):
    """A document whose parameter `width` was renamed to `breadth` once, and the cursor behind the new name."""

    def __init__(self, editor: Editor, text: str = TEXT, file: str = "") -> None:
        super().__init__(editor, text, file or f"walk{next(NUMBERS)}.py")
        self.rename()

    def rename(self) -> None:
        self.cursor = self.replace("width", "breadth")

    def next(self, cursor: int | None = None) -> dict[str, Any] | None:
        """The edit that is offered: it renames uses of one line in the first function, and nothing else."""
        edit = self.offer(self.cursor if cursor is None else cursor)
        if edit is not None:
            start, end = self.span(edit)
            assert self.text[start:end].replace("width", "breadth") == edit["text"] != self.text[start:end]
            assert end < self.text.index("def border")
        return edit

    def step(self) -> tuple[int, int, str]:
        """Accept the offered edit. Returns the change that undoes it."""
        edit = self.next()
        assert edit is not None
        start, end = self.span(edit)
        old = self.text[start:end]
        self.cursor = self.accept(edit)
        return start, self.cursor, old

    def finish(self) -> int:
        """Accept all that is offered, until the whole function has the new name. Returns how many edits that were."""
        number = 0
        while self.next() is not None and number < 10:
            self.step()
            number += 1
        assert self.text.endswith(REST) and not re.search(r"\bwidth\b", self.text.removesuffix(REST))
        return number


@pytest.fixture(scope="module")
def editor() -> Iterator[Editor]:
    with edit_server() as shared:
        yield shared
        assert shared.popups() == [] and shared.stray == b""


def test_an_undisturbed_walk_renames_every_use(editor: Editor):
    assert Walk(editor).finish() == 3


def test_an_undo_in_the_middle_is_silent_and_a_redo_goes_on(editor: Editor):
    walk = Walk(editor)
    walk.step()
    start, end, old = walk.step()
    new = walk.text[start:end]
    walk.edit(start, end, old)
    assert walk.next(start) is None
    walk.edit(start, start + len(old), new)
    walk.cursor = end
    assert walk.finish() == 1


def test_the_undo_of_everything_is_silent(editor: Editor):
    walk = Walk(editor)
    for start, end, old in reversed([walk.step(), walk.step()]):
        walk.edit(start, end, old)
        assert walk.next(start) is None
    walk.replace("breadth", "width")
    assert walk.text == TEXT and walk.next(9) is None


@pytest.mark.parametrize("is_whole", [False, True], ids=["many ranges", "whole text"])
def test_a_formatter_that_touches_every_line_teaches_nothing_and_the_rename_goes_on(editor: Editor, is_whole: bool):
    lines = [f"value_{n} = [ 1,{n} ]\n" for n in range(40)]
    walk = Walk(editor, TEXT.replace("def border", "".join(lines) + "\n\ndef border"))
    walk.step()
    if is_whole:
        walk.replace_all(walk.text.replace("[ 1,", "[1, ").replace(" ]", "]"))
    else:
        walk.change_many(*((match.start(), match.end(), "[1, ") for match in re.finditer(r"\[ 1,", walk.text)))
    while walk.next() is not None:
        walk.step()
    assert walk.text.count("breadth") == 5 and Walk(editor).finish() == 3


@pytest.mark.parametrize(("renamed", "left"), [(3, 1), (9, 0)], ids=["some uses", "all uses"])
def test_a_code_action_that_renames_uses_leaves_the_others(editor: Editor, renamed: int, left: int):
    walk = Walk(editor)
    places = [match.start() for match in re.finditer(r"\bwidth\b", walk.text.removesuffix(REST))][:renamed]
    walk.change_many(*((at, at + len("width"), "breadth") for at in places))
    walk.cursor = walk.text.index("log(breadth") + len("log(breadth")
    assert walk.finish() == left


def test_a_document_that_comes_back_with_another_text_starts_anew(editor: Editor):
    walk = Walk(editor)
    walk.step()
    walk.close()
    assert Walk(editor, file=walk.uri).finish() == 3
