"""Charts and tables of docs: benchmarks*.md, gpu.md, benchmarks-next-edit.md. SVG bars in two themes, Markdown tables.

    python -m benchmarks charts [--results benchmarks/results] [--docs docs]

Writes docs/images/NAME-light.svg and NAME-dark.svg, and replaces each table between `<!-- table NAME -->` and
`<!-- /table -->` in these pages. The same results always give the same bytes.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from benchmarks import results_file
from benchmarks.report import economy_tables, gpu_tables
from benchmarks.report.bars import THEMES, Bar, Chart, svg
from benchmarks.report.markdown_tables import FORMATS, NAMES, tables
from benchmarks.report.result_files import CPU_KINDS, SMALL, Results, newest_gpu, read
from speclsp.errors import SpeclspError

DOCS = results_file.CHECKOUT / "docs"
PAGES = ("benchmarks.md", "gpu.md", "benchmarks-next-edit.md", "confidence.md")
TABLE = re.compile(r"(<!-- table ([a-z0-9.-]+) -->\n).*?(<!-- /table -->)", re.DOTALL)


# ── the charts ───────────────────────────────────────────────────────────────────────────────────────────────


def engines(results: Results) -> Chart:
    """Whole completion from a cold prompt: the fastest mode of each engine."""
    kind = next(kind for kind in CPU_KINDS if f"peers-{SMALL}-{kind}" in results)
    data = results[f"peers-{SMALL}-{kind}"]
    best: dict[str, Mapping[str, Any]] = {}
    for way in sorted(data["ways"].values(), key=lambda way: float(way["cold"]["total_ms"]["p50"])):
        best.setdefault(way["peer"], way)
    first, second = (way["cold"]["total_ms"]["p50"] for way in list(best.values())[:2])
    bars = [
        Bar(
            label=NAMES[peer],
            detail=FORMATS[peer, way["mode"]],
            value=way["cold"]["total_ms"]["p50"] / 1000,
            text=f"{way['cold']['total_ms']['p50'] / 1000:.2f} s",
            ours=peer == "speclsp",
        )
        for peer, way in best.items()
    ]
    seconds, factor = f"{first / 1000:.1f} s", f"{second / first:.1f}"
    return Chart(
        title=f"{data['new_tokens']} tokens in {seconds}: {factor} times as fast as the next engine",
        subtitle="Seconds from request to whole completion, nothing cached, Qwen2.5-Coder 0.5B. Lower is better.",
        bars=bars,
        notes=[
            f"Median of {len(data['prompt_tokens'])} prompts on {data['threads']} cores of {CPU_KINDS[kind]}. "
            "The fastest mode of each engine that was measured."
        ],
    )


def quality(results: Results) -> Chart:
    """Exact matches by the context in the prompt, with 95 % intervals."""
    data = results[f"quality-full-{SMALL}"]
    labels = {"base": ("current file only", ""), "full": ("+ similar code", "default")}
    shares = {name: data["variants"][name]["of"]["all"]["exact"] for name in labels}
    bars = [
        Bar(
            label=label,
            detail=detail,
            value=shares[name]["value"] * 100,
            text=f"{shares[name]['value'] + 1e-9:.1%}".replace("%", " %"),
            low=shares[name]["low"] * 100,
            high=shares[name]["high"] * 100,
            ours=name == "full",
        )
        for name, (label, detail) in labels.items()
    ]
    before, after = (share["value"] * 100 for share in shares.values())
    return Chart(
        title=f"Code from other files raises exact matches from {before:.0f} to {after:.0f} %",
        subtitle="Suggestions whose line equals the original line exactly, in %. Higher is better.",
        bars=bars,
        notes=[
            f"{data['of_tasks']} tasks in {data['packages']} packages that are newer than the model. "
            "Lines: 95 % intervals.",
            "Qwen2.5-Coder 0.5B, int8, with the included adapter fill-9.",
        ],
    )


def typing(results: Results) -> Chart:
    """Time from a key to its suggestion, at the first line of a function, at other lines and within a line."""
    data = results[f"lines-{SMALL}"]
    kinds = {kind: data["idle"]["kinds"][kind] for kind in ("new place", "line start", "mid-line")}
    bars = [
        Bar(
            label=kind,
            detail=f"{row['count']} keys",
            value=row["to_suggestion"]["p50_ms"],
            text=f"{row['to_suggestion']['p50_ms']:.0f} ms (p90 {row['to_suggestion']['p90_ms'] + 1e-6:.0f})",
            high=row["to_suggestion"]["p90_ms"],
            ours=True,
        )
        for kind, row in kinds.items()
    ]
    first = kinds["new place"]["to_suggestion"]["p50_ms"]
    return Chart(
        title=f"At a new place the first suggestion takes {first:.0f} ms",
        subtitle="Milliseconds from key to suggestion. Bar: median; line: 90th percentile. Lower is better.",
        bars=bars,
        notes=[
            f"{data['idle']['keys']} keys of simulated typing in {data['packages']} packages of 2026, in 5 languages. "
            "Qwen2.5-Coder 0.5B on 2 cores of an EPYC without AMX.",
            "New place: the first line of a function, 3 s after its file got the focus.",
        ],
    )


def gpu(results: Results) -> Chart:
    """Shares of the bandwidth's limit on a GPU: draft steps, target passes, and rounds."""
    data = newest_gpu(results) or {}
    figures = {name: part.get("figures", {}) for name, part in data.get("parts", {}).items()}
    rows = {
        (f"{gpu_tables.MODELS[model]} {number_format}", f"pass of {count} token{'s' * (count != '1')}"): row
        for number_format, width in (("bf16", "16"), ("nf4", "8"))
        for model in gpu_tables.MODELS
        for count in ["1" if model == "0.5b" else width]  # a draft step, or a target's pass
        if (row := gpu_tables.at(figures.get("passes"), f"{model} {number_format}", "rows", count))
    }
    rows |= {
        (label, "round of 4"): row
        for model_name, label in gpu_tables.PAIRS.items()
        if (row := gpu_tables.at(figures.get("rounds"), model_name, "by_gamma", "4"))
    }
    bars = [
        Bar(label=label, detail=detail, value=percent, text=f"{percent:.0f} %", ours=detail.startswith("pass"))
        for (label, detail), row in rows.items()
        if (percent := row.get("percent_of_limit")) is not None
    ]
    best = max(bars, key=lambda bar: bar.value)
    return Chart(
        title=f"{best.label} needs {best.text} of its pass to read its data",
        subtitle="Bytes of weights and cache over the bandwidth, as a share of the time, in %. Higher is better.",
        bars=bars,
        notes=[
            f"{data.get('device_name', 'GPU')}, random weights in the real shapes, 1,024 tokens cached. "
            "Draft steps have 1 token, target passes 8 or 16."
        ],
    )


