"""Figures about the tokens change no token, and none comes from logits that are no numbers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.engine.tiny_engine import FAST, fused_tiny_engine, tiny_engine
from support.soak import in_soak

from speclsp.engine.api import Piece, Request
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.model.int8.native import LAST, NativeDecoder
from speclsp.engine.model.kv_cache import on_host
from speclsp.errors import InvalidLogits

pytestmark = pytest.mark.usefixtures("one_thread")

CODE = "class Stack:\n    def __init__(self):\n        self._items = []\n\n    def push(self, item):\n"
REQUEST = Request(prefix=CODE, line_prefix="        self._it", suffix="\n\n    def pop(self):\n", max_tokens=12)


@pytest.fixture(scope="module", params=[FAST, *in_soak("fp32"), "fused"])
def engine(request: pytest.FixtureRequest) -> CompletionEngine:
    return fused_tiny_engine() if request.param == "fused" else tiny_engine(request.param)


def pieces(engine: CompletionEngine, request: Request) -> list[Piece]:
    return [piece for piece in engine.complete(request, threading.Event()) if piece.tokens]


def tokens_of(reported: list[Piece]) -> list[int]:
    return [token for piece in reported for token in piece.tokens]


def logprobs_of(reported: list[Piece]) -> list[float]:
    return [logprob for piece in reported for logprob in piece.logprobs]


OPTIONS = [{}, {"temperature": 0.9, "seed": 5}, {"ignore_eos": True, "heal": False}]


@contextmanager
def broken_weights(engine: CompletionEngine) -> Iterator[None]:
    """The target's logits are NaN for a while."""
    decoder = engine.target_decoder
    if isinstance(decoder, NativeDecoder):
        intact = decoder.norms[LAST, 0]
        decoder.set_norm(LAST, 0, np.full_like(intact, np.nan))
        yield
        decoder.set_norm(LAST, 0, intact)
        return
    intact = decoder.embedding.clone()
    with torch.inference_mode():
        decoder.embedding.fill_(torch.nan)
    try:
        yield
    finally:
        with torch.inference_mode():
            decoder.embedding.copy_(intact)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(
    "figures",
    [
        {"round_logprobs": True},
        {"branches": 2},
        *in_soak({"branches": 3, "round_logprobs": True}),
    ],
)
def test_no_figure_changes_the_answer(engine: CompletionEngine, options: dict[str, object], figures: dict[str, int]):
    for line in ("        self._it", "    x = ", '    name = "é'):
        request = replace(REQUEST, line_prefix=line, **options)
        plain, reporting = (engine.complete(replace(request, **more), threading.Event()) for more in ({}, figures))
        pieces_of_plain, pieces_of_reporting = list(plain), list(reporting)
        assert reporting.prompt.heal == plain.prompt.heal
        assert (reporting.result.tokens, reporting.result.text) == (plain.result.tokens, plain.result.text)
        assert not any(piece.logprobs or piece.characters for piece in pieces_of_plain)
        for piece in pieces_of_reporting if "round_logprobs" in figures else ():
            assert len(piece.logprobs) == len(piece.characters) == len(piece.tokens)
            assert all(logprob <= 0 for logprob in piece.logprobs)


@pytest.mark.parametrize("options", [*OPTIONS, {"temperature": 1.0, "sampling": "rejection"}])
@pytest.mark.parametrize("drafting", [{"speculate": False}, {"gamma": 4, "sources": ("model",)}, {}])
def test_nan_ends_the_request_and_the_next_one_is_answered_as_before(
    engine: CompletionEngine, options: dict[str, object], drafting: dict[str, object]
):
    """Nothing that the broken weights computed is read again, not even times zero."""
    request = replace(REQUEST, **options, **drafting)
    good = tokens_of(pieces(engine, request))
    with broken_weights(engine), pytest.raises(InvalidLogits, match="is nan, so no token was chosen"):
        pieces(engine, replace(request, prefix=CODE + CODE))
    assert engine.target_decoder.shared_prefix(engine.prompter.build(request).ids) == 0, "nothing of it stays cached"
    again = tokens_of(pieces(engine, request))
    assert again == good or options.get("sampling") == "rejection"


@pytest.mark.parametrize("options", OPTIONS)
def test_a_fused_round_with_nan_ends_the_request_too(monkeypatch: pytest.MonkeyPatch, options: dict[str, object]):
    engine = fused_tiny_engine()
    request = replace(REQUEST, **{"ignore_eos": True} | options, gamma=4, sources=("model",))
    running = engine.complete(request, threading.Event())
    steps = iter(running)
    while not running.result.drafted or len(running.result.tokens) < 3:  # past the healed word and the prompt's tail
        next(steps)
    done = len(running.prompt.ids) + len(running.result.tokens)
    usual = engine.target_decoder.logits_of
    monkeypatch.setattr(engine.target_decoder, "logits_of", lambda *args, **more: usual(*args, **more) * torch.nan)
    with pytest.raises(InvalidLogits, match=f"logit for token {done} is nan"):
        list(steps)
    monkeypatch.undo()
    assert engine.fused is not None
    assert tokens_of(pieces(engine, request)) == tokens_of(pieces(engine, replace(request, speculate=False)))


def test_logprobs_are_the_same_for_every_drafter(engine: CompletionEngine):
    request = replace(REQUEST, round_logprobs=True, ignore_eos=True)
    plain = logprobs_of(pieces(engine, replace(request, speculate=False)))
    for drafting in ({"gamma": 4, "sources": ("model",)}, {"gamma": 6, "sources": ("ngram",)}):
        drafted = logprobs_of(pieces(engine, replace(request, **drafting)))
        exact = engine.fused is None  # a fused round's probabilities are a GPU's: their last bit is not promised
        assert drafted == (plain if exact else pytest.approx(plain, abs=1e-4))


def test_logprobs_are_normalized_over_the_tokens_that_could_come(engine: CompletionEngine):
    request = replace(REQUEST, round_logprobs=True, ignore_eos=True, gamma=3, sources=("model",))
    running = engine.complete(request, threading.Event())
    reported = [piece for piece in running if piece.tokens]
    ids, tokens, vocabulary = list(running.prompt.ids), tokens_of(reported), engine.prompter.vocabulary
    assert running.prompt.heal, "what was typed of a word is spelled again"
    engine.target_decoder.forget()
    raw = on_host(engine.target_decoder.forward([*ids, *tokens])[len(ids) - 1 : -1])
    raw[:, sorted(engine.prompter.stop_tokens)] = -np.inf
    spelled = b""
    for row, token, logprob in zip(raw, tokens, logprobs_of(reported), strict=True):
        left = running.prompt.heal[len(spelled) :]
        if left:
            free = np.full_like(row, -np.inf)
            allowed = vocabulary.spelling(left)
            free[allowed] = row[allowed]
            row = free
            spelled += vocabulary.bytes[token]
        assert logprob == pytest.approx(float(torch.from_numpy(row).log_softmax(dim=-1)[token]), abs=1e-4)


def test_each_token_reports_the_characters_it_completed(engine: CompletionEngine):
    for request in (REQUEST, replace(REQUEST, line_prefix='        self.name = "é', stop=("\n",))):
        reported = pieces(engine, replace(request, round_logprobs=True, gamma=4, ignore_eos=True))
        brought = sum(sum(piece.characters) for piece in reported)
        text = "".join(piece.text for piece in reported)
        assert text and (brought == len(text) or (request.stop and brought > len(text)))
