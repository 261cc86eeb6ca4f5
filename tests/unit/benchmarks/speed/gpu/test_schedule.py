"""Parts of the GPU benchmark: budgets, processes, and the result file that grows; then the whole command on a CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import results_file
from benchmarks.speed.gpu import gpu, schedule
from benchmarks.speed.gpu.schedule import DONE, FAILED, NOT_RUN, STOPPED, Part, Record


def part(name: str, budget_s: float = 60.0) -> Part:
    return Part(name, "nothing", budget_s, f"the part {name}")


def entries(file: Path) -> dict[str, Any]:
    parts: dict[str, Any] = json.loads(file.read_text("utf-8"))["parts"]
    return parts


def measure(which: Part, record: Record) -> None:
    if which.name == "broken":
        record.put("before", value=1)
        raise RuntimeError("the device is gone\nand more")
    if which.name == "absent":
        raise schedule.NotMeasurable("the weights are not here")
    record.put("rows", "1", value={"ms": 2.0})


def work(file: Path, name: str) -> bool:
    return schedule.work(file, part(name), measure, 600.0)


def test_a_part_that_cannot_run_here_says_why_and_has_not_failed(tmp_path: Path):
    file = tmp_path / "gpu.json"
    assert work(file, "absent")
    assert entries(file)["absent"] == {"status": NOT_RUN, "why": "the weights are not here"}


def test_a_failure_keeps_the_rows_before_it_and_the_error_s_first_line(tmp_path: Path):
    file = tmp_path / "gpu.json"
    assert not work(file, "broken")
    broken = entries(file)["broken"]
    assert broken == {"status": FAILED, "why": "RuntimeError: the device is gone", "figures": {"before": 1}}


# ── workers, real processes ──────────────────────────────────────────────────────────────────────────────────

WORKER = """
import os, sys, time
from pathlib import Path
from benchmarks.speed.gpu import schedule
from benchmarks.speed.gpu.schedule import Part

def run(part, record):
    record.put("row", value=1)
    if part.name == "crash":
        os._exit(9)
    if part.name == "fail":
        raise ValueError("no")
    if part.name == "hang":
        time.sleep(600)

sys.exit(0 if schedule.work(Path(sys.argv[1]), Part(sys.argv[2], "", 60, ""), run, float(sys.argv[3])) else 1)
"""


def worker(file: Path) -> Callable[[Part, float], list[str]]:
    return lambda part, part_s: [sys.executable, "-c", WORKER, os.fspath(file), part.name, repr(part_s)]


@pytest.fixture
def checkout_is_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.fspath(results_file.CHECKOUT))


@pytest.mark.slow
@pytest.mark.usefixtures("checkout_is_importable")
def test_a_crash_a_failure_and_a_hang_cost_one_part_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(schedule, "START_S", 5.0)
    file, names = tmp_path / "gpu.json", ["a", "crash", "b", "fail", "c", "hang", "d"]
    parts = [part(name, 0.5 if name == "hang" else 60.0) for name in names]
    schedule.run_parts(file, parts, worker(file), 120.0)
    statuses = {name: entry["status"] for name, entry in entries(file).items()}
    assert statuses == {"a": DONE, "crash": FAILED, "b": DONE, "fail": FAILED, "c": DONE, "hang": STOPPED, "d": DONE}
    assert entries(file)["crash"]["why"] == "its process ended with code 9"
    assert all(entry["figures"] == {"row": 1} for entry in entries(file).values())


def test_a_part_without_time_is_not_started(tmp_path: Path):
    file = tmp_path / "gpu.json"
    schedule.run_parts(file, [part("first")], lambda part, part_s: ["no such program"], 0.0)
    assert entries(file)["first"]["status"] == NOT_RUN
    assert "budget" in entries(file)["first"]["why"]


# ── the command ──────────────────────────────────────────────────────────────────────────────────────────────


def script(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", "gpu", *arguments],
        cwd=results_file.CHECKOUT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.soak  # each part has tests of its own
def test_every_part_runs_on_a_cpu_with_tiny_shapes(tmp_path: Path):
    run = script("--device", "cpu", "--shapes", "tiny", "--results", str(tmp_path))
    assert run.returncode == 0, run.stdout + run.stderr
    file = tmp_path / "gpu-script-test.json"
    results = json.loads(file.read_text("utf-8"))
    assert results["device"] == "cpu" and "no figure here says anything about a GPU" in results["warning"]
    assert {name: entry["status"] for name, entry in results["parts"].items()} == dict.fromkeys(gpu.NAMES, DONE)
    figures = {name: entry["figures"] for name, entry in results["parts"].items()}
    assert list(figures["passes"]["tiny bf16"]["rows"]) == ["1", "2", "4", "8", "16"]
    assert "fixed_ms" in figures["rounds"]["tiny, nf4 draft"]["fixed_cost"]
    assert (
        "not measured on these models" in figures["rounds"]["tiny, bf16 draft"]["completion"]["replayed"]["acceptance"]
    )
    assert all(of["in_full"] for of in figures["agreement"]["draft_is_target"].values())
    assert figures["agreement"]["greedy"]["divergences"] == 0
    assert figures["tests"]["passed"] == figures["tests"]["tests"] > 0
    assert figures["real"]["identical"]


def test_the_budgets_fit_the_whole_run_and_the_times_of_the_last_one():
    assert sum(part.budget_s for part in gpu.PARTS) <= gpu.BUDGET_S == 5 * 60
    measured = entries(results_file.CHECKOUT / "benchmarks" / "results" / "gpu-h200.json")
    assert set(measured) == set(gpu.NAMES)
    for each in gpu.PARTS:
        assert each.budget_s >= 1.1 * measured[each.name].get("wall_s", 0.0), each.name


@pytest.mark.slow
def test_without_a_gpu_the_benchmark_ends_with_one_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    run = script()
    assert (run.returncode, run.stdout) == (2, "")
    assert "sees no GPU" in run.stderr and run.stderr.count("\n") == 1


def test_the_exit_code_counts_failures_impossible_times_and_different_tokens():
    good: dict[str, Any] = {"parts": {"real": {"status": DONE, "figures": {"identical": True}}}}
    assert list(gpu.wrong(good)) == []
    bad: dict[str, Any] = {
        "parts": {
            "passes": {"status": DONE, "figures": {"1.5b": {"1": {"ms": 0.01, "refused": "impossible"}}}},
            "agreement": {"status": DONE, "figures": {"greedy": {"divergences": 1}}},
            "tests": {"status": DONE, "figures": {"failed": ["test_x"]}},
            "real": {"status": FAILED, "why": "out of memory", "figures": {"identical": False}},
        }
    }
    assert len(list(gpu.wrong(bad))) == 5
