"""The report's section on `quality`: every variant beside `base`, with intervals, as plots and as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.quality.variants import BASE, BY_KIND, FULL, PEER, SERVER
from benchmarks.report.page import Plot, Section

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SETS = ("full", "quick")  # the larger one says more
BESIDE_PEER = "peer"  # base, full and a peer alone, all run with the same arithmetic
PANELS = {
    "cross": "Tasks that name something of another file",
    "single": "Tasks that do not",
}
OURS, THEIRS, USUAL = "#009e73", "#6ba3cf", "#8a8a8a"


def measured(results: Mapping[str, Mapping[str, Any]], model: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """A model's results by file: of the larger set that was measured, and of one beside a peer, where it is apart."""
    larger = next((name for name in SETS if f"quality-{name}-{model}" in results), None)
    for name in (larger, BESIDE_PEER):
        if (data := results.get(f"quality-{name}-{model}")) is not None:
            yield f"quality-{name}-{model}", data


def section(results: Mapping[str, Mapping[str, Any]], pairs: Sequence[str]) -> Section:
    """Quality of suggestions by variant."""
    files = [entry for model in pairs for entry in measured(results, model)]
    plots = [
        Plot(
            name=file,
            title=f"{data['target']}: exact lines, as times base",
            caption=f"{data['tasks']['all']} tasks in {data['packages']} packages released in 2026, greedy. Whiskers: "
            f"95 % of {data['draws']} draws of the tasks, the same draws for a variant and for base. Right of the line "
            "is better than the text around the cursor alone.",
            made_from=data,
            make=lambda figure, data=data: draw(figure, data),  # type: ignore[misc]
            size=(11, 1.6 + 0.3 * len(data["variants"])),
        )
        for file, data in files
    ]
    about = (
        "Suggestions beside what people wrote, in code newer than the models: the product's own pipeline with one "
        "thing changed at a time. base shows the model no other file; full is the product as it comes. In "
        "older results, only-NAME adds one source of context to base and no-NAME takes one from full."
    )
    shown = [table for _, data in files for table in tables(data)]
    return Section(title="What is suggested", about=about, plots=plots, tables=shown)


def draw(figure: Figure, data: Mapping[str, Any]) -> None:
    """Two columns of dots with whiskers, one row for each variant."""
    panels = [name for name in PANELS if any(name in entry["of"] for entry in data["variants"].values())]
    rows = [name for name in data["variants"] if name != BASE]
    columns = figure.subplots(1, max(len(panels), 1), sharey=True, squeeze=False)[0]
    for axes, panel in zip(columns, panels, strict=True):
        dots(axes, {name: beside_base(data["variants"][name], panel) for name in rows})
        base = data["variants"][BASE]["of"][panel]
        axes.set_title(f"{PANELS[panel]} ({base['tasks']})")
        axes.set_xlabel(f"exact lines, times base ({base['exact']['value']:.1%})")


def dots(axes: Axes, found: Mapping[str, Mapping[str, float] | None]) -> None:
    """A ratio in each row, the first on top; nothing where there is none."""
    for row, (name, interval) in enumerate(found.items()):
        if interval is not None:
            colour = OURS if name == FULL else THEIRS if name in (PEER, SERVER) else USUAL
            axes.plot([interval["low"], interval["high"]], [row, row], color=colour, linewidth=1.5)
            axes.plot([interval["value"]], [row], marker="o", color=colour)
    axes.axvline(1.0, color=axes.xaxis.label.get_color(), linewidth=1)
    axes.set_yticks(range(len(found)), list(found))
    axes.set_ylim(len(found) - 0.5, -0.5)


def tables(data: Mapping[str, Any]) -> Iterator[list[list[str]]]:
    """Every metric of every variant; then the exact lines by kind of task."""
    head = [
        *(data["pair"], "tasks", "exact", "full x", "full saves more", "cross-file", "x base", "single-file", "x base"),
        *("like the truth", "right characters", "saved, of shown", "shown", "right, of shown", "break the parse"),
        *("left open too", "said twice", "names known", "prompt tokens", "context, ms", "p95", "model, ms", "p95"),
    ]
    full = data.get("full_beside", {})
    yield [head, *([name, *cells(entry, full.get(name, {}).get("all"))] for name, entry in data["variants"].items())]
    names = [name for name in BY_KIND if name in data["variants"]]
    kinds = [kind for kind in data["tasks"] if kind in data["variants"][BASE]["of"]]
    variants, first = data["variants"], FULL if FULL in data["variants"] else BASE
    yield [
        [f"exact, {data['pair']}", "tasks", *names, f"{FULL} x {BASE}"],
        *(
            [
                kind,
                str(data["tasks"][kind]),
                *(share(variants[name]["of"].get(kind, {}).get("exact")) for name in names),
                times(beside_base(variants[first], kind)),
            ]
            for kind in kinds
        ),
    ]


def cells(one: Mapping[str, Any], full: Mapping[str, Any] | None) -> Iterator[str]:
    """Cells of a variant's row; `full`: the product compared with it."""
    of = one["of"]
    yield str(of["all"]["tasks"])
    yield share(of["all"]["exact"])
    yield times(full["exact"]["ratio"]) if full else ""
    yield number(full["saved_per_shown"]["difference"]) if full else ""
    for panel in PANELS:
        yield share(of.get(panel, {}).get("exact"))
        yield times(beside_base(one, panel))
    whole = of["all"]
    yield share(whole["similarity"])
    yield number(whole["right_characters"])
    yield number(whole["saved_per_shown"])
    for name in ("shown", "exact_of_shown", "breaks_of_shown", "unparsed_of_shown", "repeats_of_shown", "names_known"):
        yield share(whole[name])
    yield f"{one['prompt_tokens']['p50']:.0f}"
    yield from ("", "") if one["context_ms"] is None else (f"{one['context_ms'][at]:.1f}" for at in ("p50", "p95"))
    yield from (f"{one['ms_when_made'][at]:.0f}" for at in ("p50", "p95"))


def beside_base(one: Mapping[str, Any], kind: str) -> Mapping[str, float] | None:
    """Exact lines as a multiple of base's."""
    ratios: Mapping[str, float] | None = one["of"].get(kind, {}).get("beside_base", {}).get("exact", {}).get("ratio")
    return ratios


def share(one: Mapping[str, float] | None) -> str:
    """In percent, with its interval."""
    return "" if one is None else f"{one['value']:.1%} [{one['low'] * 100:.1f}, {one['high'] * 100:.1f}]"


def times(one: Mapping[str, float] | None) -> str:
    return "" if one is None else f"{one['value']:.2f} [{one['low']:.2f}, {one['high']:.2f}]"


def number(one: Mapping[str, float] | None) -> str:
    return "" if one is None else f"{one['value']:.1f} [{one['low']:.1f}, {one['high']:.1f}]"
