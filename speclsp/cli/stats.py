"""`speclsp stats`: usage statistics as tables for a terminal or a pipe, and as a page of plots.

The numbers are from observability/usage_db.py. Nothing is measured here and nothing leaves the machine.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from speclsp import config as settings
from speclsp.cli import html_page, terminal
from speclsp.errors import ConfigError
from speclsp.observability import usage_db
from speclsp.observability.usage_db import Figures, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Table = Sequence[Sequence[str]]  # rows of cells, the first one the head

OUTCOMES: Mapping[str, Sequence[str]] = {  # column: the counters that it adds up
    "accepted": ("accepted",), "in part": ("partly",), "typed": ("typed",), "ignored": ("ignored", "undone"),
}  # fmt: skip
HEAD = ("shown", *OUTCOMES, "rate", "saved", "p50 ms", "p95 ms", "drafts")  # fits 80 columns
MEANING = (
    "Shown: stood for 100 ms or more. Typed: all of it, key by key. Ignored: or accepted and undone at once. Rate: "
    "accepted wholly or in part, of those shown. Saved: characters that came by accepting. p50, p95: from request to "
    "suggestion, where the model made it; estimated from buckets. Drafts: of the tokens guessed ahead, those the model "
    "agreed with."
)
MOST_WEEKS = 5000
MOST_LANGUAGES = 8  # in a plot; the tables have all


def main(config: settings.Config, weeks: int, as_json: bool = False, page: Path | None = None) -> int:
    """Show the last so many weeks; 0, or 1 when there is nothing to make a page of."""
    if not 1 <= weeks <= MOST_WEEKS:
        raise ConfigError("--weeks", weeks, f"a whole number from 1 to {MOST_WEEKS}")
    path = settings.stats_path()
    since = usage_db.first_of(weeks, date.today())
    summary = usage_db.summed(usage_db.read(path, since))
    if as_json:
        print(json.dumps({"since": since, **summary.as_json()}))
    elif not summary.weeks:
        print(nothing(config, weeks, bool(usage_db.read(path))))
        return 1 if page is not None else 0
    elif page is None:
        show(summary)
        print(f"\n{MEANING}\nCounted on this machine and kept in {path}; nothing is sent anywhere.")
    if page is not None and summary.weeks:
        page.write_text(as_html(summary), encoding="utf-8")
        if not as_json:
            print(f"wrote {page}")
    return 0


def forget() -> int:
    """Delete all that was counted."""
    path = settings.stats_path()
    print(f"deleted {path}" if usage_db.forget(path) else "there was nothing to delete")
    return 0


def nothing(config: settings.Config, weeks: int, older: bool) -> str:
    """The reason why there are no figures, and the fix."""
    if older:
        further = min(10 * weeks, MOST_WEEKS)
        return f"Nothing was counted in the last {weeks} weeks: `speclsp stats --weeks {further}` looks further back."
    if not config.stats.enabled:
        return (
            'Nothing has been counted: stats.enabled is false. Set it to true ("speclsp stats" reads what is counted).'
        )
    return "Nothing has been counted yet: complete something in an editor that runs `speclsp lsp`, then look again."


# ── tables ───────────────────────────────────────────────────────────────────────────────────────────────────


def tables(summary: Summary) -> dict[str, Table]:
    """The tables, by what each is grouped by."""
    made = {"week": cut({**summary.weeks, "all": summary.whole} if len(summary.weeks) > 1 else summary.weeks, "week")}
    made["language"] = cut(summary.languages, "language")
    if len(summary.pairs) > 1:
        made["pair"] = cut(summary.pairs, "pair")
    drafts = summary.whole.drafts
    if drafts:
        head = ("drafted by", "tokens drafted", "accepted", "share")
        made["drafter"] = [
            head,
            *((name, f"{n}", f"{agreed}", percent(share)) for name, (n, agreed, share) in drafts.items()),
        ]
    made["request"] = requests(summary.whole)
    return made


def cut(parts: Mapping[str, Figures], name: str) -> Table:
    """A row for each part."""
    return [(name, *HEAD), *((part, *cells(figures)) for part, figures in parts.items())]


def cells(figures: Figures) -> list[str]:
    """A row as HEAD has it."""
    drafted = sum(n for n, _, _ in figures.drafts.values())
    agreed = sum(n for _, n, _ in figures.drafts.values())
    return [
        f"{figures['shown']}",
        *(f"{sum(figures[name] for name in names)}" for names in OUTCOMES.values()),
        percent(figures.acceptance),
        f"{figures['accepted_characters']}",
        *("-" if ms is None else f"{ms:.0f}" for ms in (figures.latency_ms(0.5), figures.latency_ms(0.95))),
        percent(agreed / drafted if drafted else None),
    ]


def requests(figures: Figures) -> Table:
    """A table of outcomes of requests."""
    from_memory = [("... of these, answered from what was known already", figures["reused"])]
    from_memory += [("... of these, prepared before they were asked for", figures["prepared"])]
    ended = sorted(figures.of("outcome").items(), key=lambda summary: -summary[1])
    rows = [("all", figures.requests), *from_memory, *((name.replace("_", " "), count) for name, count in ended)]
    whole = figures.requests or 1
    return [("requests", "count", "share"), *((name, f"{count}", percent(count / whole)) for name, count in rows)]


def percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def show(summary: Summary) -> None:
    """Tables on stdout: drawn on a terminal, aligned text in a pipe."""
    for number, rows in enumerate(tables(summary).values()):
        if number:
            print()
        if terminal.coloured(sys.stdout):
            draw_table(rows)
        else:
            print(aligned(rows))


def aligned(rows: Table) -> str:
    """The first column to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    )


