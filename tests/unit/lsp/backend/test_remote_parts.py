"""Parts of the remote backend: circuit breaker, model cards, stop strings, error messages."""

from __future__ import annotations

import itertools
import json
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.rows import rows

from speclsp.config import Config
from speclsp.lsp.backend.engine_http import InvalidResponse
from speclsp.lsp.backend.infill_codec import parse_piece
from speclsp.lsp.backend.remote import detection, error_messages
from speclsp.lsp.backend.remote.circuit_breaker import FAILURES, JITTER, MAX_S, MIN_S, CircuitBreaker
from speclsp.lsp.backend.remote.detection import card_for, edit_format_of, split_url
from speclsp.lsp.backend.remote.request_styles import StopStringFilter, fim_prompt, stops_of
from speclsp.lsp.backend.types import FimRequest, StreamPiece
from speclsp.weights import cards
from speclsp.weights.cards import Fim

ROWS = rows(__file__)

ASK = FimRequest(prefix="a\n", line_prefix="b", suffix="c", path="f.py", extra=(("g.py", "d"),))


# ── the breaker ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_several_failures_in_a_row_open_the_breaker():
    breaker = CircuitBreaker()
    for _ in range(3):
        assert [breaker.record_failure() for _ in range(FAILURES - 1)] == [False] * (FAILURES - 1)
        breaker.record_success()
    assert [breaker.record_failure() for _ in range(FAILURES)][-1]
    assert breaker.wait_s > 0


@given(draws=st.lists(st.floats(0, 1), min_size=12, max_size=12))
def test_each_wait_doubles_up_to_a_limit_and_a_success_resets_it(draws: list[float]):
    now, remaining = [100.0], iter(draws)
    breaker = CircuitBreaker(lambda: now[0], lambda low, high: low + (high - low) * next(remaining))
    for number in range(11):
        assert breaker.record_failure(at_once=number == 0), "half-open: one failure is enough"
        mean_s = min(MAX_S, MIN_S * 2**number)
        assert mean_s * (1 - JITTER) - 1e-9 <= breaker.wait_s <= mean_s * (1 + JITTER) + 1e-9
        now[0] += breaker.wait_s
        breaker.probe_succeeded()
        assert breaker.wait_s == 0
    breaker.record_success()
    assert not breaker.record_failure(), "closed: one failure is not enough"
    breaker.record_failure(at_once=True)
    assert breaker.wait_s <= MIN_S * (1 + JITTER)


@given(retry_after_s=st.floats(0, 86_400), before=st.integers(0, 20))
def test_retry_after_is_a_lower_bound_of_the_wait(retry_after_s: float, before: int):
    breaker = CircuitBreaker(lambda: 100.0)
    for _ in range(before):
        breaker.record_failure(at_once=True)
    assert breaker.record_failure(wait_s=retry_after_s) and breaker.wait_s >= retry_after_s


# ── model cards and their markers ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("model", "model_name", "fits"),
    ROWS["a_card_is_found_by_the_names_of_publishers_and_quantizers"],
)
def test_a_card_is_found_by_the_names_of_publishers_and_quantizers(model: str, model_name: str, fits: bool):
    card, is_exact = card_for(model)
    assert card is not None
    assert (card.name if is_exact else card.family, is_exact) == (model_name, fits)


SWEEP = "sweepai/sweep-next-edit-1.5B /models/sweep-next-edit-0.5b.q8_0.gguf sweep-next-edit-7b-v2 sweep-next-edit-1.5b"
NEITHER = "zed-industries/zeta-2 Qwen/Qwen2.5-Coder-0.5B company-qwen2.5-coder-0.5b-awq gpt-4o"


@pytest.mark.parametrize(("edit_format", "models"), [("sweep", SWEEP), ("", NEITHER)])
def test_only_models_of_a_tuning_for_edits_have_an_edit_format(edit_format: str, models: str):
    for model in models.split():
        assert edit_format_of(model) == edit_format, model
        assert not edit_format or card_for(model)[0] is not None


@pytest.mark.parametrize("model", ["", "gpt-4o", "mistral-7b", "TinyLlama-1.1B", "codestral", "qwen2.5-7b-instruct"])
def test_a_model_of_no_known_family_has_no_card(model: str):
    assert card_for(model)[0] is None


def test_every_card_is_found_by_its_own_hub_name():
    for name in cards.names():
        card = cards.load(name)
        if card.target.repo:
            match, fits = card_for(card.target.repo)
            assert match is not None and fits and match.fim == card.fim


