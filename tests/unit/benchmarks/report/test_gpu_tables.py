"""Tables of docs/gpu.md: absent figures read "not measured", refused times say so, and a difference is explained."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import results_file
from benchmarks.report import gpu_tables
from benchmarks.report.result_files import read

DIFFERENCE: dict[str, Any] = {
    "position": 131, "prompt_tokens": 100, "draft_top_two": [[5, 3.25], [9, 3.125]],
    "target_top_two": [[9, 3.25], [5, 3.25]], "row_depends_on_its_place": False,
    "caches": {"position": 98, "layer": 3, "largest": 0.0156, "positions": 1},
}  # fmt: skip
PARTS: dict[str, Any] = {
    "kernels": {"1.5b bf16": {"head, library": {"ms": 0.0098, "refused": "impossible: 466.7 MB in 9.80 us"}}},
    "passes": {"7b bf16": {"rows": {"1": {"ms": 4.4, "percent_of_limit": 82.4}}}},
    "agreement": {"draft_is_target": {"engine": {"accepted": 106, "drafted": 120, "first_difference": DIFFERENCE}}},
    "rounds": {
        "0.5b-7b, bf16 draft": {"fixed_cost": {"fixed_ms": 0.43, "worst_ms": 0.02}, "by_gamma": {"1": {"ms": 5.25}}}
    },
    "transformers": {"0.5b-7b": {"plain_ms": 812.3}},
    "compiled": {"0.5b-7b": {"compiled_ms": 401.7}},
    "memory": {"half the context": 3176.0, "7b bf16, 1 text": 14784.0},
}


def results(parts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    entries = {name: {"status": "done", "figures": figures} for name, figures in parts.items()}
    data = {"bench": "gpu", "device": "cuda", "made_utc": "2026-12-01", "parts": entries}
    return {"gpu-h200": data}


def test_without_a_result_every_figure_reads_not_measured():
    for name, table in gpu_tables.markdown({}).items():
        for row in table.splitlines()[2:]:
            cells = [cell.strip() for cell in row.strip("|").split("|")]
            assert "not measured" in cells or "not run" in cells, name


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gpu-kernels", "refused: impossible: 466.7 MB in 9.80 us"),
        ("gpu-passes", "| 7B bf16 | 4.40 (82 %) | not measured |"),
        ("gpu-checks", "106 of 120"),
        ("gpu-checks", "differ first at position 98 in layer 3, at most by 0.0156"),
        ("gpu-checks", "draft: token 5: 3.2500, token 9: 3.1250; target: token 9: 3.2500, token 5: 3.2500"),
        ("gpu-rounds", "| 0.5B bf16 → 7B | not measured | not measured | 0.43 ± 0.02 | 5.25 |"),
        ("gpu-completions", "| 812.3 | not measured | 401.7 |"),
        ("gpu-memory", "| half the context | 3,176 |"),
        ("gpu-memory-models", "| 7B | 14,784 | not measured |"),
        ("gpu-parts", "| passes | done |"),
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
