"""Statistics of a drafter over rounds: acceptance counts, τ and quantiles."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.speed import rounds
from benchmarks.speed.rounds import tau
from speclsp.engine.api import Piece, Result


def piece(drafted: int, accepted: int, ms: float = 10.0, source: str = "ngram") -> Piece:
    """A round that kept `accepted` guesses and the target's own token."""
    tokens = tuple(range(accepted + 1))
    return Piece(text="", tokens=tokens, source=source if drafted else "", drafted=drafted, accepted=accepted, ms=ms)


pieces = st.lists(
    st.integers(0, 8).flatmap(lambda drafted: st.integers(0, drafted).map(lambda accepted: piece(drafted, accepted))),
    max_size=20,
)


@given(pieces)
def test_every_drafted_token_is_accepted_rejected_or_not_judged(made: list[Piece]):
    found = rounds.drafting(made)
    assert found.accepted <= found.judged <= found.drafted
    assert found.tokens == found.accepted + found.rounds, "each round adds the target's own token"
    assert sum(tried for tried, _ in found.by_depth) == found.judged
    assert sum(accepted for _, accepted in found.by_depth) == found.accepted
    for (_, accepted), (tried, _) in zip(found.by_depth, found.by_depth[1:], strict=False):
        assert tried <= accepted, "a guess is looked at only when the one before it held"


def test_drafted_tokens_after_a_rejection_do_not_count_for_acceptance():
    found = rounds.drafting([piece(drafted=7, accepted=1)])
    assert (found.judged, found.accepted, found.alpha) == (2, 1, 0.5)


def test_a_perfect_draft_yields_all_tokens_and_a_wrong_one_yields_one():
    right, wrong = [piece(5, 5)] * 3, [piece(5, 0)] * 3
    assert rounds.drafting(right).tokens_per_round == rounds.drafting(right).predicted == 6
    assert rounds.drafting(wrong).tokens_per_round == rounds.drafting(wrong).predicted == 1


def test_tau_predicts_tokens_per_round_if_acceptance_is_independent_of_depth():
    dice, made = random.Random(3), []
    for _ in range(20_000):
        accepted = next((n for n in range(4) if dice.random() > 0.7), 4)
        made.append(piece(4, accepted))
    found = rounds.drafting(made)
    assert found.alpha == pytest.approx(0.7, abs=0.01)
    assert found.tokens_per_round == pytest.approx(found.predicted, rel=0.01)
    assert found.predicted == pytest.approx(tau(found.alpha, 4))


def test_each_draft_source_is_counted_separately():
    made = [piece(3, 3, source="ngram"), piece(2, 0, source="model"), piece(0, 0)]
    assert rounds.drafting(made, "model").drafted == 2
    assert rounds.drafting(made, "ngram").accepted == 3
    assert rounds.drafting(made).rounds == 3
    assert rounds.drafting([]).alpha == rounds.drafting([]).tokens_per_round == 0.0


def test_decode_time_ends_with_the_round_of_the_token():
    run = rounds.Run(result=Result(), total_ms=99, rounds=(piece(3, 1, 10), piece(3, 2, 20), piece(0, 0, 30)))
    assert [run.decode_ms(tokens) for tokens in (0, 1, 2, 3, 5, 6, 99)] == [0, 10, 10, 30, 30, 60, 60]


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.floats(0, 1))
def test_a_quantile_lies_among_the_values(values: list[float], share: float):
    found = rounds.quantile(values, share)
    assert min(values) <= found <= max(values)
    assert rounds.quantile(values, 0) == min(values)
    assert rounds.quantile(values, 1) == max(values)
    assert rounds.quantile([], share) == 0.0
