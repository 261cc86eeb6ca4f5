"""docs/promises.md equals the results of the last soak: each promise has tests, and each named test exists."""

from __future__ import annotations

import ast
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from promises import PAGE, RESULTS, ROOT, page, promises, verdict


def marks(nodes: Iterator[ast.AST]) -> set[int]:
    """The promise numbers marked in these nodes."""
    calls = (node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute))
    return {arg.value for call in calls if call.func.attr == "promise" for arg in call.args}


def marked_tests() -> dict[int, set[str]]:
    """The tests of each promise, by the page's names: marked one by one, or all tests of a module by `pytestmark`."""
    tests_of: dict[int, set[str]] = defaultdict(set)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        body = ast.parse(path.read_text()).body
        assigned = (
            node for node in body if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node.targets[0])
        )
        for_all = {number for node in assigned for number in marks(ast.walk(node))}
        for test in (node for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")):
            for number in for_all.union(*(marks(ast.walk(mark)) for mark in test.decorator_list)):
                tests_of[number].add(f"{path.relative_to(ROOT)}::{test.name}")
    return tests_of


def test_every_promise_has_a_test():
    tests_of = marked_tests()
    assert [promise["number"] for promise in promises()] == list(range(1, 37))
    assert [promise["title"] for promise in promises() if not tests_of[promise["number"]]] == []
    assert set(tests_of) <= set(range(1, 37))


def test_the_page_equals_the_results_of_the_last_soak():
    assert PAGE.read_text() == page(json.loads(RESULTS.read_text()))


def test_the_last_soak_ran_every_promise_test_and_all_passed():
    results = json.loads(RESULTS.read_text())
    assert results["soak"]
    ran = {(number, result["test"]) for result in results["tests"] for number in result["promises"]}
    assert {(number, test) for number, tests in marked_tests().items() for test in tests} == ran
    assert [result["test"] for result in results["tests"] if not result["passed"]] == []


def said(passed: bool = True, **figures: bool) -> Mapping[str, Any]:
    rows = [{"figure": figure, "holds": holds} for figure, holds in figures.items()]
    return {"promises": [1], "test": "tests/x.py::test", "case": "", "passed": passed, "figures": rows}


@pytest.mark.parametrize(
    ("mine", "says"),
    [
        ([], "**no test ran**"),
        ([said()], "**holds**, 1 case"),
        ([said(), said(ten_ms=True), said(ten_ms=True)], "**holds**, 3 cases; ten_ms"),
        ([said(ten_ms=True), said(ninety_ms=False)], "**falls short**, 2 cases; short of it: ninety_ms; ten_ms"),
        ([said(), said(passed=False, ten_ms=True)], "**broken: 1 of 2 cases fail**, 2 cases; ten_ms"),
    ],
)
def test_a_promise_holds_if_every_test_passed_and_every_figure_is_within_its_limit(mine: list[Any], says: str):
    assert verdict(mine) == says
