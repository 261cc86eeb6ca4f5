"""Saved costs: a start with prepared weights measures nothing; a file that does not fit is measured anew."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from support.engine.random_models import NATIVE
from support.engine.tiny_engine import tiny_engine
from support.engine.tiny_tasks import HOLES

from speclsp.engine.api import Request
from speclsp.engine.decoding import policy
from speclsp.engine.decoding.policy import Costs
from speclsp.engine.loading.prepared import saved_costs
from speclsp.engine.loading.prepared.prepared_weights import PreparedWeights
from speclsp.engine.loading.prepared.saved_costs import SavedCosts
from speclsp.weights import auto_choice

COSTS = Costs(verify_ms={1: 8.0, 9: 10.0}, prefill_ms=0.5, guess_ms={"model": 3.0}, missing_ms={"model": 0.1})


def written(file: Path, **changes: Any) -> Path:
    """A saved file of this machine with one thread, with changed entries."""
    SavedCosts(file, auto_choice.machine_name(1), True, COSTS).save()
    content = json.loads(file.read_text())
    for name, value in changes.items():
        (content if name in content else content["costs"])[name] = value
    file.write_text(json.dumps(content))
    return file


def test_costs_come_back_as_they_were(tmp_path: Path):
    saved = saved_costs.read(written(tmp_path / "costs.json"), threads=1)
    assert saved is not None and saved.mapped and saved.costs == COSTS


@pytest.mark.parametrize(
    "changes",
    [
        {"machine": "another"},
        {"verify_ms": {}},
        {"verify_ms": {"1": -1.0}},
        {"verify_ms": {"one": 1.0}},
        {"prefill_ms": "fast"},
        {"guess_ms": {"model": float("nan")}},
        {"guess_ms": 5},
    ],
    ids=str,
)
def test_a_file_that_does_not_fit_is_measured_anew(changes: dict[str, Any], tmp_path: Path):
    assert saved_costs.read(written(tmp_path / "costs.json", **changes), threads=1) is None


def test_costs_of_other_threads_are_of_another_machine(tmp_path: Path):
    assert saved_costs.read(written(tmp_path / "costs.json"), threads=2) is None


@pytest.mark.skipif(not NATIVE, reason="forward.c does not run here")
def test_the_second_start_maps_the_weights_and_measures_nothing(monkeypatch: pytest.MonkeyPatch):
    first = tiny_engine("int8")
    texts = [answer(first, prefix, suffix) for prefix, suffix in HOLES]
    monkeypatch.setattr(policy, "measure", lambda target, draft: pytest.fail("it measures"))
    second = tiny_engine("int8")
    assert isinstance(second.target_decoder.numbers, PreparedWeights) and second.target_decoder.numbers.mapped
    assert second.costs.verify_ms.keys() == first.costs.verify_ms.keys()
    assert [answer(second, prefix, suffix) for prefix, suffix in HOLES] == texts


def answer(engine: Any, prefix: str, suffix: str) -> list[int]:
    completion = engine.complete(Request(prefix=prefix, suffix=suffix, max_tokens=24), threading.Event())
    assert list(completion)
    tokens: list[int] = completion.result.tokens
    return tokens


def test_served_passes_move_the_nearest_time_towards_theirs():
    costs = Costs(verify_ms={1: 8.0, 9: 10.0})
    for _ in range(200):
        costs.learn_verify(1, 4.0)
    assert costs.verify_ms[1] == pytest.approx(4.0, rel=0.02) and costs.verify_ms[9] == 10.0
    costs.learn_verify(8, 1000.0)
    assert 10.0 < costs.verify_ms[9] < 10.4, "one pass that was disturbed moves it little"
