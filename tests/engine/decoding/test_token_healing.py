"""Token healing costs no extra rounds, and a prompt prefilled ahead equals the request's own. Trained tiny models."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from support.engine.tiny_engine import FAST, tiny_engine
from support.soak import in_soak

from speclsp.engine.api import Request, Result
from speclsp.engine.decoding.completion import CompletionEngine

SOURCE = (
    "class Inventory:\n    def __init__(self, values):\n        self.values = list(values)\n        self.total = 0\n\n"
    "    def add(self, value):\n        self.values.append(value)\n        self.total = self.total + value\n\n"
    "    def largest(self):\n        return max(self.values)\n\n    def count(self):\n"
)
LINE = "        return len(self.values) + self.total"


@pytest.fixture(scope="module", params=[FAST, *in_soak("fp32")])
def engine(request: pytest.FixtureRequest) -> CompletionEngine:
    return tiny_engine(request.param)


def completed(engine: CompletionEngine, request: Request) -> Result:
    running = engine.complete(request, threading.Event())
    list(running)
    return running.result


def half_typed(cursor: int, **options: object) -> Request:
    return Request(prefix=SOURCE, line_prefix=LINE[:cursor], suffix="\n", max_tokens=16, **options)


def test_a_half_typed_word_costs_no_extra_round(engine: CompletionEngine):
    """Compared only where the model gives the same text with and without healing."""
    rounds, places = {True: 0, False: 0}, 0
    for cursor in range(9, len(LINE) + 1):
        results = {
            heal: completed(engine, half_typed(cursor, heal=heal, sources=("ngram",), gamma=8))
            for heal in (True, False)
        }
        if results[True].text[:24] == results[False].text[:24] and len(results[True].text) > 24:
            places += 1
            for heal, result in results.items():
                rounds[heal] += result.rounds
    assert places >= 5
    assert rounds[True] <= rounds[False]


@pytest.mark.parametrize("more", ["", "f", "f.total"])
def test_a_prompt_prefilled_ahead_is_not_computed_again(engine: CompletionEngine, more: str):
    completed(engine, Request(prefix="something else\n", max_tokens=1))
    ahead = completed(engine, replace(half_typed(20), max_tokens=0))
    assert ahead.tokens == [] and ahead.rounds == 0
    result = completed(engine, replace(half_typed(20), line_prefix=LINE[:20] + more))
    assert result.prompt_tokens - result.cached_tokens <= 1 + 3 * len(more)
    assert result.cached_tokens >= ahead.prompt_tokens - 1
