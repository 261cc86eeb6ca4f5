"""Plan of a load on a CPU: a model above the limit of the process is refused, and one that is not free now is not."""

from __future__ import annotations

import pytest

from speclsp import process_resources
from speclsp.engine.loading import load_plan
from speclsp.errors import OutOfMemory
from speclsp.process_resources import Memory
from speclsp.weights import cards

CARD = cards.load("qwen2.5-coder-1.5b-instruct")
NEED_MIB = CARD.needed_mib("cpu", 0, "int8")


def whole(monkeypatch: pytest.MonkeyPatch, memory: Memory) -> None:
    monkeypatch.setattr(process_resources, "whole_memory", lambda: memory)


def test_a_model_is_loaded_up_to_the_limit_however_little_is_free(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process_resources, "memory", lambda: Memory(1))
    whole(monkeypatch, Memory(NEED_MIB))
    load_plan.check_limit(CARD, "int8", with_draft=False)


@pytest.mark.parametrize(
    ("limit_mib", "fix"),
    [(None, "Use a machine with more memory"), (NEED_MIB - 1, "Raise the memory limit of its control group")],
)
def test_a_model_above_the_limit_is_refused_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, limit_mib: int | None, fix: str
):
    whole(monkeypatch, Memory(NEED_MIB - 1, limit_mib))
    with pytest.raises(
        OutOfMemory, match=rf"needs {NEED_MIB} MiB and cpu has {NEED_MIB - 1} MiB.* {fix}.*or set model"
    ):
        load_plan.check_limit(CARD, "int8", with_draft=False)


def test_a_draft_model_that_is_loaded_counts(monkeypatch: pytest.MonkeyPatch):
    whole(monkeypatch, Memory(NEED_MIB))
    with pytest.raises(OutOfMemory):
        load_plan.check_limit(CARD, "int8", with_draft=True)
