"""docs/reliability.md equals the results of the last soak: each promise has tests, and each named test exists."""

from __future__ import annotations

import ast
import functools
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from promises import PAGE, RESULTS, ROOT, headline, page, promises, status


def marks(nodes: Iterator[ast.AST]) -> set[int]:
    """The promise numbers marked in these nodes."""
    calls = (node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute))
    return {arg.value for call in calls if call.func.attr == "promise" for arg in call.args}


@functools.cache
def marked_tests() -> dict[int, set[str]]:
    """The tests of each promise, by the page's names: marked one by one, or all tests of a module by `pytestmark`."""
    tests_of: dict[int, set[str]] = defaultdict(set)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        body = ast.parse(path.read_text()).body
        assigned = (
            node for node in body if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node.targets[0])
        )
        for_all = {number for node in assigned for number in marks(ast.walk(node))}
        tests = (node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
        for test in (node for node in tests if node.name.startswith("test_")):
            for number in for_all.union(*(marks(ast.walk(mark)) for mark in test.decorator_list)):
                tests_of[number].add(f"{path.relative_to(ROOT)}::{test.name}")
    return tests_of


def test_every_promise_has_a_test():
    tests_of = marked_tests()
    assert [promise["number"] for promise in promises()] == list(range(1, 38))
    assert [promise["title"] for promise in promises() if not tests_of[promise["number"]]] == []
    assert set(tests_of) <= set(range(1, 38))


def test_the_page_equals_the_results_of_the_last_soak():
    assert PAGE.read_text() == page(json.loads(RESULTS.read_text()))


def test_the_last_soak_ran_every_promise_test_and_all_passed():
    results = json.loads(RESULTS.read_text())
    assert results["soak"]
    ran = {(number, result["test"]) for result in results["tests"] for number in result["promises"]}
    assert {(number, test) for number, tests in marked_tests().items() for test in tests} == ran
    assert [result["test"] for result in results["tests"] if not result["passed"]] == []


def test_every_headline_is_a_recorded_figure():
    records = json.loads(RESULTS.read_text())["tests"]
    without = []
    for entry in promises():
        own = (record for record in records if entry["number"] in record["promises"])
        figures = [row["figure"] for record in own for row in record["figures"]]
        if "figure" in entry and not any(re.search(entry["figure"], figure) for figure in figures):
            without.append(entry["number"])
    assert without == []


def record(passed: bool = True, **figures: bool) -> Mapping[str, Any]:
    rows = [{"figure": figure.replace("_", " "), "holds": holds} for figure, holds in figures.items()]
    return {"promises": [1], "test": "tests/x.py::test", "case": "", "passed": passed, "figures": rows}


@pytest.mark.parametrize(
    ("records", "result", "measured"),
    [
        ([], "not tested", "no test ran"),
        ([record()], "holds", "1 test case passes"),
        ([record(), record(seven_kills=True), record(other=True)], "holds", "kills: seven"),
        ([record(), record(other=True)], "holds", "2 test cases pass"),
        ([record(seven_kills=True), record(nine_kills=False)], "falls short", "kills: nine"),
        ([record(seven_kills=True), record(ninety_ms=False)], "falls short", "ninety ms"),
        ([record(), record(passed=False, seven_kills=True)], "broken", "1 of 2 test cases fail"),
    ],
)
def test_a_promise_holds_if_every_test_passed_and_every_figure_reached_its_goal(
    records: list[Any], result: str, measured: str
):
    entry = {"figure": "(?P<n>[a-z]+) kills", "headline": "kills: {n}"}
    assert (status(records), headline(entry, records)) == (result, measured)
