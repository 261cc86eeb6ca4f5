"""The draft of edit models' answers: the window itself. Exact for any window, and few rounds for the usual edits."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engine.tiny_engine import FAST, tiny_engine
from support.soak import in_soak

from speclsp.engine.api import Piece, Request
from speclsp.engine.decoding.accept import Sampler, Sampling
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.decoding.drafters import NGramDrafter, WindowDrafter
from speclsp.engine.decoding.generate import Limits, generate
from speclsp.engine.decoding.policy import FixedPolicy

# milliseconds of a pass of the 0.5B on two cores, by rows


# ── exactness ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module", params=[FAST, *in_soak("fp32")])
def engine(request: pytest.FixtureRequest) -> CompletionEngine:
    return tiny_engine(request.param)


def decoded(engine: CompletionEngine, window: Sequence[int] | None, gamma: int, sampling: Sampling) -> list[int]:
    prompt = engine.prompter.encode("def read(path):\n")
    steps = generate(
        engine.target_decoder,
        [] if window is None else [WindowDrafter(window, len(prompt)), NGramDrafter()],
        FixedPolicy(gamma),
        prompt,
        Limits(max_tokens=24, stop_tokens=engine.prompter.stop_tokens),
        Sampler(sampling),
        threading.Event(),
    )
    return [token for step in steps for token in step.tokens]


@settings(max_examples=40, deadline=None)
@given(data=st.data(), gamma=st.integers(1, 64), seed=st.integers(0, 3))
def test_any_window_gives_plain_decodings_tokens(engine: CompletionEngine, data: st.DataObject, gamma: int, seed: int):
    """The window: pieces of the answer in any order and number, between other tokens."""
    sampling = Sampling(temperature=0.8 if seed else 0.0, seed=seed)
    plain = decoded(engine, None, 0, sampling)
    cut = st.integers(0, len(plain)).flatmap(lambda low: st.integers(low, len(plain)).map(lambda end: plain[low:end]))
    pieces = data.draw(st.lists(cut | st.lists(st.integers(0, 511), max_size=3), max_size=5))
    assert decoded(engine, [token for piece in pieces for token in piece], gamma, sampling) == plain


@given(data=st.data())
def test_the_pointer_does_not_depend_on_how_the_answer_is_cut_into_rounds(data: st.DataObject):
    tokens = st.integers(0, 4)
    window, answer = data.draw(st.lists(tokens, max_size=20)), data.draw(st.lists(tokens, max_size=20))
    steps = data.draw(st.lists(st.integers(0, len(answer)), max_size=6).map(sorted))
    whole, stepwise = WindowDrafter(window, 2), WindowDrafter(window, 2)
    for end in steps:
        stepwise.propose([9, 9, *answer[:end]], 64, lambda logits, drafted: (0, None))
    ids = [9, 9, *answer]
    assert stepwise.propose(ids, 64, lambda *_: (0, None)) == whole.propose(ids, 64, lambda *_: (0, None))


def test_a_request_with_a_window_answers_the_same_in_fewer_rounds(engine: CompletionEngine):
    request = Request(raw_prompt="def read(path):\n", max_tokens=24, round_logprobs=True, heal=False)

    def answer(request: Request) -> tuple[list[Piece], int]:
        running = engine.complete(request, threading.Event())
        return [piece for piece in running if piece.tokens], running.result.rounds

    plain, plain_rounds = answer(request)
    text = "".join(piece.text for piece in plain)
    drafted, rounds = answer(replace(request, draft_window=text))
    assert "".join(piece.text for piece in drafted) == text
    assert [t for p in drafted for t in p.logprobs] == [t for p in plain for t in p.logprobs], (
        "the same log-probabilities"
    )
    assert {piece.source for piece in drafted} >= {"window"} and rounds < plain_rounds
