"""Typed lines: the same keys in every run, and the figures of each kind of key."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.keystrokes.economy.bodies import Body
from benchmarks.keystrokes.economy.clock import PAUSE_MS
from benchmarks.keystrokes.lines.figures import KeyRow, of_condition, of_pauses
from benchmarks.keystrokes.lines.schedule import (
    AFTER_REST,
    BLANK_LINE,
    LINE_START,
    MAX_LINES,
    MAX_TYPING_MS,
    MID_LINE,
    NEW_PLACE,
    REST_MS,
    keys_of,
)

BODY = Body(
    id="0123",
    package="rows",
    root="/rows",
    path="rows.py",
    language="python",
    group="python",
    above="def rows(path):",
    text="\n    a = 1\n\n    b = 2\n    return a",
    below="\n",
    open_paths=(),
)
ROW = KeyRow(
    body="0123",
    language="python",
    kind=LINE_START,
    answer_ms=100.0,
    late_ms=0.0,
    shown=True,
    prompt_tokens=1000,
    cached_tokens=900,
)


@given(st.lists(st.tuples(st.floats(0, 1000), st.booleans(), st.booleans(), st.none() | st.floats(0, 1)), max_size=20))
def test_the_books_of_pauses_balance(keys: list[tuple[float, bool, bool, float | None]]):
    rows = [
        replace(ROW, wait_ms=wait_ms, shown=shown, right=shown and right, confidence=sure)
        for wait_ms, shown, right, sure in keys
    ]
    figures = of_pauses(rows)
    assert figures["right"] <= figures["shown"] <= figures["pauses"] == sum(row.wait_ms >= PAUSE_MS for row in rows)
    by_bin = figures["shown_and_right_by_confidence"].values()
    assert sum(shown for shown, _ in by_bin) <= figures["shown"]
    if all(row.confidence is not None for row in rows):
        assert [sum(column) for column in zip(*by_bin, strict=True)] == [figures["shown"], figures["right"]]


LINES = st.lists(st.text("ab =", max_size=20).map(str.rstrip), min_size=1, max_size=30)


def typed(body: Body) -> str:
    text = body.above + body.below
    for key in keys_of(body):
        text = key.on(text)
    return text


@given(LINES, st.integers(0, 99))
def test_keys_follow_from_seed_and_body_and_type_whole_lines(lines: list[str], seed: int):
    body = replace(BODY, id=f"body {seed}", text="\n" + "\n".join(lines))
    keys = keys_of(body, seed)
    assert keys == keys_of(body, seed)
    count = sum(key.text[0] == "\n" for key in keys)
    assert count <= MAX_LINES and sum(key.wait_ms for key in keys) <= MAX_TYPING_MS
    assert typed(body).removesuffix(body.below) == body.above + "".join(
        f"\n{line}" for line in lines[: sum(key.text[0] == "\n" for key in keys_of(body))]
    )


def test_every_key_has_its_kind():
    keys = keys_of(BODY)
    assert keys[0].kind == NEW_PLACE
    assert all((key.wait_ms == REST_MS) == (key.kind in (AFTER_REST, NEW_PLACE)) for key in keys if key.text[0] == "\n")
    blank = next(at for at, key in enumerate(keys) if key.text == "\n")
    assert (keys[blank].kind, keys[blank + 1].kind) == (BLANK_LINE, LINE_START)
    assert {key.kind for key in keys if key.text[0] != "\n"} == {MID_LINE}


def test_figures_of_a_kind():
    rows = [
        ROW,
        replace(ROW, reused=True, prompt_tokens=0, cached_tokens=0, answer_ms=2.0),
        replace(ROW, cached_tokens=400, answer_ms=None, shown=False),
        replace(ROW, prompt_tokens=0, answer_ms=None, shown=False),
    ]
    condition = of_condition([*rows, replace(ROW, kind=MID_LINE)], typing_s=30.0, processor_s=10.0)
    figures = condition["kinds"][LINE_START]
    assert (figures["count"], figures["in_time"], figures["known_prompts"]) == (4, 0.5, 0.75)
    assert figures["cached_share"] == pytest.approx((0.9 + 1 + 0.4) / 3, abs=1e-4)
    assert figures["mostly_new"] == 0.3333
    assert figures["to_answer"] == {"p50_ms": 100.0, "p90_ms": None, "p95_ms": None}
    assert figures["to_suggestion"] == {"p50_ms": 2.0, "p90_ms": 100.0, "p95_ms": 100.0}
    assert condition["processor_s_per_minute"] == 20.0
