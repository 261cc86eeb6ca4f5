"""Laws of acceptance tracking: any sequence of edits and answers keeps the counts consistent."""

from __future__ import annotations

import logging
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from support.lsp.edited_document import WAYS, EditedDocument

from speclsp.lsp.documents.document import Document

ENCODING = st.sampled_from(["utf-8", "utf-16", "utf-32"])


WAY = st.sampled_from(WAYS)


ALPHABET = st.sampled_from(["a", "b", "ab", " ", "\n", "\n    ", "(", ")", "é", "🚀", "\r\n"])


TEXT = st.lists(ALPHABET, max_size=8).map("".join)


def boundary(text: str, at: int) -> bool:
    """True if a cursor can stand there."""
    return text[at - 1 : at + 1] != "\r\n"


@given(TEXT, TEXT, TEXT.filter(str.strip), st.data(), ENCODING, WAY)
def test_the_pieces_of_an_accepted_suggestion_sum_to_its_length(
    before: str, after: str, text: str, data: st.DataObject, encoding: str, way: str
):
    editing = EditedDocument(before + after, encoding, way)
    if "\r" in (before + text + after).replace("\r\n", "") or not boundary(before + after, len(before)):
        return
    cuts = {at for at in data.draw(st.sets(st.integers(1, max(1, len(text) - 1)))) if boundary(text, at)}
    marks = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    editing.show(len(before), text)
    for start, end in pairwise(marks):
        at = len(before) + start
        editing.edit(at, at, text[start:end])
    counts = editing.counted()
    assert counts["shown"] == 1
    assert counts["shown_characters"] == len(text)
    assert counts.get("accepted_characters", 0) + counts.get("typed_characters", 0) == len(text)
    assert counts.get("accepted", 0) + counts.get("partly", 0) + counts.get("typed", 0) == 1
    pieces = [text[start:end] for start, end in pairwise(marks)]
    accepted_characters, before = 0, ""  # a pair of brackets may be one key, unless words were being taken
    for piece in pieces:
        at_once = len(piece) > 1 and not piece.isspace() and (piece != "()" or len(before) > 1)
        accepted_characters, before = accepted_characters + at_once * len(piece), piece if at_once else ""
    assert counts.get("accepted_characters", 0) == accepted_characters


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[str, int, int, str, int]]:
    """(what happens, two places, a text, milliseconds)."""
    what = st.sampled_from(["edit", "edit", "whole", "show", "take", "key", "back", "none", "close"])
    return draw(
        st.lists(st.tuples(what, st.integers(0, 40), st.integers(0, 6), TEXT, st.integers(0, 300)), max_size=14)
    )


@given(TEXT, steps(), ENCODING)
def test_no_sequence_of_edits_and_answers_makes_the_counts_inconsistent(text: str, moves: list, encoding: str):
    editing = EditedDocument(text, encoding)
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
                editing.tracker.closed(document.uri)
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
            counts = editing.counts
            assert counts["shown"] == sum(counts[name] for name in ("accepted", "partly", "typed", "ignored", "undone"))
            assert counts["shown_characters"] >= counts["accepted_characters"] + counts["typed_characters"] >= 0
            assert all(count >= 0 for count in counts.values())
        editing.counted()
    finally:
        logging.getLogger("speclsp.feedback").removeHandler(handler)
    assert problems == []


@given(TEXT, st.lists(st.tuples(st.integers(0, 60), st.integers(0, 10), TEXT)), ENCODING)
def test_a_watched_edit_is_reported_as_the_smallest_difference(
    text: str, edits: list[tuple[int, int, str]], encoding: str
):
    document, reported = Document("file:///a", "python", 1, text), []
    document.watch = lambda *edit: reported.append(edit)
    for start, length, new in edits:
        before = document.text
        start, end = min(start, len(before)), min(start + length, len(before))
        span = {"start": document.position(start, encoding), "end": document.position(end, encoding)}
        document.apply([{"range": span, "text": new}], encoding)
        at, removed, inserted = reported.pop()
        assert before[:at] + inserted + before[at + removed :] == document.text
        removed_text = before[at : at + removed]
        assert not (removed_text and inserted) or (removed_text[0] != inserted[0] and removed_text[-1] != inserted[-1])
        for low in range(0, len(document.text) + 1, 7):
            assert document.piece(low, low + 9) == document.text[low : low + 9]
