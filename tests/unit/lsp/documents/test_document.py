"""The text store against a slow reference that counts UTF-16 units one by one, as an editor does."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from speclsp.lsp.documents.document import Document, Documents, newline

NASTY = ["a", " ", "\n", "\r", "\r\n", "\t", "\0", "é", "e\u0301", "漢", *"\f\v\x1c\x1d\x1e\x85\u2028\u2029"]
NASTY += ["𐐀", "🚀", "👩\u200d🚀", "\u200d", "\ufeff", "\ud83d", "\ude80", "\udbff", "\udc00", "\ud7ff", "\ue000"]
TEXT = st.lists(st.sampled_from(NASTY), max_size=24).map("".join)
PLACE = st.tuples(st.integers(0, 9), st.one_of(st.integers(0, 9), st.just(2**31 - 1)))
ENCODING = st.sampled_from(["utf-8", "utf-16", "utf-32"])


def units_of(text: str) -> list[int]:
    data = text.encode("utf-16-le", "surrogatepass")
    return [data[i] | data[i + 1] << 8 for i in range(0, len(data), 2)]


def text_of(units: list[int]) -> str:
    return b"".join(u.to_bytes(2, "little") for u in units).decode("utf-16-le", "surrogatepass")


def place_in_text(text: str, line: int, column: int, encoding: str) -> int:
    """The reference for any encoding: walk the characters and add up their sizes. Returns a code-point offset."""
    offset = 0
    for _ in range(line):
        while offset < len(text) and text[offset] not in "\r\n":
            offset += 1
        if offset == len(text):
            return offset
        offset += 2 if text[offset : offset + 2] == "\r\n" else 1
    unit_bytes = {"utf-8": 1, "utf-16": 2, "utf-32": 4}[encoding]
    codec = encoding if encoding == "utf-8" else encoding + "-le"
    while offset < len(text) and text[offset] not in "\r\n":
        column -= len(text[offset].encode(codec, "surrogatepass")) // unit_bytes
        if column < 0:
            break
        offset += 1
    return offset


def at(line: int, character: int) -> dict[str, int]:
    return {"line": line, "character": character}


def put(text: str, start: tuple[int, int], end: tuple[int, int] | None = None) -> dict[str, object]:
    return {"range": {"start": at(*start), "end": at(*(end or start))}, "text": text}


def insertion(line: int, column: int) -> tuple[tuple[int, int], tuple[int, int], str]:
    return (line, column), (line, column), "Z"


def edited(text: str, *changes: dict[str, object], encoding: str = "utf-16") -> str:
    document = Document("file:///a", "python", 1, text)
    document.apply(list(changes), encoding)
    return document.text


@settings(max_examples=300, deadline=None)
@given(TEXT, st.lists(st.tuples(PLACE, PLACE, TEXT), max_size=4), ENCODING)
@example("abc\r\nd", [insertion(0, 99)], "utf-16").via("a column past the end of a line is its end before the newline")
@example("abc\rd", [insertion(0, 99)], "utf-16").via("the same with another newline")
@example("abc\n", [insertion(7, 1)], "utf-16").via("a line past the end is the end of the text")
@example("𐐀b", [insertion(0, 1)], "utf-16").via("a position inside a character counts as before it")
@example("é漢b", [insertion(0, 4)], "utf-8").via("the same in UTF-8")
@example("a\x1db\nc", [insertion(1, 0)], "utf-16").via("a line end of Python alone is no line end")
@example("a\rx\nb\nc", [((1, 0), (1, 1), ""), insertion(2, 0)], "utf-16").via("\\r and \\n that meet are one line end")
@example("\ud83d\n", [((0, 1), (0, 1), "\ude80")], "utf-16").via("two adjacent halves become one character")
@example("a\ud83d", [((0, 2), (0, 2), "b")], "utf-16").via("a lone half survives")
@example("abcdef", [((0, 4), (0, 2), "Z")], "utf-16").via("a reversed range is swapped")
def test_edits_in_one_notification_apply_in_order_in_any_encoding(text, edits, encoding):
    expected = text_of(units_of(text))
    for start, end, new in edits:
        low, high = sorted((place_in_text(expected, *start, encoding), place_in_text(expected, *end, encoding)))
        expected = text_of(units_of(expected[:low] + new + expected[high:]))
    changes = [put(new, start, end) for start, end, new in edits]
    assert edited(text, *changes, encoding=encoding) == expected
    one_by_one = Document("file:///a", "python", 1, text)
    for change in changes:
        one_by_one.apply([change], encoding)
        fresh = Document("file:///a", "python", 1, one_by_one.text)
        for line in range(5):
            assert one_by_one.locate(at(line, 3), encoding) == fresh.locate(at(line, 3), encoding), "the index drifted"
    assert (one_by_one.text, one_by_one.characters) == (expected, len(expected))


def test_a_change_without_a_range_is_the_whole_text():
    document = Document("file:///a", "python", 1, "a\nb\n")
    document.apply([put("x", (1, 0)), {"text": "new\n"}, put("y", (1, 0))], "utf-16")
    assert document.text == "new\ny"


@pytest.mark.parametrize(
    "change",
    [
        None,
        {},
        {"text": None},
        {"text": "x", "range": []},
        {"text": "x", "range": {"start": at(0, 0)}},
        put("x", (-1, 0)),
        put("x", (0, -1)),
        {"text": "x", "range": {"start": at(0, 0), "end": {"line": "0", "character": 0}}},
        {"text": "x", "range": {"start": at(0, 0), "end": {"line": True, "character": 0}}},
        {"text": "x", "range": {"start": at(0, 0), "end": {"line": 0.0, "character": 0}}},
    ],
)
def test_a_malformed_change_is_refused_and_none_of_its_notification_is_applied(change):
    document = Document("file:///a", "python", 1, "abc")
    with pytest.raises(ValueError, match="needs"):
        document.apply([put("Z", (0, 0)), change], "utf-16")
    assert document.text == "abc"


def test_a_snapshot_is_the_text_and_the_cursor_at_one_version():
    documents = Documents()
    documents.open("file:///a", "python", 4, "𐐀x\n")
    documents.change("file:///a", 5, [put("y", (0, 3))], "utf-16")
    document = documents.get("file:///a")
    snapshot = document.snapshot_at(document.offset(at(0, 4), "utf-16"))
    documents.change("file:///a", 6, [{"text": ""}], "utf-16")
    assert (snapshot.uri, snapshot.language, snapshot.version) == ("file:///a", "python", 5)
    assert (snapshot.text, snapshot.cursor) == ("𐐀xy\n", 3)


def test_reopening_replaces_a_document_and_closing_removes_it():
    documents = Documents()
    documents.open("file:///a", "python", 7, "old")
    documents.open("file:///a", "ruby", 1, "new")
    assert [(d.language, d.version, d.text) for d in documents] == [("ruby", 1, "new")]
    assert documents.close("file:///a")
    assert not list(documents)


def test_a_change_without_a_version_increments_it():
    documents = Documents()
    documents.open("file:///a", "python", 3, "")
    documents.change("file:///a", None, [{"text": "x"}], "utf-16")
    assert documents.get("file:///a").version == 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "\n"),
        ("one line", "\n"),
        ("a\nb\r\n", "\n"),
        ("a\r\nb\r\nc\n", "\r\n"),
        ("a\rb\rc\n", "\r"),
        ("a\r\n", "\r\n"),
    ],
)
def test_the_newline_of_a_text_is_its_most_frequent_one(text, expected):
    assert newline(text) == expected
