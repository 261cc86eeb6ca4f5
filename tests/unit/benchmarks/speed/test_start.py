"""`python -m benchmarks start`: each turn has its times and its memory, and ratios are paired by turn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import __main__ as command_line
from benchmarks.speed import start
from benchmarks.speed.start import FIGURES, Turn, ratios
from speclsp.errors import EngineError


def turn(first_text_s: float) -> Turn:
    return Turn(**{**dict.fromkeys(FIGURES, 1.0), "first_text_s": first_text_s})


@pytest.mark.slow
def test_a_start_is_reported_with_the_memory_of_its_process(tmp_path: Path):
    arguments = ["start", "--model", "tiny", "--turns", "1", "--no-peer", "--results", str(tmp_path)]
    assert command_line.main(arguments) == 0
    result = json.loads((tmp_path / "start-tiny.json").read_text(encoding="utf-8"))
    [first] = result["engines"]["speclsp"]["turns"]
    assert 0 < first["ready_s"] < first["first_text_s"] and first["processor_s"] > 0
    assert 0 < first["anonymous_mib"] + first["file_mib"] <= first["peak_mib"] + 0.2  # each is rounded
    assert first["prompt_tokens"] > 100 and "ratio" not in result


@pytest.mark.slow
def test_memory_is_that_of_a_young_engine_and_of_one_after_some_typing(tmp_path: Path):
    assert command_line.main(["start", "--model", "tiny", "--typed", "30", "--results", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "memory-tiny.json").read_text(encoding="utf-8"))
    assert 0 < result["loaded_private_mib"] <= result["private_mib"] < result["used_mib"]
    assert (result["requests"], result["bench"]) == (30, "memory")


def test_a_ratio_is_the_median_of_the_turns_ratios():
    ours, theirs = [turn(1.0), turn(9.0), turn(2.0)], [turn(2.0), turn(9.0), turn(8.0)]
    assert ratios(ours, theirs)["first_text_s"] == 0.5


def test_an_engine_is_ready_when_it_accepts_requests():
    assert [start.is_ready({"status": status}) for status in ("loading", "ok")] == [False, True]
    with pytest.raises(EngineError, match="no memory"):
        start.is_ready({"status": "error", "error": {"message": "no memory"}})
