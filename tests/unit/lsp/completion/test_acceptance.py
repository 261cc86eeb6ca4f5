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


def counts(outcome: str, of: str = SUGGESTION, accepted: int = 0, typed: int = 0) -> dict[str, int]:
    expected = {"shown": 1, outcome: 1, "shown_characters": len(of)}
    return expected | {f"{name}_characters": n for name, n in (("accepted", accepted), ("typed", typed)) if n}


def test_the_whole_suggestion_in_one_edit_is_accepted(editing: EditedDocument):
    editing.show(AT, SUGGESTION)
    editing.edit(AT, AT, SUGGESTION)
    assert editing.counts == counts("accepted", accepted=len(SUGGESTION)), "reported at once, not with the next edit"
    assert editing.counted() == counts("accepted", accepted=len(SUGGESTION))


def test_several_lines_are_accepted_where_the_next_line_begins_alike(editing: EditedDocument):
    editing.show(AT, LONG)
    editing.edit(AT, AT, LONG)
    assert editing.counted() == counts("accepted", LONG, accepted=len(LONG))


def test_a_suggestion_that_replaces_the_typed_word_is_accepted(editing: EditedDocument):
    start = HEAD.index("return")
    editing.show(AT, "return " + SUGGESTION, start=start)
    editing.edit(start, AT, "return " + SUGGESTION)
    assert editing.counted() == counts("accepted", accepted=len(SUGGESTION))


def test_words_accepted_one_by_one_count_as_partly_accepted(editing: EditedDocument):
    editing.show(AT, SUGGESTION)
    editing.edit(AT, AT, "total ")
    editing.edit(AT + 6, AT + 6, "+ step_of")
    assert editing.counted() == counts("partly", accepted=15)


def test_accepting_the_last_word_makes_the_suggestion_accepted(editing: EditedDocument):
    editing.show(AT, SUGGESTION)
    for at, word in ((0, "total"), (5, " + step_of"), (15, "(total)")):
        editing.edit(AT + at, AT + at, word)
    assert editing.counted() == counts("accepted", accepted=len(SUGGESTION))


def test_characters_typed_before_accepting_are_not_counted_as_accepted(editing: EditedDocument):
    editing.show(AT, SUGGESTION)
    at = editing.type(AT, "tot")
    editing.edit(at, at, SUGGESTION[3:])
    assert editing.counted() == counts("accepted", accepted=len(SUGGESTION) - 3, typed=3)


def test_a_suggestion_typed_to_its_end_counts_as_typed(editing: EditedDocument):
    editing.show(AT, SUGGESTION)
    editing.type(AT, SUGGESTION)
    assert editing.counted() == counts("typed", typed=len(SUGGESTION))


def test_enter_with_indentation_and_a_tab_of_blanks_count_as_typed(editing: EditedDocument):
    editing.show(AT, "[\n        1,\n    ]")
    at = editing.type(AT, "[")
    editing.edit(at, at, "\n    ")
    editing.edit(at + 5, at + 5, "    ")
    editing.type(at + 9, "1,")
    assert editing.counted() == counts("ignored", "[\n        1,\n    ]", typed=12)


@pytest.mark.parametrize(
    "part", [lambda e: e.type(AT, "x"), lambda e: e.edit(0, 0, "#\n"), lambda e: e.edit(AT - 7, AT, "yield ")]
)
def test_an_edit_that_disagrees_means_ignored(editing: EditedDocument, part: Callable[[EditedDocument], object]):
    editing.show(AT, SUGGESTION)
    part(editing)
    assert editing.counts == counts("ignored")
    assert editing.counted() == counts("ignored")


def test_the_same_text_typed_elsewhere_means_ignored(editing: EditedDocument):
    editing.show(AT, SUGGESTION)
    editing.edit(AT + 1, AT + 1, SUGGESTION)
    assert editing.counted() == counts("ignored")


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


def test_a_suggestion_that_lived_too_short_to_be_read_does_not_count_as_shown(editing: EditedDocument):
    editing.show(AT, SUGGESTION, wait_s=0.05)
    editing.type(AT, "x")
    assert editing.counted() == {}


