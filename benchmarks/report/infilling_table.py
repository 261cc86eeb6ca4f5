"""HumanEval-Infilling in docs/benchmarks.md: our columns, then the published figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.quality.infilling import published
from benchmarks.report.markdown_tables import interval, table
from benchmarks.report.result_files import NAMES, Figures, Results

HEAD = ("model", "through", "single line: exact", "pass@1", "n", "several lines: exact", "pass@1", "n")
ORDER = ("engine bf16", "engine int8", "product bf16", "product int8", "joined bf16", "joined int8")
THROUGH = {"engine": "raw engine, standard prompt", "product": "product", "joined": "product, with joined lines"}
KINDS = ("single", "multi")


def markdown(results: Results) -> dict[str, str]:
    """{name: Markdown} of the tables in docs/benchmarks.md."""
    head, *others = published_rows()
    return {"infilling": table(HEAD, rows(results)), "infilling-published": table(head, iter(others))}


def columns(results: Results) -> Iterator[tuple[str, str, Mapping[str, Figures]]]:
    """(model, column's name, {kind: its figures}) of all measured columns, the small model first."""
    for model in NAMES:
        sets = results.get(f"humaneval-infilling-{model}", {}).get("sets", {})
        names = {name for figures in sets.values() for name in figures["columns"]}
        for name in sorted(names, key=lambda name: (ORDER.index(" ".join(name.split()[:2])), name)):
            measured = {
                kind: sets[kind]["columns"][name] for kind in KINDS if name in sets.get(kind, {}).get("columns", {})
            }
            if measured:
                yield model, name, measured


def rows(results: Results) -> Iterator[Sequence[str]]:
    """One row for each of our columns."""
    for model, name, measured in columns(results):
        through, weights, *adapter = name.split()
        cells = [cell for kind in KINDS for cell in shares(measured.get(kind))]
        yield ", ".join([f"{NAMES[model]} {weights}", *adapter]), THROUGH[through], *cells


def published_rows() -> list[Sequence[str]]:
    """Head and one row: the published exact match of each model."""
    return [list(published.EXACT_PERCENT), [f"{exact:.1f} %" for exact in published.EXACT_PERCENT.values()]]


def shares(column: Figures | None) -> tuple[str, str, str]:
    """Exact match, pass@1 and number of tasks of a column."""
    if column is None:
        return "–", "–", "–"
    passed = interval(column["pass_1"]) if "pass_1" in column else "–"
    return interval(column["exact"]), passed, str(column["tasks"])
