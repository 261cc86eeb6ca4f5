"""Benchmark of the times of next edits: the engine writes the window of the newer release, whatever its weights say."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from benchmarks.editor.edit_replay.replayed_file import window_after
from benchmarks.editor.edit_times import RightEngine, figures, timed
from benchmarks.editor.next_edit_model import QUIET, STATE, Case
from benchmarks.quality.edits import Hunk
from speclsp.config import Config, EngineConfig
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.loading import loading
from speclsp.lsp.backend.edit_prompt import WINDOW
from speclsp.weights import cards

BEFORE = "def load(path):\n    return read(path)\n\n\ndef save(path):\n    return write(path)\n"
CASE = Case(
    package="some", path="job.py", before=BEFORE, after=BEFORE.replace("path", "file"), kind=STATE, number=0
)  # fmt: skip


@pytest.fixture(scope="module")
def engine() -> CompletionEngine:
    return loading.load(Config(model="tiny", engine=EngineConfig(context_tokens=512, threads=1)), cards.load("tiny"))


def row_of(engine: CompletionEngine, case: Case) -> dict[str, Any]:
    row = asyncio.run(timed(case, RightEngine(engine, WINDOW)))
    assert row is not None
    return row


def test_the_edit_is_that_of_the_newer_release(engine: CompletionEngine):
    row = row_of(engine, CASE)
    assert row["outcome"] == "edit"
    (answer,) = row["answers"]
    assert answer.changed
    assert answer.window_lines == 6
    assert 0 < answer.rounds < answer.tokens


def test_nothing_changes_in_a_quiet_state(engine: CompletionEngine):
    row = row_of(engine, Case(package="some", path="job.py", before=BEFORE, after=CASE.after, kind=QUIET, number=0))
    assert row["outcome"] == "unchanged"
    assert [answer.changed for answer in row["answers"]] == [False]
    assert row["answers"][0].cached_tokens > 0  # of the request before the newest difference


def test_differences_that_the_window_cuts_are_not_made():
    lines = ("a", "b", "c")
    inside, cut, below = Hunk(5, 6, ("B", "B")), Hunk(6, 8, ("C",)), Hunk(9, 9, ("D",))
    assert window_after(lines, 4, [inside, cut, below], []) == ["a", "B", "B", "c"]


def test_figures_are_by_answer_and_by_edit(engine: CompletionEngine):
    result = figures([row_of(engine, CASE)])
    assert result["edits"]["changed"]["count"] == 1
    assert result["answers"]["changed"]["tokens_per_round"] > 1
    assert result["answers"]["unchanged"]["count"] == 0
