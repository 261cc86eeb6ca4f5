"""Completions interleaved on one pair of models: each gets the text it gets alone, in any order and cache size."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from support.engine.tiny_engine import FAST, fused_tiny_engine, set_slots, tiny_engine
from support.soak import in_soak

from speclsp.engine.api import Cancel, Piece, Request, Result
from speclsp.engine.decoding.completion import CompletionEngine, RunningCompletion
from speclsp.engine.model.int8.native import NativeDecoder
from speclsp.engine.model.kv_cache import MAX_SLOTS, SLOTS

ROOT = Path(__file__).parents[3]
LIBRARY = (ROOT / "speclsp" / "engine" / "decoding" / "accept.py").read_text().split("\n\n\n")
pytestmark = pytest.mark.usefixtures("one_thread")

LINES = (
    "    return ",
    "    for item in ",
    "        self.",
    "def ",
    "    if not ",
    "import ",
    "        raise ",
    "    x = ",
)


def request(number: int, **options: object) -> Request:
    """Some code of a different length and position for each number; numbers of equal parity share a prefix."""
    dice = random.Random(number)
    shared = LIBRARY[1 + number % 2]
    own = dice.choice(LIBRARY)[: dice.randrange(20, 400)]
    options = {"max_tokens": 16, "ignore_eos": dice.random() < 0.5} | options
    return Request(prefix=f"{shared}\n\n\n{own}\n", line_prefix=dice.choice(LINES), suffix="\n", **options)


def various(number: int) -> Request:
    """The same request with different drafting and sampling for each number."""
    dice = random.Random(number)
    options: dict[str, object] = dice.choice(
        [{}, {"speculate": False}, {"gamma": 3, "sources": ("ngram",)}, {"gamma": 4, "sources": ("model",)}]
    )
    if dice.random() < 0.4:
        options |= {"temperature": 0.9, "seed": number}
    if dice.random() < 0.2:
        options |= {"previous": "self.items = []\n"}
    return request(number, **options)


@pytest.fixture(scope="module", params=[FAST, *in_soak("fp32"), "fused"])
def anywhere(request: pytest.FixtureRequest) -> CompletionEngine:
    return fused_tiny_engine() if request.param == "fused" else tiny_engine(request.param)


@pytest.fixture(scope="module")
def module_engine() -> CompletionEngine:
    return tiny_engine("fp32")  # it reads a prompt in small steps


@pytest.fixture
def engine(module_engine: CompletionEngine) -> CompletionEngine:
    set_slots(module_engine, SLOTS, MAX_SLOTS)
    return module_engine


@dataclass
class Driven:
    """A running completion, driven round by round."""

    running: RunningCompletion
    cancel: Cancel
    pieces: Iterator[Piece]
    tokens: list[int] = field(default_factory=list)
    pauses: int = 0

    def round(self) -> bool:
        """Runs one more round; False if there was none."""
        piece = next(self.pieces, None)
        if piece is None:
            return False
        self.tokens += piece.tokens
        self.pauses += not piece.tokens and not self.running.result.stop_type
        return True


def begun(engine: CompletionEngine, request: Request) -> Driven:
    cancel = Cancel()
    running = engine.complete(request, cancel)
    return Driven(running, cancel, iter(running))


def finished(run: Driven) -> Result:
    while run.round():
        pass
    assert run.tokens == run.running.result.tokens
    return run.running.result


def alone(engine: CompletionEngine, request: Request) -> Result:
    return finished(begun(engine, request))


def interleaved(engine: CompletionEngine, requests: Sequence[Request], slots: int, dice: random.Random) -> list[Driven]:
    """Runs rounds in random order; some completions start late, some are cancelled, and the caches are cleared."""
    set_slots(engine, slots)
    runs: list[Driven] = []
    live: list[Driven] = []
    waiting = list(requests)
    while live or waiting:
        if waiting and (not live or dice.random() < 0.5):
            live.append(begun(engine, waiting.pop(0)))
            runs.append(live[-1])
        run = dice.choice(live)
        if not run.round():
            live.remove(run)
        elif dice.random() < 0.01:
            run.cancel.set()
        if dice.random() < 0.03:
            engine.empty()
    set_slots(engine, SLOTS, MAX_SLOTS)
    return runs


IN_FLOAT = [(4, 2), (3, MAX_SLOTS)]  # ten times as slow as int8
MANY = [(2, 1), (3, 2), (5, 3), (8, 2), (8, MAX_SLOTS)]


def test_interleaved_completions_have_the_tokens_they_have_alone(anywhere: CompletionEngine):
    for many, slots in MANY if isinstance(anywhere.target_decoder, NativeDecoder) else IN_FLOAT:
        dice = random.Random(f"{many} {slots}")
        requests = [various(dice.randrange(1000)) for _ in range(many)]
        wanted = [alone(anywhere, request).tokens for request in requests]
        compared = 0
        for run, tokens in zip(interleaved(anywhere, requests, slots, dice), wanted, strict=True):
            result = run.running.result
            compared += result.stop_type != "cancelled"
            assert result.tokens == (tokens if result.stop_type != "cancelled" else tokens[: len(result.tokens)])
        assert compared, "something was compared in full"


def test_no_draft_comes_from_another_sessions_prompt(engine: CompletionEngine):
    """The other prompt continues this one's end and is cached; still no token of it is drafted."""
    mine = request(4, gamma=6, sources=("ngram",), ignore_eos=True)
    wanted = alone(engine, mine)
    engine.target_decoder.forget()
    theirs = replace(mine, prefix=mine.prefix + mine.line_prefix + wanted.text * 3 + "\n", previous=wanted.text)
    other = begun(engine, theirs)
    while len(other.tokens) < 5:
        other.round()
    run, result = begun(engine, mine), None
    while run.round():
        other.round()
    result = run.running.result
    assert result.tokens == wanted.tokens
    assert (result.rounds, result.by_source) == (wanted.rounds, wanted.by_source)


def test_evicted_prompts_are_counted_as_computed_again(engine: CompletionEngine):
    requests = [request(number, max_tokens=12, ignore_eos=True, heal=False) for number in (6, 7)]
    set_slots(engine, 1)
    runs = [begun(engine, r) for r in requests]
    rounds = 0
    while live := [run for run in runs if run.round()]:
        rounds += len(live)
    assert rounds < 60, "neither keeps the other from getting on"
    for run in runs:
        result = run.running.result
        assert result.cached_tokens < 10, "the two hardly share a beginning"
        assert result.prefilled_tokens > 2 * (result.prompt_tokens - 10), "at least twice: they evicted each other"


def test_a_long_prefill_lets_others_run_a_round_after_each_step(engine: CompletionEngine):
    long = begun(engine, request(8))
    short = begun(engine, request(9, max_tokens=30, ignore_eos=True, heal=False, gamma=0))
    while not short.tokens:
        short.round()
    before = len(short.tokens)
    while not long.tokens:
        assert long.round() and short.round()
    assert long.pauses >= 3
    assert len(short.tokens) == before + long.pauses + 1


def test_a_request_without_prompt_cache_does_not_affect_others(engine: CompletionEngine):
    first = begun(engine, request(12, ignore_eos=True))
    while not first.tokens:
        first.round()
    prefilled = first.running.result.prefilled_tokens
    alone(engine, request(13))
    assert alone(engine, request(13, cache_prompt=False)).cached_tokens < 10, "no more than it shares with the first"
    finished(first)
    assert first.running.result.prefilled_tokens == prefilled
