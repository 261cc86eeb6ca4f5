"""HTML pages with plots that need no other file, legible on light and dark screens. The only importer of matplotlib.

Each plot is drawn twice, for a light and for a dark page, and embedded as PNG; the browser shows one of them.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from speclsp.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NO_MATPLOTLIB = "plots need matplotlib, which is not installed: `make bench` installs it."
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8a8a8a")  # told apart by (almost) all
DOTS_PER_INCH = 110
INK = {"light": ("#1f2328", "#ffffff", "#d0d7de"), "dark": ("#e6edf3", "#161b22", "#3d444d")}  # text, ground, grid
STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --dim: #59636e; --ground: #ffffff; --line: #d0d7de; --soft: #f6f8fa;
  --good: #1a7f37; --bad: #b35900; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --dim: #9198a1; --ground: #161b22; --line: #3d444d;
  --soft: #1f252d; --good: #4ac26b; --bad: #e3a05a; } }
body { background: var(--ground); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; margin: 0 auto;
  max-width: 1120px; padding: 1.5rem; }
h1 { font-size: 1.7rem; margin: 0.5rem 0 0; } h2 { font-size: 1.3rem; margin: 2.5rem 0 0.3rem;
  border-top: 1px solid var(--line); padding-top: 1.2rem; } h3 { font-size: 1rem; margin: 1.5rem 0 0.3rem; }
p { margin: 0.3rem 0 0.8rem; max-width: 75ch; } .dim, figcaption { color: var(--dim); font-size: 0.87rem; }
figure { margin: 0.5rem 0 1.2rem; } img { max-width: 100%; height: auto; border: 1px solid var(--line);
  border-radius: 6px; } .wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.87rem; font-variant-numeric: tabular-nums; margin: 0.5rem 0 1rem; }
th, td { padding: 0.25rem 0.7rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; }
th:first-child, td:first-child { text-align: left; } thead th { background: var(--soft); text-align: right; }
.pass { color: var(--good); font-weight: 600; } .short { color: var(--bad); font-weight: 600; }
.not { color: var(--dim); } .aims td:nth-child(2), .aims th:nth-child(2) { text-align: left; }
"""


def document(title: str, about: str, body: Sequence[str]) -> str:
    """A complete HTML page; `body` is its parts, already in HTML."""
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{html.escape(title)}</title>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<style>{STYLE}</style></head><body><h1>{html.escape(title)}</h1><p class='dim'>{html.escape(about)}</p>"
        + "\n".join(body)
        + "</body></html>\n"
    )


def picture(title: str, caption: str, pictures: Mapping[str, bytes]) -> str:
    """A PNG for either theme under its title."""
    light, dark = (f"data:image/png;base64,{base64.b64encode(pictures[theme]).decode()}" for theme in ("light", "dark"))
    return (
        f"<h3>{html.escape(title)}</h3><figure><picture><source media='(prefers-color-scheme: dark)' "
        f"srcset='{dark}'><img alt='{html.escape(title)}' src='{light}'></picture>"
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells, the first one the head."""
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows[1:])
    return f"<div class='wide'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def draw(make: Callable[[Figure], None], size: tuple[float, float], theme: str) -> bytes:
    """A PNG of the plot that `make` draws, for that theme. Deterministic: no date, no version in the file.

    Raises InputError: matplotlib, of the extra `bench`, is not installed.
    """
    try:
        import matplotlib
    except ImportError:
        raise InputError(NO_MATPLOTLIB) from None

    matplotlib.use("Agg")
    from cycler import cycler
    from matplotlib import pyplot

    ink, ground, grid = INK[theme]
    style: dict[str, Any] = {
        "figure.facecolor": ground,
        "axes.facecolor": ground,
        "axes.edgecolor": grid,
        "axes.labelcolor": ink,
        "axes.titlecolor": ink,
        "axes.titlesize": 11,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.prop_cycle": cycler(color=COLOURS),
        "grid.color": grid,
        "grid.linewidth": 0.6,
        "text.color": ink,
        "xtick.color": ink,
        "ytick.color": ink,
        "font.size": 10,
        "figure.constrained_layout.w_pad": 0.1,
        "figure.constrained_layout.h_pad": 0.1,
        "legend.frameon": False,
        "lines.linewidth": 2,
        "lines.markersize": 5,
    }
    with pyplot.rc_context(style):
        figure = pyplot.figure(figsize=size, layout="constrained")
        try:
            make(figure)
            out = io.BytesIO()
            figure.savefig(out, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
            return out.getvalue()
        finally:
            pyplot.close(figure)


def lines(
    axes: Axes,
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    labels: tuple[str, str],
    title: str,
    logarithmic: bool = False,
) -> None:
    """Curves by name: (x, y)."""
    for number, (name, (x, y)) in enumerate(series.items()):
        axes.plot(x, y, marker="osD^vP"[number % 6], label=name)
    if logarithmic:
        axes.set_xscale("log")
        axes.set_yscale("log")
        every = sorted({value for x, _ in series.values() for value in x})
        axes.set_xticks(every, [in_thousands(value) for value in every])
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.set_title(title)
    if len(series) > 1:
        axes.legend(fontsize=9)


def in_thousands(value: float) -> str:
    """8192 -> "8192", 100000 -> "100k"."""
    return f"{value / 1000:g}k" if value >= 10_000 else f"{value:g}"
