"""HumanEval-Infilling: the published exact-match rule, intervals over problems, paired differences, verdict cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.quality.infilling import figures, scoring
from benchmarks.quality.infilling.columns import Completed, RawReader
from benchmarks.quality.infilling.sandbox import FAILED, PASSED, Sandbox, SandboxError
from benchmarks.quality.infilling.tasks import MULTI, SINGLE, Task
from benchmarks.quality.infilling.verdicts import Verdicts
from speclsp.lsp.postprocess.plan import Suggestion


def task(number: int = 0, line: int = 0, solution: str = "    return y\n") -> Task:
    return Task(
        task_id=f"SingleLineInfilling/HumanEval/{number}/L{line}",
        entry_point="double",
        prompt="def double(x):\n    y = x + x\n",
        suffix="",
        canonical_solution=solution,
        test="def check(candidate):\n    assert candidate(2) == 4\n",
    )


@pytest.mark.parametrize(
    ("text", "exact"),
    [
        ("    return y\n", True),
        ("return y", True),  # blanks at both ends are ignored
        ("    return y\n    more\n", True),  # only the answer line counts
        ("\n    return y\n", True),  # an empty first line: the second one counts
        (" \n    return y", True),
        ("\n\n    return y", False),
        ("    return  y", False),
        ("", False),
    ],
)
def test_exact_match_compares_the_answer_line_as_published(text: str, exact: bool):
    assert scoring.is_exact(task(), SINGLE, text) is exact


def test_exact_match_of_several_lines_compares_the_whole_text():
    spanning = task(solution="    y = 2\n    return y\n")
    assert scoring.is_exact(spanning, MULTI, "    y = 2\n    return y")
    assert not scoring.is_exact(spanning, MULTI, "    y = 2\n    return y\n    more")


def test_the_raw_reader_stops_after_the_answer_line():
    reader = RawReader(kind=SINGLE, cursor=3)
    assert [reader.finished(text) for text in ("", "a", "a\n", "\n", "\na", "\na\n")] == [
        False, False, True, False, False, True,
    ]  # fmt: skip
    assert reader.to_suggestion("\n  a\n") == Suggestion("  a\n", 3, 3)
    assert not RawReader(kind=MULTI, cursor=3).finished("a\nb\n")


def test_an_interval_draws_problems_and_not_tasks():
    """Ten equal results of one problem say no more than one: the interval is as wide as that of two results."""
    clustered = [task(number, line) for number in range(2) for line in range(10)]
    share = figures.share(clustered, [item.problem == "0" for item in clustered])
    assert (share["value"], share["low"], share["high"]) == (0.5, 0.0, 1.0)


def rows(*exact: bool) -> list[Completed]:
    return [
        Completed(task_id=str(number), text="x", program="x" if value else "", exact=value, reason="" if value else "r")
        for number, value in enumerate(exact)
    ]


def test_columns_are_compared_on_the_tasks_they_share():
    tasks = [task(number) for number in range(4)]
    short = figures.column(tasks[:3], rows(True, False, False), [True, True, False])
    long = figures.column(tasks, rows(True, True, False, True), None)
    change = figures.compared(tasks, {"a": short, "b": long})["b - a"]
    assert change["tasks"] == 3
    assert (change["exact"]["gained"], change["exact"]["lost"]) == (1, 0)
    assert change["exact"]["value"] == pytest.approx(1 / 3, abs=1e-4)
    assert "pass_1" not in change
    assert short["by_task"] == {"exact": "100", "pass_1": "110"}
    assert (long["suggested"], long["nothing_because"]) == (3, {"r": 1})


class Counted(Sandbox):
    """A sandbox that runs nothing: a program passes if it says so."""

    programs: list[str] = []  # noqa: RUF012

    def run(self, program: str) -> str:
        self.programs.append(program)
        return PASSED if "return y" in program else FAILED


def test_a_program_runs_once_and_a_cut_off_line_is_ignored(tmp_path: Path):
    file = tmp_path / "verdicts.jsonl"
    Counted.programs.clear()
    assert Verdicts(file, Counted("hooks")).passed(["return y", "", "no"], lambda number: None) == [True, False, False]
    with file.open("a", encoding="utf-8") as out:
        out.write('{"cut')
    again = Verdicts(file, Counted("hooks"))
    assert again.passed(["return y", "no"], lambda number: None) == [True, False]
    assert Counted.programs == ["return y", "no"]


def test_a_canonical_solution_that_fails_stops_the_run(tmp_path: Path):
    verdicts = Verdicts(tmp_path / "verdicts.jsonl", Counted("hooks"))
    verdicts.check_references([task()], lambda number: None)
    with pytest.raises(SandboxError, match="canonical solution of SingleLineInfilling/HumanEval/1/L0"):
        verdicts.check_references([task(), task(1, solution="    return x\n")], lambda number: None)
