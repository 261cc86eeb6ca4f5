"""Qwen2.5-Coder-0.5B itself: speculative decoding gives plain decoding's tokens on real holes in real code."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from promises import Measured

from benchmarks.speed import holes
from speclsp.cli.measure import complete_once
from speclsp.config import Config, EngineConfig
from speclsp.engine.api import Request
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.loading import loading
from speclsp.weights import cards

pytestmark = pytest.mark.real

HOLES, SOAK_HOLES = 2, 20
# Windows' embeddable Python has no sources; `make windows` adds those of modules that are one file.
IN_FILES = tuple(name for name in holes.MODULES if "/" not in name)
MODULES = IN_FILES if sys.platform == "win32" else holes.MODULES


def real_holes(count: int = HOLES) -> list[Request]:
    return [request for request, _ in holes.holes_and_rests(count, modules=MODULES)]


@pytest.fixture(scope="module")
def engine(coder_0_5b: Path) -> CompletionEngine:
    card = cards.load("qwen2.5-coder-0.5b-instruct")
    config = Config(model=card.name, models_dir=str(coder_0_5b.parent), engine=EngineConfig(offline=True))
    return loading.load(config, card)


@pytest.mark.promise(37)
def test_greedy_speculative_is_plain_token_for_token_on_real_holes(
    engine: CompletionEngine, promise: Measured, soak: bool
):
    spared, requests = 0, real_holes(SOAK_HOLES if soak else HOLES)
    for request in requests:
        plain = complete_once(engine, replace(request, speculate=False))
        fast = complete_once(engine, request)
        assert fast.tokens == plain.tokens, request.line_prefix
        assert fast.text == plain.text
        drafted = complete_once(engine, replace(request, gamma=8))  # whatever passes cost on this machine
        assert drafted.tokens == plain.tokens, request.line_prefix
        spared += plain.rounds - drafted.rounds
    assert spared > len(requests), "drafts are accepted, or nothing was tested"
    promise.measured(f"{len(requests)} places in real code, the 0.5B: 0 tokens differ", holds=True)
