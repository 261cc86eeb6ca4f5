"""The decoder's tests on this device, and completions by a real model in every way of decoding, with equal texts."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks import results_file
from benchmarks.speed.gpu.schedule import NotMeasurable, Record
from benchmarks.speed.gpu.timing import Bench
from benchmarks.speed.holes import holes

TESTS = "tests/engine/model/cuda/test_cuda.py"
FEW_TESTS = "uploads_arrive_in_order or captured"  # of the test of this script
REAL_MODEL = "qwen2.5-coder-0.5b-instruct"
HOLES, TOKENS, REPEATS = 8, 48, 2


def run(bench: Bench, record: Record) -> None:
    """pytest in a process of its own."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", TESTS]
        command += ["-k", FEW_TESTS] if bench.tiny else []
        limit_s = max(record.time_left_s(), 1.0)
        try:
            ran = subprocess.run(
                command, cwd=results_file.CHECKOUT, capture_output=True, text=True, timeout=limit_s, check=False
            )
        except subprocess.TimeoutExpired as slow:
            raise TimeoutError(f"the tests took longer than {limit_s:.0f} s") from slow
        if not report.is_file():
            raise RuntimeError(f"pytest wrote no report: {(ran.stderr or ran.stdout)[-300:]}")
        for name, value in counts(report.read_text(encoding="utf-8")).items():
            record.put(name, value=value)


def counts(junit: str) -> dict[str, Any]:
    """Numbers of tests by outcome, and the names of those that failed."""
    suite = ElementTree.fromstring(junit)
    suites = [suite] if suite.tag == "testsuite" else list(suite)
    total = {name: sum(int(one.get(name, 0)) for one in suites) for name in ("tests", "failures", "errors", "skipped")}
    failed = [
        case.get("name", "")
        for one in suites
        for case in one.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]
    passed = total["tests"] - total["failures"] - total["errors"] - total["skipped"]
    return {"file": TESTS, "passed": passed, **total, "failed": failed}


def run_real(bench: Bench, record: Record) -> None:
    """Completions of a real model at real places; every way of decoding must give the same tokens."""
    from benchmarks import model_options
    from benchmarks.speed import completions
    from speclsp.cli import measure
    from speclsp.config import Config
    from speclsp.weights import cards, store

    model = "tiny" if bench.tiny else REAL_MODEL
    if not store.is_here(cards.load(model).target):
        raise NotMeasurable(f"the weights of {model} are not on this machine")
    engine = model_options.engine(Config(model=model, device=bench.device))
    record.put("model", value=f"{engine.model}: {engine.target}")
    count, tokens = (1, 6) if bench.tiny else (HOLES, TOKENS)
    measure.complete_once(engine, replace(holes(count + 1)[-1], max_tokens=tokens))
    requests = holes(count, max_tokens=tokens, seed=completions.SEED)
    runs = completions.measure(engine, requests, 1 if bench.tiny else REPEATS, lambda done, what: None)
    chosen = completions.ways(bool(engine.draft))
    for name, of_way in runs.items():
        figures = completions.figures_of(chosen[name], of_way, runs["plain"])
        wanted = ("runs", "identical_runs", "ttft_ms", "decode_ms", "total_ms", "decode_speed_up", "total_speed_up")
        record.put("ways", name, value={key: figures[key] for key in (*wanted, "ms_per_token")})
    same = all(way["identical_runs"] == way["runs"] for way in record.figures["ways"].values())
    record.put("identical", value=same)
    record.put("places", value=count)
    record.put("tokens", value=tokens)
