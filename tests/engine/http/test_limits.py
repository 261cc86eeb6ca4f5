"""Limits of an answer over HTTP, with a trained tiny model: any prompt fits, and all fields end where the text ends."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engine.engine_process import EngineProcess, events
from support.waiting import wait_until

CONTEXT_TOKENS = 256
WITH_TIMES = ("timings", "speculation", "generation_settings")
CASES = "case 0: x += 0; break;\ncase 1: x += 1; break;\ncase 2:"  # continued by cases of a line each
METHODS = "import os\n\n\nclass A:\n    def f(self):\n        return 1\n\n    def g(self):\n"  # by more of them


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    # a round in float32 takes longer than the least limit, 1 ms
    limits = (f"engine.context_tokens={CONTEXT_TOKENS}", "engine.threads=1", "engine.quantization=fp32")
    options = [word for limit in limits for word in ("--set", limit)]
    process = EngineProcess(tmp_path_factory.mktemp("t"), *options, model="tiny").wait()
    wait_until(lambda: process.http.get("/health").json()["status"] == "ok", 60)
    yield process
    process.close()


def answer(engine: EngineProcess, path: str, **body: Any) -> Any:
    """The answer, without what may differ: times, and the counts of drafts."""
    reply = engine.http.post(path, json=body)
    assert reply.status_code == 200, reply.text
    if body.get("stream"):
        received = list(events(reply))
        return received[-1] | {"content": "".join(event["content"] for event in received)} | dict.fromkeys(WITH_TIMES)
    listed = reply.json() if isinstance(reply.json(), list) else [reply.json()]
    return [{name: value for name, value in fields.items() if name not in WITH_TIMES} for fields in listed]


@settings(max_examples=80)
@given(
    prompt=st.sampled_from((CASES, METHODS, "x = [1, 2, 3, 1, 2, 3, 1, 2,", "")),
    typed=st.text("ab 1,\n", max_size=4),
    limits=st.fixed_dictionaries(
        {"n_predict": st.sampled_from((1, 5, 30, 60))},
        optional={
            "n_indent": st.integers(1, 6),
            "stop": st.lists(st.sampled_from(("\n", " 1", "rn", "\n\n", "; br")), max_size=2),
            "n_cmpl": st.just(2),
            "stream": st.just(True),
            "temperature": st.sampled_from((0.8, 1.5)),
            "ignore_eos": st.booleans(),
        },
    ),
)
def test_every_field_of_an_answer_is_the_same_with_and_without_speculation(
    tiny: EngineProcess, prompt: str, typed: str, limits: dict[str, Any]
):
    both = [
        answer(tiny, "/completion", prompt=prompt + typed, seed=7, speculation={"enabled": enabled}, **limits)
        for enabled in (False, True)
    ]
    assert both[0] == both[1]


def test_an_answer_that_ends_with_its_block_or_line_has_the_tokens_of_that_text(tiny: EngineProcess):
    plain = {"speculation": {"enabled": False}}  # a round makes one token: none of a second line comes in time
    for limit in ({"n_indent": 4}, {"t_max_predict_ms": 1} | plain):
        body = {"prompt": CASES, "n_predict": 24, "heal": False} | limit
        (cut,) = answer(tiny, "/completion", **body)
        (whole,) = answer(tiny, "/completion", **body | dict.fromkeys(limit))
        assert cut["content"] == whole["content"][: whole["content"].index("\n") + 1]
        reply = tiny.http.post("/completion", json=body | dict.fromkeys(limit) | plain | {"stream": True})
        texts = [event["content"] for event in events(reply)]
        assert cut["tokens"] == whole["tokens"][: len(cut["tokens"])]
        spelled = "".join(texts[: len(cut["tokens"])])
        assert spelled.startswith(cut["content"])
        assert len(spelled) - len(cut["content"]) < len(texts[len(cut["tokens"]) - 1]), "no token of it can be left out"
        assert cut["tokens_predicted"] == len(cut["tokens"]) == cut["tokens_cached"] - cut["tokens_evaluated"]


LONG = "INSERT INTO t VALUES " + ",".join(f"({n},'é{n * n % 997:08x}')" for n in range(200))
TEMPLATE = "<|fim_prefix|>{}<|fim_suffix|>{}<|fim_middle|>{}"


@pytest.mark.parametrize(
    ("path", "prompt"),
    [
        ("/infill", {"prompt": LONG}),
        ("/infill", {"input_prefix": "-- dump\n" + (LONG[:1200] + ";\n") * 7, "prompt": "INS"}),
        ("/infill", {"prompt": LONG, "input_suffix": LONG, "input_extra": [{"filename": "a.sql", "text": LONG}]}),
        ("/completion", {"prompt": LONG}),
        ("/completion", {"prompt": TEMPLATE.format("a", "b", LONG)}),
        ("/completion", {"prompt": TEMPLATE.format(LONG, LONG, "")}),
        ("/completion", {"prompt": "<|file_sep|>b.py\n" + LONG + TEMPLATE.format("a", "b", "c")}),
        ("/v1/completions", {"prompt": LONG, "suffix": ";"}),
        ("/v1/completions", {"prompt": "SELECT " + LONG[:30], "suffix": ";" + LONG}),
        ("/v1/completions", {"prompt": LONG}),
        ("/v1/completions", {"prompt": "a"}),
    ],
)
def test_no_prompt_is_refused_and_a_larger_limit_never_costs_a_token_of_it(
    tiny: EngineProcess, path: str, prompt: dict[str, Any]
):
    """`ignore_eos` is llama.cpp's: every completion goes on to its limit, or to the end of the context."""
    texts, prompts = [], set()
    for limit in (1, 8, CONTEXT_TOKENS - 1, CONTEXT_TOKENS, 10**400, -1):
        reply = tiny.http.post(path, json=prompt | {"max_tokens": limit, "ignore_eos": True, "stop": ["\n\n\n"]})
        assert reply.status_code == 200, reply.text
        fields = reply.json()
        texts.append(fields["choices"][0]["text"] if "choices" in fields else fields["content"])
        timings = fields["timings"]
        prompts.add(timings["prompt_n"] + timings["cache_n"])
        assert timings["prompt_n"] + timings["cache_n"] + timings["predicted_n"] <= CONTEXT_TOKENS
    assert len(prompts) == 1
    assert all(longer.startswith(shorter) for shorter, longer in pairwise(texts))
    assert texts[-1] == texts[-2], "to the end of the context"
