"""Promises of docs/reliability.md: which test covers which promise, the figures measured, and the generated page.

    @pytest.mark.promise(5)
    def test_...(promise: Measured): promise.measured("20 kills: answered after 31 ms at most", holds=longest_ms <= 250)

A test fails where a promise is broken. `holds` records whether the target figure was reached. The test's own bound on a
clock is wider, because test machines are busy. A run of marked tests writes build/promises.json.
`python tests/promises.py` turns that file into the page and its data (`make soak` does so). With `--part` it adds the
tests that ran to the data: a soak has two parts. `--again` does so too, and the page says how many tests were repeated.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
LAST_RUN = ROOT / "build" / "promises.json"
RESULTS = ROOT / "benchmarks" / "results" / "promises.json"  # of the last soak
PAGE = ROOT / "docs" / "reliability.md"


@dataclass
class Measured:
    """Figures that one test reports besides passing."""

    figures: list[dict[str, Any]] = field(default_factory=list)

    def measured(self, figure: str, *, holds: bool) -> None:
        """Record a figure in words, and whether it reaches the target."""
        self.figures.append({"figure": figure, "holds": bool(holds)})


def promises() -> list[dict[str, Any]]:
    """The entries of promises.toml: number, title, wanted; most have `figure` and `headline`."""
    entries: list[dict[str, Any]] = tomllib.loads((ROOT / "tests" / "promises.toml").read_text())["promise"]
    return entries


# ── pytest hooks (conftest.py registers this module) ─────────────────────────────────────────────────────────


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="run the promise tests at full length")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[RECORDS] = []
    config.pluginmanager.register(_Collector(config), "promise-collector")


RECORDS: pytest.StashKey[list[dict[str, Any]]] = pytest.StashKey()


@pytest.fixture(scope="session")
def soak(request: pytest.FixtureRequest) -> bool:
    """True in a soak run, where promise tests run at full length."""
    return bool(request.config.getoption("--soak"))


@pytest.fixture
def promise(request: pytest.FixtureRequest) -> Measured:
    """Records the figures of a test that is marked with a promise."""
    assert request.node.get_closest_marker("promise"), "a figure needs a promise: @pytest.mark.promise(NUMBER)"
    measured = Measured()
    request.node.user_properties.append(("measured", measured.figures))  # plain data: xdist sends it to the controller
    return measured


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: Any = yield
    numbers = sorted({number for marker in item.iter_markers("promise") for number in marker.args})
    if numbers and (report.when == "call" or report.outcome != "passed"):
        figures = [figure for name, rows in item.user_properties if name == "measured" for figure in rows]
        report.promise_record = {
            "promises": numbers,
            "test": item.nodeid.partition("[")[0],
            "case": item.nodeid.partition("[")[2].removesuffix("]"),
            "passed": report.outcome == "passed",
            "figures": figures,
        }
    return report


class _Collector:
    """Collects promise records in the process that prints the summary, with or without xdist workers."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        record = getattr(report, "promise_record", None)
        if record is not None and not hasattr(self._config, "workerinput"):
            self._config.stash[RECORDS].append(record)


def pytest_sessionfinish(session: pytest.Session) -> None:
    records = session.config.stash.get(RECORDS, [])
    if records:
        from benchmarks.results_file import write

        long = bool(session.config.getoption("--soak"))
        write("promises", {"soak": long, "tests": records}, directory=LAST_RUN.parent)


# ── the page ─────────────────────────────────────────────────────────────────────────────────────────────────


