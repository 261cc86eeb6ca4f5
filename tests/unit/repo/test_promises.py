"""docs/promises.md is what the last soak found: every promise has tests, and every test it names is there."""

from __future__ import annotations

import ast
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from promises import PAGE, RESULTS, ROOT, page, promises, verdict


def marks(nodes: Iterator[ast.AST]) -> set[int]:
    """The numbers of the promise marks in there."""
    calls = (node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute))
    return {arg.value for call in calls if call.func.attr == "promise" for arg in call.args}


def marked_tests() -> dict[int, set[str]]:
    """The tests of each promise, as the page names them: marked one by one, or all of a module by `pytestmark`."""
    found: dict[int, set[str]] = defaultdict(set)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        body = ast.parse(path.read_text()).body
        assigned = (one for one in body if isinstance(one, ast.Assign) and "pytestmark" in ast.unparse(one.targets[0]))
        for_all = {number for one in assigned for number in marks(ast.walk(one))}
        for test in (one for one in body if isinstance(one, ast.FunctionDef) and one.name.startswith("test_")):
            for number in for_all.union(*(marks(ast.walk(mark)) for mark in test.decorator_list)):
                found[number].add(f"{path.relative_to(ROOT)}::{test.name}")
    return found


def test_every_promise_is_held_by_a_test():
    held = marked_tests()
    assert [one["number"] for one in promises()] == list(range(1, 37))
    assert [one["title"] for one in promises() if not held[one["number"]]] == []
    assert set(held) <= set(range(1, 37))


def test_the_page_is_what_the_last_soak_found():
    assert PAGE.read_text() == page(json.loads(RESULTS.read_text()))


def test_the_last_soak_ran_every_test_that_holds_a_promise_and_all_of_them_passed():
    results = json.loads(RESULTS.read_text())
    assert results["soak"]
    ran = {(number, said["test"]) for said in results["tests"] for number in said["promises"]}
    assert {(number, test) for number, tests in marked_tests().items() for test in tests} == ran
    assert [said["test"] for said in results["tests"] if not said["passed"]] == []


def said(passed: bool = True, **figures: bool) -> Mapping[str, Any]:
    told = [{"figure": figure, "holds": holds} for figure, holds in figures.items()]
    return {"promises": [1], "test": "tests/x.py::test", "case": "", "passed": passed, "figures": told}


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
def test_a_promise_holds_where_every_test_passed_and_every_figure_is_as_wanted(mine: list[Any], says: str):
    assert verdict(mine) == says
