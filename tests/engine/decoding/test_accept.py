"""Acceptance keeps the target's distribution exactly: tested by counting draws, not by repeating the formula."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from promises import Measured

from speclsp.engine.api import MIN_TEMPERATURE
from speclsp.engine.decoding.accept import Sampler, Sampling, agree, likeliest, reject, warp
from speclsp.engine.model.cuda import device_ops, graphs
from speclsp.engine.model.cuda.ops import TORCH
from speclsp.engine.model.draws import noise, noise_rows
from speclsp.errors import InvalidLogits

VOCAB = 12
DRAWS, SOAK_DRAWS = 8_000, 200_000
MIN_P_VALUE = 1e-4  # fixed seeds, so a failure is a bug and not chance
KINDS = {"a CPU's logits": lambda logits: logits.numpy(), "a GPU's": lambda logits: logits}  # arrays, and tensors


def peaked(seed: int, sharpness: float = 1.5) -> torch.Tensor:
    return torch.randn(VOCAB, generator=torch.Generator().manual_seed(seed)) * sharpness


def test_greedy_keeps_the_agreeing_tokens_and_adds_the_targets_own():
    assert agree([], [5]) == (0, 5)
    assert agree([5, 6, 7], [5, 6, 9, 8]) == (2, 9)
    assert agree([5, 6, 7], [5, 6, 7, 8]) == (3, 8)
    assert agree([4], [5, 6]) == (0, 5)


class Chain:
    """A target whose next distribution depends on the last token, and a draft close to it. Fast in bulk."""

    def __init__(self, draft_sharpness: float) -> None:
        self.p_logits = torch.stack([peaked(i) for i in range(VOCAB)])  # row: after token i
        self.q_logits = torch.stack([0.6 * peaked(i) + draft_sharpness * peaked(100 + i) for i in range(VOCAB)])


def rejection_pairs(chain: Chain, kind: str, draws: int) -> np.ndarray:
    """[draws, 2]: the first two tokens after token 0, from as many rounds of two guesses as needed."""
    sampling = Sampling(temperature=1.0, method="rejection", seed=1)
    sampler = Sampler(sampling)
    pairs = np.empty((draws, 2), dtype=np.int64)
    for draw in range(draws):
        out: list[int] = []
        while len(out) < 2:
            last = out[-1] if out else 0
            if kind == "model":
                x1, q1 = sampler.draft(chain.q_logits[last], 0)
                x2, q2 = sampler.draft(chain.q_logits[x1], 1)
                drafted, q = [x1, x2], torch.stack([q1, q2])
            else:  # an n-gram: probability 1
                drafted, q = [int(chain.p_logits[last].argmax()), 3], None
            logits = chain.p_logits[torch.tensor([last, *drafted])]
            n, token = sampler.accept(drafted, logits, 0, q)
            out += [*drafted[:n], token]
        pairs[draw] = out[:2]
    return pairs


def p_value(counts: np.ndarray, expected: np.ndarray) -> float:
    """The probability of counts that are at least as far from the expected ones: Pearson's chi-square test."""
    statistic = torch.tensor(((counts - expected) ** 2 / expected).sum(), dtype=torch.float64)
    freedom = torch.tensor(len(counts) - 1, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom / 2, statistic / 2))


def check_pairs(pairs: np.ndarray, chain: Chain) -> None:
    """Single tokens and pairs follow p(a | 0) and p(a | 0) p(b | a), by chi-square."""
    p = chain.p_logits.softmax(-1).numpy().astype(np.float64)
    single = np.bincount(pairs[:, 0], minlength=VOCAB)
    assert p_value(single, p[0] / p[0].sum() * len(pairs)) > MIN_P_VALUE
    joint = (p[0][:, None] * p).reshape(-1)
    counts = np.bincount(pairs[:, 0] * VOCAB + pairs[:, 1], minlength=VOCAB * VOCAB)
    expected = joint / joint.sum() * len(pairs)
    common = expected >= 5  # chi-square needs several counts in each cell; the rest form one cell
    observed = np.append(counts[common], counts[~common].sum())
    wanted = np.append(expected[common], expected[~common].sum())
    assert p_value(observed, wanted) > MIN_P_VALUE


