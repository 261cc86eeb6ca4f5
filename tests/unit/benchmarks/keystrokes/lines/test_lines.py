"""Typed lines: the same keys in every run, the part that broke the cache, and the figures of each kind of key."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.keystrokes.economy.bodies import Body
from benchmarks.keystrokes.lines.figures import KeyRow, of_condition, table, with_adopted_prompts
from benchmarks.keystrokes.lines.prompt_parts import (
    ANCHOR,
    EVICTION,
    FIRST,
    SNIPPETS,
    SUFFIX,
    WINDOW,
    PromptParts,
    PromptText,
    causes,
)
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
from speclsp.lsp.backend.types import FimRequest

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
    line=1,
    column=4,
    next_ms=700.0,
    answer_ms=100.0,
    late_ms=0.0,
    shown=True,
    outcome="shown",
    total_ms=99.0,
    prompt_tokens=1000,
    cached_tokens=900,
    reused=False,
    adopted=False,
    prepared=False,
    unchanged=0.9,
    cause=SUFFIX,
)
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


FIM = FimRequest(prefix="\n".join("abcdefghij") + "\n", suffix="\n}", path="a.py", extra=(("b.py", "x = 1"),))


def cause_after(changed: FimRequest, previous: FimRequest = FIM) -> str:
    rows = [PromptParts.of(previous, 1), PromptParts.of(changed, 2, PromptText.of(previous))]
    assert rows[0].unchanged == 0
    return causes(rows, {1, 2})[2]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (replace(FIM, line_prefix="x"), EVICTION),
        (replace(FIM, suffix="\n"), SUFFIX),
        (replace(FIM, prefix=FIM.prefix + "k\n"), EVICTION),
        (replace(FIM, prefix=FIM.prefix + "k\nl\nm\nn\n", suffix="\n"), ANCHOR),
        (replace(FIM, prefix=FIM.prefix[2:], suffix="\n"), WINDOW),
        (replace(FIM, extra=(("b.py", "x = 2"),), prefix=FIM.prefix[2:]), SNIPPETS),
    ],
)
def test_the_cause_is_the_first_part_in_prompt_order_that_changed(changed: FimRequest, expected: str):
    assert cause_after(changed) == expected


def test_a_change_counts_until_the_engine_has_evaluated_a_prompt():
    other = replace(FIM, extra=())
    rows = [PromptParts.of(fim, number) for number, fim in ((None, FIM), (1, FIM), (2, other), (3, other))]
    assert causes(rows[1:], set()) == {1: FIRST, 2: FIRST, 3: FIRST}
    assert causes(rows, set()) == {1: EVICTION, 2: SNIPPETS, 3: SNIPPETS}
    assert causes(rows, {1})[3] == SNIPPETS
    assert causes(rows, {1, 2})[3] == EVICTION


def test_a_prompt_is_evaluated_when_a_later_key_has_adopted_its_stream():
    other = replace(FIM, extra=())
    rows = [PromptParts.of(fim, number) for number, fim in ((1, FIM), (2, other), (5, other))]
    assert causes(rows, {1, 4})[5] == EVICTION


def test_figures_of_a_kind():
    rows = [
        ROW,
        replace(ROW, reused=True, prompt_tokens=0, cached_tokens=0, answer_ms=2.0),
        replace(ROW, cached_tokens=400, answer_ms=None, shown=False, unchanged=0.3, cause=SNIPPETS),
        replace(ROW, prompt_tokens=0, answer_ms=None, shown=False),
    ]
    condition = of_condition([*rows, replace(ROW, kind=MID_LINE)], typing_s=30.0, processor_s=10.0)
    figures = condition["kinds"][LINE_START]
    assert (figures["count"], figures["in_time"], figures["known_prompts"]) == (4, 0.5, 0.75)
    assert figures["cached_share"] == pytest.approx((0.9 + 1 + 0.4) / 3, abs=1e-4)
    assert (figures["mostly_new"], figures["causes"]) == (0.3333, {SNIPPETS: 1})
    assert (figures["mostly_changed"], figures["causes_of_change"]) == (0.25, {SNIPPETS: 1})
    assert figures["unchanged_share"] == 0.75
    assert figures["to_answer"] == {"p50_ms": 100.0, "p90_ms": None, "p95_ms": None}
    assert figures["to_suggestion"] == {"p50_ms": 2.0, "p90_ms": 100.0, "p95_ms": 100.0}
    assert condition["processor_s_per_minute"] == 20.0
    assert "snippets 1" in table({"load_before": [0.1], **condition})


def test_the_prompt_of_a_stream_counts_for_the_key_that_began_it():
    began = replace(ROW, prompt_tokens=0, cached_tokens=0)
    adopters = [replace(began, adopted=True), replace(ROW, adopted=True)]
    first, waiting, last = with_adopted_prompts([began, *adopters])
    assert (first.cached, waiting.cached, last.cached) == (0.9, None, 1.0)
    assert with_adopted_prompts([began, ROW])[0].cached is None
