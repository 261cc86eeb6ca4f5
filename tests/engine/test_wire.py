"""Bodies in and answers out, without a server: what each field becomes, and that no body gets past unchecked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp.config import Config, EngineConfig
from speclsp.engine import wire
from speclsp.engine.seam import Extra, Request, Result
from speclsp.errors import InputError

CONFIG = Config()
KNOWN = [
    "input_prefix",
    "prompt",
    "input_suffix",
    "input_extra",
    "filename",
    "n_predict",
    "t_max_predict_ms",
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "stream",
    "stop",
    "n_cmpl",
    "ignore_eos",
    "cache_prompt",
    "session",
    "speculation",
    "sampling",
    "heal",
    "previous",
    "response_fields",
    "suffix",
    "max_tokens",
    "n",
    "stream_options",
]


def infill(**fields: Any) -> Request:
    return wire.infill(json.dumps({"prompt": ""} | fields).encode(), CONFIG).request


def openai(**fields: Any) -> Request:
    return wire.completions(json.dumps(fields).encode(), CONFIG).request


def test_every_field_of_an_infill_body_reaches_the_engine():
    request = infill(
        input_prefix="a\n",
        prompt="b",
        input_suffix="c",
        filename="x.py",
        input_extra=[{"filename": "y.py", "text": "y"}, {"text": "z", "time": 5}],
        n_predict=7,
        t_max_predict_ms=300,
        temperature=1,
        top_p=0.5,
        top_k=3,
        seed=9,
        stop=["\n\n"],
        ignore_eos=True,
        cache_prompt=False,
        speculation={"enabled": False, "gamma": 4},
        sampling="rejection",
        heal=False,
        previous="d",
        session="s",
        n_cmpl=2,
    )
    assert request == Request(
        prefix="a\n",
        line_prefix="b",
        suffix="c",
        filename="x.py",
        extra=(Extra(filename="y.py", text="y"), Extra(filename="", text="z")),
        max_tokens=7,
        deadline_ms=300,
        temperature=1.0,
        top_p=0.5,
        top_k=3,
        seed=9,
        stop=("\n\n",),
        ignore_eos=True,
        cache_prompt=False,
        speculate=False,
        gamma=4,
        sampling="rejection",
        heal=False,
        previous="d",
        session="s",
        n=2,
    )


def test_what_is_left_out_or_null_is_as_llama_cpp_has_it_but_greedy_and_short():
    expected = Request(max_tokens=64, temperature=0.0, top_k=40, top_p=0.95)
    assert infill() == infill(**dict.fromkeys(KNOWN) | {"prompt": ""}) == expected


def test_the_settings_decide_whether_to_speculate_unless_the_body_does():
    off = Config(engine=EngineConfig(speculation=False))
    assert not wire.infill(b'{"prompt": ""}', off).request.speculate
    assert wire.infill(b'{"prompt": "", "speculation": {"enabled": true}}', off).request.speculate


def test_the_context_is_the_limit_of_what_can_be_asked_for():
    small = Config(engine=EngineConfig(context_tokens=256))
    assert wire.infill(b'{"prompt": "", "n_predict": 256}', small).request.max_tokens == 256
    with pytest.raises(InputError, match="from 0 to 256"):
        wire.infill(b'{"prompt": "", "n_predict": 257}', small)


def test_seed_minus_one_draws_a_seed_each_time():
    seeds = {infill(seed=-1).seed for _ in range(8)}
    assert len(seeds) > 1
    assert min(seeds) >= 0


def test_a_negative_top_k_means_all_as_in_llama_cpp():
    assert infill(top_k=-1).top_k == infill(top_k=0).top_k == 0


def test_one_stop_text_may_stand_alone_and_empty_ones_are_dropped():
    assert infill(stop="x").stop == ("x",)
    assert infill(stop=["", "x", ""]).stop == ("x",)


@pytest.mark.parametrize(
    ("prompt", "prefix", "line"),
    [("", "", ""), ("a", "", "a"), ("a\n", "a\n", ""), ("a\nb", "a\n", "b"), ("a\n\nb", "a\n\n", "b")],
)
def test_an_openai_prompt_with_a_suffix_is_split_at_its_last_line(prompt: str, prefix: str, line: str):
    request = openai(prompt=prompt, suffix="")
    assert (request.prefix, request.line_prefix, request.suffix, request.raw_prompt) == (prefix, line, "", None)


def test_an_openai_prompt_without_a_suffix_stays_whole():
    request = openai(prompt="a\nb", suffix=None, top_p=None)
    assert (request.raw_prompt, request.prefix, request.line_prefix) == ("a\nb", "", "")
    assert (request.top_p, request.top_k) == (1.0, 0), "as OpenAI has it"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KNOWN), inner, max_size=4),
    max_leaves=8,
)


@given(body=st.dictionaries(st.sampled_from(KNOWN), json_values, max_size=6))
def test_a_body_is_read_or_refused_in_one_short_line(body: dict[str, Any]):
    for read in (wire.infill, wire.completions):
        try:
            ask = read(json.dumps(body).encode(), CONFIG)
        except InputError as error:
            assert "\n" not in str(error)
            assert len(str(error)) < 200
        else:
            request = ask.request
            assert 0 <= request.max_tokens <= CONFIG.engine.context_tokens
            assert 0 <= request.temperature <= 100
            assert 0 < request.top_p <= 1
            assert min(request.top_k, request.seed, request.deadline_ms) >= 0
            assert all(request.stop)


@given(body=st.binary(max_size=40))
def test_bytes_that_are_not_json_are_refused(body: bytes):
    try:
        fields = wire.read(body)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert isinstance(json.loads(body), dict)
        assert fields.body == json.loads(body)


def result(text: str = "", **fields: Any) -> Result:
    return Result(text=text, stop_type="eos", **fields)


def test_timings_count_cached_prompt_tokens_apart_and_never_divide_by_zero():
    spent = wire.timings(
        result(prompt_tokens=10, cached_tokens=8, prompt_ms=4.0, decode_ms=6.0, tokens=[1, 2, 3], ttft_ms=5.0), 1.5
    )
    assert (spent["prompt_n"], spent["cache_n"], spent["predicted_n"]) == (2, 8, 3)
    assert (spent["prompt_per_token_ms"], spent["prompt_per_second"]) == (2.0, 500.0)
    assert (spent["predicted_per_token_ms"], spent["predicted_per_second"]) == (2.0, 500.0)
    assert (spent["ttft_ms"], spent["queue_ms"]) == (5.0, 1.5)
    assert wire.timings(result(), 0.0)["predicted_per_second"] == 0.0


def test_different_completions_keep_their_order_and_the_first_even_if_empty():
    texts = ["", "a", "b", "a", ""]
    assert [one.text for one in wire.different([result(text) for text in texts])] == ["", "a", "b"]
    assert [one.text for one in wire.different([result("a"), result(""), result("a")])] == ["a"]


def test_what_was_held_back_while_streaming_comes_with_the_end():
    ask = wire.infill(b'{"prompt": "", "stream": true}', CONFIG)
    assert wire.final_json(ask, [result("abc")], "p", 0.0, ["ab"])["content"] == "c"
    assert wire.final_json(ask, [result("abc")], "p", 0.0, [])["content"] == "abc"


def test_only_the_fields_asked_for_are_answered_and_unknown_ones_left_out():
    answer = {"content": "x", "timings": {"prompt_n": 3}}
    assert wire.picked(answer, ["timings/prompt_n", "content", "nothing", "content/deeper"]) == {
        "timings/prompt_n": 3,
        "content": "x",
    }


def test_any_text_can_be_sent():
    said = json.loads(wire.dump({"content": "\ud800\n\u2028\x00é😀"}))
    assert said == {"content": "\ud800\n\u2028\x00é😀"}
    assert b"\n" not in wire.dump({"content": "\n\r\u2028"})