@pytest.mark.promise(37)
@pytest.mark.parametrize("kind", ["model", "ngram"])
def test_rejection_sampling_draws_the_targets_tokens_and_pairs_of_tokens(kind: str, promise: Measured, soak: bool):
    """Each pair comes from as many rounds of two guesses as needed."""
    torch.set_num_threads(1)
    chain, draws = Chain(draft_sharpness=0.5), SOAK_DRAWS if soak else DRAWS
    check_pairs(rejection_pairs(chain, kind, draws), chain)
    promise.measured(f"{draws:,} pairs of tokens drawn with a {kind} draft: the target's distribution", holds=True)


def test_a_biased_rule_fails_the_chi_square_test():
    """Accepting every draft token, the commonest mistake, fails the same chi-square."""
    chain = Chain(draft_sharpness=0.5)
    p, q = chain.p_logits.softmax(-1), chain.q_logits.softmax(-1)
    generator = torch.Generator().manual_seed(1)
    first = torch.multinomial(0.9 * p[0] + 0.1 * q[0], DRAWS, replacement=True, generator=generator)
    second = torch.multinomial(p, DRAWS, replacement=True, generator=generator)[first, torch.arange(DRAWS)]
    with pytest.raises(AssertionError):
        check_pairs(torch.stack([first, second], dim=1).numpy(), chain)


def test_a_draft_that_draws_from_the_target_itself_is_always_accepted():
    for method in ("rejection", "coupled"):
        sampler = Sampler(Sampling(temperature=0.8, method=method, seed=3))
        for position in range(200):
            logits = torch.stack([peaked(position), peaked(position + 1), peaked(position + 2)])
            x1, q1 = sampler.draft(logits[0], position)
            x2, q2 = sampler.draft(logits[1], position + 1)
            q = torch.stack([q1, q2]) if q1 is not None and q2 is not None else None
            assert sampler.accept([x1, x2], logits, position, q)[0] == 2


def test_coupled_draws_follow_the_targets_distribution():
    logits = peaked(7)
    p = warp(logits[None], Sampling(temperature=1.0))[0]
    e = noise_rows(torch.arange(40_000), torch.full((40_000,), 5), VOCAB)
    assert torch.equal(e[11], noise(11, 5, VOCAB))
    counts = np.bincount((p / e).argmax(dim=-1).numpy(), minlength=VOCAB)
    wanted = p.numpy().astype(np.float64)
    assert p_value(counts, wanted / wanted.sum() * len(e)) > MIN_P_VALUE
    sampler = Sampler(Sampling(temperature=1.0, seed=11))
    assert sampler.choose(logits[None], 5) == [int((p / noise(11, 5, VOCAB)).argmax())], "the same noise is used"


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**31), drafted=st.lists(st.integers(0, VOCAB - 1), max_size=6), temperature=st.floats(0.1, 2.0)
)
def test_coupled_tokens_are_those_of_plain_decoding_with_that_seed(seed: int, drafted: list[int], temperature: float):
    sampler = Sampler(Sampling(temperature=temperature, seed=seed, top_p=0.95))
    logits = torch.stack([peaked(i) for i in range(len(drafted) + 1)])
    plain = [sampler.choose(logits[i : i + 1], 40 + i)[0] for i in range(len(logits))]
    n, token = sampler.accept(drafted, logits, 40)
    assert drafted[:n] == plain[:n]
    assert token == plain[n]


def test_noise_depends_on_seed_and_position_only():
    assert torch.equal(noise(1, 2, 9), noise(1, 2, 9))
    assert not torch.equal(noise(1, 2, 9), noise(1, 3, 9))
    assert not torch.equal(noise(1, 2, 9), noise(2, 2, 9))