def draw_table(rows: Table) -> None:
    """A table for a person."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as Drawn

    drawn = Drawn(box=box.SIMPLE_HEAD, show_edge=False, padding=0, header_style="bold")
    drawn.add_column(rows[0][0], style="cyan", overflow="fold")
    for name in rows[0][1:]:
        drawn.add_column(name, justify="right", no_wrap=True)
    for row in rows[1:]:
        drawn.add_row(*row, style="bold" if row[0] == "all" else "")
    Console(highlight=False).print(drawn)


# ── the page ─────────────────────────────────────────────────────────────────────────────────────────────────


def as_html(summary: Summary) -> str:
    """One page with all plots and tables, that needs no other file."""
    body = []
    for title, caption, make in PLOTS:
        plot = partial(make, summary=summary)
        body.append(
            html_page.picture(title, caption, {theme: html_page.draw(plot, (11, 4), theme) for theme in html_page.INK})
        )
    made = tables(summary)
    body += [f"<h2>By {name}</h2>{html_page.table(rows)}" for name, rows in made.items()]
    first, last = min(summary.weeks), max(summary.weeks)
    about = f"{first} to {last}. Counted on this machine by speclsp's language server; nothing is sent anywhere."
    return html_page.document("speclsp: what you accept", about, [*body, f"<p class='dim'>{MEANING}</p>"])


def outcomes(figure: Figure, summary: Summary) -> None:
    """Plot the outcomes of suggestions, by week and by language."""
    by_week, by_language = figure.subplots(1, 2, width_ratios=(1.5, 1))
    stacked(by_week, summary.weeks, OUTCOMES)
    by_week.set_ylabel("suggestions shown")
    by_week.set_title("By week")
    rate = by_week.twinx()
    rate.plot(
        list(summary.weeks), [100 * (of.acceptance or 0) for of in summary.weeks.values()], color="#8a8a8a", marker="o"
    )
    rate.set_ylim(0, 105)
    rate.grid(visible=False)
    rate.set_ylabel("acceptance, %")
    rate.spines["right"].set_visible(True)
    languages = most_shown(summary)
    values = [100 * (of.acceptance or 0) for of in languages.values()]
    by_language.barh(list(languages), values, height=0.65, color="#009e73")
    for row, (value, of) in enumerate(zip(values, languages.values(), strict=True)):
        by_language.text(value, row, f" {value:.0f} % of {of['shown']}", va="center", fontsize=9)
    by_language.invert_yaxis()
    by_language.grid(visible=False, axis="y")
    by_language.set_xlim(0, 130)
    by_language.set_xlabel("accepted, wholly or in part, %")
    by_language.set_title("By language")


def characters(figure: Figure, summary: Summary) -> None:
    """Plot accepted characters, beside those typed through a suggestion; and by language."""
    by_week, by_language = figure.subplots(1, 2, width_ratios=(1.5, 1))
    stacked(by_week, summary.weeks, {"accepted": ("accepted_characters",), "typed along": ("typed_characters",)})
    by_week.set_ylabel("characters")
    by_week.set_title("By week")
    languages = {name: by_of_week(summary, name) for name in most_shown(summary)}
    bottom = [0.0] * len(summary.weeks)
    for name, of_weeks in languages.items():
        values = [of["accepted_characters"] for of in of_weeks]
        by_language.bar(list(summary.weeks), values, bottom=bottom, width=0.6, label=name)
        bottom = [low + value for low, value in zip(bottom, values, strict=True)]
    finish_weeks(by_language, summary.weeks)
    by_language.set_ylabel("characters accepted")
    by_language.set_title("By language")
    by_language.legend(fontsize=8)


def latency(figure: Figure, summary: Summary) -> None:
    """Plot the time from request to suggestion, by week and by language."""
    by_week, by_language = figure.subplots(1, 2, width_ratios=(1.5, 1))
    for share, label in ((0.5, "p50"), (0.95, "p95")):
        values = [of.latency_ms(share) for of in summary.weeks.values()]
        points = [float("nan") if value is None else value for value in values]
        by_week.plot(list(summary.weeks), points, marker="o", label=label)
    finish_weeks(by_week, summary.weeks)
    by_week.set_ylim(bottom=0)
    by_week.set_ylabel("ms from request to suggestion")
    by_week.set_title("By week")
    by_week.legend(fontsize=9)
    languages = most_shown(summary)
    for row, of in enumerate(languages.values()):
        middle, worst = of.latency_ms(0.5), of.latency_ms(0.95)
        if middle is None or worst is None:
            by_language.text(0, row, " none made by the model", va="center", fontsize=9)
            continue
        by_language.barh(row, middle, height=0.65, color="#0072b2")
        by_language.plot([middle, worst], [row, row], color=by_language.xaxis.label.get_color(), linewidth=1)
        by_language.text(worst, row, f" {middle:.0f}, p95 {worst:.0f}", va="center", fontsize=9)
    by_language.set_yticks(range(len(languages)), list(languages))
    by_language.invert_yaxis()
    by_language.grid(visible=False, axis="y")
    by_language.margins(x=0.3)
    by_language.set_xlabel("ms, p50, whisker to p95")
    by_language.set_title("By language")


def drafts(figure: Figure, summary: Summary) -> None:
    """Plot the share of drafted tokens that the target accepted, for each drafter, by week and by language."""
    by_week, by_language = figure.subplots(1, 2, width_ratios=(1.5, 1))
    sources = list(summary.whole.drafts)
    for source in sources:
        shares = [of.drafts.get(source) for of in summary.weeks.values()]
        points = [float("nan") if share is None else 100 * share[2] for share in shares]
        by_week.plot(list(summary.weeks), points, marker="o", label=source)
    finish_weeks(by_week, summary.weeks)
    by_week.set_ylabel("drafted tokens accepted, %")
    by_week.set_title("By week")
    languages, height = most_shown(summary), 0.8 / max(1, len(sources))
    for number, source in enumerate(sources):
        shares = [of.drafts.get(source) for of in languages.values()]
        rows = [row + (number - (len(sources) - 1) / 2) * height for row in range(len(languages))]
        values = [0.0 if share is None else 100 * share[2] for share in shares]
        by_language.barh(rows, values, height=height * 0.92, label=source)
    by_language.set_yticks(range(len(languages)), list(languages))
    by_language.invert_yaxis()
    by_language.grid(visible=False, axis="y")
    by_language.set_xlabel("drafted tokens accepted, %")
    by_language.set_title("By language")
    for axes, limit in ((by_week, by_week.set_ylim), (by_language, by_language.set_xlim)):
        limit(0, 105)
        if sources:
            axes.legend(fontsize=8)


class Plot(Protocol):
    """Draws one of the plots."""

    def __call__(self, figure: Figure, summary: Summary) -> None: ...


PLOTS: Sequence[tuple[str, str, Plot]] = (
    (
        "What became of suggestions",
        "Bars: suggestions shown, by outcome. Line: the share accepted, wholly or in part.",
        outcomes,
    ),
    ("Characters saved", "Characters that came by accepting, beside those typed along with a suggestion.", characters),
    ("Latency", "Suggestions that the model made; those known already came within a few milliseconds.", latency),
    ("Acceptance of drafts", "Of the tokens guessed ahead by each drafter, those the model agreed with.", drafts),
)


def stacked(axes: Axes, weeks: Mapping[str, Figures], series: Mapping[str, Sequence[str]]) -> None:
    """Draw a bar for each week; `series` maps a label to the counters that its part adds up."""
    bottom = [0.0] * len(weeks)
    for label, names in series.items():
        values = [sum(of[name] for name in names) for of in weeks.values()]
        axes.bar(list(weeks), values, bottom=bottom, width=0.6, label=label)
        bottom = [low + value for low, value in zip(bottom, values, strict=True)]
    finish_weeks(axes, weeks)
    axes.margins(y=0.25)
    axes.legend(fontsize=8, ncols=len(series), loc="upper left", handlelength=1.0, columnspacing=0.9)


def finish_weeks(axes: Axes, weeks: Mapping[str, Figures]) -> None:
    """Label the weeks on the x axis, as many as can be read."""
    step = -(-len(weeks) // 12)
    axes.set_xticks(range(0, len(weeks), step), [week.partition("-")[2] for week in list(weeks)[::step]])
    axes.set_xlim(-0.7, len(weeks) - 0.3)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("week")


def most_shown(summary: Summary) -> dict[str, Figures]:
    """The MOST_LANGUAGES languages with the most suggestions."""
    return dict(list(summary.languages.items())[:MOST_LANGUAGES])


def by_of_week(summary: Summary, language: str) -> list[Figures]:
    """A language's figures, week by week."""
    return [summary.cells.get((week, language), Figures()) for week in summary.weeks]
