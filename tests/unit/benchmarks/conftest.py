"""Results of the benchmarks that a test runs go to a folder of that test."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import results_file


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that takes the place of benchmarks/results."""
    monkeypatch.setattr(results_file, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(results_file, "RAW", tmp_path / "raw")
    return tmp_path / "results"