def test_top_k_and_top_p_leave_the_most_likely_tokens_and_they_sum_to_one():
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]]))
    two = torch.tensor([[0.625, 0.375, 0.0, 0.0]])
    assert torch.allclose(warp(logits, Sampling(temperature=1.0, top_k=2)), two)
    assert torch.allclose(warp(logits, Sampling(temperature=1.0, top_p=0.6)), two)
    assert torch.allclose(warp(logits, Sampling(temperature=1.0, top_p=1e-9)), torch.tensor([[1.0, 0.0, 0.0, 0.0]]))
    assert torch.allclose(warp(logits, Sampling(temperature=1.0)), torch.tensor([[0.5, 0.3, 0.15, 0.05]]))


# Extreme parameters and broken logits

METHODS = ("coupled", "rejection")
LARGEST = 2.0**127  # of float32's order
POSITIVE = st.floats(0.0, 1.0, exclude_min=True)  # denormal numbers too


def rows(count: int) -> st.SearchStrategy[torch.Tensor]:
    """[count, VOCAB] logits of any size, some of them excluded, with one finite maximum in each row at least."""
    row = st.lists(st.floats(-LARGEST, LARGEST, width=32) | st.just(-math.inf), min_size=VOCAB - 1, max_size=VOCAB - 1)
    last = st.floats(-LARGEST, LARGEST, width=32)
    return st.lists(st.builds(lambda some, one: [*some, one], row, last), min_size=count, max_size=count).map(
        torch.tensor
    )


@given(
    logits=rows(3),
    temperature=st.floats(0.0, MIN_TEMPERATURE, exclude_max=True),
    top_p=POSITIVE,
    method=st.sampled_from(METHODS),
    drafted=st.lists(st.integers(0, VOCAB - 1), min_size=2, max_size=2),
)
def test_a_temperature_below_the_least_is_greedy(
    logits: torch.Tensor, temperature: float, top_p: float, method: str, drafted: list[int]
):
    sampler, greedy = Sampler(Sampling(temperature=temperature, top_p=top_p, method=method)), Sampler(Sampling())
    for kind in KINDS.values():
        own = kind(logits)
        assert sampler.choose(own, 0) == greedy.choose(own, 0) == logits.argmax(dim=-1).tolist()
        assert sampler.accept(drafted, own, 0) == greedy.accept(drafted, own, 0)
        assert sampler.draft(own[0], 0) == (greedy.choose(own[:1], 0)[0], None)


@example(torch.tensor([[0.0, 0.0, 1e-12, *[-math.inf] * (VOCAB - 3)]] * 2), 1.0, 0.5, 0, METHODS[0], 0)
@given(
    logits=rows(2),
    temperature=st.floats(MIN_TEMPERATURE, 100),
    top_p=POSITIVE,
    top_k=st.integers(0, 2**31),
    method=st.sampled_from(METHODS),
    seed=st.integers(0, 2**65),
)
def test_any_other_parameters_give_a_distribution_and_a_token_of_it(
    logits: torch.Tensor, temperature: float, top_p: float, top_k: int, method: str, seed: int
):
    sampling = Sampling(temperature=temperature, top_p=top_p, top_k=top_k, method=method, seed=seed)
    p = warp(logits, sampling)
    assert p.sum(dim=-1).tolist() == pytest.approx([1, 1])
    assert p.gather(1, logits.argmax(dim=-1, keepdim=True))[:, 0].tolist() == p.amax(dim=-1).tolist()
    chosen, accepted = ([], [])
    for kind in KINDS.values():
        chosen.append(Sampler(sampling).choose(kind(logits), 0))
        assert all(p[row, token] > 0 for row, token in enumerate(chosen[-1]))
        accepted.append(Sampler(sampling).accept([VOCAB - 1], kind(logits), 0))
        assert p[accepted[-1]] > 0
    assert chosen[0] == chosen[1] and accepted[0] == accepted[1], "the same arithmetic"


