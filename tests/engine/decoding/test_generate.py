"""The decoding loop: accepted tokens, ends of a completion, and drafts that cost speed but never change text."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.engine.counting_lm import VOCAB, CountingLM, Script

from speclsp.engine.decoding.accept import Sampler, Sampling
from speclsp.engine.decoding.drafters import ModelDrafter
from speclsp.engine.decoding.generate import Limits, Observer, PrefillStats, Round, generate
from speclsp.engine.decoding.policy import FixedPolicy
from speclsp.engine.model.bfloat16 import Floats


def counting(ids: list[int], k: int) -> list[int]:
    """A drafter that is always right."""
    return [(ids[-1] + 1 + i) % VOCAB for i in range(k)]


def rounds_of(
    target: CountingLM | None = None,
    draft: Callable[[list[int], int], list[int]] | None = counting,
    prompt: tuple[int, ...] = (1,),
    gamma: int = 4,
    **limits: object,
) -> list[Round]:
    drafters = [] if draft is None else [Script(draft)]
    limits.setdefault("max_tokens", 8)
    return list(
        generate(
            target or CountingLM(),
            drafters,
            FixedPolicy(gamma),
            list(prompt),
            Limits(**limits),
            Sampler(Sampling()),
            threading.Event(),
        )
    )


def tokens_of(rounds: list[Round]) -> list[list[int]]:
    return [step.tokens for step in rounds]


def test_a_round_keeps_the_draft_up_to_its_first_mistake():
    draft = CountingLM(wrong_after={4})

    def propose(ids: list[int], k: int) -> list[int]:
        guesses: list[int] = []
        for _ in range(k):
            guesses.append(int(draft.forward([[*ids, *guesses][-1]])[0].argmax()))
        return guesses

    rounds = rounds_of(draft=propose, max_tokens=9)
    assert tokens_of(rounds) == [[2, 3, 4, 5], [6, 7, 8, 9, 10]]
    assert [(step.drafted, step.accepted) for step in rounds] == [(4, 3), (4, 4)]


def test_a_banned_token_is_never_chosen_drafted_or_not():
    limits = {"max_tokens": 3, "banned_tokens": (3,)}
    assert tokens_of(rounds_of(draft=None, **limits))[:2] == [[2], [0]], "3 would follow 2; the next best is 0"
    assert sum(tokens_of(rounds_of(**limits)), []) == sum(tokens_of(rounds_of(draft=None, **limits)), [])


def test_the_cache_holds_the_accepted_tokens_after_every_round():
    target = CountingLM()
    ids = [1]
    for step in generate(
        target, [Script(lambda ids, k: [ids[-1] + 1, 0, 0])], FixedPolicy(3), ids, Limits(max_tokens=12),
        Sampler(Sampling()), threading.Event(),
    ):  # fmt: skip
        ids += step.tokens
        assert target.ids == ids[:-1], "the newest token is not in the cache yet"


def test_a_cancelled_completion_leaves_its_prefix_for_the_next_keystroke():
    target, cancel = CountingLM(), threading.Event()
    steps = generate(
        target, [], FixedPolicy(0), [1, 2, 3], Limits(max_tokens=50), Sampler(Sampling()), cancel
    )  # fmt: skip
    assert next(steps).tokens == [4]
    cancel.set()
    last = list(steps)
    assert [(step.stop, step.tokens) for step in last] == [("cancelled", [])], "without another round"
    prefill = PrefillStats()
    again = generate(
        target, [], FixedPolicy(0), [1, 2, 3, 4, 9], Limits(max_tokens=1), Sampler(Sampling()), threading.Event(),
        Observer(prefill=prefill),
    )  # fmt: skip
    assert next(again).tokens == [10]
    assert prefill.cached_tokens == 3, "only the token of the last round and the newly typed one were missing"


def test_a_request_cancelled_before_it_began_makes_no_pass():
    target, cancel = CountingLM(), threading.Event()
    cancel.set()
    steps = list(generate(target, [], FixedPolicy(0), [1, 2], Limits(), Sampler(Sampling()), cancel))
    assert [step.stop for step in steps] == ["cancelled"]
    assert target.passes == []


def test_a_full_cache_ends_the_completion():
    rounds = rounds_of(CountingLM(context_tokens=6), prompt=(1, 2, 3), max_tokens=50)
    assert sum(tokens_of(rounds), []) == [4, 5, 6]
    assert rounds[-1].stop == "limit"


def test_a_deadline_returns_the_tokens_accepted_by_then():
    rounds = rounds_of(draft=None, max_tokens=50, deadline_ms=0.001)
    assert len(rounds) == 1
    assert rounds[0].tokens == [2]
    assert rounds[0].stop == "deadline"


class BrokenLM(CountingLM):
    """A model whose logits become NaN after `after` tokens."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after

    def forward(self, new: Sequence[int]) -> Floats:
        logits = super().forward(new)
        logits[max(0, self.after - (len(self.ids) - len(new))) :, 7] = np.nan
        return logits


SAMPLINGS = [Sampling(), Sampling(temperature=0.5), Sampling(temperature=0.5, method="rejection")]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("after", range(4))
def test_a_draft_model_that_computes_nan_costs_rounds_and_never_the_completion(sampling: Sampling, after: int):
    steps = generate(
        CountingLM(), [ModelDrafter(BrokenLM(after), p_min=0.0)], FixedPolicy(3), [1], Limits(max_tokens=9),
        Sampler(sampling), threading.Event(),
    )  # fmt: skip
    tokens = sum(tokens_of(list(steps)), [])
    assert len(tokens) == 9
    if sampling.greedy:
        assert tokens == list(range(2, 11))


class TailLM(CountingLM):
    """A model in which a pass of a few tokens costs as much as a pass of one."""

    tail_tokens = 4
    prefill_is_exact = True


@given(typed=st.integers(0, 9), gamma=st.integers(0, 6))
def test_newly_typed_tokens_share_the_first_rounds_pass(typed: int, gamma: int):
    """A next keystroke on the same line costs one pass before its first token, and the text is the same."""
    cached, new = [1, 2, 3], [(4 + i) % VOCAB for i in range(typed)]
    target, plain = TailLM(), CountingLM()
    target.catch_up(cached)
    rounds = rounds_of(target, prompt=(*cached, *new), gamma=gamma, max_tokens=9)
    alone = rounds_of(plain, prompt=(*cached, *new), gamma=gamma, max_tokens=9)
    assert sum(tokens_of(rounds), []) == sum(tokens_of(alone), [])
    tail = typed - 1 if 0 < typed - 1 <= TailLM.tail_tokens else 0
    assert target.passes[0] == tail + 1 + rounds[0].drafted
    assert target.ids == [*cached, *new, *sum(tokens_of(rounds), [])][: len(target.ids)], "the cache holds the text"
