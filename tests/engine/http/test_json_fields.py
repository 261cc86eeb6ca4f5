"""Request bodies and answers without a server: the meaning of each field, and the refusal of invalid ones."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp.config import Config, EngineConfig
from speclsp.engine.api import Extra, Request, Result
from speclsp.engine.http import json_fields, llamacpp_api, openai_api
from speclsp.engine.http.json_fields import ParsedRequest
from speclsp.errors import InputError

CONFIG = Config()
FIELD_NAMES = """
input_prefix prompt input_suffix input_extra filename n_predict t_max_predict_ms temperature top_p top_k seed stream
stop n_cmpl ignore_eos cache_prompt session speculation sampling heal previous response_fields n_probs logprobs echo
best_of presence_penalty logit_bias suffix max_tokens n stream_options
"""
KNOWN = FIELD_NAMES.split()


def parsed(config: Config = CONFIG, **fields: Any) -> ParsedRequest:
    """The request of an infill body, and how it is answered."""
    return llamacpp_api.infill(json.dumps({"prompt": ""} | fields).encode(), config)


def infill(**fields: Any) -> Request:
    return parsed(**fields).request


def openai(**fields: Any) -> Request:
    return openai_api.completions(json.dumps(fields).encode(), CONFIG).request


def test_every_field_of_an_infill_body_reaches_the_engine():
    same = {"filename": "x.py", "temperature": 1, "top_p": 0.5, "top_k": 3, "seed": 9, "ignore_eos": True}
    same |= {"cache_prompt": False, "sampling": "rejection", "heal": False, "previous": "d"}
    request = infill(
        **same, input_prefix="a\n", prompt="b", input_suffix="c", session="s", n_cmpl=2,
        input_extra=[{"filename": "y.py", "text": "y"}, {"text": "z", "time": 5}], n_predict=7, t_max_predict_ms=300,
        stream=True, stop=["\n\n"], speculation={"enabled": False},
    )  # fmt: skip
    assert request == Request(
        **same, prefix="a\n", line_prefix="b", suffix="c", session="s", n=2,
        extra=(Extra(filename="y.py", text="y"), Extra(filename="", text="z")), max_tokens=7, deadline_ms=300,
        stop=("\n\n",), speculate=False,
    )  # fmt: skip


def test_missing_and_null_fields_have_llama_cpps_defaults_but_greedy_and_short():
    expected = Request(max_tokens=64, temperature=0.0, top_k=40, top_p=0.95)
    assert infill() == infill(**dict.fromkeys(KNOWN) | {"prompt": ""}) == expected


def test_a_limit_above_every_context_is_no_limit():
    most = json_fields.UNLIMITED
    for wanted, tokens in {0: 0, 64: 64, 2**31 - 1: most, 2**63: most, 10**999: most, -1: most}.items():
        assert parsed(n_predict=wanted).request.max_tokens == openai(prompt="", max_tokens=wanted).max_tokens == tokens


@pytest.mark.parametrize(
    ("fields", "meaning"),
    [
        ({"top_p": 0}, {"top_p": 0.0}),
        ({"top_p": 2}, {"top_p": 1.0}),
        ({"top_p": -0.5}, {"top_p": 0.0}),
        ({"temperature": -1, "top_p": 0.3, "min_p": 0.1}, {"temperature": 0.0, "top_p": 0.3}),
        ({"temperature": 0, "typical_p": 0.5}, {}),
        ({"seed": -5, "temperature": 1}, {"seed": 2**64 - 5, "temperature": 1.0}),
        ({"presence_penalty": 0, "frequency_penalty": 0.0, "repeat_penalty": 1.0, "min_p": 0, "logit_bias": {}}, {}),
        ({"n": 1, "best_of": 1, "echo": False, "stream": False, "logit_bias": [], "response_format": None}, {}),
        ({"n": 1.0, "max_tokens": 32.0}, {"max_tokens": 32}),
        ({"stop": ""}, {}),
        ({"stop": []}, {}),
        ({"stop": ["", "x"]}, {"stop": ("x",)}),
        ({"unknown": [{"deep": None}], "user": 5}, {}),
        (dict.fromkeys([*KNOWN, "user"]), {}),
    ],
)
def test_both_apis_accept_the_values_that_their_servers_accept(fields: dict[str, Any], meaning: dict[str, Any]):
    body = fields | {"prompt": "", "suffix": None}
    assert openai(**body) == replace(openai(prompt=""), **meaning)
    assert infill(**body) == replace(infill(), **meaning)


@pytest.mark.parametrize(
    ("fields", "meaning"),
    [
        ({"top_k": -7}, {"top_k": 0}),
        ({"top_k": 0}, {"top_k": 0}),
        ({"top_k": 2**40}, {"top_k": json_fields.UNLIMITED}),
        ({"t_max_predict_ms": -5}, {}),
        ({"t_max_predict_ms": 0}, {}),
        ({"n_indent": -3, "n_probs": 0}, {}),
    ],
)
def test_the_end_of_a_scale_switches_a_limit_off_as_in_llama_cpp(fields: dict[str, Any], meaning: dict[str, Any]):
    assert parsed(**fields) == replace(parsed(), request=replace(infill(), **meaning))


@pytest.mark.parametrize(
    "fields",
    [{"seed": seed, "temperature": temperature} for seed in (-1, 2**32 - 1) for temperature in (0, 1)]
    + [{"temperature": 1}, {"temperature": 1, "seed": None}, {"n": 2}],
)
def test_llama_cpps_random_seeds_and_sampling_without_one_draw_a_seed_for_each_request(fields: dict[str, Any]):
    for parse in (infill, openai):
        seeds = {parse(**{"prompt": "a"} | fields).seed for _ in range(8)}
        assert len(seeds) > 1
        assert 0 <= min(seeds) <= max(seeds) < 2**31


def test_the_answer_reports_the_drawn_seed_and_a_request_with_it_is_the_same_request():
    ask = parsed(prompt="a", temperature=0.7, n_predict=5)
    settings = final(ask, result("b"))["generation_settings"]
    assert settings["seed"] == ask.request.seed
    assert infill(**{"prompt": "a"} | settings) == ask.request


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
def test_any_body_is_parsed_or_refused_in_one_short_line(body: dict[str, Any]):
    for read in (llamacpp_api.infill, llamacpp_api.completion, openai_api.completions):
        try:
            ask = read(json.dumps(body).encode(), CONFIG)
        except InputError as error:
            assert "\n" not in str(error)
            assert len(str(error)) < 200
        else:
            request = ask.request
            assert 0 <= request.max_tokens <= json_fields.UNLIMITED
            assert 0 <= request.temperature <= 100
            assert 0 <= request.top_p <= 1
            assert min(request.top_k, request.seed, request.deadline_ms) >= 0
            assert all(request.stop)


@given(count=st.integers(0, 30))
def test_only_the_last_snippets_that_can_fit_are_read(count: int):
    """Each takes a token; the most relevant are last."""
    extra = [{"text": str(number)} for number in range(240 + count)]
    request = parsed(Config(engine=EngineConfig(context_tokens=256)), input_extra=extra).request
    assert [item.text for item in request.extra] == [item["text"] for item in extra][-256:]


def result(text: str = "", **fields: Any) -> Result:
    return Result(**{"text": text, "stop_type": "eos"} | fields)


def final(ask: ParsedRequest, answer: Result, *sent: str) -> dict[str, Any]:
    """The final object of an answer of which `sent` was streamed."""
    return llamacpp_api.final_json(ask, 0, answer, "p", 0.0, *sent)


@pytest.mark.parametrize("name", json_fields.NEUTRAL)
def test_unsupported_options_are_accepted_only_with_their_neutral_value(name: str):
    for neutral in (*json_fields.NEUTRAL[name], None):
        assert infill(**{name: neutral}) == infill()
        assert openai(prompt="a", **{name: neutral}) == openai(prompt="a")
    for parse, value in ((infill, {"7": 5}), (openai, 1.5)):
        with pytest.raises(InputError, match=f"{name} is .*: expected .*only supported value"):
            parse(prompt="a", **{name: value})


def test_min_p_and_typical_p_matter_only_with_a_temperature():
    assert infill(min_p=0.05) == infill()
    assert infill(min_p=0.05, temperature=1e-40) == replace(infill(), temperature=1e-40), "which is greedy"
    assert infill(min_p=0, temperature=0.5, seed=1) == infill(temperature=0.5, seed=1)
    with pytest.raises(InputError, match=r"min_p is 0\.05: expected 0"):
        infill(min_p=0.05, temperature=0.5)


@given(lines=st.lists(st.from_regex(r"[ \t]{0,6}[ab]?", fullmatch=True), max_size=8), indent=st.integers(0, 6))
def test_a_block_is_a_prefix_of_whole_lines_that_later_text_cannot_change(lines: list[str], indent: int):
    text = "\n".join(lines)
    kept = llamacpp_api.block(text, indent)
    assert text.startswith(kept)
    assert kept == text or kept.endswith("\n")
    assert llamacpp_api.block(kept, indent) == kept
    if kept != text:
        assert llamacpp_api.block(text + "\n  more", indent) == kept
