"""Losslessness: speculative decoding gives exactly the tokens of plain decoding. Trained tiny models."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engine.counting_lm import Script
from support.engine.tiny_engine import FAST, tiny_engine
from support.soak import in_soak

from speclsp.engine.api import Request, Result
from speclsp.engine.decoding.accept import Sampler, Sampling
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.decoding.drafters import (
    Drafter,
    ModelDrafter,
    NGramDrafter,
    Prior,
    ReuseDrafter,
)
from speclsp.engine.decoding.generate import Limits, Round, generate
from speclsp.engine.decoding.policy import Costs, FixedPolicy, MeasuredPolicy
from speclsp.engine.decoding.token_healing import Healing

HOLES = [
    ("import os\n\n\ndef read(path):\n    ", "with open(pa", "\n        return f.read()\n"),
    ("class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n", "        ", "\n"),
    ("def total(values):\n    result = 0\n    for value in values:\n", "        result +", "\n    return result\n"),
    ("try:\n    import ssl\nexcept ImportError:\n", "    ssl = No", "\n"),
    ("", "", ""),
    ("# naïve – 東京\n", "print(", ")\n"),
]


GAMMAS = range(1, 17)
SHORT = (1, 2, 3, 4, 5, 6, 16)  # with each hole


@pytest.fixture(scope="module", params=[FAST, *in_soak("fp32")])
def number_format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def engine(number_format: str) -> CompletionEngine:
    return tiny_engine(number_format)


def hole(index: int, **options: object) -> Request:
    prefix, line_prefix, suffix = HOLES[index]
    return Request(prefix=prefix, line_prefix=line_prefix, suffix=suffix, **options)


def completed(engine: CompletionEngine, request: Request) -> Result:
    running = engine.complete(request, threading.Event())
    pieces = list(running)
    assert "".join(piece.text for piece in pieces) == running.result.text
    assert [token for piece in pieces for token in piece.tokens] == running.result.tokens
    return running.result


def tokens(
    engine: CompletionEngine,
    prompt: Sequence[int],
    drafters: Sequence[Drafter],
    gamma: int,
    sampling: Sampling = Sampling(),  # noqa: B008 - frozen
    heal: bytes = b"",
    **limits: object,
) -> list[int]:
    limits.setdefault("max_tokens", 40)
    limits.setdefault("stop_tokens", engine.prompter.stop_tokens)
    steps = generate(
        engine.target_decoder,
        drafters,
        FixedPolicy(gamma),
        prompt,
        Limits(constraint=Healing(heal, engine.prompter.vocabulary) if heal else None, **limits),
        Sampler(sampling),
        threading.Event(),
    )
    return [token for step in steps for token in step.tokens]


def adversary(truth: Sequence[int], start: int, right: float, seed: int) -> Script:
    """A drafter that knows the tokens of plain decoding and guesses each correctly with probability `right`."""
    dice = random.Random(seed)

    def propose(ids: list[int], k: int) -> list[int]:
        ahead = list(truth[len(ids) - start :][:k])
        return [token if dice.random() < right else (token + 1) % 512 for token in ahead]

    return Script(propose)


@pytest.mark.parametrize(
    ("gamma", "index"),
    [
        *((gamma, gamma % len(HOLES)) for gamma in SHORT),
        *in_soak(
            *(
                (gamma, hole)
                for gamma in GAMMAS
                for hole in range(len(HOLES))
                if gamma not in SHORT or hole != gamma % len(HOLES)
            )
        ),
    ],
)
def test_every_draft_length_and_drafter_gives_plain_decodings_tokens(engine: CompletionEngine, index: int, gamma: int):
    prompt = engine.prompter.build(hole(index))
    start = len(prompt.ids)
    plain = tokens(engine, prompt.ids, [], 0, heal=prompt.heal)
    assert engine.draft_decoder is not None
    drafters: list[Drafter] = [
        ModelDrafter(engine.draft_decoder, engine.prompter.stop_tokens),
        NGramDrafter(),
        ReuseDrafter([*plain[:4], 7, 8, 9, *plain[4:]], start),
        *(adversary(plain, start, right, gamma) for right in (0.0, 0.5, 1.0)),
    ]
    for drafter in drafters:
        assert tokens(engine, prompt.ids, [drafter], gamma, heal=prompt.heal) == plain, drafter.source


@settings(max_examples=40)
@given(data=st.data(), gamma=st.integers(1, 64), seed=st.integers(0, 3))
def test_any_reuse_gives_plain_decodings_tokens(engine: CompletionEngine, data: st.DataObject, gamma: int, seed: int):
    """The text: pieces of the answer in any order and number, between other tokens."""
    sampling, prompt = (
        Sampling(temperature=0.8 if seed else 0.0, seed=seed),
        engine.prompter.encode("def read(path):\n"),
    )
    plain = tokens(engine, prompt, [], 0, sampling, max_tokens=24)
    cut = st.integers(0, len(plain)).flatmap(lambda low: st.integers(low, len(plain)).map(lambda end: plain[low:end]))
    pieces = data.draw(st.lists(cut | st.lists(st.integers(0, 511), max_size=3), max_size=5))
    drafters = [ReuseDrafter([token for piece in pieces for token in piece], len(prompt)), NGramDrafter()]
    assert tokens(engine, prompt, drafters, gamma, sampling, max_tokens=24) == plain


@pytest.mark.parametrize("at", [*range(0, 20, 3), *in_soak(*(at for at in range(20) if at % 3))])
def test_a_stop_token_at_any_position_of_a_round_ends_both_alike(engine: CompletionEngine, at: int):
    prompt = engine.prompter.build(hole(1))
    free = tokens(engine, prompt.ids, [], 0, stop_tokens=frozenset(), max_tokens=24)
    stops = frozenset({free[at]})
    plain = tokens(engine, prompt.ids, [], 0, stop_tokens=stops, max_tokens=24)
    assert plain == free[: free.index(free[at])]
    teller = adversary(free, len(prompt.ids), 1.0, 0)
    for gamma in (1, 3, 7, 16):
        assert tokens(engine, prompt.ids, [teller], gamma, stop_tokens=stops, max_tokens=24) == plain


@settings(max_examples=15)
@given(max_tokens=st.integers(1, 30), gamma=st.integers(1, 16), right=st.sampled_from([0.5, 1.0]))
def test_the_length_limit_cuts_both_alike(engine: CompletionEngine, max_tokens: int, gamma: int, right: float):
    prompt = engine.prompter.build(hole(2))
    free = tokens(engine, prompt.ids, [], 0, stop_tokens=frozenset(), max_tokens=40)
    teller = adversary(free, len(prompt.ids), right, max_tokens)
    limited = tokens(engine, prompt.ids, [teller], gamma, stop_tokens=frozenset(), max_tokens=max_tokens)
    assert limited == free[:max_tokens]


def test_a_cancelled_completion_can_be_continued_with_the_same_tokens(engine: CompletionEngine):
    prompt = engine.prompter.build(hole(1))
    plain = tokens(engine, prompt.ids, [], 0)
    for after in range(1, 6):
        cancel, got = threading.Event(), list[Round]()
        for step in generate(
            engine.target_decoder,
            [NGramDrafter()],
            FixedPolicy(4),
            prompt.ids,
            Limits(max_tokens=40),
            Sampler(Sampling()),
            cancel,
        ):
            got.append(step)
            if len(got) == after:
                cancel.set()
        so_far = [token for step in got for token in step.tokens]
        assert plain[: len(so_far)] == so_far[: len(plain)]
        rest = tokens(engine, [*prompt.ids, *so_far], [NGramDrafter()], 4, max_tokens=40 - len(so_far))
        assert (so_far + rest)[: len(plain)] == plain


@settings(max_examples=15)
@given(data=st.data())
def test_rewinding_and_editing_anywhere_equals_a_fresh_start(engine: CompletionEngine, data: st.DataObject):
    prompt = engine.prompter.build(hole(data.draw(st.integers(0, 3)))).ids
    tokens(engine, prompt, [NGramDrafter()], 5, max_tokens=10)
    cut = data.draw(st.integers(1, len(prompt)))
    edited = [*prompt[:cut], *data.draw(st.lists(st.integers(300, 800), max_size=4))]
    warm = tokens(engine, edited, [NGramDrafter()], 4, max_tokens=12)
    engine.target_decoder.rewind(0)
    assert tokens(engine, edited, [], 0, max_tokens=12) == warm


class SecondModel(ModelDrafter):
    """A second draft model: its source is unknown to the policy."""

    source = "second model"
    prior = Prior(alphas={0: 0.8})


def test_two_draft_models_together_give_plain_decodings_tokens(engine: CompletionEngine, number_format: str):
    assert engine.draft_decoder is not None
    second = tiny_engine(number_format).draft_decoder
    assert second is not None
    policy, sources = MeasuredPolicy(Costs(verify_ms={1: 100.0, 64: 101.0}, guess_ms={"model": 1.0})), set()
    for index in range(len(HOLES)):
        prompt = engine.prompter.build(hole(index, heal=False))
        plain = tokens(engine, prompt.ids, [], 0)
        drafters = [SecondModel(second), ModelDrafter(engine.draft_decoder)][:: 1 if index % 2 else -1]
        limits = Limits(max_tokens=40, stop_tokens=engine.prompter.stop_tokens)
        sampler, cancel = Sampler(Sampling()), threading.Event()
        steps = list(generate(engine.target_decoder, drafters, policy, prompt.ids, limits, sampler, cancel))
        assert [token for step in steps for token in step.tokens] == plain
        sources |= {step.source for step in steps if step.drafted}
    assert sources == {"second model", "model"}


def test_a_draft_that_is_the_target_is_accepted_in_full(engine: CompletionEngine, number_format: str):
    """The cheapest and strictest check: any dependence between rows and any position error fails it."""
    twin = tiny_engine(number_format, draft=False).target_decoder
    for sampling in (Sampling(), Sampling(temperature=0.9, seed=5), Sampling(temperature=0.9, method="rejection")):
        for index in range(len(HOLES)):
            prompt = engine.prompter.build(hole(index, heal=False))
            drafter = ModelDrafter(twin, engine.prompter.stop_tokens, p_min=0.0)
            steps = list(
                generate(
                    engine.target_decoder,
                    [drafter],
                    FixedPolicy(5),
                    prompt.ids,
                    Limits(max_tokens=40, stop_tokens=engine.prompter.stop_tokens),
                    Sampler(sampling),
                    threading.Event(),
                )
            )
            full = [step for step in steps if step.stop != "eos"]
            assert all(step.accepted == step.drafted for step in full)
            assert sum(step.drafted for step in steps)


@settings(max_examples=20)
@given(
    index=st.integers(0, len(HOLES) - 1),
    seed=st.integers(0, 2**40),
    temperature=st.sampled_from([0.2, 0.7, 1.0, 1.5]),
    top_p=st.sampled_from([1.0, 0.95, 0.6]),
    gamma=st.integers(1, 8),
)
def test_coupled_sampling_is_seed_identical_to_plain(
    engine: CompletionEngine, index: int, seed: int, temperature: float, top_p: float, gamma: int
):
    sampling = Sampling(temperature=temperature, top_p=top_p, seed=seed)
    prompt = engine.prompter.build(hole(index))
    assert engine.draft_decoder is not None
    plain = tokens(engine, prompt.ids, [], 0, sampling, prompt.heal, max_tokens=24)
    for drafter in (ModelDrafter(engine.draft_decoder), NGramDrafter()):
        assert tokens(engine, prompt.ids, [drafter], gamma, sampling, prompt.heal, max_tokens=24) == plain


@pytest.mark.parametrize("index", range(len(HOLES)))
def test_a_request_has_the_same_result_with_and_without_speculation(engine: CompletionEngine, index: int):
    """The whole engine: prompt, healing, policy, text."""
    for options in (
        {},
        {"temperature": 0.8, "seed": 3},
        {"previous": "pass\n    return 1"},
        {"previous": "pass\n    return 1"},
        {"stop": ("\n",)},
        {"gamma": 8},
    ):
        request = hole(index, max_tokens=48, **options)
        plain = completed(engine, replace(request, speculate=False))
        fast = completed(engine, request)
        assert (fast.tokens, fast.text, fast.stop_type) == (plain.tokens, plain.text, plain.stop_type)
        assert plain.drafted == 0
        assert fast.rounds <= plain.rounds


def test_drafts_are_accepted_and_save_rounds(engine: CompletionEngine):
    results = [completed(engine, hole(index, max_tokens=48)) for index in range(len(HOLES))]
    assert sum(result.accepted for result in results) > 0
    assert sum(result.rounds for result in results) < sum(len(result.tokens) for result in results)


def test_the_healed_text_continues_the_typed_word(engine: CompletionEngine):
    result = completed(engine, hole(0, max_tokens=16))
    healed = engine.prompter.build(hole(0)).heal.decode()
    spelled = b"".join(engine.prompter.vocabulary.bytes[token] for token in result.tokens).decode(errors="replace")
    assert healed == "(pa"
    assert spelled == healed + result.text
