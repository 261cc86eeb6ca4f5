"""Markdown tables of docs/confidence.md, from the results of `python -m benchmarks economy`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.keystrokes.economy.person import READER
from benchmarks.report.markdown_tables import percent, table
from benchmarks.report.result_files import LARGE, SMALL, Results

POLICIES = {
    "everything": "everything, as `high`",
    "former medium": "former medium",
    "medium": "**`medium`**",
    "low": "`low`",
    "min_confidence 0.3": "`min_confidence` 0.3",
}
HEAD = (
    "", "keys saved of 100", "suggestions", "first line right", "wrong per 100 keys", "pauses with one",
    "of these right", "pauses where a right one is hidden",
)  # fmt: skip
LANGUAGES = {"go": "Go", "python": "Python", "rust": "Rust", "typescript": "TypeScript"}
MODELS = {"0.5B": SMALL, "1.5B": LARGE}
Rows = Iterator[Sequence[str]]


def tables(results: Results) -> dict[str, str]:
    """{name: Markdown} of every table."""
    small = results[f"economy-{SMALL}"]
    speeds = {size: results[f"economy-{model}"]["real_time"]["speeds"] for size, model in MODELS.items()}
    times = (
        (size, *(f"{100 * row['keys_saved']['value']:.1f}" for row in rows.values())) for size, rows in speeds.items()
    )
    return {
        "economy": table(HEAD, by_person(small)),
        "economy-languages": table(HEAD, by_language(small)),
        "economy-chosen": table(HEAD, by_half(small)),
        "economy-time": table(("keys saved of 100", *speeds["0.5B"]), times),
        "reliability": reliability(small["curve"]["reliability"]),
    }


def by_person(data: Mapping[str, Any]) -> Rows:
    """Each policy for the reader, and `medium` before and after for the others."""
    for person, rows in data["persons"].items():
        for name, label in POLICIES.items():
            if person == READER.name or name in ("former medium", "medium"):
                yield f"{person}: {label}", *cells(rows[name])


def by_language(data: Mapping[str, Any]) -> Rows:
    """The reader's figures in each language."""
    for language, row in data["languages"]["medium"].items():
        before = data["languages"]["former medium"][language]["wrong_per_key"]["value"]
        yield f"{LANGUAGES[language]} (before, {100 * before:.1f} wrong)", *cells(row)


def by_half(data: Mapping[str, Any]) -> Rows:
    """The cost that each half of the packages chooses."""
    for name, row in data["chosen"].items():
        yield f"{name}: cost {row['cost']:g}, judged on {row['judged_on']}", *cells(row)


def cells(row: Mapping[str, Any]) -> Iterator[str]:
    """The figures of one policy."""
    yield spread(row["keys_saved"])
    yield str(row["shown"])
    yield share(row["first_line_right"])
    yield "{:.1f}".format(100 * row["wrong_per_key"]["value"])
    yield share(row["shown_at_pauses"])
    yield share(row["right_at_pauses"])
    yield share(row["hidden_at_pauses"])


def spread(figure: Mapping[str, float] | None) -> str:
    """A figure of 100 with its 95 % interval."""
    return "–" if figure is None else "{:.1f} [{:.1f}, {:.1f}]".format(*(100 * value for value in figure.values()))


def share(figure: Mapping[str, float] | None) -> str:
    return "–" if figure is None else percent(figure["value"], 0)


def reliability(bins: Sequence[Mapping[str, float]]) -> str:
    """Predicted and observed share of right first lines."""
    said = ("predicted", *(f"{one['said']:.2f}" for one in bins))
    return table(said, iter([("**observed**", *(f"{one['true']:.2f}" for one in bins))]))
