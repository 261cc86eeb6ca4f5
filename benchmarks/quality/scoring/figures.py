"""Figures of the rows: every metric of a variant with its interval, by kind of task, and compared with `base`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.quality.run_task import Row
from benchmarks.quality.scoring import bootstrap
from benchmarks.quality.scoring.bootstrap import Counts, Interval
from benchmarks.quality.tasks.tasks import Task
from benchmarks.speed.rounds import spread

if TYPE_CHECKING:
    from benchmarks.quality.scoring.bootstrap import Draws

Measure = Callable[[Row], tuple[float, float]]  # (count of a row, its denominator)

METRICS: Mapping[str, Measure] = {
    "exact": lambda row: (row.judged.exact, 1),
    "similarity": lambda row: (row.judged.similarity, 1),
    "right_characters": lambda row: (row.judged.right, 1),
    "shown": lambda row: (row.judged.shown, 1),
    "exact_of_shown": lambda row: (row.judged.exact, row.judged.shown),
    "saved_per_shown": lambda row: (row.judged.saved, row.judged.shown),
    "breaks_of_shown": lambda row: (row.judged.breaks, row.judged.parsed),
    "unparsed_of_shown": lambda row: (row.judged.unparsed, row.judged.parsed),
    "names_known": lambda row: (row.judged.known, row.judged.names),
    "repeats_of_shown": lambda row: (row.judged.repeats, row.judged.shown),
}
COMPARED = ("exact", "similarity", "right_characters", "saved_per_shown")  # against base
WHOLE = ("all", "cross", "single")  # the groups with all metrics
LEAST = 10  # tasks of a kind that are worth a line


def groups(tasks: Sequence[Task]) -> dict[str, list[int]]:
    """{name of a kind: which tasks are of it}; those too small to say anything are left out."""
    members: dict[str, list[int]] = {"all": list(range(len(tasks))), "cross": [], "single": []}
    for number, task in enumerate(tasks):
        members["cross" if task.crosses else "single"].append(number)
        if task.crosses:
            members.setdefault("cross, name in sight" if task.seen else "cross, name not in sight", []).append(number)
        for name in (task.language, task.kind, task.below):
            members.setdefault(name, []).append(number)
    return {name: numbers for name, numbers in members.items() if name in WHOLE or len(numbers) >= LEAST}


def of_variant(
    rows: Sequence[Row], base: Sequence[Row], tasks: Sequence[Task], *, by_kind: bool = True
) -> dict[str, Any]:
    """All figures of one variant, over as many of the tasks as it has rows.

    With `by_kind`, the share of exact lines for each language and kind of cursor as well.
    """
    tasks = tasks[: len(rows)]
    by_kind_name: dict[str, Any] = {}
    for name, numbers in groups(tasks).items():
        if not numbers or not (by_kind or name in WHOLE):
            continue
        mine, theirs = [rows[number] for number in numbers], [base[number] for number in numbers]
        resampled = bootstrap.draws(len(numbers))
        metrics = METRICS if name in WHOLE else {"exact": METRICS["exact"]}
        figures: dict[str, Any] = {"tasks": len(numbers)}
        figures |= {metric: as_json(bootstrap.figure(counts(mine, of), resampled)) for metric, of in metrics.items()}
        figures["beside_base"] = comparison(
            mine, theirs, [metric for metric in COMPARED if metric in metrics], resampled
        )
        by_kind_name[name] = figures
    return {"of": by_kind_name} | costs(rows)


def comparison(mine: Sequence[Row], theirs: Sequence[Row], metrics: Sequence[str], drawn: Draws) -> dict[str, Any]:
    """Ratio and difference of metrics, the same tasks drawn for both."""
    return {
        metric: {
            how: as_json(of(counts(mine, METRICS[metric]), counts(theirs, METRICS[metric]), drawn))
            for how, of in (("ratio", bootstrap.ratio), ("difference", bootstrap.difference))
        }
        for metric in metrics
    }


def beside(rows: Sequence[Row], others: Sequence[Row], tasks: Sequence[Task]) -> dict[str, Any]:
    """Comparison of one variant with another, over the tasks that both have: all, cross-file and single-file ones."""
    return {
        name: comparison(
            [rows[number] for number in numbers],
            [others[number] for number in numbers],
            COMPARED,
            bootstrap.draws(len(numbers)),
        )
        for name, numbers in groups(tasks[: min(len(rows), len(others))]).items()
        if name in WHOLE and numbers
    }


def costs(rows: Sequence[Row]) -> dict[str, Any]:
    """Times, tokens and sources. Model times are of this run's generations; the others were measured before."""
    model_rows = [row for row in rows if row.tokens or row.prompt_tokens]
    fresh = [row.ms for row in model_rows if row.asked]
    looked = [row.context_ms for row in model_rows]
    sources: dict[str, list[int]] = {}
    for row in rows:
        for source, _path, characters in row.extra:
            sources.setdefault(source, []).append(characters)
    return {
        "asked": len(model_rows),
        "made_in_this_run": len(fresh),
        "known_from_another": len(model_rows) - len(fresh),
        "ms": spread(fresh) if fresh else None,
        "ms_when_made": spread([row.ms for row in model_rows]),
        "context_ms": spread(looked) if any(looked) else None,
        "prompt_tokens": spread([row.prompt_tokens for row in model_rows]),
        "tokens": spread([row.tokens for row in model_rows]),
        "nothing_because": tally(row.reason for row in rows if row.reason),
        "shown_from": {
            source: {"pieces": len(sizes), "mean_characters": round(sum(sizes) / len(sizes))}
            for source, sizes in sorted(sources.items())
        },
    }


def counts(rows: Sequence[Row], measure: Measure) -> Counts:
    """A metric's two numbers for each row."""
    pairs = [measure(row) for row in rows]
    return [float(above) for above, _ in pairs], [float(below) for _, below in pairs]


def tally(words: Any) -> dict[str, int]:
    """Number of occurrences, the most frequent first."""
    counts_of: dict[str, int] = {}
    for word in words:
        counts_of[word] = counts_of.get(word, 0) + 1
    return dict(sorted(counts_of.items(), key=lambda item: -item[1]))


def as_json(one: Interval | None) -> dict[str, float] | None:
    return one.json() if one is not None else None
