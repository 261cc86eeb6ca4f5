"""Age of results: each names the commit that it measured, and most of the measured lines are those of that commit."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import results_file
from benchmarks.results_file import CHECKOUT, MEASURED, newer_share

MOST_NEWER = 0.4  # of the lines of the measured packages; above it the result leaves, or is measured again
RESULTS: dict[str, dict[str, Any]] = {
    file.name: json.loads(file.read_text("utf-8")) for file in sorted((CHECKOUT / "benchmarks/results").glob("*.json"))
}


def measured(result: dict[str, Any]) -> Sequence[str]:
    """The packages that a result measured. On a GPU the decoder is another one."""
    return MEASURED["gpu" if result["machine"].get("gpu") else result["bench"]]


@pytest.mark.parametrize("name", RESULTS)
def test_most_of_the_measured_lines_are_those_of_the_results_commit(name: str):
    result = RESULTS[name]
    shallow = results_file.git("rev-parse", "--is-shallow-repository").strip() == "true"
    if shallow:
        pytest.skip("this clone has no history: `git fetch --unshallow` brings it")
    share = newer_share(result["commit"].rstrip("+"), measured(result))
    assert share <= MOST_NEWER, f"{share:.0%} of {name}'s packages are newer than {result['commit']}: measure it again"


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_names_its_commit_and_a_benchmark_whose_packages_are_known(name: str):
    result = RESULTS[name]
    assert len(result["commit"].rstrip("+")) >= 8 and result["bench"] in MEASURED
    assert all((CHECKOUT / package).exists() for package in measured(result))


def test_a_changed_line_counts_and_a_removed_or_moved_one_does_not(tmp_path: Path):
    def git(*words: str) -> str:
        return results_file.git("-c", "user.name=n", "-c", "user.email=e", *words, checkout=tmp_path)

    (tmp_path / "part").mkdir()
    lines = [f"line {number}\n" for number in range(20)]
    (tmp_path / "part/a.py").write_text("".join(lines))
    (tmp_path / "other.py").write_text("x = 1\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "Begin")
    head = git("rev-parse", "HEAD").strip()
    (tmp_path / "other.py").write_text("x = 2\n")
    assert newer_share(head, ["part"], tmp_path) == 0
    (tmp_path / "part/a.py").write_text("".join(lines[10:]))
    assert newer_share(head, ["part"], tmp_path) == 0, "lines went"
    (tmp_path / "part/a.py").write_text("".join(["another\n"] * 4 + lines[4:]))
    assert newer_share(head, ["part"], tmp_path) == 0.2
    with pytest.raises(subprocess.CalledProcessError):
        newer_share("0" * 40, ["part"], tmp_path)
