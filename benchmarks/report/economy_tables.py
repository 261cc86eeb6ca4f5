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
Rows = Iterator[Sequence[str]]


def tables(results: Results) -> dict[str, str]:
    """{name: Markdown} of every table that has a result."""
    result = {}
    for size, model in (("", SMALL), ("-1.5b", LARGE)):
        if (data := results.get(f"economy-{model}")) is None:
            continue
        result[f"economy{size}"] = table(HEAD, by_person(data))
        result[f"economy-languages{size}"] = table(HEAD, by_language(data))
        result[f"economy-chosen{size}"] = table(HEAD, by_half(data))
        result[f"reliability{size}"] = reliability(data["curve"]["reliability"])
        if "real_time" in data:
            result[f"economy-time{size}"] = table(HEAD, in_real_time(data))
        if "peer" in data:
            peers = data["peer"]["policies"].items()
            result[f"economy-peer{size}"] = table(HEAD, ((name, *cells(row)) for name, row in peers))
    return result


def by_person(data: Mapping[str, Any]) -> Rows:
    """Each policy for the reader, and `medium` before and after for the others."""
    for person, rows in data["persons"].items():
        for name, label in POLICIES.items():
            if person == READER.name or name in ("former medium", "medium"):
                yield f"{person}: {label}", *cells(rows[name])


def by_language(data: Mapping[str, Any]) -> Rows:
    """The reader's figures in each language."""
    for language in data["languages"]["medium"]:
        for name in ("former medium", "medium"):
            yield f"{LANGUAGES[language]}: {POLICIES[name]}", *cells(data["languages"][name][language])


def by_half(data: Mapping[str, Any]) -> Rows:
    """The cost that each half of the packages chooses."""
    for name, row in data["chosen"].items():
        yield f"{name}: cost {row['cost']:g}, judged on {row['judged_on']}", *cells(row)


def in_real_time(data: Mapping[str, Any]) -> Rows:
    """The reader's figures by the speed of the machine."""
    for name, row in data["real_time"]["speeds"].items():
        yield name, *cells(row)


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
