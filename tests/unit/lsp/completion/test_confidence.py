"""What is not sure enough is not shown: the gate never changes a text, and learns a little from what was taken."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import date, timedelta
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.lsp.scripted_session import ScriptedBackend, ScriptedSession, at, run

from speclsp.config import Config, parse, stats_path
from speclsp.lsp.backend.http import InvalidResponse
from speclsp.lsp.backend.infill_codec import infill_body, parse_piece
from speclsp.lsp.backend.types import CompletionCost, FimRequest, StreamPiece
from speclsp.lsp.completion.confidence import (
    CURVES,
    HALF_LIFE_S,
    LEFT_AS,
    MAX_SHIFT,
    TAKEN_AS,
    AcceptanceHistory,
    Curve,
    TokenProb,
    TokenSpan,
    confidence,
    lines,
    log_odds,
    right_share,
    token_spans,
)
from speclsp.lsp.completion.gate import apply_gate, evaluate
from speclsp.lsp.completion.job import CompletionInput
from speclsp.lsp.completion.stream import AGREED_LINGER_S
from speclsp.lsp.completion.trace import Trace
from speclsp.lsp.documents.document import Document
from speclsp.lsp.postprocess.plan import NoSuggestion, Suggestion, SuggestionPlan, plan
from speclsp.lsp.reasons import Reason
from speclsp.lsp.server import explain
from speclsp.lsp.server.request_context import CursorContext
from speclsp.lsp.server.usage_stats import UsageStats
from speclsp.observability import explanation, usage_db

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
    made, at_ = [], 0
    while at_ < len(text):
        size = sizes[len(made) % len(sizes)]
        made.append((min(size, len(text) - at_), logprobs[len(made) % len(logprobs)]))
        at_ += size
    return token_spans(made)


# ── laws ─────────────────────────────────────────────────────────────────────────────────────────────────────


@given(TOKENS, st.data(), st.sampled_from((CURVE, *CURVES.values())))
def test_the_surer_the_model_of_a_token_the_surer_the_gate(tokens_: list[TokenProb], data: st.DataObject, curve: Curve):
    number = data.draw(st.integers(0, len(tokens_) - 1))
    characters, logprob = tokens_[number]
    higher = [*tokens_[:number], (characters, data.draw(st.floats(logprob, 0))), *tokens_[number + 1 :]]
    assert confidence(higher, curve.weights) >= confidence(tokens_, curve.weights) - 1e-9
    assert 0 < confidence(tokens_, curve.weights) < 1


@given(TOKENS)
def test_the_share_that_is_right_lies_between_the_whole_line_and_its_first_token(tokens_: list[TokenProb]):
    chance = [math.exp(sum(one for _, one in tokens_[: at + 1])) for at in range(len(tokens_))]
    assert chance[-1] - 1e-9 <= right_share(tokens_) <= chance[0] + 1e-9
    assert right_share([(5 * characters, one) for characters, one in tokens_]) == pytest.approx(right_share(tokens_))


def test_a_long_line_that_begins_surely_is_worth_more_than_a_short_one_that_does_not():
    begins = [(10, -0.1), (10, -0.1), (2, -3.0)]  # two thirds of it are as good as certain, all of it is not
    assert right_share(begins) == pytest.approx((10 * 0.9048 + 10 * 0.8187 + 2 * 0.0408) / 22, abs=1e-3)
    assert right_share(begins) > right_share([(2, -3.0), (10, -0.1), (10, -0.1)])


@pytest.mark.parametrize("pair", CURVES)
def test_what_was_measured_says_so_itself(pair: str):
    curve = CURVES[pair]
    assert set(curve.weights) == {"intercept", "share"} and curve.weights["share"] > 0
    assert 0 == curve.wanted["high"] <= curve.wanted["medium"] < curve.wanted["low"] < 1
    assert curve.expected["high"] <= curve.expected["medium"] <= curve.expected["low"]


@given(TEXTS, st.lists(st.integers(1, 5), min_size=1), LOGPROBS, COUNTS)
def test_more_eager_never_shows_less(text: str, sizes: list[int], logprobs: list[float], counts: dict[str, int]):
    tastes, cut = AcceptanceHistory(clock=lambda: 0.0), tokens(text, sizes, logprobs)
    tastes.learn("python", counts)
    kept = [
        evaluate(text, cut, 0, tastes.threshold("python", name, CURVE), CURVE).keep
        for name in ("low", "medium", "high")
    ]
    assert kept == sorted(kept)
    assert kept[-1] == len(text)
    assert all(keep in (0, len(text)) or text[keep] == "\n" for keep in kept), "always the end of a line"


@given(COUNTS, COUNTS, st.sampled_from(("low", "medium")))
def test_what_is_learned_is_bounded_and_is_forgotten(first: dict[str, int], second: dict[str, int], eagerness: str):
    now = [0.0]
    tastes = AcceptanceHistory(clock=lambda: now[0])
    usual = tastes.threshold("python", eagerness, CURVE)
    assert usual == pytest.approx(CURVE.wanted[eagerness])
    tastes.learn("python", first)
    now[0] += HALF_LIFE_S
    tastes.learn("python", second)
    learned = tastes.threshold("python", eagerness, CURVE)
    assert abs(log_odds(learned) - log_odds(usual)) <= MAX_SHIFT + 1e-9
    assert tastes.threshold("go", eagerness, CURVE) == pytest.approx(usual), "each language for itself"
    off = [abs(learned - usual)]
    for _ in range(40):
        now[0] += HALF_LIFE_S
        off.append(abs(tastes.threshold("python", eagerness, CURVE) - usual))
    assert off == sorted(off, reverse=True) and off[-1] < 1e-6


@given(COUNTS, st.integers(1, 1000))
def test_to_take_one_makes_the_bar_no_higher_and_to_ignore_one_no_lower(counts: dict[str, int], more: int):
    tastes = AcceptanceHistory(clock=lambda: 0.0)
    tastes.learn("python", counts)
    before = tastes.threshold("python", "medium", CURVE)
    tastes.learn("python", {"accepted": more})
    taken = tastes.threshold("python", "medium", CURVE)
    assert taken <= before + 1e-12
    tastes.learn("python", {"accepted": -more, "ignored": more})
    assert tastes.threshold("python", "medium", CURVE) >= before - 1e-12


@given(TEXTS, st.lists(st.integers(1, 5), min_size=1), st.integers(0, 40))
def test_each_token_speaks_for_the_line_it_begins_in(text: str, sizes: list[int], begin: int):
    cut = [TokenSpan(one.start, one.end, -float(number)) for number, one in enumerate(tokens(text, sizes, [0.0]))]
    begin = min(begin, len(text))
    found = list(lines(text, cut, begin))
    said = [one for line in found for _, one in line.tokens]
    assert all(0 <= characters <= 5 for line in found for characters, _ in line.tokens)
    assert said == sorted(said, reverse=True), "in order, none of them twice"
    assert [line.end for line in found] == sorted({line.end for line in found})
    assert "\n".join(text[begin:].split("\n")).strip() == "" or found
    first = next((one for one in cut if one.start >= begin), None)
    if found and first is not None and text[begin:].strip() and found[0].tokens:
        assert found[0].tokens[0][1] == first.logprob, "from the first that is not typed already"


@given(
    st.lists(
        st.sampled_from(("total += x", "for x in items:", "    y = (x,", "    1)", "", "return total")), min_size=1
    ),
    st.lists(st.floats(-9, 0), min_size=1),
    st.floats(0, 1),
)
def test_the_gate_shows_what_there_is_or_its_first_lines_or_nothing(
    said: list[str], logprobs: list[float], wanted: float
):
    text = "\n    ".join(said)
    made_plan = block_plan()
    made = made_plan.clean(text)
    verdict = evaluate(text, tokens(text, [3], logprobs), 0, wanted, CURVE)
    cuts: list[tuple[str, int]] = []
    shown = apply_gate(made, made_plan, text, verdict, cuts)
    if isinstance(shown, Suggestion):
        assert isinstance(made, Suggestion) and made.text.startswith(shown.text) and made.start == shown.start
        assert sum(count for _, count in cuts) == len(made.text) - len(shown.text)
        assert shown == made or made.text[len(shown.text) :].lstrip(" ").startswith("\n")
    else:
        assert shown == made or (shown.reason is Reason.UNSURE and verdict.keep == 0)
    assert apply_gate(made, made_plan, text, verdict._replace(keep=len(text)), []) == made


def block_plan() -> SuggestionPlan:
    snapshot = at(BLOCK)
    made = plan(snapshot, None, Config().completion)
    assert isinstance(made, SuggestionPlan) and made.multiline
    return made


def test_a_block_is_shown_up_to_the_first_line_that_is_not_sure_enough():
    text = "total = 0\n    for item in items:\n        total += item.price\n    return total"
    cut = [TokenSpan(start, start + 1, -9.0 if 33 <= start < 60 else -0.001) for start in range(len(text))]
    made_plan, cuts = block_plan(), list[tuple[str, int]]()
    made = made_plan.clean(text)
    verdict = evaluate(text, cut, 0, 0.2, CURVE)
    shown = apply_gate(made, made_plan, text, verdict, cuts)
    assert isinstance(shown, Suggestion) and shown.text == "total = 0\n    for item in items:"
    assert cuts == [("unsure", len(text) - len(shown.text))]
    assert verdict.confidence is not None and verdict.confidence > 0.2


def test_where_the_first_lines_are_no_suggestion_by_themselves_all_is_shown():
    class Strict:
        def clean(self, text: str) -> NoSuggestion:
            return NoSuggestion(Reason.EMPTY)

    made = Suggestion("call(\n    a)", 3, 3)
    verdict = evaluate(made.text, [TokenSpan(0, 6, 0.0), TokenSpan(6, 12, -12.0)], 0, 0.3, CURVE)
    assert 0 < verdict.keep < len(made.text)
    assert apply_gate(made, Strict(), made.text, verdict, []) == made  # type: ignore[arg-type]


def test_a_token_that_was_half_typed_is_agreed_upon():
    cut = token_spans([(6, -8.0), (3, -0.01)])
    whole, rest = (evaluate("append(x)", cut, begin, 0.0, CURVE).confidence for begin in (0, 2))
    assert whole is not None and rest is not None and rest > whole
    assert evaluate("append(x)", cut, 7, 0.99, CURVE).confidence is None, "nothing is known of what is left"
    assert evaluate("append(x)", [], 0, 0.99, CURVE).keep == 9, "nor where the server says nothing: it is shown"


# ── the wire ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_editor_asks_for_log_probabilities_and_reads_them():
    assert infill_body(FimRequest())["round_logprobs"] is True
    event = {"content": "ab", "tokens": [1, 2], "round": {"logprobs": [-0.5, 0], "characters": [2, 0]}}
    assert parse_piece(event).logprobs == ((2, -0.5), (0, 0.0))
    assert parse_piece({"content": "ab", "tokens": [1], "round": {"ms": 1}}).logprobs == ()


@pytest.mark.parametrize(
    "made",
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
def test_what_is_no_log_probability_is_refused(made: dict[str, object]):
    with pytest.raises(InvalidResponse):
        parse_piece({"content": "ab", "tokens": [1], "round": made})


# ── in a session ─────────────────────────────────────────────────────────────────────────────────────────────


class Unsure(ScriptedBackend):
    """Says of each character how likely it was."""

    def __init__(self, *answers: str, logprob: float) -> None:
        super().__init__(*answers)
        self.logprob = logprob
        self.status = replace(self.status, pair=PAIR)

    async def stream(self, request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
        async with aclosing(super().stream(request)) as pieces:
            async for piece in pieces:
                yield piece if piece.cost else replace(piece, logprobs=((len(piece.text), self.logprob),))


TEXT = "items = []\nitems."
PAIR = next(iter(CURVES))


def test_what_is_not_sure_enough_is_not_shown_but_drafted_from_and_shown_when_asked_for_by_hand():
    async def work(scripted: ScriptedSession) -> None:
        assert (await scripted.complete(at(TEXT))).reason == "unsure"
        assert (await scripted.complete(at(TEXT + "ax", version=2))).reason == "unsure"
        assert scripted.backend.requests[1].previous == "ppend(1)", "what it would have been is near it still"
        made = await scripted.complete(at(TEXT), by_hand=True)
        assert [one.text for one in made.suggestions] == ["append(1)"]

    scripted = ScriptedSession(Unsure("append(1)", "is", "append(1)", logprob=-4.0), **{"completion.alternatives": 1})
    run(scripted, work)
    first, _, by_hand = scripted.traces
    assert first.confidence is not None and first.confidence < first.least_confidence == pytest.approx(
        CURVES[PAIR].wanted["medium"]
    )
    assert by_hand.least_confidence == 0 and first.language == "python"


class Doubting(Unsure):
    """Says its answer letter by letter, and is unsure of the first two only."""

    async def stream(self, request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
        async with aclosing(super().stream(request)) as pieces:
            heard = 0
            async for piece in pieces:
                heard += len(piece.text)
                yield (
                    replace(piece, logprobs=((len(piece.text), -5.0 if heard <= 2 else 0.0),)) if piece.text else piece
                )


def test_what_was_not_sure_enough_is_shown_once_typing_has_settled_the_doubt_and_nobody_is_asked_again():
    async def work(scripted: ScriptedSession) -> None:
        assert (await scripted.complete(at(TEXT))).reason == "unsure"
        one, two = TEXT + "a", TEXT + "ap"
        scripted.session.document_changed(at(TEXT).uri, lambda: CompletionInput(at(one, version=2)))
        assert (await scripted.complete(at(one, version=2))).reason == "unsure"
        scripted.session.document_changed(at(TEXT).uri, lambda: CompletionInput(at(two, version=3)))
        await asyncio.sleep(2 * AGREED_LINGER_S)  # Neovim's own client waits 200 ms before it asks
        made = await scripted.complete(at(two, version=3))
        assert [shown.text for shown in made.suggestions] == ["pend(1)"]
        assert len(scripted.backend.requests) == 1
        assert [trace.adopted for trace in scripted.traces] == [False, True, True]

    run(ScriptedSession(Doubting("append(1)", logprob=0.0), **{"completion.alternatives": 1}), work)


class Answers(Unsure):
    """Says each answer in these pieces, and is in doubt of the very first."""

    def __init__(self, *answers: tuple[str, ...], logprob: float = -9.0) -> None:
        super().__init__(*("".join(pieces) for pieces in answers), logprob=logprob)
        self.pieces = answers

    async def stream(self, request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
        number = min(len(self.requests), len(self.pieces) - 1)
        self.requests.append(request)
        for at_, text in enumerate(self.pieces[number]):
            await asyncio.sleep(0)
            yield StreamPiece(text=text, tokens=1, logprobs=((len(text), -0.01 if at_ or number else self.logprob),))
        yield StreamPiece(cost=CompletionCost(stop_type="eos"))


@pytest.mark.parametrize("typed", [("items:", "\n    "), ("items:\n    ",), ("items:",)])
def test_of_a_line_that_was_held_back_nothing_is_shown_beyond_what_was_wanted_of_it(typed: tuple[str, ...]):
    async def work(scripted: ScriptedSession) -> None:
        text, shown = "for x in ", []
        for version, more in enumerate(("", *typed), 1):
            text += more
            now = at(text, version=version)
            scripted.session.document_changed(now.uri, lambda now=now: CompletionInput(now))  # type: ignore[misc]
            shown.append([one.text.strip() for one in (await scripted.complete(now)).suggestions])
        assert not shown[0] and shown[-1] in (["return x + 1"], []), "and not a piece of the line after it"
        if text.endswith(" "):
            assert shown[-1] == ["return x + 1"]

    body = ("return x + 1", "\n") if typed[-1].endswith(" ") else ("\n    return x + 1", "\n")
    scripted = ScriptedSession(Answers(("items", ":", "\n    ret", "urn x", "\n"), body))
    run(scripted, work)


def test_asked_by_hand_low_shows_what_medium_would_and_not_what_low_held_back():
    async def work(scripted: ScriptedSession) -> None:
        place = at("def f(x):\n    ")
        assert (await scripted.complete(place)).reason == "unsure"
        made = await scripted.complete(place, by_hand=True)
        assert [one.text for one in made.suggestions] == ["y = x\n    return y"]

    settings = {"completion.alternatives": 1, "completion.eagerness": "low"}
    run(ScriptedSession(Answers(("y", " = x", "\n    return", " y\n"), logprob=-5.0), **settings), work)


def test_what_was_held_back_outlives_a_request_that_gave_up_before_it_looked():
    async def work(scripted: ScriptedSession) -> None:
        assert (await scripted.complete(at(TEXT))).reason == "unsure"
        one, two = at(TEXT + "a", version=2), at(TEXT + "ap", version=3)
        scripted.session.document_changed(one.uri, lambda: CompletionInput(one))
        asking = asyncio.create_task(scripted.complete(one))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        scripted.session.document_changed(two.uri, lambda: CompletionInput(two))
        assert [made.text for made in (await scripted.complete(two)).suggestions] == ["pend(1)"]
        assert len(scripted.backend.requests) == 1

    run(ScriptedSession(Doubting("append(1)", logprob=0.0)), work)


def test_by_hand_is_not_answered_by_what_the_menu_asked_unasked():
    async def work(scripted: ScriptedSession) -> None:
        menu = asyncio.create_task(scripted.complete(at(TEXT), menu=True))
        await asyncio.sleep(0.01)
        made = await scripted.complete(at(TEXT), by_hand=True)
        assert [one.text for one in made.suggestions] == ["append(1)"] and (await menu).reason == "superseded"

    backend = Unsure("append(1)", logprob=-4.0)
    backend.round_s = 0.01
    run(ScriptedSession(backend, **{"completion.alternatives": 1}), work)


def test_by_hand_shows_what_was_held_back_and_an_edit_elsewhere_forgets_it():
    async def work(scripted: ScriptedSession) -> None:
        assert (await scripted.complete(at(TEXT))).reason == "unsure"
        made = await scripted.complete(at(TEXT), by_hand=True)
        assert [one.text for one in made.suggestions] == ["append(1)"]
        assert len(scripted.backend.requests) == 1
        scripted.session.cache.clear()
        assert (await scripted.complete(at(TEXT))).reason == "unsure"
        scripted.session.document_changed(at(TEXT).uri, lambda: CompletionInput(at("x = 1\n" + TEXT, version=2)))
        assert at(TEXT).uri not in scripted.session._streams
        assert (await scripted.complete(at("x = 1\n" + TEXT, version=2))).reason == "unsure"
        assert len(scripted.backend.requests) == 3
        scripted.session.document_closed(at(TEXT).uri)
        assert at(TEXT).uri not in scripted.session._streams, "nor is it kept for a document that is closed"

    run(ScriptedSession(Unsure("append(1)", logprob=-4.0), **{"completion.alternatives": 1}), work)


@pytest.mark.parametrize("eagerness", ["low", "medium", "high"])
def test_what_the_model_is_certain_of_is_shown_and_at_high_everything_is(eagerness: str):
    async def work(scripted: ScriptedSession) -> None:
        assert (await scripted.complete(at(TEXT))).suggestions

    run(ScriptedSession(Unsure("append(1)", logprob=0.0), **{"completion.eagerness": eagerness}), work)
    if eagerness == "high":
        run(ScriptedSession(Unsure("append(1)", logprob=-9.0), **{"completion.eagerness": eagerness}), work)


def test_without_probabilities_or_for_a_model_that_was_not_measured_there_is_no_gate():
    async def work(scripted: ScriptedSession) -> None:
        assert (await scripted.complete(at(TEXT))).suggestions

    unmeasured = Unsure("append(1)", logprob=-9.0)
    unmeasured.status = replace(unmeasured.status, pair="another")
    for backend in (ScriptedBackend("append(1)"), unmeasured):
        backend.status = replace(backend.status, pair=backend.status.pair or PAIR)
        scripted = ScriptedSession(backend, **{"completion.eagerness": "low"})
        run(scripted, work)
        assert scripted.traces[0].confidence is None


def test_a_stream_that_lost_its_reader_is_remembered_only_if_it_is_sure_enough():
    async def work(scripted: ScriptedSession) -> None:
        asking = asyncio.create_task(scripted.complete(at(TEXT)))
        while not scripted.backend.streamed or len(scripted.backend.streamed[0]) < 3:
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        while scripted.backend.streamed[0] != "append(1)":
            await asyncio.sleep(0)
        await asyncio.sleep(2 * AGREED_LINGER_S)
        outcome = await scripted.complete(at(TEXT))
        assert outcome.reason == "unsure" and len(scripted.backend.requests) == 1, (
            "held back as if somebody had read it"
        )

    run(ScriptedSession(Unsure("append(1)", logprob=-4.0)), work)


# ── in words ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_explanation_says_how_sure_was_sure_enough():
    trace = Trace(document="x", language="python", version=1, characters=9, wanted=1)
    assert explanation.confidence_in(explain.explanation(trace)) == ""
    trace.confidence, trace.least_confidence = 0.6234, 0.35
    assert explanation.confidence_in(explain.explanation(trace)) == "0.62, wanted 0.35 for python"
    trace.taken_and_left = (3.0, 37.2)
    assert explanation.confidence_in(explain.explanation(trace)).endswith("(3 taken and 37 ignored lately)")
    trace.least_confidence = 0.0
    assert explanation.confidence_in(explain.explanation(trace)) == "0.62; any is enough here"


def test_the_names_it_learns_by_are_those_that_are_counted():
    assert {*TAKEN_AS, *LEFT_AS} <= set(usage_db.Figures().as_json())


def test_eagerness_has_a_bar_for_each_of_its_values():
    for curve in CURVES.values():
        for value in curve.wanted:
            config, problems = parse({"completion.eagerness": value}, Config())
            assert not problems and config.completion.eagerness in curve.expected
    assert parse({"completion.eagerness": "other"}, Config())[1]


# ── what was taken ───────────────────────────────────────────────────────────────────────────────────────────


def counting(enabled: bool) -> tuple[UsageStats, AcceptanceHistory]:
    """For a server that knows nothing but its settings and its session."""
    tastes = AcceptanceHistory(clock=lambda: 0.0)
    config, problems = parse({"stats.enabled": enabled, "pair": "tiny"}, Config())
    assert not problems
    server = SimpleNamespace(
        config=config, backend=None, session=SimpleNamespace(acceptance_history=tastes), documents={}
    )
    return UsageStats(server), tastes  # type: ignore[arg-type]


def ended(made: UsageStats, remembers: bool) -> None:
    async def work() -> None:
        made.traced(Trace(document="x", language="python", version=1, characters=9, wanted=1, outcome="shown"))
        assert (made._remembering is not None) == remembers
        if made._remembering is not None:
            await made._remembering

    asyncio.run(work())
    made.end()


@pytest.mark.parametrize("enabled", [True, False])
def test_what_becomes_of_suggestions_is_learned_also_where_nothing_is_counted(enabled: bool):
    made, tastes = counting(enabled)
    document = Document("file:///a.py", "python", 1, "x = ")
    made._ls.documents[document.uri] = document
    snapshot = document.snapshot({"line": 0, "character": 4}, "utf-16")
    end = {"line": 0, "character": 4}
    item = {"insertText": "total", "range": {"start": end, "end": end}}
    made.answered(CursorContext(document, snapshot, 0, 0), [item], "utf-16")
    document.apply([{"range": {"start": end, "end": end}, "text": "total"}], "utf-16")
    assert tastes.counts("python") == (1.0, 0.0)
    made.end()
    assert stats_path().exists() == enabled


def test_the_last_weeks_are_remembered_the_older_ones_less_and_only_where_they_may_be():
    today = date.today()
    weeks = [usage_db.week_of(today - timedelta(weeks=ago)) for ago in (0, 1, 30)]
    rows = [(week, "python", "tiny", name, 8) for week in weeks for name in ("accepted", "ignored", "shown")]
    assert usage_db.write(stats_path(), rows) == ""
    made, tastes = counting(enabled=True)
    ended(made, remembers=True)
    assert tastes.counts("python") == pytest.approx((12.0, 12.0))
    made, tastes = counting(enabled=False)
    ended(made, remembers=False)
    assert tastes.counts("python") == (0.0, 0.0)


def test_stats_that_cannot_be_read_teach_nothing():
    stats_path().parent.mkdir(parents=True, exist_ok=True)
    stats_path().write_bytes(b"no database" * 100)
    made, tastes = counting(enabled=True)
    ended(made, remembers=True)
    assert tastes.counts("python") == (0.0, 0.0)
