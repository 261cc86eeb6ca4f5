"""The report as one HTML page that needs no other file, legible on light and dark screens.

The aims come first, then each section: a sentence, its plots with the machine and the state of the caches below, its
tables.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.report import aims
from benchmarks.report.aims import AIMS, NOT_MEASURED, Figures, Results, dig
from benchmarks.report.html_page import document, picture, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKS = {aims.PASS: "✓ pass", aims.SHORT: "✗ short", NOT_MEASURED: "not measured"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A plot and the words around it."""

    name: str  # of its file
    title: str
    caption: str  # the state of the caches, and the meaning of the whiskers
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


def page(results: Results, pictures: Mapping[str, Mapping[str, bytes]], made: Sequence[Section]) -> str:
    """The whole HTML."""
    body = [aims_table(results)]
    for section in made:
        body.append(f"<h2>{html.escape(section.title)}</h2><p>{html.escape(section.about)}</p>")
        if not section.plots and not section.tables:
            body.append("<p class='not'>Not measured.</p>")
        body += [figure(plot, pictures[plot.name]) for plot in section.plots]
        body += [table(rows) for rows in section.tables]
    newest = max((str(data.get("made_utc", "")) for data in results.values()), default="")
    about = f"Newest figure from {newest[:16].replace('T', ' ')} UTC. " if newest else ""
    files = ", ".join(results) or "none"
    return document("speclsp: measured", f"{about}Every figure is from a JSON file of the results: {files}.", body)


def aims_table(results: Results) -> str:
    """Table of the aims: each with its measurement and its verdict."""
    rows = []
    for aim in AIMS:
        value = aim.measured(results)
        verdict = aim.verdict(value)
        text = "" if value is None else f"{aims.number(value)}{aim.unit}"
        rows.append(
            f"<tr><td>{aim.group}</td><td>{html.escape(aim.what)}</td><td>{aim.wanted}</td><td>{text}</td>"
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


def machine(data: Figures) -> str:
    """The machine and the date of a figure."""
    on = data["machine"]
    features = [name for name in on.get("cpu_features", ()) if name.startswith(("avx512_v", "amx", "i8mm", "asimddp"))]
    parts = [f"{on['cpu']}, {on['cores']} cores" + (f" ({', '.join(features)})" if features else "")]
    parts += [f"{on['memory_gib']:g} GiB"] + ([str(on["gpu"])] if on.get("gpu") else [])
    torch = dig(data, "versions", "torch")
    return f"{'; '.join(parts)}; torch {torch}; {str(data['made_utc'])[:10]}."
