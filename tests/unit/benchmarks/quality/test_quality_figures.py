"""Confidence intervals: each contains its figure, equal variants do not differ, and a seed fixes the resampling."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.quality.run_task import Row
from benchmarks.quality.scoring import bootstrap, figures
from benchmarks.quality.scoring.bootstrap import difference, draws, figure, ratio
from benchmarks.quality.scoring.scores import Judged
from benchmarks.quality.tasks.tasks import Task

ZEROS_AND_ONES = st.lists(st.integers(0, 1), min_size=2, max_size=40)


def of_all(values: list[int]) -> bootstrap.Counts:
    return [float(value) for value in values], [1.0] * len(values)


@given(ZEROS_AND_ONES)
def test_an_interval_contains_its_figure_and_stays_in_its_range(values: list[int]):
    found = figure(of_all(values), draws(len(values), times=50))
    assert found is not None
    assert found.value == pytest.approx(sum(values) / len(values))
    assert 0.0 <= found.low <= found.value <= found.high <= 1.0


@given(ZEROS_AND_ONES)
def test_a_variant_has_no_difference_to_itself(values: list[int]):
    drawn = draws(len(values), times=50)
    same = difference(of_all(values), of_all(values), drawn)
    assert same is not None
    assert (same.value, same.low, same.high) == (0.0, 0.0, 0.0)
    once = ratio(of_all(values), of_all(values), drawn)
    assert once is None if not any(values) else (once is not None and once.low == once.high == 1.0)


def test_a_figure_of_shown_suggestions_ignores_the_others():
    found = figure(([3.0, 0.0, 5.0], [1.0, 0.0, 1.0]), draws(3))
    assert found is not None
    assert found.value == 4.0
    assert figure(([0.0, 0.0], [0.0, 0.0]), draws(2)) is None


# ── of rows ──────────────────────────────────────────────────────────────────────────────────────────────────────


def tasks(count: int) -> list[Task]:
    """Every other one names something of another file."""
    return [
        Task(
            id=f"{number}", package="a", root=Path(), path="a.py", language="python", text="", cursor=0, truth="x",
            kind="operator", below="kept", crosses=("x",) * (number % 2), seen=True, open_paths=(),
        )
        for number in range(count)
    ]  # fmt: skip


def rows(exact: list[int], *, is_new: bool = True) -> list[Row]:
    return [
        Row(task=f"{number}", judged=Judged(shown=True, exact=bool(one)), tokens=3, ms=10.0, asked=is_new, extra=())
        for number, one in enumerate(exact)
    ]


def test_a_variant_is_compared_with_base_per_task_and_per_kind():
    base, full = rows([1, 0] * 10), rows([1, 1, 1, 0] * 5)
    found = figures.of_variant(full, base, tasks(20))["of"]
    assert {kind: found[kind]["tasks"] for kind in ("all", "cross", "single")} == {"all": 20, "cross": 10, "single": 10}
    assert found["all"]["beside_base"]["exact"]["ratio"]["value"] == 1.5
    assert found["single"]["beside_base"]["exact"]["difference"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    assert found["cross"]["beside_base"]["exact"]["ratio"] is None, "base has none of them right"
    assert figures.beside(full, base, tasks(20))["all"] == found["all"]["beside_base"]
