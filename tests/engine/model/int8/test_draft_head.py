"""A draft head: its guesses depend on the text alone, whatever the cache went through, and they never change a text."""

from __future__ import annotations

import random
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from support.engine import superblock_models
from support.engine.random_models import (
    IDS,
    NATIVE,
    distance,
    native_decoder,
    random_head,
    random_layer,
    save_seven_heads,
)
from support.soak import in_soak

from models.training.draft_head.state_recorder import StateRecorder
from speclsp.config import Config, EngineConfig
from speclsp.engine.api import Cancel, Request, Result
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.decoding.drafters import HeadDrafter
from speclsp.engine.loading import loading, torch_checkpoint
from speclsp.engine.model.bfloat16 import Floats
from speclsp.engine.model.int8 import native
from speclsp.engine.model.int8.draft_head import KEPT_ROWS, STEP_ROWS, DraftHead
from speclsp.engine.model.int8.native import NativeDecoder
from speclsp.engine.model.kv_cache import MAX_SLOTS, Cancelled
from speclsp.weights import cards

pytestmark = pytest.mark.skipif(not NATIVE, reason="heads run in forward.c")


@pytest.fixture(scope="module", params=NATIVE)
def decoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> NativeDecoder:
    directory = tmp_path_factory.mktemp("wide")
    save_seven_heads(directory, layers=3)
    return native_decoder(directory, request.param, 1000)


@pytest.fixture(scope="module")
def head(decoder: NativeDecoder) -> DraftHead:
    return random_head(decoder)


def guesses(head: DraftHead, ids: Sequence[int], count: int = 3) -> Floats:
    """The logits of a chain of guesses after `ids`, all but the last of which the target holds."""
    assert head.ready(ids)
    _, added = head.vocabulary(ids)
    rows = [head.first(ids, added)]
    rows += [head.then(token, added) for token in (5, 900, 17)[: count - 1]]
    return np.stack(rows)


def cold(head: DraftHead, ids: Sequence[int]) -> Floats:
    """The same after one pass over an empty cache."""
    head.target.forget()
    head.target.slot_ids[head.target.slot].clear()
    head.target.forward(ids[:-1])
    return guesses(head, ids)


def test_a_head_changes_no_logits_of_its_target(decoder: NativeDecoder, head: DraftHead):
    decoder.forget()
    with_head = decoder.forward(IDS[:230])
    decoder.keep_states(None, (0, 0, 0))
    decoder.forget()
    try:
        assert np.array_equal(decoder.forward(IDS[:230]), with_head)
    finally:
        decoder.keep_states(head.states.rows, (1, 1, 3))


@pytest.mark.parametrize("split", [1, 2, 7, 16, KEPT_ROWS, KEPT_ROWS + 1, STEP_ROWS + 37])
def test_guesses_do_not_depend_on_the_passes_of_the_text(head: DraftHead, split: int):
    ids = IDS[:150]
    expected = cold(head, ids)
    head.target.forget()
    for start in range(0, len(ids) - 1, split):
        head.target.forward(ids[start : min(start + split, len(ids) - 1)])
        if start % 3 == 0:
            guesses(head, [*head.target.ids, 3])
    assert np.array_equal(guesses(head, ids), expected)


@pytest.mark.parametrize("seed", [0, *in_soak(1, 2)])
def test_guesses_do_not_depend_on_the_cache_s_history(head: DraftHead, seed: int):
    """Texts share prefixes, are rewound, copied, evicted, archived and restored; several completions take turns."""
    dice, target = random.Random(seed), head.target
    target.empty()
    texts = [
        [*IDS[: dice.choice((20, 120, 200))], *dice.choices(range(1000), k=dice.randrange(2, 150))] for _ in range(12)
    ]
    claims = {}
    for _ in range(30):
        number = dice.randrange(len(texts))
        if number in claims and dice.random() < 0.3:
            claims.pop(number).release()
        claim = claims.setdefault(number, target.reserve())
        ids = texts[number]
        claim.acquire(ids[:-1])
        while len(target.ids) < len(ids) - 1:
            target.forward(ids[len(target.ids) : min(len(ids) - 1, len(target.ids) + dice.choice((1, 3, 40, 90)))])
        if not head.ready(ids):  # all of it was cached in a slot of another completion
            target.rewind(len(ids) - 2)
            target.forward(ids[-2:-1])
        got = guesses(head, ids)
        target.forward(dice.choices(range(1000), k=3))  # a round whose guesses are rejected
        target.rewind(len(ids) - 1)
        assert np.array_equal(guesses(head, ids), got)
        texts[number] = [*ids, dice.randrange(1000)]
        target.forward(ids[-1:])
        assert np.array_equal(got, expected_of(head, ids))
    assert len([ids for ids in target.slot_ids if ids]) > 1
    assert len(target.slot_ids) == MAX_SLOTS


