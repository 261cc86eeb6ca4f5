"""Speculation policy: drafts are used exactly where they pay on this machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.engine.counting_lm import CountingLM, Script

from speclsp.engine.decoding.drafters import (
    Guess,
    ModelDrafter,
    NGramDrafter,
    ReuseDrafter,
)
from speclsp.engine.decoding.policy import Costs, MeasuredPolicy
from speclsp.engine.model.decoder import ROWS


def steps(*ms: float) -> dict[int, float]:
    """Costs of a pass that computes rows in slices of ROWS: equal for 1 to ROWS rows."""
    return {rows: slice_ms for i, slice_ms in enumerate(ms) for rows in (i * ROWS + 1, (i + 1) * ROWS)}


PRIORS = {kind.source: kind.prior for kind in (ReuseDrafter, NGramDrafter, ModelDrafter)}


def policy_of(costs: Costs, **given: Any) -> MeasuredPolicy:
    """A policy that has met every drafter, so that a test may teach it before it asks for a guess."""
    return MeasuredPolicy(costs, priors=dict(PRIORS), **given)


FLAT = steps(40.0, 55.0, 70.0)  # eight rows at the cost of one
STEEP = steps(40.0, 80.0, 120.0)


def test_the_cost_of_a_pass_is_interpolated_between_measured_widths():
    costs = Costs(verify_ms={1: 24.0, 8: 27.5, 16: 29.5})
    assert [costs.verify(rows) for rows in (1, 3, 8, 12, 16)] == [24.0, 25.0, 27.5, 28.5, 29.5]
    assert costs.verify(24) == 31.5, "extrapolated beyond the last one"
    assert Costs(verify_ms={8: 40.0}).verify(1) == Costs(verify_ms={8: 40.0}).verify(9) == 40.0


def pick(logits, drafted):
    raise AssertionError("a free source never looks at logits")


def guesses(source: str, count: int, strength: int = 0) -> Script:
    script = Script(lambda ids, k: [1] * count)
    script.source = source
    script.prior = PRIORS.get(source, script.prior)
    script.propose = lambda ids, k, pick: Guess([1] * min(count, k), strength)  # type: ignore[method-assign]
    return script


def test_guesses_that_cost_nothing_are_used_up_to_the_width_of_the_pass():
    policy = policy_of(Costs(verify_ms=STEEP))
    source, guess = policy.guess([guesses("ngram", 16, strength=1)], [1, 2], 30, pick)
    assert source == "ngram"
    assert len(guess.tokens) == ROWS - 1, "one more would need a second slice, which doubles the cost"


def test_a_long_match_gets_more_guesses_than_two_slices_hold_and_a_short_suggestion_fewer():
    wide = Costs(verify_ms={1: 30.0, 8: 38.0, 16: 42.0, 24: 51.0, 64: 92.0})
    text = policy_of(wide, usual_tokens=200.0)
    line = policy_of(wide, usual_tokens=10.0)
    offer = [guesses("ngram", 64, strength=32)]
    assert len(text.guess(offer, [1], 64, pick)[1].tokens) > 2 * ROWS
    assert 0 < len(line.guess(offer, [1], 64, pick)[1].tokens) <= 2 * ROWS


def test_a_drafter_that_was_never_accepted_gets_a_low_estimate():
    policy = policy_of(Costs(verify_ms=FLAT))
    for _ in range(50):
        policy.learn("ngram", 1, 7, 0)
    assert policy.acceptance("ngram", 1).alpha < 0.05
    assert policy.acceptance("ngram", 4).alpha == NGramDrafter.prior.alphas[4], "a longer match is another matter"
    steep = policy_of(Costs(verify_ms=STEEP), acceptances=policy.acceptances)
    assert len(steep.guess([guesses("ngram", 16, strength=1)], [1], 30, pick)[1].tokens) < ROWS


class Draft(ModelDrafter):
    """A draft model that only counts."""

    def __init__(self, behind: int = 0) -> None:
        super().__init__(CountingLM())
        self.behind = behind

    def missing(self, ids):
        return self.behind

    def propose(self, ids, k, pick):
        return Guess([1] * k)


def drafted(policy: MeasuredPolicy, draft: Draft, room: int = 40) -> int:
    return len(policy.guess([draft], [1, 2, 3], room, pick)[1].tokens)


def test_a_cheap_draft_model_guesses_many_tokens_an_expensive_one_few_or_none():
    cheap, dear, hopeless = (Costs(verify_ms=FLAT, guess_ms={"model": ms}) for ms in (1.0, 15.0, 60.0))
    many, few = drafted(policy_of(cheap), Draft()), drafted(policy_of(dear), Draft())
    assert many > few > 0
    assert drafted(policy_of(hopeless), Draft()) == 0


def test_a_draft_model_with_low_acceptance_is_switched_off_and_later_tried_again():
    policy = policy_of(Costs(verify_ms=FLAT, guess_ms={"model": 5.0}))
    for _ in range(30):
        policy.learn("model", 0, 4, 0)
    assert drafted(policy, Draft()) == 0
    for _ in range(400):
        policy.start()
    assert drafted(policy, Draft()) > 0


def test_a_short_completion_does_not_pay_for_the_prefill_of_a_cold_draft():
    policy = policy_of(Costs(verify_ms=FLAT, guess_ms={"model": 5.0}, missing_ms={"model": 0.5}))
    assert drafted(policy, Draft(behind=500), room=3) == 0
    assert drafted(policy, Draft(behind=500), room=400) > 0
    assert drafted(policy, Draft(behind=0), room=3) > 0
    assert drafted(policy, Draft(behind=5000), room=400) == 0, "nor does a usual one, when the prompt is long"


def test_no_guess_is_longer_than_the_room_left():
    policy = policy_of(Costs(verify_ms=FLAT), max_gamma=5)
    assert policy.guess([guesses("reuse", 16)], [1], 0, pick) == ("", Guess([]))
    assert len(policy.guess([guesses("reuse", 16)], [1], 3, pick)[1].tokens) == 3
    assert len(policy.guess([guesses("reuse", 16)], [1], 30, pick)[1].tokens) == 5


def test_a_guess_after_accepted_ones_counts_as_a_longer_match():
    """Matches in code are long or fail at once: a geometric law would stop where guessing begins to pay."""
    policy = policy_of(Costs(verify_ms={1: 24.0, 8: 27.0, 16: 29.0}))
    for _ in range(40):
        policy.learn("ngram", 1, 15, 15)
        policy.learn("ngram", 1, 15, 0)
        policy.learn("ngram", 1, 15, 0)
    assert policy.acceptance("ngram", 1).alpha == pytest.approx(0.33, abs=0.06)
    assert policy.acceptance("ngram", 4).alpha > 0.9
    assert len(policy.guess([guesses("ngram", 15, strength=1)], [1], 30, pick)[1].tokens) == 15


def test_a_draft_model_stops_where_its_confidence_is_low():
    class Unsure(CountingLM):
        def forward(self, new):
            self.ids.extend(new)
            sure = len(self.ids) < 5
            return np.array([[9.0 if sure else 0.1, 0.0, 0.0, 0.0]] * len(new), np.float32)

    def choose(logits, drafted):
        return int(logits.argmax()), None

    assert ModelDrafter(Unsure(), p_min=0.4).propose([1, 2, 3], 8, choose).tokens == [0, 0]
    assert len(ModelDrafter(Unsure(), p_min=0.0).propose([1, 2, 3], 8, choose).tokens) == 8
