"""`python -m benchmarks completions`: every way completes the same holes cold, and the counts add up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.engine.tiny_engine import FAST

from benchmarks import model_options
from benchmarks.__main__ import main
from benchmarks.speed import completions
from speclsp.config import Config, EngineConfig
from speclsp.engine.api import Request
from speclsp.engine.decoding.completion import CompletionEngine


@pytest.fixture(scope="module")
def tiny() -> CompletionEngine:
    options = EngineConfig(context_tokens=512, quantization=FAST, draft=True)
    return model_options.engine(Config(model="tiny", engine=options))


class Watched:
    """Engine wrapper that records each request."""

    def __init__(self, engine: CompletionEngine) -> None:
        self.engine, self.requests = engine, []
        self.model, self.draft = engine.model, engine.draft

    def complete(self, request: Request, cancel: Any) -> Any:
        self.requests.append(request)
        return self.engine.complete(request, cancel)


def requests() -> list[Request]:
    lines = ["x = 1\n", "y = 2\n", "def add(a, b):\n", "    return a + b\n"]
    return [Request(prefix="".join(lines) * n, line_prefix="z = ad", max_tokens=8) for n in (1, 2, 3)]


@pytest.mark.slow
def test_ways_share_a_cold_prompt_and_rotate_their_order(tiny: CompletionEngine):
    watched = Watched(tiny)
    made = completions.measure(watched, requests(), 1, lambda fraction, what: None)  # type: ignore[arg-type]
    names = list(completions.ways(has_draft=True))
    assert list(made) == names
    assert all(len(runs) == 1 for holes in made.values() for runs in holes)
    per_hole = len(names) + 1  # and the suggestion that `reuse` drafts from
    first = []
    for number in range(3):
        timed = watched.requests[number * per_hole + 1 : (number + 1) * per_hole]
        assert not any(request.cache_prompt for request in timed)
        assert len({(request.prefix, request.line_prefix, request.max_tokens) for request in timed}) == 1
        first.append((timed[0].speculate, timed[0].sources, timed[0].gamma))
    assert len(set(first)) == 3


@pytest.mark.slow
def test_all_texts_equal_the_plain_ones_and_counts_add_up(tiny: CompletionEngine):
    made = completions.measure(tiny, requests(), 1, lambda fraction, what: None)
    ways = completions.ways(has_draft=True)
    for name, runs in made.items():
        found: dict[str, Any] = completions.figures_of(ways[name], runs, made["plain"])
        assert found["identical_runs"] == found["runs"] == 3
        assert found["accepted"] + found["rejected"] == found["drafted"]
        assert found["accepted"] <= found["judged"] <= found["drafted"]
        assert (found["drafted"] == 0) == (found["rounds_with_guesses"] == 0)
    plain: dict[str, Any] = completions.figures_of(ways["plain"], made["plain"], made["plain"])
    assert (plain["tokens_per_round"], plain["drafted"], plain["decode_speed_up"]) == (1.0, 0, 1.0)


@pytest.mark.slow
def test_a_different_text_is_not_counted_as_identical(tiny: CompletionEngine):
    made = completions.measure(tiny, requests()[:1], 1, lambda fraction, what: None)
    other = made["policy"][0][0].result
    other.tokens = [*other.tokens[:-1], other.tokens[-1] + 1]
    ways = completions.ways(has_draft=True)
    assert completions.figures_of(ways["policy"], made["policy"], made["plain"])["identical_runs"] == 0


@pytest.mark.slow
def test_the_command_writes_its_figures_with_their_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    words = ["completions", "--model", "tiny", "--holes", "2", "--tokens", "4", "--tokens", "8"]
    assert main([*words, "--set", "engine.context_tokens=1024"]) == 0
    data = json.loads((tmp_path / "results/completions-tiny.json").read_text())
    assert (data["bench"], data["pair"], data["identical"], data["prompt_cache"]) == (
        "completions", "tiny", True, "cold",
    )  # fmt: skip
    assert list(data["lengths"]) == ["4", "8"]
    assert {"machine", "versions", "seed", "costs_ms"} <= set(data)
    assert "every text identical" in capsys.readouterr().out
