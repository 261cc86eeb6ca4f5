"""What edits say about a suggestion, whichever way an editor writes them down, against an editor that knows.

The model editor edits a document's text as a whole; what it tells the document is one of the many ways to say so.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp.lsp.completion.acceptance import AcceptanceTracker, SentItem
from speclsp.lsp.documents.document import Document

HEAD, TAIL = "def f():\n    return ", "\n\n\nprint(f())\n"
SUGGESTION = "total + step_of(total)"
LONG = "if total:\n        return total\n    else:\n        return 0"


class Editing:
    """A document somebody edits, the counts so far, and a clock that is set by hand."""

    def __init__(self, text: str, encoding: str = "utf-16", way: str = "literal") -> None:
        self.document, self.encoding, self.way = Document("file:///a.py", "python", 1, text), encoding, way
        self.counts: Counter[str] = Counter()
        self.told: list[tuple[str, str, dict[str, int]]] = []
        self.now = 0.0
        self.feedback = AcceptanceTracker(self.tell, lambda: self.now)

    def tell(self, language: str, pair: str, counts: dict[str, int]) -> None:
        self.told.append((language, pair, counts))
        self.counts.update(counts)

    def show(self, cursor: int, text: str, start: int | None = None, end: int | None = None, wait_s: float = 1) -> None:
        sent = (text, cursor if start is None else start, cursor if end is None else end)
        self.offer(cursor, sent, wait_s=wait_s)

    def offer(self, cursor: int, *sent: SentItem, wait_s: float = 1) -> None:
        self.feedback.answered(self.document, cursor, sent, "echo")
        self.now += wait_s

    def edit(self, start: int, end: int, new: str) -> None:
        """Replace text[start:end], said in this editor's way."""
        text = self.document.text
        after = text[:start] + new + text[end:]
        if self.way == "whole":
            self.document.apply([{"text": after}], self.encoding)
            return
        if self.way == "lines":  # from the start of the line on, to the end of the text's last changed line
            start, new = 0, after
            end = len(text)
            while text[start : start + 1] and text[: start + 1] == after[: start + 1]:
                start += 1
            start = text.rfind("\n", 0, start) + 1
            new = after[start:]
        elif self.way == "rightmost":  # as far along as the texts are alike: Neovim
            while start < len(text) and text[: start + 1] == after[: start + 1]:
                start += 1
            end = max(end, start)
            new = after[start : len(after) - (len(text) - end)]
        span = {
            "start": self.document.position(start, self.encoding),
            "end": self.document.position(end, self.encoding),
        }
        self.document.apply([{"range": span, "text": new}], self.encoding)
        assert self.document.text == after

    def type(self, at: int, keys: str, between_s: float = 0.2) -> int:
        for key in keys:
            self.edit(at, at, key)
            at += 1
            self.now += between_s
        return at

    def counted(self) -> dict[str, int]:
        """All that is not zero, when everything is closed."""
        self.feedback.close()
        return {name: count for name, count in self.counts.items() if count}


WAYS = ("literal", "whole", "lines", "rightmost")


@pytest.fixture(params=WAYS)
def editing(request: pytest.FixtureRequest) -> Editing:
    return Editing(HEAD + TAIL, way=request.param)


AT = len(HEAD)


def counts(outcome: str, of: str = SUGGESTION, accepted: int = 0, typed: int = 0) -> dict[str, int]:
    found = {"shown": 1, outcome: 1, "shown_characters": len(of)}
    return found | {f"{name}_characters": n for name, n in (("accepted", accepted), ("typed", typed)) if n}


# ── the outcomes ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_all_of_it_in_one_edit_is_accepted(editing: Editing):
    editing.show(AT, SUGGESTION)
    editing.edit(AT, AT, SUGGESTION)
    assert editing.counts == counts("accepted", accepted=len(SUGGESTION)), "told at once, not with the next edit"
    assert editing.counted() == counts("accepted", accepted=len(SUGGESTION))


def test_several_lines_are_accepted_where_the_next_line_begins_alike(editing: Editing):
    editing.show(AT, LONG)
    editing.edit(AT, AT, LONG)
    assert editing.counted() == counts("accepted", LONG, accepted=len(LONG))


def test_it_is_accepted_when_the_editor_replaces_the_typed_word_by_all_of_it(editing: Editing):
    start = HEAD.index("return")
    editing.show(AT, "return " + SUGGESTION, start=start)
    editing.edit(start, AT, "return " + SUGGESTION)
    assert editing.counted() == counts("accepted", accepted=len(SUGGESTION))


