"""The report as one HTML page that needs no other file, legible on light and dark screens.

The aims come first, then each section: a sentence, its plots with what was cached and the machine below, its tables.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.report import aims
from benchmarks.report.aims import AIMS, NOT_MEASURED, Figures, Results, dig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKS = {aims.PASS: "✓ pass", aims.SHORT: "✗ short", NOT_MEASURED: "not measured"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A plot and the words around it."""

    name: str  # of its file
    title: str
    caption: str  # what was cached, what whiskers are
    made_from: Figures
    make: Callable[[Figure], None]
    size: tuple[float, float] = (11, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the page: plots, and tables as rows of cells, the first one the head."""

    title: str
    about: str
    plots: Sequence[Plot] = ()
    tables: Sequence[Sequence[Sequence[str]]] = ()


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


def page(results: Results, pictures: Mapping[str, Mapping[str, bytes]], made: Sequence[Section]) -> str:
    """The whole HTML."""
    body = [aims_table(results)]
    for section in made:
        body.append(f"<h2>{html.escape(section.title)}</h2><p>{html.escape(section.about)}</p>")
        if not section.plots and not section.tables:
            body.append("<p class='not'>Not measured.</p>")
        body += [figure(plot, pictures[plot.name]) for plot in section.plots]
        body += [table(rows) for rows in section.tables]
    newest = max((str(data["made_utc"]) for data in results.values()), default="")
    about = f"Newest figure from {newest[:16].replace('T', ' ')} UTC. " if newest else ""
    files = ", ".join(results) or "none"
    return document("speclsp: measured", f"{about}Every figure is from a JSON file beside this page: {files}.", body)


def document(title: str, about: str, body: Sequence[str]) -> str:
    """The HTML around parts that are HTML already."""
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{html.escape(title)}</title>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<style>{STYLE}</style></head><body><h1>{html.escape(title)}</h1><p class='dim'>{html.escape(about)}</p>"
        + "\n".join(body)
        + "</body></html>\n"
    )


def aims_table(results: Results) -> str:
    """Every aim, what was measured, and whether that is enough."""
    rows = []
    for aim in AIMS:
        value = aim.measured(results)
        verdict = aim.verdict(value)
        said = "" if value is None else f"{aims.number(value)}{aim.unit}"
        rows.append(
            f"<tr><td>{aim.group}</td><td>{html.escape(aim.what)}</td><td>{aim.wanted}</td><td>{said}</td>"
            f"<td class='{verdict.split()[0]}'>{MARKS[verdict]}</td></tr>"
        )
    head = "".join(f"<th>{name}</th>" for name in ("", "aim", "wanted", "measured", ""))
    return (
        "<h2>Aims</h2><p>What was promised for speed and quality, beside what was measured.</p><div class='wide'>"
        f"<table class='aims'><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def figure(plot: Plot, pictures: Mapping[str, bytes]) -> str:
    """A plot with its caption and machine."""
    return picture(plot.title, f"{plot.caption} {machine(plot.made_from)}", pictures)


def picture(title: str, caption: str, pictures: Mapping[str, bytes]) -> str:
    """A PNG for either theme under its title."""
    light, dark = (f"data:image/png;base64,{base64.b64encode(pictures[theme]).decode()}" for theme in ("light", "dark"))
    return (
        f"<h3>{html.escape(title)}</h3><figure><picture><source media='(prefers-color-scheme: dark)' "
        f"srcset='{dark}'><img alt='{html.escape(title)}' src='{light}'></picture>"
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )


def machine(data: Figures) -> str:
    """What a figure was measured on, and when."""
    on = data["machine"]
    features = [name for name in on.get("cpu_features", ()) if name.startswith(("avx512_v", "amx", "i8mm", "asimddp"))]
    parts = [f"{on['cpu']}, {on['cores']} cores" + (f" ({', '.join(features)})" if features else "")]
    parts += [f"{on['memory_gib']:g} GiB"] + ([str(on["gpu"])] if on.get("gpu") else [])
    torch = dig(data, "versions", "torch")
    return f"{'; '.join(parts)}; torch {torch}; {str(data['made_utc'])[:10]}."


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells, the first one the head."""
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows[1:])
    return f"<div class='wide'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
