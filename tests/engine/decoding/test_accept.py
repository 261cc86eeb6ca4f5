"""Acceptance keeps the target's distribution exactly: tested by counting draws, not by repeating the formula."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from promises import Measured

from speclsp.engine.api import MIN_TEMPERATURE
from speclsp.engine.decoding.accept import Sampler, Sampling, distribution, likeliest, reject
from speclsp.engine.model import draws
from speclsp.engine.model.bfloat16 import Floats
from speclsp.engine.model.cuda import ops
from speclsp.engine.model.draws import MAX_SEED, Doubles, Draw, uniforms
from speclsp.errors import InvalidLogits

VOCAB = 12
DRAWS, SOAK_DRAWS = 8_000, 200_000
MIN_P_VALUE = 1e-4  # fixed seeds, so a failure is a bug and not chance
KINDS = {"a CPU's logits": lambda logits: logits, "a GPU's": torch.from_numpy}  # arrays, and tensors


def noise(seed: int, position: int, vocab: int) -> Doubles:
    """Exp(1) noise [vocab] of a coupled draw."""
    return -np.log1p(-uniforms(seed, position, vocab))


def peaked(seed: int, sharpness: float = 1.5) -> Floats:
    return np.random.default_rng(seed).standard_normal(VOCAB, np.float32) * np.float32(sharpness)


class Chain:
    """A target whose next distribution depends on the last token, and a draft close to it. Fast in bulk."""

    def __init__(self, draft_sharpness: float) -> None:
        self.p_logits = np.stack([peaked(i) for i in range(VOCAB)])  # row: after token i
        self.q_logits = np.stack([0.6 * peaked(i) + draft_sharpness * peaked(100 + i) for i in range(VOCAB)])


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
                drafted, q = [x1, x2], [q1, q2]
            else:  # an n-gram: probability 1
                drafted, q = [int(chain.p_logits[last].argmax()), 3], None
            logits = chain.p_logits[[last, *drafted]]
            n, token = sampler.accept(drafted, logits, 0, q)
            out += [*drafted[:n], token]
        pairs[draw] = out[:2]
    return pairs


def softmax(logits: Floats) -> Doubles:
    w = np.exp(logits.astype(np.float64))
    return w / w.sum(axis=-1, keepdims=True)


def p_value(counts: np.ndarray, expected: np.ndarray) -> float:
    """The probability of counts that are at least as far from the expected ones: Pearson's chi-square test."""
    statistic = torch.tensor(((counts - expected) ** 2 / expected).sum(), dtype=torch.float64)
    freedom = torch.tensor(len(counts) - 1, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom / 2, statistic / 2))


def check_pairs(pairs: np.ndarray, chain: Chain) -> None:
    """Single tokens and pairs follow p(a | 0) and p(a | 0) p(b | a), by chi-square."""
    p = softmax(chain.p_logits)
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
    chain, pairs = Chain(draft_sharpness=0.5), SOAK_DRAWS if soak else DRAWS
    check_pairs(rejection_pairs(chain, kind, pairs), chain)
    promise.measured(f"{pairs:,} pairs of tokens drawn with a {kind} draft: the target's distribution", holds=True)


def test_coupled_draws_follow_the_targets_distribution():
    logits, sampling = peaked(7), Sampling(temperature=1.0)
    wanted, draw = softmax(logits), Draw(1.0)
    tokens = [draws.coupled(logits, draw._replace(seed=seed), 5) for seed in range(40_000)]
    assert p_value(np.bincount(tokens, minlength=VOCAB), wanted * len(tokens)) > MIN_P_VALUE
    assert np.allclose(distribution(logits, sampling), wanted)
    chosen = Sampler(Sampling(temperature=1.0, seed=11)).choose(logits[None], 5)
    assert chosen == [int((wanted / noise(11, 5, VOCAB)).argmax())], "the same noise is used"


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**31), drafted=st.lists(st.integers(0, VOCAB - 1), max_size=6), temperature=st.floats(0.1, 2.0)
)
def test_coupled_tokens_are_those_of_plain_decoding_with_that_seed(seed: int, drafted: list[int], temperature: float):
    sampler = Sampler(Sampling(temperature=temperature, seed=seed, top_p=0.95))
    logits = np.stack([peaked(i) for i in range(len(drafted) + 1)])
    plain = [sampler.choose(logits[i : i + 1], 40 + i)[0] for i in range(len(logits))]
    n, token = sampler.accept(drafted, logits, 40)
    assert drafted[:n] == plain[:n]
    assert token == plain[n]


