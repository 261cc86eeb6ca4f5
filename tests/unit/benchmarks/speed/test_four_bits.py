"""Weights rounded to 4 bits: 16 levels for each 32 weights of a row, and no group farther off than the plain grid."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.speed.four_bits import GROUP, LEVELS, rounded


@given(st.integers(0, 2**31), st.floats(1e-4, 10.0))
def test_each_group_has_at_most_16_values_and_stays_near_its_weights(seed: int, size: float):
    weight = torch.randn(3, 2 * GROUP, generator=torch.Generator().manual_seed(seed)) * size
    groups, after = weight.unflatten(-1, (-1, GROUP)), rounded(weight).unflatten(-1, (-1, GROUP))
    for group, near in zip(groups.flatten(0, 1), after.flatten(0, 1), strict=True):
        assert len(near.unique()) <= LEVELS
        step = (group.max() - group.min()) / (LEVELS - 1)
        plain = group.min() + step * ((group - group.min()) / step).round()
        assert (near - group).norm() <= (plain - group).norm() * 1.001 + 1e-6


def test_a_group_of_one_value_stays_as_it_is():
    weight = torch.full((2, GROUP), 0.25)
    assert torch.allclose(rounded(weight), weight)
