"""`python -m benchmarks scale`: prompts and documents of the requested size, and typing against a real server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import model_options
from benchmarks.__main__ import main
from benchmarks.speed import scale
from speclsp.cli import terminal
from speclsp.config import Config, EngineConfig
from speclsp.engine.decoding.completion import CompletionEngine


@pytest.fixture(scope="module")
def tiny() -> CompletionEngine:
    return model_options.engine(Config(model="tiny", engine=EngineConfig(context_tokens=512, draft=False)))


@pytest.mark.slow
def test_a_prompt_has_about_its_nominal_tokens_and_too_long_ones_are_left_out(tiny: CompletionEngine):
    with terminal.progress() as bar:
        rows = scale.by_prompt(tiny, (128, 256, 1024), bar)
    assert [row["prompt_tokens"] for row in rows] == [pytest.approx(128, abs=4), pytest.approx(256, abs=4)]
    assert all(row["warm_new_tokens"] <= 4 for row in rows), "one more character leaves the rest cached"


def test_output_times_come_from_one_run_and_never_decrease(tiny: CompletionEngine):
    with terminal.progress() as bar:
        rows = scale.by_output(tiny, (4, 8, 16), bar, count=1)
    assert [row["tokens"] for row in rows] == [4, 8, 16]
    for way in ("plain_ms", "speculative_ms"):
        assert sorted(row[way] for row in rows) == [row[way] for row in rows]


@pytest.mark.parametrize("lines", [100, 5000])
def test_a_document_has_the_requested_lines_and_an_empty_line_near_its_middle(lines: int):
    made, at = scale.document(lines)
    assert len(made) == lines
    assert made[at] == ""
    assert lines // 3 < at < lines
    assert not any("\n" in line for line in made)


@pytest.mark.slow
def test_the_command_measures_engine_and_editor_and_writes_both_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scale, "QUICK_PROMPT_TOKENS", (128,))
    monkeypatch.setattr(scale, "QUICK_OUTPUT_TOKENS", (4,))
    monkeypatch.setattr(scale, "QUICK_DOCUMENT_LINES", (200,))
    monkeypatch.setattr(scale, "KEYS", "res")
    words = ["scale", "--quick", "--model", "tiny", "--set", "engine.draft=false"]
    assert main([*words, "--set", "engine.context_tokens=1024"]) == 0
    results = tmp_path / "results"
    engine = json.loads((results / "scale-tiny.json").read_text())
    assert [len(engine[part]) for part in ("prompt", "output")] == [1, 1]
    assert engine["memory_mib"]["loaded"] > 0
    (row,) = json.loads((results / "scale-editor.json").read_text())["document"]
    assert row["lines"] == 200
    assert 0 < row["answer_p50_ms"] <= row["answer_p95_ms"]
    assert row["server_mib"] > 10
    assert "key to answer" in capsys.readouterr().out