def test_the_prompt_follows_the_order_of_the_family_without_its_first_token():
    assert fim_prompt(Fim(order="spm", prefix="<P>", suffix="<S>", middle="<M>"), ASK) == "<S>c<P>a\nb<M>"
    assert fim_prompt(Fim(prefix="<P>", suffix="<S>", middle="<M>", bos="<B>"), ASK) == "<P>a\nb<S>c<M>"
    with_files = Fim(prefix="<P>", suffix="<S>", middle="<M>", file_sep="<F>")
    assert fim_prompt(with_files, ASK) == "<F>g.py\nd\n<F>f.py\n<P>a\nb<S>c<M>"
    assert fim_prompt(Fim(), ASK) == "a\nb", "a family without markers goes on from the left"


def test_the_four_likeliest_stop_strings_come_first():
    card = cards.load("qwen2.5-coder-7b")
    likeliest = ("<|endoftext|>", "<|file_sep|>", "<|fim_prefix|>", "<|fim_pad|>")
    assert stops_of(card.fim, card.stop_tokens)[:4] == likeliest
    assert set(card.stop_tokens) <= set(stops_of(card.fim, card.stop_tokens))


@pytest.mark.parametrize(("url", "parts"), ROWS["the_root_of_the_server_is_found_for_every_form_of_the_url"])
def test_the_root_of_the_server_is_found_for_every_form_of_the_url(url: str, parts: list[object]):
    assert list(split_url(url)) == parts


# ── stop strings ──────────────────────────────────────────────────────────────────────────────────────────────────────

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


# ── error messages ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_retry_after_is_seconds_or_a_date():
    assert error_messages.retry_after_s("7") == 7 and error_messages.retry_after_s(" 0 ") == 0
    soon = datetime.now(timezone.utc) + timedelta(seconds=90)
    assert 85 < (error_messages.retry_after_s(format_datetime(soon, usegmt=True)) or 0) <= 90
    assert error_messages.retry_after_s("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert error_messages.retry_after_s("9" * 30) == error_messages.MAX_WAIT_S
    assert [error_messages.retry_after_s(value) for value in ("soon", "", "-5")] == [None] * 3


@example("Mon, 01 Jan 99999999999 00:00:00 GMT")
@example("Mon, 01 Jan 2024 00:00:00 +99999999999999")
@given(value=st.text(max_size=40))
def test_any_retry_after_value_gives_a_bounded_wait(value: str):
    wait_s = error_messages.retry_after_s(value)
    assert wait_s is None or 0 <= wait_s <= error_messages.MAX_WAIT_S


@given(body=st.binary(max_size=200) | st.sampled_from([b'{"error": 1}', b'{"error": {"message": [2]}}', b"[[[", b"{}"]))
def test_any_error_body_gives_a_text(body: bytes):
    assert isinstance(error_messages.server_error_text(body), str)


def test_a_redirect_target_is_reported_without_secrets():
    assert error_messages.redirect_target("https://a/v1", "https://u:p@b:8/c?token=1#2") == "https://b:8/c"
    assert error_messages.redirect_target("https://a/v1", "/login?next=1") == "https://a/login"
    assert error_messages.redirect_target("https://a/v1", "") == ""


@pytest.mark.parametrize("location", ["http://a:99999/", "http://[", "https://a:b/c", "//[::1]x:y"])
def test_an_invalid_redirect_target_is_left_out(location: str):
    assert error_messages.redirect_target("https://a/v1", location) in ("", "https://[::1]")


@given(st.text("ab \n'é\\\"", max_size=60), st.text("ab \n'é\\\"", max_size=60), st.data())
def test_quotations_of_the_document_are_removed_from_an_error(prompt: str, message: str, data: st.DataObject):
    offset = data.draw(st.integers(0, len(prompt)))
    message = " ".join(f"{message}{prompt[offset:]}{message}".split())
    shown = error_messages.without_quotes(message, {"prompt": prompt})
    document = " ".join(json.dumps([prompt], ensure_ascii=False).split())
    size = error_messages.QUOTED_CHARACTERS
    assert not any(shown[offset : offset + size] in document for offset in range(len(shown) - size + 1))
    rest = iter(message)
    assert all(letter in rest for letter in shown.replace("…", "")), "in its order, and nothing made up"
    assert error_messages.without_quotes(message, {"model": prompt}) == message


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


def test_only_the_first_models_of_a_long_list_are_examined(monkeypatch: pytest.MonkeyPatch):
    examined: list[str] = []
    monkeypatch.setattr(detection, "card_for", lambda model: (examined.append(model), (None, False))[1])
    models = [{"id": f"m{number}"} for number in range(3 * detection.MAX_MODELS)]
    assert detection.choose_model(models, Config()) == ("m0", "")
    assert len(examined) == detection.MAX_MODELS
