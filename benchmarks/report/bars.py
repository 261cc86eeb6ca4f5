"""Horizontal bars as SVG, in two themes: a title that is the finding, rows with intervals, and notes below them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, LEFT, TOP, ROW, BAR = 820, 226, 82, 46, 28  # pixels: chart, label column, first row, row pitch, bar
MARGIN, CHARACTER = 30, 9.6  # pixels: at the right edge with the gap before a value; widest bold character of a value
FONT = "-apple-system, 'Segoe UI', 'Liberation Sans', Helvetica, Arial, sans-serif"


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of one variant: page, text, secondary text, our bars, other bars, interval lines."""

    page: str
    ink: str
    muted: str
    ours: str
    other: str
    line: str


THEMES = {
    "light": Theme("#ffffff", "#1f2328", "#59636e", "#009e73", "#c3ccd5", "#1f2328"),
    "dark": Theme("#0d1117", "#f0f6fc", "#9198a1", "#12a67c", "#3d444d", "#f0f6fc"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One row: `low` and `high` are the ends of a thin line, an interval or a percentile."""

    label: str
    detail: str
    value: float
    text: str
    low: float | None = None
    high: float | None = None
    ours: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Horizontal bars under a title that is the finding; `notes` are lines below them."""

    title: str
    subtitle: str
    bars: Sequence[Bar]
    notes: Sequence[str]


def svg(chart: Chart, theme: Theme) -> str:
    """The chart as an SVG document."""
    height = TOP + ROW * len(chart.bars) + 14 + 17 * len(chart.notes)
    reach = max(bar.high or bar.value for bar in chart.bars)
    scale = (WIDTH - LEFT - MARGIN - CHARACTER * max(len(bar.text) for bar in chart.bars)) / reach
    summary = f"{chart.title}. " + "; ".join(f"{bar.label} {bar.text}" for bar in chart.bars)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'role="img" font-family="{FONT}">',
        f"  <title>{escape(summary)}</title>",
        f'  <rect width="{WIDTH}" height="{height}" rx="6" fill="{theme.page}"/>',
        text(24, 36, 19, theme.ink, chart.title, bold=True),
        text(24, 60, 14, theme.muted, chart.subtitle),
    ]
    for number, bar in enumerate(chart.bars):
        parts += row(bar, TOP + ROW * number, scale, theme)
    below = TOP + ROW * len(chart.bars) + 18
    parts += [text(24, below + 17 * number, 12, theme.muted, note) for number, note in enumerate(chart.notes)]
    return "\n".join([*parts, "</svg>"]) + "\n"


def row(bar: Bar, top: int, scale: float, theme: Theme) -> list[str]:
    """Label and detail on the left, the bar, its interval line, its value."""
    middle = top + BAR // 2
    end = LEFT + max(bar.value, bar.high or 0.0) * scale
    fill = theme.ours if bar.ours else theme.other
    parts = [
        text(LEFT - 12, middle - 1, 15, theme.ink, bar.label, anchor="end", bold=bar.ours),
        text(LEFT - 12, middle + 14, 12, theme.muted, bar.detail, anchor="end"),
        f'  <rect x="{LEFT}" y="{top}" width="{bar.value * scale:.1f}" height="{BAR}" rx="3" fill="{fill}"/>',
    ]
    if bar.high is not None:
        low = LEFT + (bar.value if bar.low is None else bar.low) * scale
        path = f"M{low:.1f} {middle}H{end:.1f}M{end:.1f} {middle - 5}v10"
        path += "" if bar.low is None else f"M{low:.1f} {middle - 5}v10"
        parts.append(f'  <path d="{path}" stroke="{theme.line}" stroke-width="1.5" fill="none"/>')
    return [*parts, text(end + 9, middle + 5, 15, theme.ink, bar.text, bold=bar.ours)]


def text(x: float, y: float, size: int, fill: str, content: str, *, anchor: str = "", bold: bool = False) -> str:
    """One line of text."""
    style = (' font-weight="700"' if bold else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'  <text x="{x:g}" y="{y:g}" font-size="{size}" fill="{fill}"{style}>{escape(content)}</text>'