def test_an_accepted_suggestion_counts_as_shown_however_short_it_lived(editing: EditedDocument):
    editing.show(AT, SUGGESTION, wait_s=0.01)
    editing.edit(AT, AT, SUGGESTION)
    assert editing.counted() == counts("accepted", accepted=len(SUGGESTION))


def test_typing_through_with_an_answer_for_every_key_is_one_suggestion(editing: EditedDocument):
    at, rest = AT, SUGGESTION
    editing.show(at, rest, wait_s=0.06)
    while rest:
        editing.edit(at, at, rest[0])
        at, rest = at + 1, rest[1:]
        if rest:
            editing.show(at, rest, wait_s=0.06)
    assert editing.counted() == counts("typed", typed=len(SUGGESTION))


def test_a_longer_answer_extends_the_shown_suggestion(editing: EditedDocument):
    editing.show(AT, "total")
    editing.type(AT, "to")
    editing.show(AT + 2, SUGGESTION[2:])
    editing.edit(AT + 2, AT + 2, SUGGESTION[2:])
    assert editing.counted() == counts("accepted", accepted=len(SUGGESTION) - 2, typed=2)


def test_deleting_and_accepting_again_counts_every_character_once(editing: EditedDocument):
    editing.show(AT, SUGGESTION)
    editing.type(AT, "tota")
    editing.edit(AT + 2, AT + 4, "")
    editing.show(AT + 2, SUGGESTION[2:])
    editing.edit(AT + 2, AT + 2, SUGGESTION[2:])
    assert editing.counted() == counts("accepted", accepted=len(SUGGESTION) - 2, typed=2)


def test_the_chosen_alternative_is_the_one_that_counts(editing: EditedDocument):
    second = "total_of(steps)"
    editing.offer(AT, ("total", AT, AT), (second, AT, AT))
    editing.edit(AT, AT, second)
    assert editing.counted() == counts("accepted", second, accepted=len(second))


@pytest.mark.parametrize("suggestion", [SUGGESTION, LONG])
@pytest.mark.parametrize("next_stands", [False, True])
def test_undo_right_after_accepting_counts_as_undone(editing: EditedDocument, suggestion: str, next_stands: bool):
    editing.show(AT, suggestion)
    editing.edit(AT, AT, suggestion)
    if next_stands:
        editing.show(AT + len(suggestion), "\n", wait_s=0)
    editing.edit(AT, AT + len(suggestion), "")
    assert editing.counted() == counts("undone", suggestion)


def test_deleting_an_accepted_suggestion_later_does_not_count_as_undone(editing: EditedDocument):
    editing.show(AT, SUGGESTION)
    editing.edit(AT, AT, SUGGESTION)
    editing.type(AT + len(SUGGESTION), "x")
    editing.edit(AT, AT + len(SUGGESTION) + 1, "")
    assert editing.counted() == counts("accepted", accepted=len(SUGGESTION))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("text", "saved"), [("total)", 5), ("total, step(1)) + 1", 18), ("total), step(", 13)])
def test_a_closed_bracket_is_replaced_by_the_suggestion(way: str, text: str, saved: int):
    editing = EditedDocument("print()\n", way=way)
    editing.show(6, text, end=7)
    editing.edit(6, 7, text)
    (shown,) = {len(text), len(text) - 1} & {editing.counts["shown_characters"]}
    assert editing.counted() == {"shown": 1, "accepted": 1, "shown_characters": shown, "accepted_characters": shown}
    assert shown - saved in (0, 1)


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


def test_a_pair_of_brackets_in_one_edit_counts_as_one_typed_key(editing: EditedDocument):
    editing.show(AT, "[]")
    editing.edit(AT, AT, "[]")
    assert editing.counted() == counts("typed", "[]", typed=2)


def test_a_pair_of_brackets_after_an_accepted_word_counts_as_accepted(editing: EditedDocument):
    editing.show(AT, "total()")
    editing.edit(AT, AT, "total")
    editing.edit(AT + 5, AT + 5, "()")
    assert editing.counted() == counts("accepted", "total()", accepted=7)


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
