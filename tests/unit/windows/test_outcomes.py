"""The outcomes that `make windows` counts: every test has one, and only a listed failure is forgiven."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from windows.harness import not_run, run

TESTS = """
import os, pytest
def test_right(): pass
def test_wrong(): assert 0
def test_listed_and_wrong(): assert 0
def test_listed_and_right(): pass
def test_left_out(): os._exit(9)
def test_ends_the_process(): os._exit(7)
def test_after_it(): pass
def test_skips(): pytest.skip("no such thing here")
@pytest.fixture
def broken(): raise OSError
def test_of_a_broken_fixture(broken): pass
"""
LIST = """
[[probe]]
reason = "it cannot"
tests = ["test_probe.py::test_listed_*"]
[[probe]]
reason = "it ends the process"
run = false
tests = ["test_probe.py::test_left_out", "test_whole.py"]
"""
EXPECTED = {
    "test_right": "passed",
    "test_wrong": "failed",
    "test_listed_and_wrong": "failed as listed",
    "test_listed_and_right": "passed though listed",
    "test_left_out": "not run",
    "test_ends_the_process": "ended",
    "test_after_it": "passed",
    "test_skips": "skipped",
    "test_of_a_broken_fixture": "failed",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one file of tests and a list of its own."""
    (tmp_path / "test_probe.py").write_text(TESTS)
    (tmp_path / "test_no_import.py").write_text("import a_module_that_is_missing")
    (tmp_path / "list.toml").write_text(LIST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.setattr(not_run, "LIST", tmp_path / "list.toml")
    monkeypatch.setattr(run, "ROOT", tmp_path)
    return tmp_path


@pytest.mark.slow
def test_each_test_has_its_outcome_although_one_ends_the_process(folder: Path, capsys: pytest.CaptureFixture[str]):
    """The process starts again after the test that ended it."""
    record = folder / "0.jsonl"
    words = [
        sys.executable,
        "-m",
        "pytest",
        *run.OPTIONS,
        "--rootdir",
        str(folder),
        "test_no_import.py",
        "test_probe.py",
    ]
    tests = str(Path(run.__file__).parents[2])
    environment = {"SPECLSP_TESTS_LIST": str(not_run.LIST), "PYTHONPATH": tests}
    run.run_pytest(words, "probe", record, environment)
    results = run.outcomes(record)
    assert results.pop("test_no_import.py")["outcome"] == "failed", "and the other file runs"
    assert {name.partition("::")[2]: line["outcome"] for name, line in results.items()} == EXPECTED
    assert run.report({"probe": results}) == 1
    printed = capsys.readouterr().out
    assert "probe: passed though listed: test_probe.py::test_listed_and_right" in printed
    assert "probe: 1 not run: it ends the process" in printed
    assert "probe: 1 skipped: no such thing here" in printed.replace("Skipped: ", "")
    assert "2 passed, 2 failed" in printed


def test_only_failures_without_a_row_count(capsys: pytest.CaptureFixture[str]):
    """A listed failure, a skip and a test that is not run end with 0."""
    forgiven = ("passed", "failed as listed", "passed though listed", "not run", "skipped")
    assert run.report({"probe": {name: {"outcome": name, "reason": "why"} for name in forgiven}}) == 0
    for outcome in ("failed", "ended"):
        assert run.report({"probe": {"a": {"outcome": outcome, "reason": "why"}}}) == 1
    capsys.readouterr()


def test_a_process_that_says_nothing_fails(folder: Path):
    """It ended before the first test."""
    record = folder / "0.jsonl"
    run.run_pytest([sys.executable, "-c", "raise SystemExit('no pytest')"], "probe", record, {})
    assert [line["outcome"] for line in run.outcomes(record).values()] == ["failed"]


def test_a_file_that_is_listed_whole_is_named_and_not_given_to_pytest(folder: Path):
    """Its import may fail."""
    record = folder / "0.jsonl"
    assert not_run.without_listed("probe", ["test_probe.py", "test_whole.py"], record) == ["test_probe.py"]
    assert run.outcomes(record) == {
        "test_whole.py": {"test": "test_whole.py", "outcome": "not run", "reason": "it ends the process"}
    }


def test_every_row_of_the_list_names_a_test_that_exists():
    """A renamed test does not stay in the list."""
    root = Path(__file__).parents[3]
    assert not_run.rows("program") and not_run.rows("python")
    for way in ("windows", "program", "python"):
        for row in not_run.rows(way):
            for test in row.tests:
                file, _, name = test.partition("::")
                text = (root / file).read_text("utf-8")
                assert f"def {name.rstrip('*')}" in text, test