def test_words_and_lines_of_it_are_taken_in_part(editing: Editing):
    editing.show(AT, SUGGESTION)
    editing.edit(AT, AT, "total ")
    editing.edit(AT + 6, AT + 6, "+ step_of")
    assert editing.counted() == counts("partly", accepted=15)


def test_the_last_word_of_it_makes_it_accepted(editing: Editing):
    editing.show(AT, SUGGESTION)
    for at, word in ((0, "total"), (5, " + step_of"), (15, "(total)")):
        editing.edit(AT + at, AT + at, word)
    assert editing.counted() == counts("accepted", accepted=len(SUGGESTION))


def test_what_was_typed_before_accepting_is_not_saved(editing: Editing):
    editing.show(AT, SUGGESTION)
    at = editing.type(AT, "tot")
    editing.edit(at, at, SUGGESTION[3:])
    assert editing.counted() == counts("accepted", accepted=len(SUGGESTION) - 3, typed=3)


def test_keys_that_agree_to_the_end_are_typed_through(editing: Editing):
    editing.show(AT, SUGGESTION)
    editing.type(AT, SUGGESTION)
    assert editing.counted() == counts("typed", typed=len(SUGGESTION))


def test_enter_with_its_indentation_and_a_tab_of_blanks_are_typed(editing: Editing):
    editing.show(AT, "[\n        1,\n    ]")
    at = editing.type(AT, "[")
    editing.edit(at, at, "\n    ")
    editing.edit(at + 5, at + 5, "    ")
    editing.type(at + 9, "1,")
    assert editing.counted() == counts("ignored", "[\n        1,\n    ]", typed=12)


@pytest.mark.parametrize(
    "part", [lambda e: e.type(AT, "x"), lambda e: e.edit(0, 0, "#\n"), lambda e: e.edit(AT - 7, AT, "yield ")]
)
def test_another_edit_ignores_it(editing: Editing, part: Callable[[Editing], object]):
    editing.show(AT, SUGGESTION)
    part(editing)
    assert editing.counts == counts("ignored")
    assert editing.counted() == counts("ignored")


def test_typing_the_same_text_elsewhere_ignores_it(editing: Editing):
    editing.show(AT, SUGGESTION)
    editing.edit(AT + 1, AT + 1, SUGGESTION)
    assert editing.counted() == counts("ignored")


def test_another_suggestion_none_and_closing_end_it(editing: Editing):
    editing.show(AT, SUGGESTION)
    editing.show(AT, "None")
    assert editing.counts == counts("ignored")
    editing.offer(AT)
    assert editing.counts == Counter(counts("ignored")) + Counter(counts("ignored", "None"))
    editing.show(AT, SUGGESTION)
    editing.feedback.closed("file:///a.py")
    assert editing.counts["ignored"] == 3
    editing.edit(AT, AT, SUGGESTION)
    assert editing.counted()["shown"] == 3


def test_what_went_before_anybody_could_read_it_was_not_shown(editing: Editing):
    editing.show(AT, SUGGESTION, wait_s=0.05)
    editing.type(AT, "x")
    assert editing.counted() == {}


def test_what_was_taken_was_seen_however_fast(editing: Editing):
    editing.show(AT, SUGGESTION, wait_s=0.01)
    editing.edit(AT, AT, SUGGESTION)
    assert editing.counted() == counts("accepted", accepted=len(SUGGESTION))


# ── one suggestion over several answers ───────────────────────────────────────────────────────────────────────────────


def test_typing_along_with_an_answer_for_every_key_is_one_suggestion(editing: Editing):
    at, rest = AT, SUGGESTION
    editing.show(at, rest, wait_s=0.06)
    while rest:
        editing.edit(at, at, rest[0])
        at, rest = at + 1, rest[1:]
        if rest:
            editing.show(at, rest, wait_s=0.06)
    assert editing.counted() == counts("typed", typed=len(SUGGESTION))


def test_an_answer_that_goes_further_makes_it_longer(editing: Editing):
    editing.show(AT, "total")
    editing.type(AT, "to")
    editing.show(AT + 2, SUGGESTION[2:])
    editing.edit(AT + 2, AT + 2, SUGGESTION[2:])
    assert editing.counted() == counts("accepted", accepted=len(SUGGESTION) - 2, typed=2)


def test_stepping_back_and_on_again_counts_every_character_once(editing: Editing):
    editing.show(AT, SUGGESTION)
    editing.type(AT, "tota")
    editing.edit(AT + 2, AT + 4, "")
    editing.show(AT + 2, SUGGESTION[2:])
    editing.edit(AT + 2, AT + 2, SUGGESTION[2:])
    assert editing.counted() == counts("accepted", accepted=len(SUGGESTION) - 2, typed=2)


