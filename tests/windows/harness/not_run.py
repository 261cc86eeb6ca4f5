"""pytest plugin of `make windows`: tests that cannot pass under Wine, by name and reason, and a record of each outcome.

not_run.toml has a table for each way to run the suites, SPECLSP_TESTS_WINDOWS: `python` (pytest itself runs in the
Windows Python) or `program` (pytest runs on Linux and starts the program under Wine). A listed test runs and may fail;
that it passes is reported. Rows with `run = false` name tests that hang, end the process or cannot be imported.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LIST = Path(os.environ.get("SPECLSP_TESTS_LIST") or Path(__file__).parents[1] / "not_run.toml")
WAY = os.environ.get("SPECLSP_TESTS_WINDOWS", "")
RECORD = os.environ.get("SPECLSP_TESTS_RECORD", "")
LIMIT_S = 60  # of a listed test


@dataclass(frozen=True)
class Row:
    """Tests with one reason. `tests`: ids or patterns of ids, without the parameters."""

    reason: str
    tests: tuple[str, ...]
    is_run: bool

    def names(self, test: str) -> bool:
        """True if the row lists the test, or all of its file or folder."""
        return any(fnmatch(test, name) or test.startswith((f"{name}::", f"{name}/")) for name in self.tests)


def rows(way: str) -> list[Row]:
    """The rows of a way to run the suites."""
    table = tomllib.loads(LIST.read_text("utf-8")).get(way, [])
    return [Row(row["reason"], tuple(row["tests"]), row.get("run", True)) for row in table]


def row_of(listed: list[Row], test: str) -> Row | None:
    """The row that lists a test; one that is not run comes first."""
    matches = [row for row in listed if row.names(test.partition("[")[0])]
    return min(matches, key=lambda row: row.is_run, default=None)


def write(**line: Any) -> None:
    """Append a line to the record."""
    if RECORD:
        with Path(RECORD).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def recorded() -> Iterator[dict[str, Any]]:
    """The lines of the record so far."""
    if RECORD and Path(RECORD).exists():
        yield from map(json.loads, Path(RECORD).read_text("utf-8").splitlines())


def without_listed(way: str, files: list[str], record: Path) -> list[str]:
    """The test files without those that are listed whole and not run, which a record then names."""
    reasons = {test: row.reason for row in rows(way) if not row.is_run for test in row.tests}
    with record.open("a", encoding="utf-8") as lines:
        for file in files:
            if file in reasons:
                lines.write(json.dumps({"test": file, "outcome": "not run", "reason": reasons[file]}) + "\n")
    return [file for file in files if file not in reasons]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark listed tests, and leave out those that are not run or have an outcome of an earlier process."""
    listed, done = rows(WAY), {line["test"] for line in recorded() if "test" in line}
    wanted = []
    for item in items:
        row = row_of(listed, item.nodeid)
        if item.nodeid in done:
            continue
        if row is not None and not row.is_run:
            write(test=item.nodeid, outcome="not run", reason=row.reason)
            continue
        if row is not None:
            item.add_marker(pytest.mark.xfail(reason=row.reason, strict=False))
            item.add_marker(pytest.mark.timeout(LIMIT_S))
        wanted.append(item)
    config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
    items[:] = wanted


def pytest_runtest_logstart(nodeid: str) -> None:
    """A test without an outcome ended its process."""
    row = row_of(rows(WAY), nodeid)
    write(test=nodeid, outcome="ended" if row is None else "failed as listed", reason=row.reason if row else "")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record the outcome of each phase; the worst one counts."""
    listed = getattr(report, "wasxfail", None)
    if listed is not None:
        outcome = "failed as listed" if report.skipped else "passed though listed"
        if outcome == "failed as listed" or report.when == "call":
            write(test=report.nodeid, outcome=outcome, reason=listed)
    elif report.failed:
        write(test=report.nodeid, outcome="failed", reason=str(report.longrepr)[-4000:])
    elif report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        write(test=report.nodeid, outcome="skipped", reason=reason)
    elif report.when == "call":
        write(test=report.nodeid, outcome="passed")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file that cannot be imported is a failure."""
    if report.failed:
        write(test=report.nodeid, outcome="failed", reason=str(report.longrepr)[-4000:])


def pytest_sessionfinish() -> None:
    write(finished=True)