CHARTS = {"engines": engines, "quality": quality, "typing": typing, "gpu": gpu}


# ── the command ──────────────────────────────────────────────────────────────────────────────────────────────


def images(results: Results) -> dict[str, str]:
    """{file name: SVG} of every chart in both themes."""
    return {
        f"{name}-{theme}.svg": svg(chart(results), colours)
        for name, chart in CHARTS.items()
        for theme, colours in THEMES.items()
    }


def picture(name: str, chart: Chart) -> str:
    """The chart in a page, in both themes, with its values in the alternative text."""
    alternative = f"{chart.title}. " + ", ".join(f"{bar.label}, {bar.detail}: {bar.text}" for bar in chart.bars)
    return (
        "<picture>\n"
        f'  <source media="(prefers-color-scheme: dark)" srcset="images/{name}-dark.svg">\n'
        f'  <img src="images/{name}-light.svg" alt="{escape(alternative)}">\n'
        "</picture>\n"
    )


def with_tables(page: str, results: Results) -> str:
    """The page with each table between its markers replaced."""
    current = tables(results) | gpu_tables.markdown(results)
    current |= economy_tables.tables(results)
    current["gpu-chart"] = picture("gpu", gpu(results))

    def replaced(match: re.Match[str]) -> str:
        if match[2] not in current:
            raise SpeclspError(f"The page has an unknown table {match[2]!r}. Known: {', '.join(sorted(current))}.")
        return f"{match[1]}{current[match[2]]}{match[3]}"

    return TABLE.sub(replaced, page)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--docs", metavar="DIR", type=Path, default=DOCS, help="documentation directory to update")


def main(options: argparse.Namespace) -> int:
    """Write the images, and update the tables."""
    results = read(results_file.RESULTS)
    directory: Path = options.docs / "images"
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in images(results).items():
        (directory / name).write_text(content, encoding="utf-8")
        print(directory / name)
    for name in PAGES:
        page: Path = options.docs / name
        page.write_text(with_tables(page.read_text(encoding="utf-8"), results), encoding="utf-8")
        print(page)
    return 0