def test_the_alternative_that_was_chosen_is_the_one_that_counts(editing: Editing):
    second = "total_of(steps)"
    editing.offer(AT, ("total", AT, AT), (second, AT, AT))
    editing.edit(AT, AT, second)
    assert editing.counted() == counts("accepted", second, accepted=len(second))


# ── taking back ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("suggestion", [SUGGESTION, LONG])
@pytest.mark.parametrize("next_stands", [False, True])
def test_undo_right_after_accepting_takes_it_back(editing: Editing, suggestion: str, next_stands: bool):
    editing.show(AT, suggestion)
    editing.edit(AT, AT, suggestion)
    if next_stands:
        editing.show(AT + len(suggestion), "\n", wait_s=0)
    editing.edit(AT, AT + len(suggestion), "")
    assert editing.counted() == counts("undone", suggestion)


def test_deleting_it_later_does_not(editing: Editing):
    editing.show(AT, SUGGESTION)
    editing.edit(AT, AT, SUGGESTION)
    editing.type(AT + len(SUGGESTION), "x")
    editing.edit(AT, AT + len(SUGGESTION) + 1, "")
    assert editing.counted() == counts("accepted", accepted=len(SUGGESTION))


# ── text right of the cursor ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("text", "saved"), [("total)", 5), ("total, step(1)) + 1", 18), ("total), step(", 13)])
def test_a_closed_bracket_is_replaced_by_the_suggestion(way: str, text: str, saved: int):
    editing = Editing("print()\n", way=way)
    editing.show(6, text, end=7)
    editing.edit(6, 7, text)
    (shown,) = {len(text), len(text) - 1} & {editing.counts["shown_characters"]}
    assert editing.counted() == {"shown": 1, "accepted": 1, "shown_characters": shown, "accepted_characters": shown}
    assert shown - saved in (0, 1)


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("text", ["f(total)", "f(total) + 1"])
def test_a_bracket_typed_and_closed_by_the_editor_is_one_that_was_typed(at_once: bool, text: str):
    editing = Editing("x = \n")
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


def test_a_pair_of_brackets_that_comes_at_once_is_a_key_that_was_typed(editing: Editing):
    editing.show(AT, "[]")
    editing.edit(AT, AT, "[]")
    assert editing.counted() == counts("typed", "[]", typed=2)


def test_unless_words_are_being_taken(editing: Editing):
    editing.show(AT, "total()")
    editing.edit(AT, AT, "total")
    editing.edit(AT + 5, AT + 5, "()")
    assert editing.counted() == counts("accepted", "total()", accepted=7)


def test_typing_over_what_it_replaces_stays_on_it():
    editing = Editing("print()\n")
    editing.show(6, ") + 1", end=7)
    editing.show(7, " + 1")
    editing.edit(7, 7, " + 1")
    assert editing.counted() == counts("accepted", ") + 1", accepted=4, typed=1)


def test_lines_that_the_editor_indents_its_own_way_are_accepted():
    editing = Editing("x = \n")
    editing.show(4, "[\n    1,\n]")
    editing.edit(4, 4, "[\n\t1,\n]")
    assert editing.counted()["accepted"] == 1


# ── laws ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

ENCODING = st.sampled_from(["utf-8", "utf-16", "utf-32"])
WAY = st.sampled_from(WAYS)
ALPHABET = st.sampled_from(["a", "b", "ab", " ", "\n", "\n    ", "(", ")", "é", "🚀", "\r\n"])
TEXT = st.lists(ALPHABET, max_size=8).map("".join)


def boundary(text: str, at: int) -> bool:
    """Whether a cursor can stand there."""
    return text[at - 1 : at + 1] != "\r\n"


@given(TEXT, TEXT, TEXT.filter(str.strip), st.data(), ENCODING, WAY)
def test_any_way_of_taking_it_piece_by_piece_sums_to_its_length(
    before: str, after: str, text: str, data: st.DataObject, encoding: str, way: str
):
    editing = Editing(before + after, encoding, way)
    if "\r" in (before + text + after).replace("\r\n", "") or not boundary(before + after, len(before)):
        return
    cuts = {at for at in data.draw(st.sets(st.integers(1, max(1, len(text) - 1)))) if boundary(text, at)}
    marks = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    editing.show(len(before), text)
    for start, end in pairwise(marks):
        at = len(before) + start
        editing.edit(at, at, text[start:end])
    found = editing.counted()
    assert found["shown"] == 1
    assert found["shown_characters"] == len(text)
    assert found.get("accepted_characters", 0) + found.get("typed_characters", 0) == len(text)
    assert found.get("accepted", 0) + found.get("partly", 0) + found.get("typed", 0) == 1
    pieces = [text[start:end] for start, end in pairwise(marks)]
    taken, before = 0, ""  # a pair of brackets may be one key, unless words were being taken
    for piece in pieces:
        at_once = len(piece) > 1 and not piece.isspace() and (piece != "()" or len(before) > 1)
        taken, before = taken + at_once * len(piece), piece if at_once else ""
    assert found.get("accepted_characters", 0) == taken


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[str, int, int, str, int]]:
    """(what happens, two places, a text, milliseconds)."""
    what = st.sampled_from(["edit", "edit", "whole", "show", "take", "key", "back", "none", "close"])
    return draw(
        st.lists(st.tuples(what, st.integers(0, 40), st.integers(0, 6), TEXT, st.integers(0, 300)), max_size=14)
    )


