"""A draft that is the target: accepted in full, and its first difference explained where its cache differs."""

from __future__ import annotations

import pytest
import torch

from benchmarks.speed.gpu import agreement, engine_checks
from benchmarks.speed.gpu.models import TINY, Padded, build, prompt
from benchmarks.speed.gpu.timing import Bench, Limit
from speclsp.engine.decoding.accept import Sampling
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
    assert (result["in_full"], result["first_difference"]) == (True, None)


def test_a_planted_difference_in_the_cache_is_named_with_its_place_and_both_logits(twin: FusedRound):
    def fill(pair: FusedRound, ids: object) -> None:
        assert isinstance(ids, list)
        pair.target.catch_up(ids[:-1])
        pair.draft.catch_up(ids[:-2])
        pair.draft.values[1, 0, :, 40] += 3.0

    result = agreement.draft_is_target(twin, [prompt(TINY.vocab, 70, 5)], 60, fill)
    assert not result["in_full"]
    found = result["first_difference"]
    assert (found["caches"]["position"], found["caches"]["layer"]) == (40, 1)
    assert found["caches"]["largest"] == pytest.approx(3.0, abs=0.1)
    assert found["draft_top_two"][0][0] == found["guess"] != found["choice"] == found["target_top_two"][0][0]
    assert found["repeated_draft_gives_the_guess"]
    assert not found["row_depends_on_its_place"]
    assert found["rows"] == {"target": 16, "draft": 16}


@torch.inference_mode()
def test_finding_a_difference_does_not_change_the_caches(twin: FusedRound):
    ids = prompt(TINY.vocab, 70, 6)
    twin.target.forget()
    twin.draft.forget()
    twin.target.catch_up(ids[:-1])
    guesses, _, token = twin.round(ids, 4, Sampling())
    before = [cache[:, :, :, :70].clone() for cache in (twin.target.keys, twin.draft.values)]
    agreement.first_difference(twin, ids, guesses, 0, token)
    after = [cache[:, :, :, :70] for cache in (twin.target.keys, twin.draft.values)]
    assert all(torch.equal(left, right) for left, right in zip(before, after, strict=True))


def test_the_counts_of_a_test_run_name_what_failed():
    junit = (
        '<testsuites><testsuite tests="4" failures="1" errors="1" skipped="1">'
        '<testcase name="good"/><testcase name="bad"><failure/></testcase>'
        '<testcase name="broken"><error/></testcase><testcase name="left out"><skipped/></testcase>'
        "</testsuite></testsuites>"
    )
    counts = engine_checks.counts(junit)
    assert (counts["passed"], counts["tests"], counts["failed"]) == (1, 4, ["bad", "broken"])
