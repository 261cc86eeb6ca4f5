"""The confidence gate shows no line below the threshold, and never changes a text."""

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
    AcceptanceHistory,
    Curve,
    TokenProb,
    TokenSpan,
    confidence,
    lines,
    right_share,
    token_spans,
)
from speclsp.lsp.completion.gate import apply_gate, evaluate
from speclsp.lsp.completion.trace import Trace
from speclsp.lsp.postprocess.plan import NoSuggestion, Suggestion, SuggestionPlan, plan
from speclsp.lsp.reasons import Reason
from speclsp.lsp.server import explain
from speclsp.observability import explanation

CURVE = Curve(
    weights={"intercept": 1.0, "share": 1.5},
    wanted={"low": 0.6, "medium": 0.1, "high": 0.0},
    expected={"low": 0.8, "medium": 0.5, "high": 0.4},
)


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


@given(TOKENS, st.data(), st.sampled_from((CURVE, *CURVES.values())))
def test_confidence_never_falls_when_the_probability_of_a_token_rises(
    line_tokens: list[TokenProb], data: st.DataObject, curve: Curve
):
    number = data.draw(st.integers(0, len(line_tokens) - 1))
    characters, logprob = line_tokens[number]
    higher = [*line_tokens[:number], (characters, data.draw(st.floats(logprob, 0))), *line_tokens[number + 1 :]]
    assert confidence(higher, curve.weights) >= confidence(line_tokens, curve.weights) - 1e-9
    assert 0 < confidence(line_tokens, curve.weights) < 1


@given(TOKENS)
def test_the_right_share_lies_between_the_chances_of_the_whole_line_and_of_its_first_token(
    line_tokens: list[TokenProb],
):
    chance = [math.exp(sum(token for _, token in line_tokens[: at + 1])) for at in range(len(line_tokens))]
    assert chance[-1] - 1e-9 <= right_share(line_tokens) <= chance[0] + 1e-9
    assert right_share([(5 * characters, token) for characters, token in line_tokens]) == pytest.approx(
        right_share(line_tokens)
    )


def test_a_line_with_a_sure_beginning_has_a_higher_share_than_one_with_an_unsure_beginning():
    begins = [(10, -0.1), (10, -0.1), (2, -3.0)]  # two thirds of it are as good as certain, all of it is not
    assert right_share(begins) == pytest.approx((10 * 0.9048 + 10 * 0.8187 + 2 * 0.0408) / 22, abs=1e-3)
    assert right_share(begins) > right_share([(2, -3.0), (10, -0.1), (10, -0.1)])


@pytest.mark.parametrize("pair", CURVES)
def test_the_measured_curves_are_consistent(pair: str):
    curve = CURVES[pair]
    assert set(curve.weights) == {"intercept", "share"} and curve.weights["share"] > 0
    assert 0 == curve.wanted["high"] <= curve.wanted["medium"] < curve.wanted["low"] < 1
    assert curve.expected["high"] <= curve.expected["medium"] <= curve.expected["low"]


@given(TEXTS, st.lists(st.integers(1, 5), min_size=1), LOGPROBS, COUNTS)
def test_more_eager_never_shows_less(text: str, sizes: list[int], logprobs: list[float], counts: dict[str, int]):
    history, spans = AcceptanceHistory(clock=lambda: 0.0), tokens(text, sizes, logprobs)
    history.learn("python", counts)
    kept = [
        evaluate(text, spans, 0, history.threshold("python", name, CURVE), CURVE).keep
        for name in ("low", "medium", "high")
    ]
    assert kept == sorted(kept)
    assert kept[-1] == len(text)
    assert all(keep in (0, len(text)) or text[keep] == "\n" for keep in kept), "always the end of a line"


@given(TEXTS, st.lists(st.integers(1, 5), min_size=1), st.integers(0, 40))
def test_each_token_belongs_to_the_line_it_begins_in(text: str, sizes: list[int], begin: int):
    spans = [
        TokenSpan(token.start, token.end, -float(number)) for number, token in enumerate(tokens(text, sizes, [0.0]))
    ]
    begin = min(begin, len(text))
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
    st.floats(0, 1),
)
def test_the_gate_shows_all_lines_or_the_first_lines_or_nothing(
    code_lines: list[str], logprobs: list[float], wanted: float
):
    text = "\n    ".join(code_lines)
    block = block_plan()
    suggestion = block.to_suggestion(text)
    verdict = evaluate(text, tokens(text, [3], logprobs), 0, wanted, CURVE)
    cuts: list[tuple[str, int]] = []
    shown = apply_gate(suggestion, block, text, verdict, cuts)
    if isinstance(shown, Suggestion):
        assert (
            isinstance(suggestion, Suggestion)
            and suggestion.text.startswith(shown.text)
            and suggestion.start == shown.start
        )
        assert sum(count for _, count in cuts) == len(suggestion.text) - len(shown.text)
        assert shown == suggestion or suggestion.text[len(shown.text) :].lstrip(" ").startswith("\n")
    else:
        assert shown == suggestion or (shown.reason is Reason.UNSURE and verdict.keep == 0)
    assert apply_gate(suggestion, block, text, verdict._replace(keep=len(text)), []) == suggestion


def block_plan() -> SuggestionPlan:
    snapshot = at(BLOCK)
    block = plan(snapshot, None, Config().completion)
    assert isinstance(block, SuggestionPlan) and block.multiline
    return block


def test_a_block_is_shown_up_to_the_first_line_below_the_threshold():
    text = "total = 0\n    for item in items:\n        total += item.price\n    return total"
    spans = [TokenSpan(start, start + 1, -9.0 if 33 <= start < 60 else -0.001) for start in range(len(text))]
    block, cuts = block_plan(), list[tuple[str, int]]()
    suggestion = block.to_suggestion(text)
    verdict = evaluate(text, spans, 0, 0.2, CURVE)
    shown = apply_gate(suggestion, block, text, verdict, cuts)
    assert isinstance(shown, Suggestion) and shown.text == "total = 0", "no header of a loop alone"
    assert cuts == [("unsure", len(text) - len(shown.text))]
    assert verdict.confidence is not None and verdict.confidence > 0.2


def test_all_lines_are_shown_if_the_first_ones_alone_are_no_valid_suggestion():
    class Strict:
        def to_suggestion(self, text: str) -> NoSuggestion:
            return NoSuggestion(Reason.EMPTY)

    suggestion = Suggestion("call(\n    a)", 3, 3)
    verdict = evaluate(suggestion.text, [TokenSpan(0, 6, 0.0), TokenSpan(6, 12, -12.0)], 0, 0.3, CURVE)
    assert 0 < verdict.keep < len(suggestion.text)
    assert apply_gate(suggestion, Strict(), suggestion.text, verdict, []) == suggestion  # type: ignore[arg-type]


def test_a_token_that_the_user_has_typed_in_part_is_not_scored():
    spans = token_spans([(6, -8.0), (3, -0.01)])
    whole, rest = (evaluate("append(x)", spans, begin, 0.0, CURVE).confidence for begin in (0, 2))
    assert whole is not None and rest is not None and rest > whole
    assert evaluate("append(x)", spans, 7, 0.99, CURVE).confidence is None, "nothing is known of what is left"
    assert evaluate("append(x)", [], 0, 0.99, CURVE).keep == 9, "nor where the server says nothing: it is shown"


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


def test_every_eagerness_has_a_threshold():
    for curve in CURVES.values():
        for value in curve.wanted:
            config, problems = parse({"completion.eagerness": value}, Config())
            assert not problems and config.completion.eagerness in curve.expected
    assert parse({"completion.eagerness": "other"}, Config())[1]