def test_noise_depends_on_seed_and_position_only():
    assert np.array_equal(noise(1, 2, 9), noise(1, 2, 9))
    assert not np.array_equal(noise(1, 2, 9), noise(1, 3, 9))
    assert not np.array_equal(noise(1, 2, 9), noise(2, 2, 9))
    assert not np.array_equal(noise(1, 2, 9), noise(1 + 2**32, 2, 9))


def test_top_k_and_top_p_leave_the_most_likely_tokens_and_they_sum_to_one():
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    for options, wanted in (
        ({"top_k": 2}, [0.625, 0.375, 0.0, 0.0]),
        ({"top_p": 0.6}, [0.625, 0.375, 0.0, 0.0]),
        ({"top_p": 1e-9}, [1.0, 0.0, 0.0, 0.0]),
        ({"top_p": 0.0}, [1.0, 0.0, 0.0, 0.0]),
        ({"top_k": 2, "top_p": 0.6}, [1.0, 0.0, 0.0, 0.0]),
        ({}, [0.5, 0.3, 0.15, 0.05]),
    ):
        assert np.allclose(distribution(logits, Sampling(temperature=1.0, **options)), wanted)


# Extreme parameters and broken logits

METHODS = ("coupled", "rejection")
LARGEST = 2.0**127  # of float32's order
POSITIVE = st.floats(0.0, 1.0, exclude_min=True)  # denormal numbers too


def rows(count: int) -> st.SearchStrategy[Floats]:
    """[count, VOCAB] logits of any size, some of them excluded, with one finite maximum in each row at least."""
    row = st.lists(st.floats(-LARGEST, LARGEST, width=32) | st.just(-math.inf), min_size=VOCAB - 1, max_size=VOCAB - 1)
    last = st.floats(-LARGEST, LARGEST, width=32)
    return st.lists(st.builds(lambda some, one: [*some, one], row, last), min_size=count, max_size=count).map(
        lambda lists: np.array(lists, np.float32)
    )


@given(
    logits=rows(3),
    temperature=st.floats(0.0, MIN_TEMPERATURE, exclude_max=True),
    top_p=POSITIVE,
    method=st.sampled_from(METHODS),
    drafted=st.lists(st.integers(0, VOCAB - 1), min_size=2, max_size=2),
)
def test_a_temperature_below_the_least_is_greedy(
    logits: Floats, temperature: float, top_p: float, method: str, drafted: list[int]
):
    sampler, greedy = Sampler(Sampling(temperature=temperature, top_p=top_p, method=method)), Sampler(Sampling())
    for kind in KINDS.values():
        own = kind(logits)
        assert sampler.choose(own, 0) == greedy.choose(own, 0) == logits.argmax(axis=-1).tolist()
        assert sampler.accept(drafted, own, 0) == greedy.accept(drafted, own, 0)
    assert sampler.draft(logits[0], 0) == (greedy.choose(logits[:1], 0)[0], None)


@example(np.array([[0.0, 0.0, 1e-12, *[-math.inf] * (VOCAB - 3)]] * 2, np.float32), 1.0, 0.5, 0, METHODS[0], 0)
@given(
    logits=rows(2),
    temperature=st.floats(MIN_TEMPERATURE, 100),
    top_p=POSITIVE,
    top_k=st.integers(0, 2**31),
    method=st.sampled_from(METHODS),
    seed=st.integers(0, 2**65),
)
def test_any_other_parameters_give_a_distribution_and_a_token_of_it(
    logits: Floats, temperature: float, top_p: float, top_k: int, method: str, seed: int
):
    sampling = Sampling(temperature=temperature, top_p=top_p, top_k=top_k, method=method, seed=seed)
    p = np.stack([distribution(row, sampling) for row in logits])
    assert p.sum(axis=-1).tolist() == pytest.approx([1, 1])
    assert [row[at] for row, at in zip(p, logits.argmax(axis=-1), strict=True)] == p.max(axis=-1).tolist()
    assert all(p[row, token] > 0 for row, token in enumerate(Sampler(sampling).choose(logits, 0)))
    assert p[Sampler(sampling).accept([VOCAB - 1], logits, 0)] > 0


FEW = st.sampled_from([-math.inf, -2.0, -1.0, 0.0, 1.0, 1.5])  # ties
ANY = st.floats(width=32)  # NaN and infinities too


@st.composite
def any_rows(draw: st.DrawFn) -> Floats:
    """Logits of one to three rows: few or many tokens, equal, broken and excluded ones."""
    if draw(st.booleans()):
        shape, rng = (2, draw(st.integers(1, 4000))), np.random.default_rng(draw(st.integers(0, 2**32)))
        logits = (rng.standard_normal(shape) * draw(st.floats(0.01, 30))).astype(np.float32)
        steps = draw(st.sampled_from([0, 1, 16]))
        return np.round(logits * steps) / np.float32(steps) if steps else logits
    row = st.lists(draw(st.sampled_from([FEW, ANY])), min_size=VOCAB, max_size=VOCAB)
    return np.array(draw(st.lists(row, min_size=1, max_size=3)), np.float32)


