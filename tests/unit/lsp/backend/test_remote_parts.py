"""Parts of the remote backend: circuit breaker, model cards, markers, stop strings, events."""

from __future__ import annotations

import itertools
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rows import rows

from speclsp.lsp.backend.engine_http import InvalidResponse
from speclsp.lsp.backend.infill_codec import parse_piece
from speclsp.lsp.backend.remote.circuit_breaker import FAILURES, JITTER, MAX_S, MIN_S, CircuitBreaker
from speclsp.lsp.backend.remote.detection import card_for, words_of
from speclsp.lsp.backend.remote.request_styles import StopStringFilter, fim_prompt, stops_of
from speclsp.lsp.backend.types import FimRequest, StreamPiece
from speclsp.weights import cards
from speclsp.weights.cards import Fim

ROWS = rows(__file__)

ASK = FimRequest(prefix="a\n", line_prefix="b", suffix="c", path="f.py", extra=(("g.py", "d"),))


@given(retry_after_s=st.floats(0, 86_400))
def test_failures_in_a_row_open_the_breaker_for_pauses_that_double_until_a_success(retry_after_s: float):
    breaker = CircuitBreaker()
    for _ in range(2):
        assert [breaker.record_failure() for _ in range(FAILURES - 1)] == [0.0] * (FAILURES - 1)
        for number in range(9):
            mean_s = min(MAX_S, MIN_S * 2**number)
            assert mean_s * (1 - JITTER) <= breaker.record_failure() <= mean_s * (1 + JITTER)
        breaker.record_success()
    assert 0 < breaker.record_failure(at_once=True) <= MIN_S * (1 + JITTER)
    assert breaker.record_failure(wait_s=retry_after_s) >= retry_after_s


@pytest.mark.parametrize(
    ("model", "model_name", "fits"), ROWS["a_card_is_found_by_the_names_of_publishers_and_quantizers"]
)
def test_a_card_is_found_by_the_names_of_publishers_and_quantizers(model: str, model_name: str, fits: bool):
    card = card_for(model)
    assert card is not None
    assert (card.name if words_of(card.name) <= words_of(model) else card.family) == model_name
    assert (words_of(card.name) <= words_of(model)) == fits


SWEEP = "sweepai/sweep-next-edit-1.5B /models/sweep-next-edit-0.5b.q8_0.gguf sweep-next-edit-7b-v2 sweep-next-edit-1.5b"
NEITHER = "Qwen/Qwen2.5-Coder-0.5B company-qwen2.5-coder-0.5b-awq qwen2.5-coder"
UNKNOWN = "gpt-4o mistral-7b TinyLlama-1.1B codestral qwen2.5-7b-instruct zed-industries/zeta-2"


@pytest.mark.parametrize(("edit_format", "models"), [("sweep", SWEEP), ("", NEITHER), (None, UNKNOWN)])
def test_only_models_of_a_tuning_for_edits_have_an_edit_format_and_an_unknown_family_no_card(
    edit_format: str | None, models: str
):
    for model in models.split():
        card = card_for(model)
        assert (None if card is None else card.edit_format) == edit_format, model


def test_every_card_is_found_by_its_own_hub_name():
    for name in cards.names():
        card = cards.load(name)
        if card.target.repo:
            match = card_for(card.target.repo)
            assert match is not None and match.fim == card.fim


def test_the_prompt_follows_the_order_of_the_family_without_its_first_token():
    assert fim_prompt(Fim(order="spm", prefix="<P>", suffix="<S>", middle="<M>"), ASK) == "<S>c<P>a\nb<M>"
    assert fim_prompt(Fim(prefix="<P>", suffix="<S>", middle="<M>", bos="<B>"), ASK) == "<P>a\nb<S>c<M>"
    with_files = Fim(prefix="<P>", suffix="<S>", middle="<M>", file_sep="<F>")
    assert fim_prompt(with_files, ASK) == "<F>g.py\nd\n<F>f.py\n<P>a\nb<S>c<M>"
    assert fim_prompt(Fim(), ASK) == "a\nb", "a family without markers goes on from the left"
    card = cards.load("qwen2.5-coder-7b")
    likeliest = ("<|endoftext|>", "<|file_sep|>", "<|fim_prefix|>", "<|fim_pad|>")
    assert stops_of(card.fim, card.stop_tokens)[:4] == likeliest
    assert set(card.stop_tokens) <= set(stops_of(card.fim, card.stop_tokens))


WORDS = ("<|eot|>", "<|file|>", "<eos>")


@given(
    text=st.lists(st.sampled_from(["<", "|", "<|", "eot", "|>", "e", "<|file", "<eos", ">", "x", *WORDS])).map("".join),
    cuts=st.lists(st.integers(0, 40), max_size=6),
)
def test_a_text_ends_at_the_first_marker_for_every_split_into_pieces(text: str, cuts: list[int]):
    expected = text[: min((position for word in WORDS if (position := text.find(word)) >= 0), default=len(text))]
    stop_filter, shown, ended = StopStringFilter(WORDS), "", False
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for start, end in itertools.pairwise(edges):
        if not ended:
            piece, ended = stop_filter.add(text[start:end])
            shown += piece
            assert expected.startswith(shown), "nothing of a marker is ever shown"
    assert shown + ("" if ended else stop_filter.rest()) == expected
    assert ended == (expected != text)


EVENT_FIELDS = """
content tokens stop stop_type round drafted accepted source timings prompt_n cache_n predicted_n ttft_ms speculation
rounds by_source
"""
EVENT_KEYS = EVENT_FIELDS.split()
EVENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(EVENT_KEYS), inner, max_size=4),
    max_leaves=8,
)


@given(EVENTS.filter(lambda event: isinstance(event, dict)))
def test_any_streamed_event_is_a_piece_or_an_invalid_response(event: dict[str, object]):
    with suppress(InvalidResponse):
        assert isinstance(parse_piece(event), StreamPiece)
