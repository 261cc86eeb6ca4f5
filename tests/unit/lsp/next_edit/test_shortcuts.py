"""Laws of the producer's shortcuts: each has the results of the plain way, and a kept result changes no offer."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from speclsp.lsp.next_edit.changes.substitutions import Edit
from speclsp.lsp.next_edit.producer import Producer, Proposal
from speclsp.lsp.syntax.text_windows import match_starts

URI = "file:///project/app.py"
WORDS = ("aa", "aaa", "b", "aa.aa", "(", ")", " ", "\n", "\r\n", "\t", "a", "é", "_")
TEXTS = st.lists(st.sampled_from(WORDS), max_size=30).map("".join)
BOUNDS = st.tuples(st.integers(0, 40), st.integers(0, 60))
LINES = st.sampled_from(
    [
        "x = area(width)", "x = surface(width)", "y = area(height) + 1", "y = surface(height) + 1", "log(area)",
        "log(surface)", "call(area, 2)", "call(area, 2, flag=True)", 'z = row["user_name"]', 'z = row["username"]', "",
    ]
)  # fmt: skip
BLOCKS = st.lists(LINES, min_size=1, max_size=4).map(lambda lines: "".join(f"{line}\n" for line in lines))
EDITS = st.lists(st.tuples(BLOCKS, BLOCKS, st.integers(1, 2)), min_size=1, max_size=4)


@given(TEXTS, st.sampled_from(["aa", "aa.aa", "aa(", "a"]), BOUNDS)
def test_a_search_by_literal_has_the_matches_of_finditer(text: str, literal: str, bounds: tuple[int, int]):
    low, high = min(bounds[0], len(text)), min(bounds[1], len(text))
    for pattern in (
        re.compile(rf"(?<!\w){re.escape(literal)}"),
        re.compile(rf"{re.escape(literal)}(?!\w)"),
        re.compile(rf"(?<![\w.$]){re.escape(literal)}(?=[.)])"),
    ):
        plain = [match.start() for match in pattern.finditer(text, low, high)]
        assert list(match_starts(pattern, literal, text, low, high)) == plain


@settings(deadline=None)
@given(EDITS, st.lists(LINES, min_size=4, max_size=12))
def test_a_producer_that_served_other_requests_offers_what_a_new_one_offers(
    edits: list[tuple[str, str, int]], lines: list[str]
):
    used = Producer(clock_s=lambda: 0.0)
    for number in range(1, len(edits) + 1):
        recent = [Edit(URI, "python", old, new, 0.0, times) for old, new, times in edits[:number]]
        text = "\n".join([*lines, edits[number - 1][1]])
        offers: list[list[Proposal | str]] = [
            list(producer.outcomes(text, "python", URI, len(text), recent, lambda place: "", 1000.0))
            for producer in (used, Producer(clock_s=lambda: 0.0))
        ]
        assert offers[0] == offers[1]
        used.prepare(text, "python")
        later = [Edit(edit.uri, edit.language, edit.before, edit.after, 9.0, edit.times) for edit in recent]
        assert list(used.outcomes(text, "python", URI, len(text), later, lambda place: "", 1000.0)) == offers[0]
