"""Memory plans: what is loaded where not all of it fits."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp.engine.model.cuda import memory_plan
from speclsp.errors import OutOfMemory
from speclsp.weights import auto_choice, cards

SEVEN = cards.load("qwen2.5-coder-7b")
KV_BYTES, DRAFT_KV_BYTES = 57344 + 12288, 12288


def fit(free_mib: int, formats: Sequence[str] = ("bf16", "nf4"), context_tokens: int = 4096) -> memory_plan.MemoryPlan:
    return memory_plan.fit(SEVEN, formats, context_tokens, KV_BYTES, free_mib, "cuda")


def test_plans_release_the_cheapest_memory_first():
    full = fit(10**6)
    assert (full.number_format, full.context_tokens, full.slots) == ("bf16", 4096, 3)
    assert 15_370 < full.need_mib < 17_500
    one_slot = fit(full.need_mib - 1)
    assert (one_slot.context_tokens, one_slot.slots) == (4096, 1)
    shorter = fit(one_slot.need_mib - 1)
    assert (shorter.number_format, shorter.context_tokens, shorter.slots) == ("bf16", 2048, 1)
    assert fit(12_000).number_format == "nf4"


@given(free_mib=st.integers(5_000, 30_000))
def test_a_plan_fits_and_more_memory_never_gives_less(free_mib: int):
    plans = list(memory_plan.plans_for(SEVEN, ("bf16", "nf4"), 4096, KV_BYTES))
    if min(plan.need_mib for plan in plans) > free_mib:
        return
    plan = fit(free_mib)
    assert plan.need_mib <= free_mib
    assert plans.index(fit(free_mib + 500)) <= plans.index(plan)


def test_a_plan_in_nf4_has_room_for_the_matrix_that_prefill_dequantizes():
    with_matrix, without = (
        [*memory_plan.plans_for(SEVEN, ("bf16", "nf4"), 4096, KV_BYTES, matrix_bytes)]
        for matrix_bytes in (300 * 2**20, 0)
    )
    for plan, other in zip(with_matrix, without, strict=True):
        assert plan.need_mib - other.need_mib == (300 if plan.number_format == "nf4" else 0)


SIZES = {  # hidden, inner, layers, KV heads of 128: of Qwen2.5-Coder
    "qwen2.5-coder-1.5b": (1536, 8960, 28, 2),
    "qwen2.5-coder-3b": (2048, 11_008, 36, 2),
    "qwen2.5-coder-7b": (3584, 18_944, 28, 4),
    "qwen2.5-coder-14b": (5120, 13_824, 48, 8),
    "qwen2.5-coder-32b": (5120, 27_648, 64, 8),
}


@pytest.mark.parametrize("name", SIZES)
def test_a_model_that_auto_chooses_in_nf4_can_be_loaded(name: str):
    card, (hidden, inner, layers, kv_heads) = cards.load(name), SIZES[name]
    free_mib = card.memory_mib["nf4"] + cards.MARGIN_MIB
    assert auto_choice.obstacle(card, "cuda", free_mib, 10_000.0) == ""
    kv_bytes, matrix_bytes = 4 * layers * kv_heads * 128 + DRAFT_KV_BYTES, 2 * 2 * hidden * inner
    plan = memory_plan.fit(card, ("nf4",), 4096, kv_bytes, free_mib, "cuda", matrix_bytes)
    assert plan.need_mib <= free_mib


def test_the_error_for_a_small_gpu_names_a_model_that_fits():
    with pytest.raises(OutOfMemory, match=r'qwen2.5-coder-7b needs \d+ MiB and cuda has 3500 MiB free.*model = "'):
        fit(3500)
    smaller = cards.load(auto_choice.smaller(SEVEN, 3500, "cuda"))
    assert min(smaller.memory_mib.values()) <= 3500
    assert smaller.target.parameters < SEVEN.target.parameters
    with pytest.raises(OutOfMemory):
        fit(12_000, formats=("bf16",))