def expected_of(head: DraftHead, ids: Sequence[int]) -> Floats:
    """`cold`, by a twin of the head whose cache is empty."""
    if not hasattr(head, "twin"):
        head.twin = twin(head)  # type: ignore[attr-defined]
    return cold(head.twin, ids)  # type: ignore[attr-defined]


def twin(head: DraftHead) -> DraftHead:
    with tempfile.TemporaryDirectory() as directory:
        save_seven_heads(Path(directory), layers=3)
        return random_head(native_decoder(Path(directory), head.target.path, 1000))


def test_the_widest_pass_has_room_for_the_token_before_it(head: DraftHead):
    ids = [*IDS[:40], *IDS[: native.MAX_ROWS + 1]]
    expected = cold(head, ids)
    head.target.rewind(20)
    assert head.lacks(20)
    head.target.forward(ids[20:-1])
    assert np.array_equal(guesses(head, ids), expected)


def test_a_cancelled_pass_leaves_the_guesses_of_the_text_before_it(head: DraftHead):
    ids, cancel = IDS[:100], Cancel()
    expected = cold(head, ids)
    cancel.set()
    with pytest.raises(Cancelled):
        head.target.extend(IDS[100:200], cancel)
    assert np.array_equal(guesses(head, ids), expected)


def test_a_head_cannot_guess_before_its_target_computed_the_text(head: DraftHead):
    head.target.forget()
    assert not head.ready(IDS[:40])
    head.target.forward(IDS[:30])
    assert not head.ready(IDS[:40])
    assert HeadDrafter(head, IDS[:40]).missing(IDS[:40]) == float("inf")
    assert head.ready(IDS[:31])


def test_the_prompt_s_tokens_join_the_vocabulary(head: DraftHead):
    tokens, added = head.vocabulary([1, 2, 3, 3, 6])
    assert tokens.tolist() == [*head.common.tolist(), 1, 2]
    assert np.array_equal(added, head.target.embedding_rows([1, 2]))


def test_it_computes_what_its_training_computes(decoder: NativeDecoder, head: DraftHead):
    """Up to the rounding of weights and activations to int8."""
    got = cold(head, IDS[:60])
    decoder.detach()
    recorder = StateRecorder(decoder)
    decoder.forward(IDS[:59])
    ids, states = recorder.text()
    recorder.close()
    assert ids == IDS[:59]
    layer, before = random_layer(decoder), torch.zeros(62, states.shape[1])
    before[1:60] = torch_checkpoint.tensor(states).float()
    rows = layer.target.embedding[layer.target.vocabulary].float()
    with torch.no_grad():
        chain = layer.chain(torch.tensor([*IDS[:60], 5, 900]), before, torch.tensor([59]), 3)
        expected = torch.cat([layer.norm(state, "norm_last") @ rows.T for state in chain]).numpy()
    common = got[:, : expected.shape[1]]
    assert distance(common, expected) < 0.12
    assert np.array_equal(common.argmax(-1), expected.argmax(-1))


@pytest.mark.parametrize("path", NATIVE)
def test_a_head_reads_the_states_and_the_embedding_of_a_model_in_superblocks(path: str, tmp_path: Path):
    superblock_models.save_random_q4k_m(tmp_path)
    decoder = native_decoder(tmp_path, path, 1000, mlp_bits=4)
    head = random_head(decoder)
    expected = cold(head, IDS[:90])
    decoder.forget()
    decoder.forward(IDS[:70]), decoder.forward(IDS[70:89])
    assert np.array_equal(guesses(head, IDS[:90]), expected)


