"""Scores of one suggestion: the true text has full scores, and each difference lowers its own score."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.quality.scoring import scores
from benchmarks.quality.scoring.scores import Judged
from benchmarks.quality.tasks.tasks import Task
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.postprocess.plan import Suggestion
from speclsp.lsp.syntax.parser import SyntaxParser

LINES = st.text(alphabet="ab_1 .()=", max_size=40)
SHAPES = "import math\n\n\ndef area(radius):\n    return |\n\n\ndef height(cone):\n    return cone.height\n"
TRUTH = "math.pi * radius**2"


def task(tmp_path: Path, document: str = SHAPES, truth: str = TRUTH, language: str = "python") -> Task:
    """A task at the `|` of a document that is alone in its package."""
    cursor = document.index("|")
    text = document[:cursor] + document[cursor + 1 :]
    (tmp_path / "shapes.py").write_text(text[:cursor] + truth + text[cursor:], encoding="utf-8")
    return Task(
        id="a", package="shapes", root=tmp_path, path="shapes.py", language=language, text=text, cursor=cursor,
        truth=truth, kind="operator", below="kept", crosses=(), seen=False, open_paths=(),
    )  # fmt: skip


def judge(task: Task, text: str, replaced: int = 0) -> Judged:
    """Scores of `text` at a task's cursor, with `replaced` characters right of it removed."""
    snapshot = Snapshot(uri="file:///a.py", language=task.language, version=1, text=task.text, cursor=task.cursor)
    tree = SyntaxParser().parse(task.language, task.text, 1000)
    return scores.judge(task, Suggestion(text, task.cursor, task.cursor + replaced), snapshot, tree, torn=False)


def test_the_true_text_has_full_scores(tmp_path: Path):
    found = judge(task(tmp_path), TRUTH)
    assert found == Judged(
        shown=True, exact=True, similarity=1.0, right=len(TRUTH), saved=len(TRUTH), names=3, known=3, parsed=True
    )


def test_a_missing_suggestion_has_empty_scores(tmp_path: Path):
    made = task(tmp_path)
    snapshot = Snapshot(uri="file:///a.py", language="python", version=1, text=made.text, cursor=made.cursor)
    assert scores.judge(made, None, snapshot, None, torn=False) == Judged()


@pytest.mark.parametrize(
    ("output", "exact"),
    [
        (TRUTH + "  ", True),
        (TRUTH + "\n\n\ndef volume():", True),
        (TRUTH + "0", False),
        (TRUTH[:-1], False),
        ("\n    " + TRUTH, False),
    ],
)
def test_exact_compares_the_whole_first_line(tmp_path: Path, output: str, exact: bool):
    assert judge(task(tmp_path), output).exact is exact


def test_text_right_of_the_cursor_is_part_of_the_line(tmp_path: Path):
    call = task(tmp_path, "print(area(|))\n", "radius=2")
    assert judge(call, "radius=2").exact
    assert judge(call, "radius=2))", replaced=2).exact, "it takes the place of the brackets"
    assert not judge(call, "radius=2))").exact
    assert judge(call, "radius=2))").unparsed


def test_exact_compares_the_first_nonblank_line_at_a_block_start(tmp_path: Path):
    block = task(tmp_path, "def area(radius):|\n", "\n    square = radius**2\n    return square")
    assert judge(block, "\n    square = radius**2\n    return 3 * square").exact
    assert not judge(block, "\n    return radius").exact


def test_right_ends_at_the_first_error_and_saved_at_the_last_whole_word(tmp_path: Path):
    found = judge(task(tmp_path), "math.pilot")
    assert (found.right, found.saved) == (len("math.pi"), len("math."))
    assert judge(task(tmp_path), "cone").right == 0


@given(LINES, LINES)
def test_similarity_measures_the_longest_common_subsequence(one: str, other: str):
    rows = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i, a in enumerate(one):
        for j, b in enumerate(other):
            rows[i + 1][j + 1] = rows[i][j] + 1 if a == b else max(rows[i][j + 1], rows[i + 1][j])
    wanted = 2 * rows[-1][-1] / (len(one) + len(other)) if one and other else float(one == other)
    assert scores.similarity(one, other) == pytest.approx(wanted)


def test_a_new_syntax_error_counts_as_a_broken_parse(tmp_path: Path):
    found = judge(task(tmp_path), "math.pi *)")
    assert (found.parsed, found.breaks, found.unparsed) == (True, True, True)
    body = task(tmp_path, "function area(radius) {\n  |\n}\n", "return 1", language="javascript")
    opened = judge(body, "if (radius) {")
    assert (opened.breaks, opened.unparsed) == (False, True), "its body is still to come"
    assert not judge(task(tmp_path, "SELECT |\n", "1", language="plaintext"), ")").parsed


@pytest.mark.parametrize(
    ("document", "output", "repeats"),
    [
        ("print(|, sep='')\n", "area, sep=''", True),
        ("print(|sep='')\n", "area, lacksep='')", False),
        ("print(|)\n", "area)", False),
        ("|\nsecond = 2\n", "first = 1\nsecond = 2", True),
        ("|\nsecond = 2\nthird = 3\n", "first = 1\nsecond = 2\nthird = 3", True),
        ("|\nsecond = 2\n", "first = 1\nsecond = 22", False),
        ("f(a,|\n)\n", " b\n)", False),
        ("se|\nsecond = 2\n", "cond = 2", True),
    ],
)
def test_repeats_marks_an_end_that_equals_the_following_text(tmp_path: Path, document: str, output: str, repeats: bool):
    assert judge(task(tmp_path, document, "0"), output).repeats is repeats