@given(
    logits=any_rows(),
    temperature=st.floats(MIN_TEMPERATURE, 100) | st.sampled_from([0.2, 0.8, 1.0]),
    top_k=st.integers(0, VOCAB + 2) | st.integers(0, 4000),
    top_p=st.floats(0, 1) | st.sampled_from([0.25, 0.5, 0.9, 0.95]),
    method=st.sampled_from(METHODS),
    seed=st.integers(0, 2**63),
    position=st.integers(0, 2**17),
)
def test_numpy_and_torch_draw_the_same_tokens(
    logits: Floats, temperature: float, top_k: int, top_p: float, method: str, seed: int, position: int
):
    sampling = Sampling(temperature=temperature, top_p=top_p, top_k=top_k, method=method, seed=seed)
    arrays, tensors = (Sampler(sampling).choices(kind(logits), position) for kind in KINDS.values())
    assert arrays == tensors
    assert [token < 0 for token in arrays] == [not math.isfinite(row.max()) for row in logits]


@given(seed=st.integers(0, MAX_SEED), position=st.integers(0, 2**17), vocab=st.integers(1, 3000))
def test_the_noise_of_torch_is_that_of_numpy(seed: int, position: int, vocab: int):
    both = noise(seed, position, vocab), ops.noise(torch.tensor([seed]), torch.tensor([position]), vocab)[0].numpy()
    assert np.allclose(*both, rtol=2**-50, atol=0)


def test_a_certain_token_is_drawn_whatever_the_noise():
    """For seed 0 and position 292, the noise of token 17997 comes from the hash's highest value."""
    logits = np.full((1, 20_000), -math.inf, np.float32)
    logits[0, 17_997] = 0.0
    assert np.isfinite(noise(0, 292, 20_000)).all()
    for kind in KINDS.values():
        assert Sampler(Sampling(temperature=1.0)).choose(kind(logits), 292) == [17_997]


def test_a_rejected_token_is_drawn_again_if_rounding_leaves_no_other():
    p = np.array([[0.5, 0.0], [1.0, 0.0]])  # 0.5: as if rounding had taken half of the only token's probability
    for q in (None, [np.array([1.0, 0.0])]):
        for seed in range(20):
            n, token = reject([0], p.__getitem__, q, random.Random(seed))
            assert (n, token) in ((0, 0), (1, 0))


def test_a_draw_from_the_stream_never_takes_a_token_without_probability():
    class Stream(random.Random):
        def __init__(self, number: float) -> None:
            self.number = number

        def random(self) -> float:
            return self.number

    for number in (0.0, 0.5, math.nextafter(1.0, 0.0)):
        for weight in (0.1, 1 / 3, 5e-324):
            assert draws.drawn(np.array([0.0, weight, 0.0]), Stream(number)) == 1


BROKEN = {"NaN": {3: math.nan}, "infinity": {3: math.inf}, "no token": dict.fromkeys(range(VOCAB), -math.inf)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("sampling", [Sampling(), *(Sampling(temperature=1.0, method=method) for method in METHODS)])
def test_no_token_is_chosen_from_broken_logits(sampling: Sampling, broken: str, kind: str):
    logits = np.stack([peaked(i) for i in range(3)])
    for token, value in BROKEN[broken].items():
        logits[1, token] = value
    on_host, logits = logits, KINDS[kind](logits)
    sampler, highest = Sampler(sampling), r"the highest logit for token 41 is (nan|inf|-inf), so no token was chosen"
    with pytest.raises(InvalidLogits, match=highest):
        sampler.choose(logits, 40)
    with pytest.raises(InvalidLogits, match=highest):
        sampler.draft(on_host[1], 41)
    first = Sampler(sampling).choose(logits[:1], 40)[0]
    always = np.full((2, VOCAB), 1e-9)  # q: every guess that is possible is accepted
    with pytest.raises(InvalidLogits, match=highest):
        Sampler(sampling).accept([first, first], logits, 40, always)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sampling", [Sampling(), *(Sampling(temperature=1.0, method=method) for method in METHODS)])
def test_broken_logits_after_a_rejected_guess_are_never_read(sampling: Sampling, kind: str):
    logits = np.stack([peaked(0), np.full(VOCAB, math.nan, np.float32)])
    logits[0, 5] = -math.inf
    n, token = Sampler(sampling).accept([5], KINDS[kind](logits), 40)
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
