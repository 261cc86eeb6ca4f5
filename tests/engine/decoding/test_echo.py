"""The model-free completer: its text, and the interface guarantees that it shares with a real model."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp.config import Config, EchoConfig
from speclsp.engine.api import Request
from speclsp.engine.decoding.echo import EchoCompleter, EchoCompletion

ANSWER = "E:ba7816bf:cb8379ac"  # sha256("abc"), sha256("def")


def start(round_ms: int = 0, cancel: threading.Event | None = None, **fields: object) -> EchoCompletion:
    request = Request(**{"prefix": "a", "line_prefix": "bc", "suffix": "def"} | fields)
    return EchoCompleter(Config(echo=EchoConfig(round_ms=round_ms))).complete(request, cancel or threading.Event())


def text_of(completion: EchoCompletion) -> str:
    return "".join(piece.text for piece in completion)


def test_the_text_hashes_the_text_before_and_after_the_cursor():
    assert text_of(start()) == ANSWER


def test_the_start_of_the_line_makes_no_difference():
    assert text_of(start(prefix="abc", line_prefix="")) == ANSWER


def test_a_raw_prompt_has_nothing_after_it():
    assert text_of(start(raw_prompt="abc")) == "E:ba7816bf:e3b0c442"


def test_a_lone_surrogate_is_hashed_as_its_three_bytes():
    assert text_of(start(prefix="\ud800", line_prefix="")).startswith("E:91a681b9:")


def test_a_round_is_one_character_and_the_result_adds_up():
    completion = start()
    pieces = list(completion)
    result = completion.result
    assert [piece.tokens for piece in pieces] == [(ord(character),) for character in ANSWER]
    assert all((piece.source, piece.drafted, piece.accepted) == ("", 0, 0) for piece in pieces)
    assert (result.text, result.stop_type, result.rounds) == (ANSWER, "eos", len(ANSWER))
    assert (result.drafted, result.accepted, result.by_source) == (0, 0, {})
    assert result.tokens == [ord(character) for character in ANSWER]
    assert 0 < result.ttft_ms <= result.decode_ms
    assert result.prompt_tokens == 6


def test_different_answers_are_numbered_from_the_second_on():
    assert [text_of(start(n=n)) for n in (1, 2, 3)] == [ANSWER, ANSWER + ":2", ANSWER + ":3"]


@pytest.mark.parametrize(("max_tokens", "stop_type"), [(0, "limit"), (1, "limit"), (18, "limit"), (19, "eos")])
def test_it_ends_at_the_token_limit(max_tokens: int, stop_type: str):
    completion = start(max_tokens=max_tokens)
    assert text_of(completion) == completion.result.text == ANSWER[:max_tokens]
    assert completion.result.stop_type == stop_type


def test_a_completion_ends_at_its_deadline_with_the_text_so_far():
    completion = start(round_ms=10, deadline_ms=25)
    assert ANSWER.startswith(text_of(completion))
    assert completion.result.stop_type == "deadline"
    assert 1 <= completion.result.rounds <= 3


def test_no_part_of_a_stop_text_is_ever_shown():
    completion = start(stop=("bf:cb",))
    assert text_of(completion) == completion.result.text == "E:ba7816"
    assert completion.result.stop_type == "word"
    assert completion.result.rounds == len("E:ba7816bf:cb"), "the rounds it took to know are counted"


def test_text_that_only_started_like_a_stop_text_is_shown():
    assert text_of(start(stop=("bf:cb!", "ac!"))) == ANSWER
    assert text_of(start(stop=("6bf:c",), max_tokens=10)) == ANSWER[:10]


def test_cancelling_ends_a_round_that_has_begun():
    cancel = threading.Event()
    completion = start(round_ms=60_000, cancel=cancel)
    threading.Timer(0.05, cancel.set).start()
    began = time.perf_counter()
    assert list(completion) == []
    assert time.perf_counter() - began < 5
    assert completion.result.stop_type == "cancelled"


def test_a_cancelled_completion_keeps_its_text():
    cancel = threading.Event()
    completion = start(cancel=cancel)
    rounds = iter(completion)
    text = next(rounds).text + next(rounds).text
    cancel.set()
    assert list(rounds) == []
    assert (completion.result.text, completion.result.stop_type) == (text, "cancelled")


def test_a_round_takes_the_configured_time():
    completion = start(round_ms=20, max_tokens=3)
    assert all(piece.ms >= 19 for piece in completion)
    assert completion.result.decode_ms >= 57


@given(
    stops=st.lists(st.text("E:0123456789abcdef", min_size=1, max_size=4), max_size=4), limit=st.integers(0, len(ANSWER))
)
def test_pieces_add_up_to_the_text_before_the_first_stop(stops: list[str], limit: int):
    completion = start(stop=tuple(stops), max_tokens=limit)
    whole = ANSWER[:limit]
    ends = [whole.index(stop) + len(stop) for stop in stops if stop in whole]
    generated = whole[: min(ends, default=len(whole))]  # no round follows the one that completed a stop text
    starts = [generated.index(stop) for stop in stops if stop in generated]
    assert text_of(completion) == completion.result.text == generated[: min(starts, default=len(generated))]
    assert len(completion.result.tokens) == len(generated)
