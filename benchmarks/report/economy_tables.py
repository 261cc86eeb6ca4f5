"""Markdown tables of docs/confidence.md, from the results of `python -m benchmarks economy`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.keystrokes.economy.person import ONLOOKER, READER, TYPIST, WORD_TAKER
from benchmarks.report.markdown_tables import percent, table
from benchmarks.report.result_files import LARGE, SMALL, Results

ROWS = (  # person, policy, label
    (READER, "everything", "everything, as `high`"),
    (READER, "medium", "**`medium`**"),
    (READER, "low", "`low`"),
    (READER, "min_confidence 0.3", "`min_confidence` 0.3"),
    (TYPIST, "medium", "**`medium`**"),
    (WORD_TAKER, "min_confidence 0.1", "`min_confidence` 0.1"),
    (ONLOOKER, "medium", "**`medium`**"),
)
HEAD = (
    "", "keys saved of 100", "suggestions", "first line right", "wrong per 100 keys", "pauses with one",
    "of these right", "pauses where a right one is hidden",
)  # fmt: skip
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
        "economy": table(HEAD, by_person(small["persons"])),
        "economy-time": table(("keys saved of 100", *speeds["0.5B"]), times),
        "reliability": reliability(small["curve"]["reliability"]),
    }


def by_person(persons: Mapping[str, Any]) -> Rows:
    """The figures of each of ROWS."""
    for person, policy, label in ROWS:
        yield f"{person.name}: {label}", *cells(persons[person.name][policy])


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
