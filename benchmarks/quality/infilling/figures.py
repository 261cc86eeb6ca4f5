"""Figures of the columns: exact match and pass@1 with 95 % intervals, and columns compared on the tasks they share.

The tasks of one HumanEval problem resemble each other, so the bootstrap draws problems, not tasks. A comparison uses
the same draws for both columns. Each column keeps the result of every task as a string of 0 and 1, in the order of
the fixed sample, so that a later run can be compared with it task by task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from benchmarks.quality.infilling.columns import Completed
from benchmarks.quality.infilling.tasks import Task
from benchmarks.quality.scoring import bootstrap
from benchmarks.quality.scoring.bootstrap import Counts

METRICS = ("exact", "pass_1")


def column(tasks: Sequence[Task], rows: Sequence[Completed], passed: Sequence[bool] | None) -> dict[str, Any]:
    """Figures of one column; `passed` is None where no tests ran."""
    results: dict[str, Sequence[bool]] = {"exact": [row.exact for row in rows]}
    results |= {} if passed is None else {"pass_1": passed}
    figures: dict[str, Any] = {"tasks": len(rows), "problems": len({task.problem for task in tasks})}
    figures |= {name: share(tasks, values) for name, values in results.items()}
    figures["suggested"] = sum(bool(row.program) for row in rows)
    figures["nothing_because"] = dict(Counter(row.reason for row in rows if row.reason).most_common())
    figures["by_task"] = {name: bits(values) for name, values in results.items()}
    return figures


def share(tasks: Sequence[Task], values: Sequence[bool]) -> dict[str, float]:
    """Share of tasks with a result, and its interval."""
    counts = by_problem(tasks, values)
    interval = bootstrap.figure(counts, bootstrap.draws(len(counts[0])))
    assert interval is not None  # there is at least one task
    return interval.json()


def by_problem(tasks: Sequence[Task], values: Sequence[bool]) -> Counts:
    """For each problem: the number of its tasks with a result, and of all its tasks."""
    total = Counter(task.problem for task in tasks)
    positive = Counter(task.problem for task, value in zip(tasks, values, strict=True) if value)
    return [float(positive[problem]) for problem in total], [float(count) for count in total.values()]


def bits(values: Sequence[bool]) -> str:
    return "".join("01"[value] for value in values)


def booleans(text: str) -> list[bool]:
    return [digit == "1" for digit in text]


def compared(tasks: Sequence[Task], columns: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Each pair of columns on their common tasks: difference of the shares, and tasks gained and lost."""
    return {
        f"{second} - {first}": difference(tasks, columns[first], columns[second])
        for first, second in combinations(columns, 2)
    }


def difference(tasks: Sequence[Task], first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """The second column minus the first, for each metric that both have. Both start with the same tasks."""
    count = min(first["tasks"], second["tasks"])
    figures: dict[str, Any] = {"tasks": count}
    for metric in METRICS:
        if metric not in first["by_task"] or metric not in second["by_task"]:
            continue
        old, new = (booleans(column["by_task"][metric])[:count] for column in (first, second))
        new_counts, old_counts = (by_problem(tasks[:count], values) for values in (new, old))
        interval = bootstrap.difference(new_counts, old_counts, bootstrap.draws(len(new_counts[0])))
        assert interval is not None
        gained, lost = (sum(a and not b for a, b in zip(*pair, strict=True)) for pair in ((new, old), (old, new)))
        figures[metric] = interval.json() | {"gained": gained, "lost": lost}
    return figures
