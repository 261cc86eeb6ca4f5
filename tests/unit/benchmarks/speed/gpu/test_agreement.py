"""A draft that is the target: accepted in full, unless its cache differs."""

from __future__ import annotations

import pytest

from benchmarks.speed.gpu import agreement
from benchmarks.speed.gpu.models import TINY, Padded, build, prompt
from benchmarks.speed.gpu.timing import Bench, Limit
from speclsp.engine.decoding.fused_round import FusedRound
from speclsp.engine.model.cuda.cuda_decoder import DRAFT_WIDTHS, CudaDecoder

BENCH = Bench("cpu", True, Limit(10.0), 1)


@pytest.fixture(scope="module")
def twin() -> FusedRound:
    weights = build(BENCH, TINY, "bf16")
    return FusedRound(CudaDecoder(**weights), Padded(**weights, widths=DRAFT_WIDTHS))


@pytest.mark.parametrize("fill", agreement.FILLS)
def test_equal_models_agree_however_the_caches_are_filled(twin: FusedRound, fill: str):
    result = agreement.draft_is_target(twin, [prompt(TINY.vocab, 70, 5)], 30, agreement.FILLS[fill])
    assert result["drafted"] > 20
    assert result["in_full"]


def test_a_planted_difference_in_the_cache_ends_in_a_rejected_guess(twin: FusedRound):
    def fill(pair: FusedRound, ids: object) -> None:
        assert isinstance(ids, list)
        pair.target.catch_up(ids[:-1])
        pair.draft.catch_up(ids[:-2])
        pair.draft.values[1, 0, :, 40] += 3.0

    result = agreement.draft_is_target(twin, [prompt(TINY.vocab, 70, 5)], 60, fill)
    assert not result["in_full"] and result["accepted"] < result["drafted"]
