"""`python -m benchmarks formats`: a target agrees with itself, and a changed token counts as one difference."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.engine.tiny_engine import FAST

from benchmarks import model_options
from benchmarks.__main__ import main
from benchmarks.speed import number_formats
from speclsp.config import Config, EngineConfig
from speclsp.engine.decoding.completion import CompletionEngine

TASKS = number_formats.tasks(files=3, tokens=6)


def still(fraction: float, what: str) -> None:
    """No progress is shown."""


@pytest.fixture(scope="module")
def tiny() -> CompletionEngine:
    settings = Config(model="tiny", engine=EngineConfig(context_tokens=1024))
    return model_options.engine(number_formats.in_format(settings, FAST))


def test_tasks_are_lines_of_real_files_and_the_answer_is_the_rest():
    assert len(TASKS) == 6
    assert [task.request.line_prefix.strip() == "" for task in TASKS] == [True, False] * 3
    assert all(task.answer and task.answer == task.answer.rstrip() for task in TASKS)
    assert number_formats.tasks(3, 6) == TASKS, "the same every time"


@pytest.mark.slow
def test_a_target_agrees_with_itself_at_every_token(tiny: CompletionEngine):
    results = number_formats.say(tiny, TASKS, still)
    agreements = number_formats.agreement(tiny, results, still)
    assert [len(places) for places in agreements] == [len(one.tokens) - one.respelled for one in results]
    assert any(one.respelled for one in results), "where a word is respelled its tokens are no choice"
    assert sum(map(len, agreements)) > 10
    assert all(map(all, agreements))


@pytest.mark.slow
def test_a_changed_token_disagrees_at_its_own_place_and_not_before(tiny: CompletionEngine):
    (result,) = number_formats.say(tiny, TASKS[:1], still)
    assert len(result.tokens) - result.respelled >= 3
    at = result.respelled + 2
    altered = replace(result, tokens=[*result.tokens[:at], (result.tokens[at] + 1) % 50, *result.tokens[at + 1 :]])
    (agreements,) = number_formats.agreement(tiny, [altered], still)
    assert agreements[:3] == [True, True, False], "what stands before it is as it was"


def test_exact_counts_whole_first_lines_only():
    task = number_formats.Task(request=TASKS[0].request, answer="return a")
    results = [
        number_formats.FormatResult(prompt=[], tokens=[], text=text)
        for text in ("return a  \nb", "return ab", "return", "")
    ]
    assert [number_formats.exact([one], [task]) for one in results] == [1, 0, 0, 0]


@pytest.mark.slow
def test_the_command_writes_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert main(["formats", "--model", "tiny", "--files", "1", "--tokens", "4"]) == 0
    data = json.loads((tmp_path / "results/quality-int8-tiny.json").read_text())
    assert (data["bench"], data["reference"], data["variant"], data["tasks"]) == ("quality-int8", "bf16", "int8", 2)
    assert data["tokens_agreed"] <= data["tokens_compared"]
