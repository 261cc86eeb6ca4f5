"""The GPU's decoder and fused rounds: on a GPU where there is one, else eagerly on a CPU by the same functions.

"cpu:0" is the CPU, under a device name that checkpoint.py treats as a GPU's. There no graph is tested. No timing is.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engine.counting_lm import Script
from support.engine.random_models import FAMILIES, save_random
from support.soak import in_soak
from torch.utils._python_dispatch import TorchDispatchMode

from speclsp.config import Config, EngineConfig
from speclsp.engine.api import Request
from speclsp.engine.decoding.accept import Sampler, Sampling
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.decoding.drafters import Drafter, ModelDrafter, NGramDrafter
from speclsp.engine.decoding.fused_round import FusedDrafter, FusedRound, warm_up
from speclsp.engine.decoding.generate import Limits, Round, generate
from speclsp.engine.decoding.policy import FixedPolicy
from speclsp.engine.loading import checkpoint, loading
from speclsp.engine.model.cuda.cuda_decoder import CudaDecoder
from speclsp.engine.model.cuda.decoder_warm_up import try_kernels
from speclsp.engine.model.cuda.graphs import CAPTURE_AT, MAX_COUNTED, MAX_GRAPHS, CudaGraphs
from speclsp.engine.model.cuda.memory_plan import PREFILL_WIDTHS
from speclsp.engine.model.cuda.ops import TORCH
from speclsp.engine.model.cuda.uplink import Uplink
from speclsp.engine.model.kv_cache import MAX_GAMMA, Cancelled
from speclsp.weights import cards

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = cards.models_root() / "tiny"
VOCAB = 2048
IDS = torch.randint(0, 2000, (400,), generator=torch.Generator().manual_seed(2)).tolist()
DEVICE = "cuda" if torch.cuda.is_available() else "cpu:0"
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def read(which: str | Path, number_format: str = "fp32", is_draft: bool = False, vocab: int = VOCAB) -> CudaDecoder:
    directory = TINY / which if isinstance(which, str) else which
    decoder = checkpoint.read_decoder(
        directory, number_format, DEVICE, 512, vocab, is_draft=is_draft, dtype=DTYPES[number_format]
    )
    assert isinstance(decoder, CudaDecoder)
    return decoder


def read_pair(number_format: str = "fp32", draft: str = "draft") -> FusedRound:
    return FusedRound(read("target", number_format), read(draft, number_format, is_draft=True))


ON_GPU = ["fp32", *(["bf16"] if DEVICE == "cuda" else in_soak("bf16"))]  # a CPU emulates bf16 slowly


@pytest.fixture(scope="module", params=ON_GPU)
def pair(request: pytest.FixtureRequest) -> FusedRound:
    return read_pair(request.param)


@pytest.fixture(scope="module")
def engine() -> CompletionEngine:
    """A whole engine of the tiny models, as on a GPU."""
    config = Config(model="tiny", engine=EngineConfig(context_tokens=512, threads=1))
    on_cpu = loading.load(config, cards.load("tiny"))
    fused = read_pair()
    return replace(on_cpu, target_decoder=fused.target, draft_decoder=fused.draft, fused=fused)


def rounds(
    pair: FusedRound,
    drafters: Sequence[Drafter],
    gamma: int,
    sampling: Sampling = Sampling(),  # noqa: B008 - frozen
    **limits: Any,
) -> list[Round]:
    """Starts from the same empty caches every time: cuda/cuda_decoder.py gives the conditions of equality."""
    pair.target.forget()
    pair.draft.forget()
    limits = {"max_tokens": 30} | limits
    prompt = limits.pop("prompt", IDS[:40])
    return list(
        generate(
            pair.target, drafters, FixedPolicy(gamma), prompt, Limits(**limits), Sampler(sampling), threading.Event()
        )
    )


def tokens(*arguments: Any, **limits: Any) -> list[int]:
    return [token for step in rounds(*arguments, **limits) for token in step.tokens]


# ── passes ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_gets_the_logits_the_cpus_decoder_gives(family: str, tmp_path: Path):
    save_random(family, tmp_path)
    ours, theirs = read(tmp_path, vocab=97), checkpoint.read_decoder(tmp_path, "fp32", "cpu", 512, 97)
    ids = [token % 97 for token in IDS[:80]]
    logits = torch.cat([ours.forward(ids[:20]), ours.forward(ids[20:21]), ours.forward(ids[21:])]).cpu()
    assert torch.allclose(logits, torch.from_numpy(theirs.forward(ids)), atol=2e-4, rtol=2e-4)


@settings(max_examples=6)
@given(cuts=st.lists(st.integers(1, 40), min_size=1, max_size=12))
def test_a_token_gets_the_same_logits_bit_for_bit_in_any_pass(pair: FusedRound, cuts: list[int]):
    target, ids = pair.target, IDS[:100]
    target.forget()
    whole = target.forward(ids)
    target.forget()
    parts, start = [], 0
    while start < len(ids):
        width = cuts[len(parts) % len(cuts)]
        parts.append(target.forward(ids[start : start + width]))
        start += width
    assert torch.equal(torch.cat(parts), whole)


# ── prefill ──────────────────────────────────────────────────────────────────────────────────────────────────


class SetAfter(threading.Event):
    """An event that is set from the n-th check on."""

    def __init__(self, checks: int) -> None:
        super().__init__()
        self.checks = checks

    def is_set(self) -> bool:
        self.checks -= 1
        return self.checks < 0


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_prefill_in_groups_of_layers_gives_the_same_logits(pair: FusedRound, layers: int):
    target = pair.target
    target.forget()
    target.catch_up(IDS[:300])
    wanted = target.forward([5])
    target.split_layers(pass_ms=5.0, most_ms=float(layers))
    assert max(last - first for first, last in target.groups) == layers
    target.forget()
    target.catch_up(IDS[:300])
    assert torch.equal(target.forward([5]), wanted)
    target.split_layers(pass_ms=0.0)
    assert target.groups == [(0, 5)]


def test_a_cancelled_prefill_stops_between_groups_and_keeps_the_completed_steps():
    target, step, prompt = read("target"), PREFILL_WIDTHS[-1], [*IDS, *IDS][:480]  # two steps
    target.split_layers(pass_ms=20.0, most_ms=4.0)
    checks_per_step = len(target.groups)  # one check before it, and one between two groups
    assert checks_per_step == 5
    for checks, kept in ((0, 0), (checks_per_step - 1, 0), (checks_per_step, step), (checks_per_step + 3, step)):
        target.forget()
        with pytest.raises(Cancelled):
            target.catch_up(prompt, SetAfter(checks))
        assert target.ids == prompt[:kept]
    assert target.catch_up(prompt) == step, "completed steps are not computed again"
    wanted = read("target")
    wanted.catch_up(prompt)
    assert torch.equal(target.forward([1]), wanted.forward([1]))


def test_a_shared_prefix_is_copied_to_the_slot_that_continues_differently(pair: FusedRound):
    target, branch = pair.target, [*IDS[:250], *reversed(IDS[:30])]
    target.forget()
    target.catch_up(branch[:250])
    target.catch_up(branch)
    wanted = target.forward([1])
    target.forget()
    target.catch_up(IDS)
    assert target.catch_up(branch) == 250, "the rest of IDS is worth keeping, so its start is copied"
    assert torch.allclose(target.forward([1]), wanted, atol=0.3 if target.dtype == torch.bfloat16 else 1e-3)
    assert target.catch_up(IDS) == len(IDS)


# ── rounds ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def plain(pair: FusedRound) -> list[int]:
    return tokens(pair, [], 0)


@pytest.mark.parametrize("gamma", [1, 4, 16, *in_soak(*(set(range(1, 17)) - {1, 4, 16}))])
def test_every_draft_length_and_drafter_gives_plain_decodings_tokens(pair: FusedRound, plain: list[int], gamma: int):
    dice = random.Random(gamma)

    def half_right(ids: list[int], k: int) -> list[int]:
        return [token if dice.random() < 0.5 else 11 for token in plain[len(ids) - 40 :][:k]]

    for drafter in (FusedDrafter(pair, Sampling()), ModelDrafter(pair.draft), NGramDrafter(), Script(half_right)):
        assert tokens(pair, [drafter], gamma) == plain, drafter


@settings(max_examples=12)
@given(
    seed=st.integers(0, 2**62),
    temperature=st.sampled_from([0.3, 1.0, 1.5]),
    top_p=st.sampled_from([1.0, 0.9]),
    top_k=st.sampled_from([0, 40]),
    gamma=st.integers(1, 8),
)
def test_coupled_sampling_is_seed_identical_to_plain(
    pair: FusedRound, seed: int, temperature: float, top_p: float, top_k: int, gamma: int
):
    sampling = Sampling(temperature=temperature, top_p=top_p, top_k=top_k, seed=seed)
    wanted = tokens(pair, [], 0, sampling, max_tokens=12)
    assert tokens(pair, [FusedDrafter(pair, sampling)], gamma, sampling, max_tokens=12) == wanted


class RoundsOtherwise(CudaDecoder):
    """Prefill whose wide passes round otherwise than the passes of a round, as on a GPU."""

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        x = super().embed(tokens)
        return x * 1.05 if len(tokens) in PREFILL_WIDTHS else x


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.9, seed=5)])
def test_a_draft_that_is_the_target_is_accepted_in_full_where_prefill_rounds_otherwise(sampling: Sampling):
    """Both caches hold the prompt's last tokens as a round's pass computes them, and the rest as prefill does."""
    decoders = read("target"), read("target", is_draft=True)
    for decoder in decoders:
        decoder.__class__ = RoundsOtherwise
    fused = FusedRound(*decoders)
    for length in (40, 100, 300):
        steps = rounds(fused, [FusedDrafter(fused, sampling)], 5, sampling, prompt=IDS[:length], max_tokens=60)
        assert all(step.accepted == step.drafted for step in steps)
        fused.draft.forget()
        assert [token for step in steps for token in step.tokens] == tokens(
            fused, [], 0, sampling, prompt=IDS[:length], max_tokens=60
        )


def test_banned_tokens_are_banned_in_a_fused_round_too(pair: FusedRound):
    free = tokens(pair, [], 0)
    banned = tuple(set(free[:6]))
    wanted = tokens(pair, [], 0, banned_tokens=banned)
    assert not set(banned) & set(wanted)
    assert tokens(pair, [FusedDrafter(pair, Sampling(), banned=banned)], 4, banned_tokens=banned) == wanted
    assert tokens(pair, [FusedDrafter(pair, Sampling())], 4) == free, "and allowed again after"


def test_rounds_are_right_after_the_text_was_edited_or_another_slot_was_used(pair: FusedRound):
    drafter = FusedDrafter(pair, Sampling())
    prompts = [IDS[:150], [*IDS[:100], 17], [8, *IDS[:140]], IDS[:150]]
    pair.target.forget()
    pair.draft.forget()
    for prompt in prompts:
        texts = []
        for drafters, gamma in (([drafter], 3), ([], 0)):
            steps = generate(
                pair.target, drafters, FixedPolicy(gamma), prompt, Limits(max_tokens=9), Sampler(Sampling()),
                threading.Event(),
            )  # fmt: skip
            texts.append([token for step in steps for token in step.tokens])
        assert texts[0] == texts[1]


def test_a_round_is_plain_if_the_drafts_prefill_is_cancelled(pair: FusedRound):
    pair.target.forget()
    pair.draft.forget()
    pair.target.catch_up(IDS[:99])
    cancel = threading.Event()
    cancel.set()
    guess = FusedDrafter(pair, Sampling(), cancel=cancel).propose(IDS[:100], 4, lambda logits, drafted: (0, None))
    assert (guess.tokens, guess.verified) == ([], None)
    assert len(pair.target.ids) == 99


@pytest.mark.parametrize("prefix", ["import os\n\n\ndef read(path):\n    with open(pa", "for value in values:\n"])
@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 0.8, "seed": 3}, {"ignore_eos": True}, {"temperature": 0.8, "sampling": "rejection"}],
)
def test_a_request_with_speculation_is_the_request_without(
    engine: CompletionEngine, prefix: str, options: dict[str, Any]
):
    """The whole engine: a healed word takes unfused rounds, the text after it fused ones."""
    above, _, line = prefix.rpartition("\n")
    request = Request(prefix=above + "\n", line_prefix=line, max_tokens=24, cache_prompt=False, **options)
    results = []
    for changes in ({"speculate": False}, {"sources": ("model",), "gamma": 4}, {}):
        running = engine.complete(replace(request, **changes), threading.Event())
        pieces = list(running)
        results.append(running.result)
        assert "".join(piece.text for piece in pieces) == running.result.text
    if options.get("sampling") != "rejection":  # the draws depend on the guesses, the distribution does not
        assert results[1].tokens == results[0].tokens
        assert results[2].tokens == results[0].tokens
    assert results[1].drafted > 0


# ── limits of a CUDA graph ────────────────────────────────────────────────────────────────────────────────────


class NothingLeavesTheDevice(TorchDispatchMode):
    """Refuses all that a capture refuses: values read back, data-dependent shapes, tensors from Python values."""

    REFUSED = ("_local_scalar_dense", "nonzero", "masked_select", "lift_fresh", "unique", "equal.default", "pin_memory")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func)
        assert not any(refused in name for refused in self.REFUSED), name
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Sampling(), Sampling(temperature=0.7, top_p=0.9, top_k=50)])
def test_a_round_and_a_pass_never_need_the_host(pair: FusedRound, mode: Sampling, monkeypatch: pytest.MonkeyPatch):
    target, kinds = pair.target, set[str]()

    def run_guarded(graphs: CudaGraphs, key: tuple[Any, ...], work: Callable[[], None]) -> None:
        kinds.add(key[0] if isinstance(key[0], str) else key[1])
        with NothingLeavesTheDevice():
            work()

    rounds(pair, [FusedDrafter(pair, mode)], 3, mode, max_tokens=6)  # allocates the buffers
    monkeypatch.setattr(CudaGraphs, "run", run_guarded)
    monkeypatch.setattr(target, "groups", [(0, 2), (2, len(target.layers))])
    rounds(pair, [FusedDrafter(pair, mode)], 3, mode, max_tokens=6, prompt=IDS[:100])
    target.forward(IDS[:3])
    target.choose(IDS[:1], 1, mode.draw, ())
    assert kinds == {"round", "forward", "choose", "extend"}


def test_a_round_waits_for_the_device_once(pair: FusedRound, monkeypatch: pytest.MonkeyPatch):
    waits, receive = [], FusedRound.receive
    monkeypatch.setattr(FusedRound, "receive", lambda self: waits.append(1) or receive(self))
    sent, send = [], Uplink.send
    monkeypatch.setattr(Uplink, "send", lambda self, message: sent.append(self) or send(self, message))
    steps = rounds(pair, [FusedDrafter(pair, Sampling())], 4)
    drafted = [step for step in steps if step.drafted]
    assert len(waits) == len(drafted) > 3
    assert sent.count(pair.uplink) == 1, "then the device knows the text as well as the host does"


def test_work_runs_eagerly_until_it_is_used_often_enough_to_be_captured():
    log: list[str] = []
    graphs = CudaGraphs(lambda: lambda work: lambda: log.append("replayed"))
    for _ in range(CAPTURE_AT + 2):
        graphs.run("a", lambda: log.append("ran"))
    assert log == ["ran"] * CAPTURE_AT + ["replayed"] * 2
    for _ in range(5):
        CudaGraphs().run("a", lambda: log.append("eager"))
    assert log[-1] == "eager"


@given(keys=st.lists(st.integers(0, 200), max_size=600))
def test_graphs_are_bounded_and_the_newest_in_use_stay(keys: list[int]):
    log: list[int] = []
    graphs = CudaGraphs(lambda: lambda work: work)
    for key in keys:
        graphs.run(key, partial(log.append, key))
        assert len(graphs.replays) <= MAX_GRAPHS
    assert log == keys, "captured or not, all work is done in order"
    for key in range(1000, 1000 + 2 * MAX_COUNTED):  # used once each
        graphs.run(key, lambda: None)
    assert max(len(graphs.uses), len(graphs.pending)) <= MAX_COUNTED
    for key in range(2 * MAX_GRAPHS):
        for _ in range(CAPTURE_AT):
            graphs.run(key, lambda: None)
            graphs.run(0, lambda: None)
    assert 0 in graphs.replays and 2 * MAX_GRAPHS - 1 in graphs.replays and 1 not in graphs.replays


def test_a_capture_that_fails_is_not_tried_again():
    tried, ran = [], []

    def refuse(work: Any) -> Any:
        tried.append(work)
        raise RuntimeError("operation not permitted when stream is capturing")

    graphs = CudaGraphs(lambda: refuse)
    for _ in range(10):
        graphs.run("a", lambda: ran.append(1))
    assert (len(ran), len(tried)) == (10, 1)


def test_a_request_uses_the_longest_captured_round_until_its_own_is_captured(plain: list[int], pair: FusedRound):
    fused = read_pair("bf16" if pair.target.dtype == torch.bfloat16 else "fp32")
    fused.graphs.record = lambda work: work
    _, warm = warm_up(fused.target, fused.draft, repeats=1)
    assert warm is not None
    captured = {key[2] for key in warm.graphs.replays if isinstance(key, tuple) and key[0] == "round"}
    assert captured == {1, 2, 3, 4, 5, 8}
    steps = rounds(warm, [FusedDrafter(warm, Sampling())], 7)
    assert [token for step in steps for token in step.tokens] == plain
    assert steps[0].drafted == 5, "7 is not captured yet"
    assert max(step.drafted for step in steps) == 7, "asked for often enough, it is"


def test_the_warm_up_measures_every_cost_and_leaves_the_caches_empty():
    fused = read_pair()
    costs, warm = warm_up(fused.target, fused.draft, repeats=1)
    assert warm is not None
    assert min(*costs.verify_ms.values(), costs.guess("model"), costs.missing_ms["model"], costs.prefill_ms) > 0
    assert max(costs.verify_ms) > MAX_GAMMA, "no round is wider, so no cost is extrapolated"
    assert costs.verify(16) == costs.verify(1) < costs.verify(17), "a pass has 16 rows, however many are needed"
    assert fused.target.ids == fused.draft.ids == []
    assert warm_up(fused.target, repeats=1)[1] is None


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (ValueError("ptxas: no such instruction"), None),
        (torch.OutOfMemoryError("CUDA out of memory"), torch.OutOfMemoryError),
        (torch.AcceleratorError("CUDA error"), torch.AcceleratorError),
    ],
)
def test_torch_computes_where_the_kernels_fail_unless_the_device_is_full_or_failed(
    error: Exception, raised: type[Exception] | None
):
    decoder = read("draft", is_draft=True)

    def fail(*arguments: Any) -> Any:
        raise error

    decoder.ops = broken = TORCH._replace(attend=fail)
    with pytest.raises(raised) if raised else nullcontext():
        try_kernels(decoder)
    assert decoder.ops is (broken if raised else TORCH)
    assert decoder.ids == []


@given(messages=st.lists(st.lists(st.integers(0, 2**40), min_size=3, max_size=3), min_size=1, max_size=9))
def test_uploads_arrive_in_order(messages: list[list[int]]):
    buffer = torch.zeros(5, dtype=torch.int64)
    uplink = Uplink(buffer)
    for message in messages:
        uplink.send(message)
        assert buffer.tolist() == [*message, 0, 0]