# ── the text ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module", params=NATIVE)
def engine(request: pytest.FixtureRequest) -> CompletionEngine:
    setting = next(name for name, path in native.SETTINGS.items() if path == request.param)
    config = EngineConfig(context_tokens=512, threads=2, quantization="int8", draft=False, cpu_path=setting)
    engine = loading.load(Config(model="tiny", engine=config), cards.load("tiny"))
    native.use("auto")
    assert isinstance(engine.target_decoder, NativeDecoder)
    assert engine.target_decoder.path == request.param
    engine.head = Knowing(random_head(engine.target_decoder))
    engine.costs.guess_ms, engine.costs.verify_ms = {"head": 0.1}, {1: 10.0, 64: 11.0}  # guesses cost little
    return engine


class Knowing:
    """A head that computes its guesses and puts the tokens of plain decoding in the place of most of them."""

    def __init__(self, head: DraftHead) -> None:
        self.head, self.vocab = head, head.vocab
        self.texts: list[list[int]] = []  # prompts with their answers
        self.ready = head.ready
        self.ids: list[int] = []
        self.dice = random.Random(1)

    def vocabulary(self, ids: Sequence[int]) -> tuple[NDArray[np.int64], Floats]:
        _, added = self.head.vocabulary(ids)
        return np.arange(self.vocab), added

    def first(self, ids: Sequence[int], added: Floats) -> Floats:
        self.ids = list(ids)
        return self.changed(self.head.first(ids, added))

    def then(self, token: int, added: Floats) -> Floats:
        self.ids.append(token)
        return self.changed(self.head.then(token, added))

    def changed(self, own: Floats) -> Floats:
        logits = np.full(self.vocab, -9.0, np.float32)
        token = int(own.argmax()) % self.vocab
        if self.dice.random() < 0.7:
            n = len(self.ids)
            token = next((text[n] for text in self.texts if text[:n] == self.ids and len(text) > n), token)
        logits[token] = 9.0
        return logits


def asked(number: int, **options: object) -> Request:
    source = Path((loading.__file__, native.__file__)[number % 2])
    lines = source.read_text(encoding="utf-8").split("\n")[: 40 + 9 * number]
    prefix = "\n".join(lines[-30:]) + "\n"
    return Request(prefix=prefix, line_prefix="    return se", suffix="\n", max_tokens=24, **options)


def result_of(engine: CompletionEngine, request: Request) -> Result:
    running = engine.complete(request, threading.Event())
    list(running)
    return running.result


OPTIONS = [{}, {"temperature": 0.8, "seed": 3}, {"ignore_eos": True}]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("gamma", [1, 3, 8, None])
def test_completions_in_turns_have_the_text_of_plain_decoding(
    engine: CompletionEngine, options: dict[str, object], gamma: int | None
):
    requests = [asked(number, **options) for number in range(6)]
    plain = [result_of(engine, replace(request, speculate=False)) for request in requests]
    assert isinstance(engine.head, Knowing)
    engine.head.texts = [
        [*engine.prompter.build(request).ids, *result.tokens] for request, result in zip(requests, plain, strict=True)
    ]
    running = [engine.complete(replace(request, gamma=gamma, sources=("head",)), Cancel()) for request in requests]
    turns = [iter(completion) for completion in running]
    while turns:
        turns = [turn for turn in turns if next(turn, None) is not None]
    for completion, expected in zip(running, plain, strict=True):
        assert completion.result.text == expected.text
        assert completion.result.tokens == expected.tokens
    if gamma is None:
        return  # the policy may have learned that the head does not pay
    counts = [completion.result.by_source["head"] for completion in running if completion.result.by_source]
    assert sum(count["drafted"] for count in counts) > sum(count["accepted"] for count in counts) > 0


def test_a_request_without_its_head_and_one_with_rejection_sampling_are_served(engine: CompletionEngine):
    request = asked(3, temperature=0.9, seed=5, sampling="rejection", gamma=4, sources=("head",))
    assert result_of(engine, request).drafted > 0
    assert result_of(engine, replace(request, sources=("ngram",))).by_source.get("head") is None
