"""Metrics render every count in the format of Prometheus."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from speclsp.observability.metrics import RECENT, Metrics, Timing


def test_counters_gauges_and_timings_are_rendered_with_help_and_type():
    metrics = Metrics()
    metrics.count("requests_total", stop="eos")
    metrics.count("requests_total", 2, stop="eos")
    metrics.count("requests_total", stop='odd "\\\n')
    metrics.set("kv_tokens", 17.5)
    for ms in (1.0, 2.0, 30.0):
        metrics.time("ttft_ms", ms)
    lines = metrics.render().splitlines()
    assert 'speclsp_requests_total{stop="eos"} 3' in lines
    assert r'speclsp_requests_total{stop="odd \"\\\n"} 1' in lines
    assert "speclsp_kv_tokens 17.5" in lines
    assert 'speclsp_ttft_ms{quantile="0.5"} 2' in lines
    assert {"speclsp_ttft_ms_sum 33", "speclsp_ttft_ms_count 3"} <= set(lines)
    names = [re.match(r"speclsp_([a-z_]+?)(_sum|_count)?[{ ]", line)[1] for line in lines if line[0] != "#"]
    for name in names:
        assert sum(line.startswith(f"# HELP speclsp_{name} ") for line in lines) == 1
        assert sum(line.startswith(f"# TYPE speclsp_{name} ") for line in lines) == 1
    assert metrics.total("requests_total") == 4


def test_without_counts_nothing_is_rendered():
    metrics = Metrics()
    assert metrics.render() == ""
    assert (metrics.acceptance, metrics.tokens_per_round, metrics.total("x")) == (None, None, 0)


def test_acceptance_covers_only_the_last_completions():
    metrics = Metrics()
    metrics.speculated(8, 8, {})
    assert metrics.acceptance is None and metrics.tokens_per_round == 1
    for _ in range(RECENT):
        metrics.speculated(6, 2, {"ngram": {"drafted": 3, "accepted": 3}, "model": {"drafted": 5, "accepted": 1}})
    assert metrics.acceptance == 0.5 and metrics.tokens_per_round == 3
    assert 'speclsp_drafted_tokens_total{source="model"} 100' in metrics.render()
    assert "speclsp_acceptance 0.5" in metrics.render()


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40), st.sampled_from([0.5, 0.9, 0.99]))
def test_a_quantile_is_one_of_the_timings_and_splits_them(values: list[float], q: float):
    timing = Timing()
    for value in values:
        timing.add(value)
    quantile = timing.quantile(q)
    assert quantile in values
    assert sum(value <= quantile for value in values) >= q * len(values)
    assert sum(value < quantile for value in values) < q * len(values)
