"""The promises of docs/promises.md, kept true: which test holds which, what it measured, and the page made of that.

    @pytest.mark.promise(5)
    def test_...(promise: Measured): promise.measured("20 kills: answered after 31 ms at most", holds=longest_ms <= 250)

A test fails where a promise is broken. `holds` says whether the figure wanted was reached: where a clock is in it, the
test's own bound is wider, for machines that are busy. A run of marked tests leaves build/promises.json;
`python tests/promises.py` makes the page and its data of it (`make soak` does), with `--again` only of the tests that
ran, beside what the others found before.
"""

from __future__ import annotations

import json
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
FOUND = ROOT / "build" / "promises.json"  # of the last run
RESULTS = ROOT / "benchmarks" / "results" / "promises.json"  # of the last soak
PAGE = ROOT / "docs" / "promises.md"


@dataclass
class Measured:
    """What one test has to say beside that it passed."""

    figures: list[dict[str, Any]] = field(default_factory=list)

    def measured(self, figure: str, *, holds: bool) -> None:
        """A figure in words, and whether it is the one that is wanted."""
        self.figures.append({"figure": figure, "holds": bool(holds)})


def promises() -> list[dict[str, Any]]:
    """The list: number, title, wanted."""
    found: list[dict[str, Any]] = tomllib.loads((ROOT / "tests" / "promises.toml").read_text())["promise"]
    return found


# ── while tests run (conftest.py registers this module) ──────────────────────────────────────────────────────


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="the long runs of what holds the promises")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[HEARD] = []


HEARD: pytest.StashKey[list[dict[str, Any]]] = pytest.StashKey()


@pytest.fixture(scope="session")
def soak(request: pytest.FixtureRequest) -> bool:
    """Whether this is the long run."""
    return bool(request.config.getoption("--soak"))


@pytest.fixture
def promise(request: pytest.FixtureRequest) -> Measured:
    """Takes the figures of a test that is marked with a promise."""
    assert request.node.get_closest_marker("promise"), "a figure needs a promise: @pytest.mark.promise(NUMBER)"
    made = Measured()
    request.node.user_properties.append(("measured", made))
    return made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: Any = yield
    numbers = sorted({number for marker in item.iter_markers("promise") for number in marker.args})
    if numbers and (report.when == "call" or report.outcome != "passed"):
        figures = [figure for name, made in item.user_properties if name == "measured" for figure in made.figures]
        item.config.stash[HEARD].append(
            {
                "promises": numbers,
                "test": item.nodeid.partition("[")[0],
                "case": item.nodeid.partition("[")[2].removesuffix("]"),
                "passed": report.outcome == "passed",
                "figures": figures,
            }
        )
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    heard = session.config.stash.get(HEARD, [])
    if heard:
        from benchmarks.results_file import write

        long = bool(session.config.getoption("--soak"))
        write("promises", {"soak": long, "tests": heard}, directory=FOUND.parent)


# ── the page ─────────────────────────────────────────────────────────────────────────────────────────────────


def page(results: Mapping[str, Any]) -> str:
    """docs/promises.md for what a run found."""
    machine = results["machine"]
    heard: Sequence[Mapping[str, Any]] = results["tests"]
    lines = [
        "# What is promised, and what was measured",
        "",
        "Made by `make soak` from the tests' own output (`tests/promises.py`); `tests/unit/repo/test_promises.py` compares.",
        f"Last run: {results['made_utc'][:10]}, {'the long runs' if results['soak'] else 'the short runs'}, on",
        f"{machine['cores']} cores of {machine['cpu']}, {machine['memory_gib']} GiB, {machine['gpu'] or 'no GPU'},",
        f"{machine['system']}, Python {machine['python']}.",
        *([f"{len(results['again'])} tests were run again after the others."] if results.get("again") else []),
        *([results["remark"]] if results.get("remark") else []),
        "The threat model and how to report are in [SECURITY.md](../SECURITY.md).",
        "",
        "| | promise | wanted | measured | tests |",
        "|---|---|---|---|---|",
    ]
    for one in promises():
        mine = [said for said in heard if one["number"] in said["promises"]]
        lines.append(f"| {one['number']} | **{one['title']}** | {one['wanted']} | {verdict(mine)} | {tests(mine)} |")
    return "\n".join(lines) + "\n"


def verdict(mine: Sequence[Mapping[str, Any]]) -> str:
    """What the tests of one promise found."""
    if not mine:
        return "**no test ran**"
    failed = sum(not said["passed"] for said in mine)
    figures = [figure for said in mine for figure in said["figures"]]
    short = [figure["figure"] for figure in figures if not figure["holds"]]
    held = list(dict.fromkeys(figure["figure"] for figure in figures if figure["holds"]))
    head = f"**broken: {failed} of {len(mine)} cases fail**" if failed else "**falls short**" if short else "**holds**"
    told = [f"short of it: {figure}" for figure in dict.fromkeys(short)] + held
    return "; ".join([f"{head}, {len(mine)} case{'s' if len(mine) > 1 else ''}", *told])


def tests(mine: Sequence[Mapping[str, Any]]) -> str:
    """Their names: file, then functions."""
    by_file: dict[str, list[str]] = {}
    for said in mine:
        file, _, name = said["test"].partition("::")
        names = by_file.setdefault(file.removeprefix("tests/"), [])
        if name not in names:
            names.append(name)
    return "<br>".join(f"{file}: " + ", ".join(f"`{name}`" for name in names) for file, names in by_file.items())


def merged(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """What was found before, but for the tests that ran again now."""
    again = {said["test"] for said in now["tests"]}
    kept = [said for said in before["tests"] if said["test"] not in again]
    told = {"again": sorted({*before.get("again", []), *again}), "remark": before.get("remark", "")}
    return {**now, "soak": before["soak"] and now["soak"], **told, "tests": [*kept, *now["tests"]]}


if __name__ == "__main__":
    found = json.loads(FOUND.read_text())
    if sys.argv[1:] == ["--again"]:
        found = merged(json.loads(RESULTS.read_text()), found)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    PAGE.write_text(page(found))
