"""The confidence gate shows the lines that are worth showing, and never changes a text."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.lsp.scripted_session import at

from speclsp.config import Config, parse
from speclsp.lsp.backend.engine_http import InvalidResponse
from speclsp.lsp.backend.infill_codec import infill_body, parse_piece
from speclsp.lsp.backend.types import FimRequest
from speclsp.lsp.completion.confidence import (
    CURVES,
    LEFT_OF_LOGPROB,
    LEVELS,
    NEXT_LINE,
    PLAIN,
    UNJUDGED,
    Bar,
    Curve,
    LineValue,
    TokenSpan,
    confidence,
    curve_of,
    line_values,
    lines,
    lines_to_show,
    needed_confidence,
    token_spans,
)
from speclsp.lsp.completion.gate import apply_gate, evaluate
from speclsp.lsp.postprocess.plan import Suggestion, SuggestionPlan, plan
from speclsp.lsp.reasons import Reason
from speclsp.lsp.syntax.text_windows import common_ends

CURVE = Curve(first={"intercept": 1.0, "total": 1.5}, later={"intercept": 1.0, "total": 1.5})
MEDIUM = LEVELS["medium"]
BLOCK = "def total(items):\n    "
LOGPROBS = st.lists(st.floats(-14, 0), min_size=1, max_size=8)
TEXTS = st.text(alphabet="ab (\n", min_size=1, max_size=40)


def tokens(text: str, sizes: Sequence[int], logprobs: Sequence[float]) -> list[TokenSpan]:
    """`text` cut into tokens."""
    pieces, position = [], 0
    while position < len(text):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append((min(size, len(text) - position), logprobs[len(pieces) % len(logprobs)]))
        position += size
    return token_spans(pieces)


MEASURED = st.sampled_from((CURVE, PLAIN, *CURVES.values()))


@given(LOGPROBS, st.data(), MEASURED)
def test_confidence_never_falls_when_the_probability_of_a_token_rises(
    logprobs: list[float], data: st.DataObject, curve: Curve
):
    number = data.draw(st.integers(0, len(logprobs) - 1))
    higher = [*logprobs[:number], data.draw(st.floats(logprobs[number], 0)), *logprobs[number + 1 :]]
    for weights in (curve.first, curve.later):
        assert confidence(higher, weights) >= confidence(logprobs, weights) - 1e-9
        assert 0 <= confidence(logprobs, weights) <= 1


def test_every_eagerness_has_a_level_and_the_more_eager_the_lower():
    for value in LEVELS:
        config, problems = parse({"completion.eagerness": value}, Config())
        assert not problems and config.completion.eagerness == value
    assert parse({"completion.eagerness": "other"}, Config())[1]
    low, medium, high = (LEVELS[name] for name in ("low", "medium", "high"))
    assert high == Bar() and low.cost >= medium.cost > 0
    assert low.least > medium.least >= 0.1, "nothing that is wrong nine times of ten"


def test_a_model_without_a_measured_curve_has_the_plain_probability_and_a_test_model_none():
    assert curve_of("some-other-model") is PLAIN
    assert confidence([-0.5, -1.0], PLAIN.first) == pytest.approx(math.exp(-1.5))
    assert all(curve_of(model) is None for model in UNJUDGED)
    assert all(curve_of(model) is curve for model, curve in CURVES.items())


# ── the value of the first lines ─────────────────────────────────────────────────────────────────────────────────────


@st.composite
def line_value_lists(draw: st.DrawFn, most: int = 8) -> list[LineValue]:
    """The values of the first lines of a suggestion: each line saves more, and all of them are less sure."""
    sure = sorted(draw(st.lists(st.floats(0, 1), min_size=1, max_size=most)), reverse=True)
    values: list[LineValue] = []
    saved, characters = 0.0, 0
    for confidence_in in sure:
        length = draw(st.integers(1, 90))
        saved, characters = saved + confidence_in * length, characters + length
        values.append(LineValue(confidence_in, saved, characters))
    return values


VALUES = line_value_lists()
COSTS = st.floats(0.1, 50)
BARS = st.builds(Bar, COSTS, st.sampled_from((0.0, 0.1, 0.5)))


@given(VALUES, BARS)
def test_the_shown_lines_have_the_highest_value_and_it_is_positive(values: list[LineValue], bar: Bar):
    count = lines_to_show(values, bar)
    worth = [value.value(bar) for value in values if value.confidence >= bar.least]
    if count:
        assert worth[count - 1] == max(worth) > 0
    else:
        assert all(value <= 0 for value in worth)
    assert lines_to_show(values, Bar()) == len(values)


@given(VALUES, BARS, st.data())
def test_a_surer_suggestion_is_never_hidden(values: list[LineValue], bar: Bar, data: st.DataObject):
    surer = [
        value._replace(
            confidence=data.draw(st.floats(value.confidence, 1)),
            saved=data.draw(st.floats(value.saved, 1000)),
        )
        for value in values
    ]
    surer.sort(key=lambda value: value.confidence, reverse=True)
    if lines_to_show(values[:1], bar):
        assert lines_to_show(surer, bar)


@given(COSTS, st.floats(0, 1), st.integers(1, 200), st.sampled_from((0.0, 0.1, 0.5)))
def test_one_line_is_shown_from_the_needed_confidence_on(cost: float, sure: float, characters: int, least: float):
    bar = Bar(cost, least)
    value = LineValue(sure, sure * characters, characters)
    needed = needed_confidence(value, bar)
    assert least <= needed <= 1
    if abs(sure - needed) > 1e-9:
        assert bool(lines_to_show([value], bar)) is (sure > needed)


@given(BARS, st.sampled_from(("\n", "  \n    x", "\n\n")), st.sampled_from(("x", " x\n", "", ")")))
def test_the_bar_is_higher_for_a_suggestion_that_begins_with_the_next_line(bar: Bar, next_line: str, same_line: str):
    assert bar.at(same_line) == bar
    assert bar.at(next_line).cost == pytest.approx(bar.cost * NEXT_LINE)
    assert Bar().at(next_line) == Bar()


@given(TEXTS, st.lists(st.integers(1, 5), min_size=1), LOGPROBS, MEASURED)
def test_more_lines_are_never_surer_and_never_keep_less(
    text: str, sizes: list[int], logprobs: list[float], curve: Curve
):
    own_lines = list(lines(text, tokens(text, sizes, logprobs)))
    values = line_values(own_lines, 0, curve)
    assert len(values) == len(own_lines)
    assert [value.confidence for value in values] == sorted((value.confidence for value in values), reverse=True)
    saved = [value.saved for value in values]
    assert saved == sorted(saved) and all(0 <= characters <= len(text) + 1e-9 for characters in saved)
    assert all(0 <= value.confidence <= 1 and value.characters <= len(text) for value in values)


@given(TEXTS, st.lists(st.integers(1, 5), min_size=1), LOGPROBS)
def test_more_eager_never_hides(text: str, sizes: list[int], logprobs: list[float]):
    spans = tokens(text, sizes, logprobs)
    kept = [evaluate(text, spans, 0, CURVE, LEVELS[name]).keep for name in ("low", "medium", "high")]
    assert [bool(keep) for keep in kept] == sorted(bool(keep) for keep in kept)
    assert kept[-1] == len(text)
    assert all(keep in (0, len(text)) or text[keep] == "\n" for keep in kept), "always the end of a line"


@given(st.integers(1, 9), st.integers(0, 9), st.floats(-9, 0))
def test_a_token_typed_in_part_is_surer_the_more_of_it_is_typed(size: int, typed: int, logprob: float):
    spans = token_spans([(size, logprob), (3, -0.5)])
    text = "x" * (size + 3)
    (line,) = lines(text, spans, min(typed, size - 1))
    left = LEFT_OF_LOGPROB[min(typed, size - 1, len(LEFT_OF_LOGPROB) - 1)]
    assert line.logprobs[0] == pytest.approx(left * logprob)
    assert list(LEFT_OF_LOGPROB) == sorted(LEFT_OF_LOGPROB, reverse=True)


@given(TEXTS, st.lists(st.integers(1, 5), min_size=1), st.integers(0, 40))
def test_each_token_belongs_to_the_line_it_begins_in(text: str, sizes: list[int], begin: int):
    spans = [
        TokenSpan(token.start, token.end, -float(number)) for number, token in enumerate(tokens(text, sizes, [0.0]))
    ]
    begin = next((token.start for token in spans if token.start >= begin), len(text))
    line_list = list(lines(text, spans, begin))
    logprobs = [logprob for line in line_list for logprob in line.logprobs]
    assert logprobs == sorted(logprobs, reverse=True), "in order, none of them twice"
    assert [line.end for line in line_list] == sorted({line.end for line in line_list})
    assert "\n".join(text[begin:].split("\n")).strip() == "" or line_list
    first = next((token for token in spans if token.start >= begin), None)
    if line_list and first is not None and text[begin:].strip() and line_list[0].logprobs:
        assert line_list[0].logprobs[0] == first.logprob, "from the first that is not typed already"


@given(
    st.lists(
        st.sampled_from(("total += x", "for x in items:", "    y = (x,", "    1)", "", "return total")), min_size=1
    ),
    st.lists(st.floats(-9, 0), min_size=1),
    st.floats(0, 40),
)
def test_the_gate_shows_all_lines_or_the_first_lines_or_nothing(
    code_lines: list[str], logprobs: list[float], cost: float
):
    text = "\n    ".join(code_lines)
    block = block_plan()
    suggestion = block.to_suggestion(text)
    verdict = evaluate(text, tokens(text, [3], logprobs), 0, CURVE, Bar(cost, 0.1))
    shown = apply_gate(suggestion, block, text, verdict)
    if isinstance(shown, Suggestion):
        assert isinstance(suggestion, Suggestion) and suggestion.start == shown.start
        shared = common_ends(suggestion.text, shown.text)[0]
        assert not any(map(str.isalnum, shown.text[shared:])), "its first lines, and the closers that they need"
        assert shown == suggestion or "\n" in suggestion.text[shared:]
    else:
        assert shown == suggestion or (shown.reason is Reason.UNSURE and verdict.keep == 0)
    assert apply_gate(suggestion, block, text, verdict._replace(keep=len(text))) == suggestion


def block_plan() -> SuggestionPlan:
    snapshot = at(BLOCK)
    block = plan(snapshot, None, Config().completion)
    assert isinstance(block, SuggestionPlan) and block.multiline
    return block


def test_a_block_is_shown_up_to_the_lines_that_are_worth_it():
    text = "total = 0\n    for item in items:\n        total += item.price\n    return total"
    spans = [TokenSpan(start, start + 1, -9.0 if 33 <= start < 60 else -0.001) for start in range(len(text))]
    block = block_plan()
    suggestion = block.to_suggestion(text)
    verdict = evaluate(text, spans, 0, CURVE, MEDIUM)
    shown = apply_gate(suggestion, block, text, verdict)
    assert isinstance(shown, Suggestion) and shown.text == "total = 0", "no header of a loop alone"
    assert verdict.confidence is not None and verdict.confidence > 0.2


def test_the_client_requests_log_probabilities_and_parses_them():
    assert infill_body(FimRequest())["round_logprobs"] is True
    event = {"content": "ab", "tokens": [1, 2], "round": {"logprobs": [-0.5, 0], "characters": [2, 0]}}
    assert parse_piece(event).logprobs == ((2, -0.5), (0, 0.0))
    assert parse_piece({"content": "ab", "tokens": [1], "round": {"ms": 1}}).logprobs == ()


@pytest.mark.parametrize(
    "round_fields",
    [
        {"logprobs": [-1.0], "characters": []},
        {"logprobs": [1.0], "characters": [1]},
        {"logprobs": ["x"], "characters": [1]},
        {"logprobs": [-1.0], "characters": [-1]},
        {"logprobs": [-1.0], "characters": [True]},
        {"logprobs": [None], "characters": [1]},
        {"logprobs": 7, "characters": [1]},
        json.loads('{"logprobs": [NaN], "characters": [1]}'),
    ],
)
def test_an_invalid_log_probability_is_refused(round_fields: dict[str, object]):
    with pytest.raises(InvalidResponse):
        parse_piece({"content": "ab", "tokens": [1], "round": round_fields})
