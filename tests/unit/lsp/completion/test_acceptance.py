"""Acceptance of a suggestion, inferred from the edits that follow it, however an editor describes them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

import pytest
from support.lsp.edited_document import WAYS, EditedDocument

HEAD, TAIL = "def f():\n    return ", "\n\n\nprint(f())\n"


SUGGESTION = "total + step_of(total)"


LONG = "if total:\n        return total\n    else:\n        return 0"


@pytest.fixture(params=WAYS)
def editing(request: pytest.FixtureRequest) -> EditedDocument:
    return EditedDocument(HEAD + TAIL, way=request.param)


AT = len(HEAD)


def counts(
    outcome: str, of: str = SUGGESTION, accepted: int = 0, typed: int = 0, words: bool = False
) -> dict[str, int]:
    expected = {"shown": 1, outcome: 1, "shown_characters": len(of)} | ({"words": 1} if words else {})
    return expected | {f"{name}_characters": n for name, n in (("accepted", accepted), ("typed", typed)) if n}


Step = Callable[[EditedDocument], object]


def show(text: str = SUGGESTION, at: int = 0, **options: float) -> Step:
    """A suggestion is shown `at` characters behind AT."""
    return lambda editing: editing.show(AT + at, text, **options)


def edit(text: str, at: int = 0, end: int | None = None) -> Step:
    """One edit puts `text` in the place of the characters from `at` to `end`."""
    return lambda editing: editing.edit(AT + at, AT + (at if end is None else end), text)


def keys(text: str, at: int = 0) -> Step:
    return lambda editing: editing.type(AT + at, text)


WHOLE, SIZE, LIST = [show(), edit(SUGGESTION)], len(SUGGESTION), "[\n        1,\n    ]"
STORIES: dict[str, tuple[list[Step], dict[str, int]]] = {  # {edits: (the steps, their counts)}
    "the whole suggestion in one edit": (WHOLE, counts("accepted", accepted=SIZE)),
    "several lines where the next line begins alike": ([show(LONG), edit(LONG)], counts("accepted", LONG, len(LONG))),
    "the suggestion in place of the typed word": (
        [show("return " + SUGGESTION, start=AT - 7), edit("return " + SUGGESTION, -7, 0)],
        counts("accepted", accepted=SIZE),
    ),
    "some words, one by one": (
        [show(), edit("total "), edit("+ step_of", 6)],
        counts("partly", accepted=15, words=True),
    ),
    "all words, one by one": (
        [show(), edit("total"), edit(" + step_of", 5), edit("(total)", 15)],
        counts("accepted", accepted=SIZE, words=True),
    ),
    "some keys, then the rest in one edit": (
        [show(), keys("tot"), edit(SUGGESTION[3:], 3)],
        counts("accepted", accepted=SIZE - 3, typed=3),
    ),
    "all keys": ([show(), keys(SUGGESTION)], counts("typed", typed=SIZE)),
    "Enter with an indentation, and a tab of blanks": (
        [show(LIST), keys("["), edit("\n    ", 1), edit("    ", 6), keys("1,", 10)],
        counts("ignored", LIST, typed=12),
    ),
    "another key": ([show(), keys("x")], counts("ignored")),
    "an edit above": ([show(), edit("#\n", -AT)], counts("ignored")),
    "another word in place of the one before": ([show(), edit("yield ", -7, 0)], counts("ignored")),
    "the same text elsewhere": ([show(), edit(SUGGESTION, 1)], counts("ignored")),
    "another key before the suggestion can be read": ([show(wait_s=0.05), keys("x")], {}),
    "the suggestion before it can be read": (
        [show(wait_s=0.01), edit(SUGGESTION)],
        counts("accepted", accepted=SIZE),
    ),
    "the rest of a longer answer that came later": (
        [show("total"), keys("to"), show(SUGGESTION[2:], 2), edit(SUGGESTION[2:], 2)],
        counts("accepted", accepted=SIZE - 2, typed=2),
    ),
    "keys, two of them deleted, and the rest": (
        [show(), keys("tota"), edit("", 2, 4), show(SUGGESTION[2:], 2), edit(SUGGESTION[2:], 2)],
        counts("accepted", accepted=SIZE - 2, typed=2),
    ),
    "undone": ([*WHOLE, edit("", 0, SIZE)], counts("undone")),
    "undone while the next one is shown": ([*WHOLE, show("\n", SIZE, wait_s=0), edit("", 0, SIZE)], counts("undone")),
    "several lines undone": ([show(LONG), edit(LONG), edit("", 0, len(LONG))], counts("undone", LONG)),
    "several lines undone while the next one is shown": (
        [show(LONG), edit(LONG), show("\n", len(LONG), wait_s=0), edit("", 0, len(LONG))],
        counts("undone", LONG),
    ),
    "deleted after a further key": (
        [*WHOLE, keys("x", SIZE), edit("", 0, SIZE + 1)],
        counts("accepted", accepted=SIZE),
    ),
    "a pair of brackets in one edit, which is one key": ([show("[]"), edit("[]")], counts("typed", "[]", typed=2)),
    "a pair of brackets after a word": (
        [show("total()"), edit("total"), edit("()", 5)],
        counts("accepted", "total()", accepted=7, words=True),
    ),
    "line by line, each with its newline or without": (
        [show(LIST), edit("[\n", 0), edit("        1,", 2), edit("\n    ]", 12)],
        counts("accepted", LIST, len(LIST)),
    ),
}  # fmt: skip
AT_ONCE = {
    "the whole suggestion in one edit",
    "another key",
    "an edit above",
    "another word in place of the one before",
}


@pytest.mark.parametrize("story", STORIES)
def test_the_edits_after_a_suggestion_decide_what_is_counted(editing: EditedDocument, story: str):
    steps, expected = STORIES[story]
    for step in steps:
        step(editing)
    if story in AT_ONCE:
        assert editing.counts == expected, "reported at once, not with the next edit"
    assert editing.counted() == expected


def test_another_suggestion_an_empty_answer_and_closing_end_a_suggestion(editing: EditedDocument):
    editing.show(AT, SUGGESTION)
    editing.show(AT, "None")
    assert editing.counts == counts("ignored")
    editing.offer(AT)
    assert editing.counts == Counter(counts("ignored")) + Counter(counts("ignored", "None"))
    editing.show(AT, SUGGESTION)
    editing.tracker.closed("file:///a.py")
    assert editing.counts["ignored"] == 3
    editing.edit(AT, AT, SUGGESTION)
    assert editing.counted()["shown"] == 3


def test_typing_through_with_an_answer_for_every_key_is_one_suggestion(editing: EditedDocument):
    at, rest = AT, SUGGESTION
    editing.show(at, rest, wait_s=0.06)
    while rest:
        editing.edit(at, at, rest[0])
        at, rest = at + 1, rest[1:]
        if rest:
            editing.show(at, rest, wait_s=0.06)
    assert editing.counted() == counts("typed", typed=len(SUGGESTION))


def test_the_chosen_alternative_is_the_one_that_counts(editing: EditedDocument):
    second = "total_of(steps)"
    editing.offer(AT, ("total", AT, AT), (second, AT, AT))
    editing.edit(AT, AT, second)
    assert editing.counted() == counts("accepted", second, accepted=len(second))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("text", "saved"), [("total)", 5), ("total, step(1)) + 1", 18), ("total), step(", 13)])
def test_a_closed_bracket_is_replaced_by_the_suggestion(way: str, text: str, saved: int):
    editing = EditedDocument("print()\n", way=way)
    editing.show(6, text, end=7)
    editing.edit(6, 7, text)
    (shown,) = {len(text), len(text) - 1} & {editing.counts["shown_characters"]}
    assert editing.counted() == {"shown": 1, "accepted": 1, "shown_characters": shown, "accepted_characters": shown}
    assert shown - saved in (0, 1)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("typed", ["", "to"])
@pytest.mark.parametrize("closers", [")", "))", ")]"])
@pytest.mark.parametrize("text", ["total{}", "total, step(1){} + 1", "total{}, step("])
def test_closers_that_an_editor_removes_before_it_inserts_the_suggestion(way: str, typed: str, closers: str, text: str):
    editing, text = EditedDocument(f"print({closers}\n", way=way), text.format(closers)
    editing.show(6, text, end=6 + len(closers))
    at = editing.type(6, typed)
    for _ in closers:
        editing.edit(at, at + 1, "")
    editing.edit(at, at, text[len(typed) :])
    assert editing.counted() == counts("accepted", text, accepted=len(text) - len(typed), typed=len(typed))


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("text", ["f(total)", "f(total) + 1"])
def test_a_bracket_that_the_editor_closes_counts_as_typed(at_once: bool, text: str):
    editing = EditedDocument("x = \n")
    editing.show(4, text)
    editing.type(4, "f")
    if at_once:
        editing.edit(5, 5, "()")
    else:
        editing.edit(5, 5, "(")
        editing.edit(6, 6, ")")
    editing.edit(6, 7, text[2:])
    assert editing.counts["accepted"] == 1
    assert editing.counted()["typed_characters"] == 2


def test_typing_over_the_replaced_text_keeps_the_suggestion():
    editing = EditedDocument("print()\n")
    editing.show(6, ") + 1", end=7)
    editing.show(7, " + 1")
    editing.edit(7, 7, " + 1")
    assert editing.counted() == counts("accepted", ") + 1", accepted=4, typed=1)


def test_lines_that_the_editor_indents_its_own_way_are_accepted():
    editing = EditedDocument("x = \n")
    editing.show(4, "[\n    1,\n]")
    editing.edit(4, 4, "[\n\t1,\n]")
    assert editing.counted()["accepted"] == 1


def test_a_document_without_a_suggestion_is_not_watched(editing: EditedDocument):
    assert editing.document.watch is None
    editing.show(AT, SUGGESTION)
    assert editing.document.watch is not None
    editing.type(AT, "x")
    assert editing.document.watch is None
    editing.show(AT, SUGGESTION)
    editing.edit(AT, AT, SUGGESTION)
    editing.type(AT + len(SUGGESTION), "\n")
    assert editing.document.watch is None, "the next edit has settled it"


def test_an_error_in_tracking_is_logged_by_its_site_and_the_text_stays_correct(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def fail(*_: object) -> None:
        raise ValueError("quotes the document: secret")

    editing = EditedDocument(HEAD + TAIL)
    monkeypatch.setattr(logging.getLogger("speclsp"), "propagate", True)
    monkeypatch.setattr("speclsp.lsp.completion.acceptance.inserted_text_at", fail)
    editing.show(AT, SUGGESTION)
    editing.edit(AT, AT, SUGGESTION)
    assert editing.document.text == HEAD + SUGGESTION + TAIL
    assert "ValueError at test_acceptance.py" in caplog.text
    assert "secret" not in caplog.text
    assert editing.counted() == {}