@given(TEXT, steps(), ENCODING)
def test_no_sequence_of_edits_and_answers_breaks_the_books(text: str, moves: list, encoding: str):
    editing = Editing(text, encoding)
    problems: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: problems.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("speclsp.feedback").addHandler(handler)
    try:
        cursor, shown = 0, ""
        for what, at, length, new, wait_ms in moves:
            document = editing.document
            start = min(at, len(document.text))
            end = min(start + length, len(document.text))
            if what == "show":
                cursor, shown = start, new
                editing.offer(start, (new, start, end), wait_s=0)
            elif what == "none":
                editing.offer(start, wait_s=0)
            elif what == "close":
                editing.feedback.closed(document.uri)
            elif what == "whole":
                document.apply([{"text": new}], encoding)
            else:
                start, end, new = {
                    "edit": (start, end, new),
                    "take": (cursor, cursor, shown),
                    "key": (cursor, cursor, shown[:1]),
                    "back": (cursor, cursor + length, ""),
                }[what]
                span = {"start": document.position(start, encoding), "end": document.position(end, encoding)}
                document.apply([{"range": span, "text": new}], encoding)
                if what == "key":
                    cursor, shown = cursor + 1, shown[1:]
            editing.now += wait_ms / 1000
            seen = editing.counts
            assert seen["shown"] == sum(seen[name] for name in ("accepted", "partly", "typed", "ignored", "undone"))
            assert seen["shown_characters"] >= seen["accepted_characters"] + seen["typed_characters"] >= 0
            assert all(count >= 0 for count in seen.values())
        editing.counted()
    finally:
        logging.getLogger("speclsp.feedback").removeHandler(handler)
    assert problems == []


@given(TEXT, st.lists(st.tuples(st.integers(0, 60), st.integers(0, 10), TEXT)), ENCODING)
def test_a_watched_edit_is_told_as_the_least_that_is_distinct(
    text: str, edits: list[tuple[int, int, str]], encoding: str
):
    document, heard = Document("file:///a", "python", 1, text), []
    document.watch = lambda *edit: heard.append(edit)
    for start, length, new in edits:
        before = document.text
        start, end = min(start, len(before)), min(start + length, len(before))
        span = {"start": document.position(start, encoding), "end": document.position(end, encoding)}
        document.apply([{"range": span, "text": new}], encoding)
        at, removed, inserted = heard.pop()
        assert before[:at] + inserted + before[at + removed :] == document.text
        gone = before[at : at + removed]
        assert not (gone and inserted) or (gone[0] != inserted[0] and gone[-1] != inserted[-1])
        for low in range(0, len(document.text) + 1, 7):
            assert document.piece(low, low + 9) == document.text[low : low + 9]


def test_a_document_without_a_suggestion_is_not_watched(editing: Editing):
    assert editing.document.watch is None
    editing.show(AT, SUGGESTION)
    assert editing.document.watch is not None
    editing.type(AT, "x")
    assert editing.document.watch is None
    editing.show(AT, SUGGESTION)
    editing.edit(AT, AT, SUGGESTION)
    editing.type(AT + len(SUGGESTION), "\n")
    assert editing.document.watch is None, "the next edit has settled it"


def test_a_bug_of_ours_is_logged_by_its_place_and_the_text_stays_in_step(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def fail(*_: object) -> None:
        raise ValueError("quotes the document: secret")

    editing = Editing(HEAD + TAIL)
    monkeypatch.setattr(logging.getLogger("speclsp"), "propagate", True)
    monkeypatch.setattr("speclsp.lsp.completion.acceptance.inserted_text_at", fail)
    editing.show(AT, SUGGESTION)
    editing.edit(AT, AT, SUGGESTION)
    assert editing.document.text == HEAD + SUGGESTION + TAIL
    assert "ValueError at test_acceptance.py" in caplog.text
    assert "secret" not in caplog.text
    assert editing.counted() == {}