def page(results: Mapping[str, Any]) -> str:
    """The text of docs/reliability.md for the results of a run."""
    records: Sequence[Mapping[str, Any]] = results["tests"]
    rows = [(entry, [record for record in records if entry["number"] in record["promises"]]) for entry in promises()]
    statuses = [status(own) for _, own in rows]
    counts = {word: statuses.count(word) for word in dict.fromkeys([HOLDS, *statuses])}
    lines = [
        "# Reliability",
        "",
        "The promises of speclsp, with the result of the last long test run. Every promise has tests of its own.",
        f"Results of the {len(rows)} promises: {', '.join(f'{count} × {word}' for word, count in counts.items())}.",
        "",
        "| | promise | result | measured |",
        "|---|---|---|---|",
    ]
    for (entry, own), word in zip(rows, statuses, strict=True):
        marked = word if word == HOLDS else f"**{word}**"
        lines.append(f"| {entry['number']} | {entry['title']} | {marked} | {headline(entry, own)} |")
    return "\n".join([*lines, "", *below(results)]) + "\n"


def below(results: Mapping[str, Any]) -> list[str]:
    """Method, machine and sources, below the table."""
    machine = results["machine"]
    again = results.get("again")
    return [
        "**Holds**: every test passed and every figure reached its goal.",
        "**Falls short**: every test passed, but a figure missed its goal. **Broken**: a test failed.",
        "",
        "## Method",
        "",
        f"- Last run: {results['made_utc'][:10]}, {'at full length' if results['soak'] else 'short runs'}.",
        f"- Machine: {machine['cores']} cores of {machine['cpu']}, {machine['memory_gib']} GiB, "
        f"{machine['gpu'] or 'no GPU'}, {machine['system']}, Python {machine['python']}.",
        *([f"- {len(again)} tests were repeated in a later run."] if again else []),
        *([f"- {results['remark']}"] if results.get("remark") else []),
        "- Goals: [tests/promises.toml](../tests/promises.toml).",
        "- All figures and test names: [benchmarks/results/promises.json](../benchmarks/results/promises.json).",
        "- `make soak` repeats the run and writes this page. `make test` has shorter runs of the same tests.",
        "",
        "The [security policy](../SECURITY.md) has the threat model and how to report a vulnerability.",
    ]


HOLDS, FALLS_SHORT, BROKEN, NOT_TESTED = "holds", "falls short", "broken", "not tested"


def status(records: Sequence[Mapping[str, Any]]) -> str:
    """The result of one promise's tests."""
    if not records:
        return NOT_TESTED
    if not all(record["passed"] for record in records):
        return BROKEN
    return HOLDS if all(figure["holds"] for record in records for figure in record["figures"]) else FALLS_SHORT


def headline(entry: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> str:
    """The promise's chosen figure. Failures, and figures that miss the goal, take its place."""
    failed = sum(not record["passed"] for record in records)
    if failed:
        return f"{failed} of {len(records)} test cases fail"
    figures = [figure for record in records for figure in record["figures"]]
    pattern = entry.get("figure", "(?!)")  # matches nothing
    matches = [(figure, re.search(pattern, figure["figure"])) for figure in figures]
    chosen = [(figure["holds"], entry["headline"].format(**match.groupdict())) for figure, match in matches if match]
    short = [figure["figure"] for figure in figures if not figure["holds"]]
    if short and all(holds for holds, _ in chosen):
        return short[0]
    cases = f"{len(records)} test case{'s' if len(records) != 1 else ''} pass{'es' if len(records) == 1 else ''}"
    return min(chosen)[1] if chosen else cases if records else "no test ran"


def merged(before: Mapping[str, Any], now: Mapping[str, Any], *, same_run: bool) -> dict[str, Any]:
    """The earlier results, with the tests of this run added or replaced."""
    repeated = {record["test"] for record in now["tests"]}
    kept = [record for record in before["tests"] if record["test"] not in repeated]
    again = {*before.get("again", []), *(() if same_run else repeated)}
    about = {"again": sorted(again), "remark": before.get("remark", "")}
    return {**now, "soak": before["soak"] and now["soak"], **about, "tests": [*kept, *now["tests"]]}


if __name__ == "__main__":
    results = json.loads(LAST_RUN.read_text())
    if sys.argv[1:] in (["--part"], ["--again"]):
        results = merged(json.loads(RESULTS.read_text()), results, same_run="--part" in sys.argv)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(page(results))
