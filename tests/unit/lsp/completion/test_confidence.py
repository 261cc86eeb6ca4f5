"""The confidence gate shows the lines that are worth showing, and never changes a text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.lsp.scripted_session import at

from speclsp.config import Config, parse
from speclsp.lsp.backend.engine_http import InvalidResponse
from speclsp.lsp.backend.infill_codec import infill_body, parse_piece
from speclsp.lsp.backend.types import FimRequest
from speclsp.lsp.completion.confidence import (
    COSTS,
    CURVES,
    DEFAULT,
    LEFT_OF_LOGPROB,
    NO_COST,
    UNJUDGED,
    AcceptanceHistory,
    Cost,
    Curve,
    LineValue,
    TokenProb,
    TokenSpan,
    best_lines,
    confidence,
    curve_of,
    line_values,
    lines,
    needed_confidence,
    sure_lines,
    token_spans,
)
from speclsp.lsp.completion.gate import GateDecision, apply_gate, evaluate
from speclsp.lsp.completion.trace import Trace
from speclsp.lsp.postprocess.plan import NoSuggestion, Suggestion, SuggestionPlan, plan
from speclsp.lsp.reasons import Reason
from speclsp.lsp.server import explain
from speclsp.lsp.syntax.text_windows import common_ends
from speclsp.observability import explanation

CURVE = Curve(first={"intercept": 1.0, "total": 1.5}, later={"intercept": 1.0, "total": 1.5}, expected=0.5)


BLOCK = "def total(items):\n    "


LOGPROBS = st.lists(st.floats(-14, 0), min_size=1, max_size=8)


TOKENS = st.lists(st.tuples(st.integers(0, 9), st.floats(-14, 0)), min_size=1, max_size=8)


COUNTS = st.dictionaries(
    st.sampled_from(("accepted", "partly", "typed", "ignored", "undone", "shown")), st.integers(0, 10_000)
)


TEXTS = st.text(alphabet="ab (\n", min_size=1, max_size=40)


def tokens(text: str, sizes: Sequence[int], logprobs: Sequence[float]) -> list[TokenSpan]:
    """`text` cut into tokens."""
    pieces, position = [], 0
    while position < len(text):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append((min(size, len(text) - position), logprobs[len(pieces) % len(logprobs)]))
        position += size
    return token_spans(pieces)


MEASURED = st.sampled_from((CURVE, DEFAULT, *CURVES.values()))


@given(TOKENS, st.data(), MEASURED)
def test_confidence_never_falls_when_the_probability_of_a_token_rises(
    line_tokens: list[TokenProb], data: st.DataObject, curve: Curve
):
    number = data.draw(st.integers(0, len(line_tokens) - 1))
    characters, logprob = line_tokens[number]
    higher = [*line_tokens[:number], (characters, data.draw(st.floats(logprob, 0))), *line_tokens[number + 1 :]]
    for weights in (curve.first, curve.later):
        assert confidence(higher, weights) >= confidence(line_tokens, weights) - 1e-9
        assert 0 < confidence(line_tokens, weights) < 1


@pytest.mark.parametrize("curve", [DEFAULT, *CURVES.values()])
def test_the_measured_curves_are_consistent(curve: Curve):
    for weights in (curve.first, curve.later):
        assert set(weights) == {"intercept", "total"} and weights["total"] > 0
    assert 0 < curve.expected < 1


def test_every_eagerness_has_a_cost_and_the_more_eager_the_lower():
    for value, cost in COSTS.items():
        config, problems = parse({"completion.eagerness": value}, Config())
        assert not problems and config.completion.eagerness == value
        assert cost.once >= 0 and cost.each_line >= 0
    assert parse({"completion.eagerness": "other"}, Config())[1]
    assert COSTS["high"] == NO_COST
    assert COSTS["low"].once > COSTS["medium"].once > 0
    assert COSTS["low"].each_line >= COSTS["medium"].each_line > 0


@pytest.mark.parametrize(("value", "is_valid"), [(0.0, True), (0.25, True), (1.0, True), (-0.1, False), (1.1, False)])
def test_the_least_confidence_is_a_probability(value: float, is_valid: bool):
    config, problems = parse({"completion.min_confidence": value}, Config())
    assert bool(problems) is not is_valid
    assert config.completion.min_confidence == (value if is_valid else 0.0)


def test_a_pair_without_a_measured_curve_has_the_usual_one_and_a_test_pair_none():
    assert curve_of("some-other-model") is DEFAULT
    assert all(curve_of(model) is None for model in UNJUDGED)
    assert all(curve_of(model) is curve for model, curve in CURVES.items())


# ── the value of the first lines ─────────────────────────────────────────────────────────────────────────────────────

VALUES = st.lists(st.builds(LineValue, st.floats(0, 1), st.floats(0, 200)), max_size=8)
PRICES = st.builds(Cost, st.floats(0.1, 50), st.floats(0, 5))


@given(VALUES, PRICES)
def test_the_shown_lines_have_the_highest_value_and_it_is_positive(values: list[LineValue], cost: Cost):
    count = best_lines(values, cost)
    worth = [value.value(number, cost) for number, value in enumerate(values, 1)]
    if count:
        assert worth[count - 1] == max(worth) > 0
    else:
        assert all(value <= 0 for value in worth)
    assert best_lines(values, NO_COST) == len(values)


@given(VALUES, PRICES, st.data())
def test_a_surer_suggestion_is_never_hidden(values: list[LineValue], cost: Cost, data: st.DataObject):
    surer = [
        LineValue(data.draw(st.floats(value.confidence, 1)), data.draw(st.floats(value.kept, 300))) for value in values
    ]
    if best_lines(values, cost):
        assert best_lines(surer, cost)


@given(VALUES, PRICES, st.floats(1, 5))
def test_a_higher_cost_shows_no_suggestion_that_a_lower_one_hides(values: list[LineValue], cost: Cost, times: float):
    if best_lines(values, Cost(cost.once * times, cost.each_line * times)):
        assert best_lines(values, cost)


@given(st.builds(LineValue, st.floats(0, 1), st.floats(0.1, 200)), PRICES)
def test_one_line_is_shown_from_the_needed_confidence_on(value: LineValue, cost: Cost):
    needed = needed_confidence(value, cost)
    assert 0 <= needed <= 1
    if abs(value.confidence - needed) > 1e-9:
        assert bool(best_lines([value], cost)) is (value.confidence > needed)


@given(st.lists(st.floats(0, 1), max_size=8), st.floats(0.01, 1), st.floats(0.01, 1))
def test_a_higher_least_confidence_shows_no_more_lines(sure: list[float], one: float, other: float):
    values = [LineValue(p, 1.0) for p in sorted(sure, reverse=True)]
    low, high = sorted((one, other))
    assert sure_lines(values, high) <= sure_lines(values, low)
    assert all(value.confidence >= low for value in values[: sure_lines(values, low)])


@given(TEXTS, st.lists(st.integers(1, 5), min_size=1), LOGPROBS, MEASURED)
def test_more_lines_are_never_surer_and_never_keep_less(
    text: str, sizes: list[int], logprobs: list[float], curve: Curve
):
    own_lines = list(lines(text, tokens(text, sizes, logprobs)))
    values = line_values(own_lines, 0, curve)
    assert len(values) == len(own_lines)
    assert [value.confidence for value in values] == sorted((value.confidence for value in values), reverse=True)
    assert [value.kept for value in values] == sorted(value.kept for value in values)
    assert all(0 <= value.kept <= len(text) + 1e-9 and 0 <= value.confidence <= 1 for value in values)


@given(TEXTS, st.lists(st.integers(1, 5), min_size=1), LOGPROBS, COUNTS)
def test_more_eager_never_hides(text: str, sizes: list[int], logprobs: list[float], counts: dict[str, int]):
    history, spans = AcceptanceHistory(clock=lambda: 0.0), tokens(text, sizes, logprobs)
    history.learn("python", counts)
    kept = [
        evaluate(text, spans, 0, CURVE, history.cost("python", name, CURVE)).keep for name in ("low", "medium", "high")
    ]
    assert [bool(keep) for keep in kept] == sorted(bool(keep) for keep in kept)
    assert kept[-1] == len(text)
    assert all(keep in (0, len(text)) or text[keep] == "\n" for keep in kept), "always the end of a line"


@given(st.integers(1, 9), st.integers(0, 9), st.floats(-9, 0))
def test_a_token_typed_in_part_is_surer_the_more_of_it_is_typed(size: int, typed: int, logprob: float):
    spans = token_spans([(size, logprob), (3, -0.5)])
    text = "x" * (size + 3)
    (line,) = lines(text, spans, min(typed, size - 1))
    assert sum(characters for characters, _ in line.tokens) == len(text) - min(typed, size - 1)
    left = LEFT_OF_LOGPROB[min(typed, size - 1, len(LEFT_OF_LOGPROB) - 1)]
    assert line.tokens[0][1] == pytest.approx(left * logprob)
    assert list(LEFT_OF_LOGPROB) == sorted(LEFT_OF_LOGPROB, reverse=True)


@given(TEXTS, st.lists(st.integers(1, 5), min_size=1), st.integers(0, 40))
def test_each_token_belongs_to_the_line_it_begins_in(text: str, sizes: list[int], begin: int):
    spans = [
        TokenSpan(token.start, token.end, -float(number)) for number, token in enumerate(tokens(text, sizes, [0.0]))
    ]
    begin = next((token.start for token in spans if token.start >= begin), len(text))
    line_list = list(lines(text, spans, begin))
    logprobs = [token for line in line_list for _, token in line.tokens]
    assert all(0 <= characters <= 5 for line in line_list for characters, _ in line.tokens)
    assert logprobs == sorted(logprobs, reverse=True), "in order, none of them twice"
    assert [line.end for line in line_list] == sorted({line.end for line in line_list})
    assert "\n".join(text[begin:].split("\n")).strip() == "" or line_list
    first = next((token for token in spans if token.start >= begin), None)
    if line_list and first is not None and text[begin:].strip() and line_list[0].tokens:
        assert line_list[0].tokens[0][1] == first.logprob, "from the first that is not typed already"


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
    verdict = evaluate(text, tokens(text, [3], logprobs), 0, CURVE, Cost(cost, 1.0))
    cuts: list[tuple[str, int]] = []
    shown = apply_gate(suggestion, block, text, verdict, cuts)
    if isinstance(shown, Suggestion):
        assert isinstance(suggestion, Suggestion) and suggestion.start == shown.start
        shared = common_ends(suggestion.text, shown.text)[0]
        assert not any(map(str.isalnum, shown.text[shared:])), "its first lines, and the closers that they need"
        assert sum(count for _, count in cuts) == len(suggestion.text) - len(shown.text)
        assert shown == suggestion or "\n" in suggestion.text[shared:]
    else:
        assert shown == suggestion or (shown.reason is Reason.UNSURE and verdict.keep == 0)
    assert apply_gate(suggestion, block, text, verdict._replace(keep=len(text)), []) == suggestion


def block_plan() -> SuggestionPlan:
    snapshot = at(BLOCK)
    block = plan(snapshot, None, Config().completion)
    assert isinstance(block, SuggestionPlan) and block.multiline
    return block


def test_a_block_is_shown_up_to_the_lines_that_are_worth_it():
    text = "total = 0\n    for item in items:\n        total += item.price\n    return total"
    spans = [TokenSpan(start, start + 1, -9.0 if 33 <= start < 60 else -0.001) for start in range(len(text))]
    block, cuts = block_plan(), list[tuple[str, int]]()
    suggestion = block.to_suggestion(text)
    verdict = evaluate(text, spans, 0, CURVE, COSTS["medium"])
    shown = apply_gate(suggestion, block, text, verdict, cuts)
    assert isinstance(shown, Suggestion) and shown.text == "total = 0", "no header of a loop alone"
    assert cuts == [("unsure", len(text) - len(shown.text))]
    assert verdict.confidence is not None and verdict.confidence > 0.2


def test_the_first_lines_of_a_callback_are_shown_with_its_closer():
    snapshot = replace(at("app.listen(3000, "), language="javascript")
    whole = plan(replace(snapshot, text=snapshot.text + ")"), None, Config().completion)
    assert isinstance(whole, SuggestionPlan)
    text = "() => {\n  console.log(1);\n  unlikely(2);\n}"
    suggestion = whole.to_suggestion(text)
    shown = apply_gate(suggestion, whole, text, GateDecision(0.5, 0.1, text.index("\n  unlikely")), [])
    assert isinstance(shown, Suggestion) and shown.text == "() => {\n  console.log(1);\n}"


def test_all_lines_are_shown_if_the_first_ones_alone_are_no_valid_suggestion():
    class Strict:
        def to_suggestion(self, text: str) -> NoSuggestion:
            return NoSuggestion(Reason.EMPTY)

    suggestion = Suggestion("call(\n    a)", 3, 3)
    verdict = evaluate(suggestion.text, [TokenSpan(0, 6, 0.0), TokenSpan(6, 12, -12.0)], 0, CURVE, COSTS["medium"])
    assert 0 < verdict.keep < len(suggestion.text)
    assert apply_gate(suggestion, Strict(), suggestion.text, verdict, []) == suggestion  # type: ignore[arg-type]


def test_the_rest_of_a_typed_token_is_surer_than_the_whole():
    spans = token_spans([(6, -8.0), (3, -0.01)])
    whole, rest = (evaluate("append(x)", spans, begin, CURVE, NO_COST).confidence for begin in (0, 2))
    assert whole is not None and rest is not None and rest > whole
    nothing = evaluate("append(x)", [], 0, CURVE, COSTS["low"])
    assert nothing.confidence is None and nothing.keep == 9, "it is shown where the server reports no probabilities"


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


def test_an_explanation_reports_the_confidence_and_its_threshold():
    trace = Trace(document="x", language="python", version=1, characters=9, wanted=1)
    assert explanation.confidence_in(explain.explanation(trace)) == ""
    trace.confidence, trace.least_confidence = 0.6234, 0.35
    assert explanation.confidence_in(explain.explanation(trace)) == "0.62, threshold 0.35 for python"
    trace.taken_and_left = (3.0, 37.2)
    assert explanation.confidence_in(explain.explanation(trace)).endswith("(3 accepted and 37 ignored recently)")
    trace.least_confidence = 0.0
    assert explanation.confidence_in(explain.explanation(trace)) == "0.62; no threshold here"
