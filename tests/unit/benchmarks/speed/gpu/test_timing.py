"""The law of possible times, the fixed cost of a round, and graphs keyed by name."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.speed.gpu.models import ONE_AND_A_HALF
from benchmarks.speed.gpu.timing import TOLERANCE, Limit, NotCaptured, captured_ms, fixed_cost
from speclsp.engine.model.cuda.graphs import CudaGraphs

H200 = Limit(gb_per_s=4094.3, cache_bytes=60e6)
HEAD_BYTES = 2.0 * ONE_AND_A_HALF.hidden * ONE_AND_A_HALF.vocab
VOID_US = {"head, cublas": 9.8, "head, skinny": 8.92}  # void rows of a first run: all timed one and the same kernel


@pytest.mark.parametrize("name", VOID_US)
def test_the_void_rows_are_refused(name: str):
    row = H200.row(VOID_US[name] / 1e3, HEAD_BYTES)
    assert "impossible" in row["refused"]
    assert "percent_of_limit" not in row


@given(st.floats(2e8, 1e11), st.floats(0.01, 100.0))
def test_a_time_is_refused_below_the_limit_and_has_a_share_of_it_above(read_bytes: float, factor: float):
    row = H200.row(H200.least_ms(read_bytes) * factor, read_bytes)
    assert ("refused" in row) != ("percent_of_limit" in row)
    if factor >= 1.0:
        assert 0 <= row["percent_of_limit"] <= 100
    elif factor < (1 - H200.cache_bytes / read_bytes) / TOLERANCE - 1e-9:
        assert "refused" in row


@given(st.floats(0.1, 20.0), st.floats(0.01, 5.0), st.floats(0.0, 2.0))
def test_the_fixed_cost_of_exact_rounds_is_found(verify: float, draft: float, fixed: float):
    split = fixed_cost({gamma: verify + gamma * draft + fixed for gamma in (1, 2, 4, 8)}, verify)
    assert split["fixed_ms"] == pytest.approx(fixed, abs=2e-4)
    assert split["draft_step_ms"] == pytest.approx(draft, abs=2e-4)
    assert split["worst_ms"] == pytest.approx(0, abs=2e-4)


def recording(log: list[str]) -> CudaGraphs:
    def record(work: Any) -> Any:
        work()
        name = log[-1]
        return lambda: log.append(f"replay {name}")

    return CudaGraphs(lambda: record)


def test_each_name_has_a_graph_of_its_own_even_after_the_work_before_it_is_freed():
    log: list[str] = []
    graphs = recording(log)
    for name in ("a", "b", "c"):
        captured_ms(graphs, name, lambda name=name: log.append(name), "cpu", 1)  # type: ignore[misc]
        gc.collect()
        assert log[-1] == f"replay {name}"
    with pytest.raises(ValueError, match="measured before"):
        captured_ms(graphs, "a", lambda: None, "cpu", 1)


@pytest.mark.soak
@given(st.integers(2, 6))
def test_the_graph_of_each_work_is_kept_while_other_work_is_captured(works: int):
    """PyTorch refuses to add to a memory pool whose graphs are all freed; this recorder refuses if any is."""
    pool: list[weakref.ref[Any]] = []

    def record(work: Any) -> Any:
        gc.collect()
        if any(graph() is None for graph in pool):
            raise RuntimeError("the pool has no live graph")

        def replay() -> None:
            work()

        pool.append(weakref.ref(replay))
        return replay

    graphs = CudaGraphs(lambda: record)
    for number in range(works):
        captured_ms(graphs, str(number), lambda: None, "cpu", 1)
    assert len(graphs.replays) == works
    graphs.forget()
    gc.collect()
    assert all(graph() is None for graph in pool), "they are freed with their model"


def test_work_that_is_not_captured_has_no_time():
    def refuse(work: Any) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(NotCaptured, match="head: its graph was not captured"):
        captured_ms(CudaGraphs(lambda: refuse), "head", lambda: torch.ones(1), "cpu", 1)
