"""`python -m benchmarks waterfall`: the stages of a request follow each other and add up to its whole time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.keystrokes.replay_editor import Press
from benchmarks.speed.waterfall.waterfall import STAGES, figures_of, read_stamps, stages_of, way_of

URI, NUMBER, VERSION, BODY = "file:///a.py", 7, 3, 99
ENGINE = ("body read", "submitted", "begun", "tokens made")
TRACE = {"prompt_tokens": 10, "cached_tokens": 8, "rounds": 2}


def rows(gaps_ms: list[float]) -> tuple[list[list[object]], Press]:
    """The stamps of one request with these milliseconds between them, and its key."""
    at_s, made = 100.0, []
    names = ["received", "handled", *(stamp for _, stamp in STAGES[2:-1])]
    for name, gap_ms in zip(names, gaps_ms, strict=False):
        at_s += gap_ms / 1000
        key: object = [URI, VERSION] if name in ("received", "handled") else NUMBER
        key = BODY if name in ENGINE or name.endswith("round") else key
        made.append(["round" if name.endswith("round") else name, key, at_s, 1, at_s / 2])
    press = Press("python", URI, "char", VERSION, NUMBER, sent_s=100.0, late_ms=0.0, along=False)
    press.heard_s = at_s + gaps_ms[-1] / 1000
    return made, press


def written(folder: Path, made: list[list[object]]) -> Path:
    (folder / "1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*made, ["body", [NUMBER, BODY], 0.0]]))
    return folder


@given(gaps_ms=st.lists(st.floats(0.01, 500), min_size=len(STAGES), max_size=len(STAGES)))
def test_the_stages_add_up_to_the_time_between_the_key_and_the_reply(tmp_path_factory, gaps_ms):
    made, press = rows(gaps_ms)
    stamps, bodies = read_stamps(written(tmp_path_factory.mktemp("stamps"), made))
    way = way_of(press, stamps, bodies[str(NUMBER)])
    assert way is not None
    stages = stages_of(way)
    assert [ms for ms, _ in stages.values()] == pytest.approx(gaps_ms, abs=1e-6)
    assert sum(ms for ms, _ in stages.values()) == pytest.approx(press.answer_ms)
    inside = [(ms, processor_ms) for ms, processor_ms in stages.values() if processor_ms is not None]
    assert all(processor_ms == pytest.approx(ms / 2) for ms, processor_ms in inside)
    assert len(inside) == len(STAGES) - 2, "the editor's two ends are not of the thread"
    figures = figures_of([way], [TRACE])
    assert figures["stages"]["all stages"]["p50_ms"] == pytest.approx(press.answer_ms, abs=0.01)
    assert figures["new_prompt_tokens"]["p50"] == 2


@pytest.mark.parametrize("missing", ["handled", "posted", "body read", "round", "replied"])
def test_a_request_without_a_stage_is_left_out(tmp_path, missing):
    made, press = rows([1.0] * len(STAGES))
    stamps, _ = read_stamps(written(tmp_path, [row for row in made if row[0] != missing]))
    assert way_of(press, stamps, str(BODY)) is None


def test_stamps_of_another_time_are_left_out(tmp_path):
    made, press = rows([1.0] * len(STAGES))
    earlier = [[name, key, at_s - 50, *rest] for name, key, at_s, *rest in made]  # the same body was sent before
    stamps, _ = read_stamps(written(tmp_path, earlier + made))
    way = way_of(press, stamps, str(BODY))
    assert way is not None and way["body read"].at_s > press.sent_s