def test_a_certain_token_is_drawn_whatever_the_noise():
    """For seed 0 and position 292, the noise of token 17997 comes from the hash's highest value."""
    logits = torch.full((1, 20_000), -math.inf)
    logits[0, 17_997] = 0.0
    assert noise(0, 292, 20_000).isfinite().all()
    assert Sampler(Sampling(temperature=1.0)).choose(logits, 292) == [17_997]


def test_a_rejected_token_is_drawn_again_if_rounding_leaves_no_other():
    p = torch.tensor([[0.5, 0.0], [1.0, 0.0]])  # 0.5: as if rounding had taken half of the only token's probability
    for q in (None, torch.tensor([[1.0, 0.0]])):
        for seed in range(20):
            n, token = reject([0], p, q, torch.Generator().manual_seed(seed), lambda row: None)
            assert (n, token) in ((0, 0), (1, 0))


BROKEN = {"NaN": {3: math.nan}, "infinity": {3: math.inf}, "no token": dict.fromkeys(range(VOCAB), -math.inf)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("sampling", [Sampling(), *(Sampling(temperature=1.0, method=method) for method in METHODS)])
def test_no_token_is_chosen_from_broken_logits(sampling: Sampling, broken: str, kind: str):
    logits = KINDS[kind](torch.stack([peaked(i) for i in range(3)]))
    for token, value in BROKEN[broken].items():
        logits[1, token] = value
    sampler, highest = Sampler(sampling), r"the highest logit for token 41 is (nan|inf|-inf), so no token was chosen"
    with pytest.raises(InvalidLogits, match=highest):
        sampler.choose(logits, 40)
    with pytest.raises(InvalidLogits, match=highest):
        sampler.draft(logits[1], 41)
    first = Sampler(sampling).choose(logits[:1], 40)[0]
    always = torch.full((2, VOCAB), 1e-9)  # q: every guess that is possible is accepted
    with pytest.raises(InvalidLogits, match=highest):
        Sampler(sampling).accept([first, first], logits, 40, always)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sampling", [Sampling(), *(Sampling(temperature=1.0, method=method) for method in METHODS)])
def test_broken_logits_after_a_rejected_guess_are_never_read(sampling: Sampling, kind: str):
    logits = KINDS[kind](torch.stack([peaked(0), torch.full((VOCAB,), math.nan)]))
    logits[0, 5] = -math.inf
    n, token = Sampler(sampling).accept([5], logits, 40)
    assert (n, token) == (0, token)
    assert token != 5


@given(
    row=st.lists(st.integers(-3, 3), min_size=1, max_size=40),
    excluded=st.sets(st.integers(0, 39)),
    count=st.integers(0, 45),
)
def test_the_likeliest_tokens_are_ordered_by_logit_and_then_by_id(row: list[int], excluded: set[int], count: int):
    logits = np.array([-np.inf if at in excluded else value for at, value in enumerate(row)], np.float32)
    ordered = sorted((token for token in range(len(row)) if token not in excluded), key=lambda token: -row[token])
    assert likeliest(logits, count) == ordered[:count]


def test_the_kernels_run_while_the_device_of_the_logits_is_current(monkeypatch: pytest.MonkeyPatch):
    """Triton launches on the current device, whatever its arguments' device is."""
    events: list[str] = []

    @contextmanager
    def recorded(device: str) -> Iterator[None]:
        events.append(device)
        yield
        events.append("left")

    ops = TORCH._replace(choose=lambda *arguments: events.append("chose") or TORCH.choose(*arguments))
    monkeypatch.setattr(graphs, "on", recorded)
    monkeypatch.setattr(device_ops, "ops_for", lambda device: ops)
    assert Sampler(Sampling()).choices(torch.eye(3), 0) == [0, 1, 2]
    assert events == ["cpu", "chose", "left"]
