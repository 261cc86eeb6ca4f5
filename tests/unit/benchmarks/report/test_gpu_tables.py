"""Tables of docs/gpu.md: absent figures read "not measured", and refused times say so."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import results_file
from benchmarks.report import gpu_tables
from benchmarks.report.result_files import read

PARTS: dict[str, Any] = {
    "passes": {
        "1.5b bf16": {"rows": {"1": {"ms": 0.0098, "refused": "impossible: 466.7 MB in 9.80 us"}}},
        "7b bf16": {"rows": {"1": {"ms": 4.4, "percent_of_limit": 82.4}}},
    },
    "agreement": {"draft_is_target": {"engine": {"accepted": 106, "drafted": 120}}},
    "rounds": {
        "0.5b-7b, bf16 draft": {
            "fixed_cost": {"fixed_ms": 0.43, "worst_ms": 0.02},
            "by_gamma": {"1": {"ms": 5.25}},
            "completion": {"plain_ms": 160.2, "replayed": {"gamma": 3, "ms": 92.2}},
        }
    },
}


def results(parts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    entries = {name: {"status": "done", "figures": figures} for name, figures in parts.items()}
    data = {"bench": "gpu", "device": "cuda", "made_utc": "2026-12-01", "parts": entries}
    return {"gpu-h200": data}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gpu-passes", "refused: impossible: 466.7 MB in 9.80 us"),
        ("gpu-passes", "| 7B bf16 | 4.40 (82 %) | not measured |"),
        ("gpu-checks", "106 of 120"),
        ("gpu-rounds", "| 0.5B bf16 → 7B | not measured | not measured | 0.43 ± 0.02 | 5.25 |"),
        ("gpu-completions", "| 160.2 | 92.2 (rounds of 3) |"),
    ],
)
def test_a_figure_appears_in_its_table(name: str, text: str):
    assert text in gpu_tables.markdown(results(PARTS))[name]


def test_no_committed_time_is_below_its_limit():
    from benchmarks.speed.gpu import gpu
    from benchmarks.speed.gpu.timing import Limit

    files = [data for data in read(results_file.CHECKOUT / "benchmarks" / "results").values() if data["bench"] == "gpu"]
    assert files
    for data in files:
        assert list(gpu.refused(data["parts"])) == []
        bandwidth = data["parts"]["bandwidth"]["figures"]
        limit = Limit(bandwidth["limit_gb_per_s"], bandwidth.get("cache_bytes", 0.0))
        for model in data["parts"]["passes"]["figures"].values():
            for row in model.get("rows", {}).values():
                assert "refused" not in limit.row(row["ms"], row["least_ms"] * limit.gb_per_s * 1e6)
