"""`python -m benchmarks draft-length`: recorded answers replayed against policies."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.speed.draft_length import NEW, Record, places, policies, replay
from speclsp.engine.decoding.policy import Costs, MeasuredPolicy

COSTS = Costs(verify_ms={1: 30.0, 8: 38.0, 16: 42.0, 24: 51.0, 64: 92.0})
TOKENS = st.lists(st.integers(1, 6), min_size=1, max_size=40)


def recorded(prompt: list[int], answer: list[int], line_tokens: int | None = None) -> Record:
    line = len(answer) if line_tokens is None else line_tokens
    return Record(kind=NEW, prompt=prompt, left_out=[], previous=[], answer=answer, line_tokens=line)


@given(records=st.lists(st.tuples(TOKENS, TOKENS), min_size=1, max_size=5), whole=st.booleans())
def test_every_policy_replays_every_token_once(records: list[tuple[list[int], list[int]]], whole: bool):
    made = [recorded(prompt, answer, 1 + len(answer) // 2 if len(answer) > 1 else 1) for prompt, answer in records]
    wanted = sum(len(record.answer) if whole else record.line_tokens for record in made)
    for name, policy in policies(COSTS).items():
        tally = replay(made, policy, COSTS, whole)
        assert tally.tokens == wanted, name
        assert tally.rounds <= wanted <= tally.rows, name


def test_a_plain_policy_takes_a_round_of_one_row_for_each_token():
    tally = replay([recorded([1, 2], [3, 4, 5])], MeasuredPolicy(COSTS, max_gamma=0), COSTS, whole=True)
    assert (tally.tokens, tally.rounds, tally.rows, tally.ms) == (3, 3, 3, 90.0)


def test_a_long_match_gets_a_long_draft_and_fewer_rounds():
    text = list(range(10, 90))
    record = recorded([*text, 1, *text[:20]], text[20:])
    capped = replay([record], MeasuredPolicy(COSTS, max_gamma=16, usual_tokens=1000.0), COSTS, whole=True)
    free = replay([record], MeasuredPolicy(COSTS, usual_tokens=1000.0), COSTS, whole=True)
    assert free.wide_rounds >= 1 and not capped.wide_rounds
    assert free.rounds < capped.rounds
    assert free.ms < capped.ms


def test_each_kind_of_place_is_there_and_a_repeated_block_is_in_its_own_prefix():
    chosen = places(3, 8)
    assert [kind for kind, _ in chosen].count("repeated") == 3 and len(chosen) == 9
    for kind, request in chosen:
        if kind == "repeated":
            assert request.line_prefix and request.prefix.count(request.line_prefix) >= 1
