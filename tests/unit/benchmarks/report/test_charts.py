"""docs/benchmarks*.md: their charts and tables equal the committed results, and no value leaves a chart."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from benchmarks import results_file
from benchmarks.report import bars, charts
from benchmarks.report.result_files import read
from speclsp.errors import SpeclspError

RESULTS = read(results_file.CHECKOUT / "benchmarks" / "results")
PAGES = {
    name: (charts.DOCS / ("gpu.md" if name == "gpu" else "benchmarks.md")).read_text("utf-8") for name in charts.CHARTS
}


def test_the_committed_charts_equal_the_results():
    committed = {path.name: path.read_text("utf-8") for path in (charts.DOCS / "images").glob("*.svg")}
    expected = charts.images(RESULTS)
    assert {name: committed.get(name) for name in expected} == expected, "run `python -m benchmarks charts`"


@pytest.mark.parametrize(
    ("name", "tables"),
    [("benchmarks.md", 6), ("gpu.md", 8), ("benchmarks-next-edit.md", 2)],
)
def test_the_tables_of_a_page_equal_the_results(name: str, tables: int):
    page = (charts.DOCS / name).read_text("utf-8")
    assert charts.with_tables(page, RESULTS) == page, "run `python -m benchmarks charts`"
    assert page.count("<!-- table ") == len(charts.TABLE.findall(page)) == tables


@pytest.mark.parametrize("name", charts.CHARTS)
def test_the_page_shows_each_chart_in_both_themes_and_its_values_in_the_alternative_text(name: str):
    assert f"images/{name}-dark.svg" in PAGES[name]
    match = re.search(rf'<img src="images/{name}-light.svg" alt="([^"]+)"', PAGES[name])
    assert match
    for bar in charts.CHARTS[name](RESULTS).bars:
        assert bar.text.split(" (")[0] in match[1]


@pytest.mark.parametrize("name", charts.CHARTS)
def test_bars_and_values_stay_inside_the_chart(name: str):
    chart = charts.CHARTS[name](RESULTS)
    root = ElementTree.fromstring(bars.svg(chart, bars.THEMES["light"]))
    values = [node for node in root if node.text in {bar.text for bar in chart.bars}]
    assert len(values) == len(chart.bars)
    for node in values:
        assert float(node.get("x", 0)) + bars.CHARACTER * len(node.text or "") <= bars.WIDTH
    for rect in root.findall("{http://www.w3.org/2000/svg}rect")[1:]:
        assert 0 < float(rect.get("width", 0)) < bars.WIDTH - bars.LEFT


def test_an_unknown_table_is_an_error():
    with pytest.raises(SpeclspError, match="unknown table 'missing'"):
        charts.with_tables("<!-- table missing -->\n<!-- /table -->\n", RESULTS)
