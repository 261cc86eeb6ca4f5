"""Walks through next edits in eight languages, through the text store and the next edits as the server has them.

The walks are files in the folder `walks`; tests/support/lsp/edit_walks.py describes their format. A walk must be met
unless its file says "not offered yet". Nothing wrong is offered in any of them.
"""

from __future__ import annotations

import asyncio
import functools

import pytest
from support.lsp.edit_walks import NEXT, NOTHING, Outcome, Span, Walk, Walker, parsed, walks
from support.lsp.edited_document import EditDesk

from speclsp.config import Config
from speclsp.lsp.documents.document import Document
from speclsp.lsp.syntax.grammars import known_id
from speclsp.lsp.visibility.eligibility import exclusion

LANGUAGES = {"python", "typescript", "typescriptreact", "javascript", "rust", "go", "c", "cpp"}
WALKS = walks()
EXAMPLE = """\
=== A parameter is renamed
file: resize.py

def resize(image, width):
    return image.scaled(width)

--- edit 1
- def resize(image, width):
+ def resize(image, breadth):
--- next 2
-     return image.scaled(width)
+     return image.scaled(breadth)
--- nothing
"""


class StoreDesk(EditDesk):
    """One document in the text store, and the next edits with ample time."""

    def __init__(self, walk: Walk) -> None:
        super().__init__(walk.text, known_id(walk.file), f"file:///work/{walk.file}")
        self.edits = self.next_edits(eligible=self.eligible)

    async def eligible(self, document: Document) -> str:
        return exclusion(document.uri, document.language, document.characters, Config(), None)[0]

    @property
    def text(self) -> str:
        return self.document.text

    def change(self, start: int, end: int, text: str) -> None:
        self.replace(start, end, text)

    def request(self, cursor: int) -> tuple[Span, str] | None:
        line = self.document.position(cursor, "utf-16")["line"]
        offer = asyncio.run(self.edits.answer(self.document, line, cursor))
        return None if offer is None else ((offer.start, offer.end, offer.text), offer.id)

    def accepted(self, edit_id: str) -> None:
        self.edits.offers.shown(edit_id)
        self.edits.offers.accepted(edit_id)


@functools.cache
def outcome(walk: Walk, by_key: bool = False) -> Outcome:
    """The outcome of a walk."""
    return Walker(walk, StoreDesk(walk), by_key).go()


@pytest.mark.parametrize("by_key", [False, True], ids=["replaced", "typed"])
@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: f"{known_id(walk.file)}: {walk.title}")
def test_a_walk_is_offered_edit_by_edit_and_nothing_else_is(walk: Walk, by_key: bool):
    result = outcome(walk, by_key)
    assert not result.wrong, str(result)
    assert result.is_met or walk.missing, str(result)


def test_at_least_forty_walks_in_eight_languages_and_ten_of_them_silent(capsys: pytest.CaptureFixture[str]):
    met, silent = [walk for walk in WALKS if outcome(walk).is_met], [walk for walk in WALKS if walk.is_silent]
    marked = [walk for walk in WALKS if walk.missing]
    late = sum(outcome(walk).late > 0 for walk in met)
    with capsys.disabled():
        print(f"\nnext edits: {len(met)} of {len(WALKS)} walks met ({len(silent)} are silent), {len(marked)} marked,")
        print(f"  {late} met only after the cursor left the line; marked and met: remove the marks of")
        for walk in marked:
            if walk in met and outcome(walk, by_key=True).is_met:
                print(f"  {walk.file}: {walk.title}")
    assert len(WALKS) >= 40 and len(silent) >= 10
    assert {known_id(walk.file) for walk in WALKS} == LANGUAGES
    assert len({walk.title for walk in WALKS}) == len(WALKS)


# ── the runner itself ─────────────────────────────────────────────────────────────────────────────────────────────────


class ScriptedDesk:
    """A document, and a producer that offers these replacements of a whole text, one a request."""

    def __init__(self, text: str, *offers: tuple[str, str] | None) -> None:
        self.text = text
        self.offers = list(offers)

    def change(self, start: int, end: int, text: str) -> None:
        self.text = self.text[:start] + text + self.text[end:]

    def request(self, cursor: int) -> tuple[Span, str] | None:
        offer = self.offers.pop(0) if self.offers else None
        if offer is None:
            return None
        start = self.text.index(offer[0])
        return (start, start + len(offer[0]), offer[1]), ""

    def accepted(self, edit_id: str) -> None:
        pass


def scripted(*offers: tuple[str, str] | None, text: str = EXAMPLE) -> Outcome:
    (walk,) = parsed(text)
    return Walker(walk, ScriptedDesk(walk.text, *offers)).go()


def test_a_file_is_read_as_it_is_written():
    (walk,) = parsed(EXAMPLE)
    assert (walk.title, walk.file, walk.missing) == ("A parameter is renamed", "resize.py", "")
    assert walk.text == "def resize(image, width):\n    return image.scaled(width)\n"
    assert [step.action for step in walk.steps] == ["edit", NEXT, NOTHING]
    assert walk.steps[0].span(walk.text) == (18, 23, "breadth"), "whole words are replaced"


def test_the_expected_offer_meets_a_walk_at_once_or_after_the_line():
    assert scripted(("(width)", "(breadth)")).is_met
    late = scripted(None, ("scaled(width", "scaled(breadth"))
    assert late.is_met and late.late == 1


def test_silence_another_offer_and_one_more_offer_do_not_meet_it():
    assert "not offered: next 2" in str(scripted())
    assert "+     return image.scaled(length)" in scripted(("(width)", "(length)")).wrong
    assert "after next 2" in scripted(("(width)", "(breadth)"), ("return", "yield")).wrong


def test_another_order_is_reported_and_is_no_wrong_offer():
    body = "    return image.scaled(width)\n"
    steps = EXAMPLE.partition("--- next")[2].partition("--- nothing")[0]
    twice = EXAMPLE.replace(body, body + body.replace("return", "assert"), 1)
    twice = twice.replace(
        "--- nothing", f"--- next{steps}".replace("2", "3").replace("return", "assert") + "--- nothing"
    )
    result = scripted(
        ("assert image.scaled(width", "assert image.scaled(breadth"), ("(width)", "(breadth)"), text=twice
    )
    assert result.is_out_of_order and not result.wrong and not result.silent and not result.is_met


def test_an_edit_that_may_be_offered_is_right_offered_or_not():
    perhaps = EXAMPLE.replace("next", "perhaps")
    assert scripted(text=perhaps).is_met and scripted(("(width)", "(breadth)"), text=perhaps).is_met
    assert scripted(("(width)", "(length)"), text=perhaps).wrong


def test_an_undo_takes_back_the_last_change():
    undo = EXAMPLE.replace(
        "--- nothing", "--- undo\n--- undo\n--- edit 2\n-     return image.scaled(width)\n--- nothing"
    )
    assert scripted(("(width)", "(breadth)"), text=undo).is_met


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("- def resize(image, width)", "- def resize(image, size)"),
        ("--- nothing\n", ""),
        ("--- next", "--- later"),
        ("file: ", "path: "),
    ],
)
def test_a_walk_that_contradicts_itself_is_refused(old: str, new: str):
    with pytest.raises(ValueError):
        list(parsed(EXAMPLE.replace(old, new)))
