"""One page of everything that was measured: the aims beside their figures, plots, and the machine below each.

    python -m benchmarks report [--results benchmarks/results] [--out build/report]

Reads every *.json of the results. Writes report.html, which needs no other file, and its plots as report-*.png. A
figure that is missing is shown as "not measured". The Makefile passes the duration of a whole run as `--took`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks import results_file
from benchmarks.report import html_page
from benchmarks.report.aims import AIMS, Results
from benchmarks.report.page import MARKS, page
from benchmarks.report.sections import sections
from speclsp.errors import SpeclspError

OUT = results_file.CHECKOUT / "build" / "report"


def read(directory: Path) -> Results:
    """Every result there, by file name; older kinds of file without a `bench` in them are left out."""
    results = {}
    for file in sorted(directory.glob("*.json")):
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise SpeclspError(f"{file} cannot be read: {error}. Remove it, or run its benchmark again.") from None
        if isinstance(data, dict) and "bench" in data:
            results[file.stem] = data
    return results


def write(directory: Path, out: Path) -> Path:
    """Write the page of the results in `directory`, and its plots, to the folder `out`.

    Raises:
        SpeclspError: a result cannot be read, or matplotlib is not installed.
    """
    results = read(directory)
    out.mkdir(parents=True, exist_ok=True)
    all_sections = list(sections(results))
    pictures: dict[str, dict[str, bytes]] = {}
    for plot in (plot for section in all_sections for plot in section.plots):
        pictures[plot.name] = {theme: html_page.draw(plot.make, plot.size, theme) for theme in html_page.INK}
        (out / f"report-{plot.name}.png").write_bytes(pictures[plot.name]["light"])
    file = out / "report.html"
    file.write_text(page(results, pictures, all_sections), encoding="utf-8")
    return file


def verdicts(results: Results) -> dict[str, int]:
    """Number of aims by verdict."""
    all_verdicts = [aim.verdict(aim.measured(results)) for aim in AIMS]
    return {verdict: all_verdicts.count(verdict) for verdict in MARKS}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks report`."""
    parser.add_argument("--out", metavar="DIR", type=Path, default=OUT, help="where to write (default: build/report)")
    parser.add_argument(
        "--took", metavar="NAME=SECONDS", default="", help="keep how long a whole run took, as in --took bench=1620"
    )


def main(options: argparse.Namespace) -> int:
    """Exit code 0, whatever the verdicts."""
    if options.took:
        name, _, seconds = options.took.partition("=")
        results_file.write(
            "run", {"run": name, "minutes": round(float(seconds) / 60, 1)}, f"run-{name}", options.results
        )
    if not options.results.is_dir():
        raise SpeclspError(f"{options.results}: no such directory; run a benchmark first.")
    counts = verdicts(read(options.results))
    print(f"aims: {', '.join(f'{count} {verdict}' for verdict, count in counts.items())}")
    print(f"wrote {write(options.results, options.out)}")
    return 0
