"""An engine that computes in forward.c needs no torch, whose import takes seconds and 195 MiB of the process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.engine.engine_process import EngineProcess
from support.engine.random_models import NATIVE
from support.waiting import wait_until
from support.weights import small_adapters

LOADED_S = 300.0  # a busy machine takes a minute
CODE = "".join(f"def f{number}(items):\n    return self.items[{number}]\n\n\n" for number in range(20))
OPTIONS = [
    {"round_logprobs": True, "ignore_eos": True},
    {"n_branches": 3},
    {"speculation": {"enabled": False}},
    {"cache_prompt": False},
    {"temperature": 0.8, "seed": 5},
    {"temperature": 0.8, "seed": 5, "top_k": 20, "top_p": 0.9, "n_branches": 2},
    {"temperature": 1.2, "seed": 5, "sampling": "rejection"},
]
# A module that Python imports at its start. For the import system, a module that is None is not installed.
BLOCKED = ("torch", "transformers", "bitsandbytes", "triton")
BLOCKER = f"import sys\nsys.modules.update(dict.fromkeys({BLOCKED}))\n"


@pytest.fixture
def no_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that start from now on cannot import torch and what needs it."""
    (tmp_path / "sitecustomize.py").write_text(BLOCKER)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


@contextmanager
def loaded_engine(home: Path, *words: str) -> Iterator[EngineProcess]:
    """An engine with tiny and one thread, after it has loaded the model or failed to."""
    settings = ("--set", f"models_dir={home}", "--set", "engine.threads=1")
    engine = EngineProcess(home / "engine", *settings, *words, model="tiny")
    try:
        engine.wait()
        wait_until(lambda: engine.http.get("/health").json()["status"] in ("ok", "error"), LOADED_S)
        yield engine
    finally:
        engine.close()


@pytest.mark.skipif(not NATIVE, reason="forward.c does not run here")
@pytest.mark.usefixtures("no_torch")
def test_an_engine_in_forward_c_answers_without_torch(isolated: Path):
    """Greedily and sampled; with an adapter, drafts, probabilities, branches, and more texts than cache slots."""
    small_adapters.write(isolated)
    with loaded_engine(isolated, "--set", "engine.quantization=int8", "--set", "engine.draft=true") as engine:
        state = engine.http.get("/health").json()
        assert "adapter mine" in state["target"] and "int8" in state["target"] and "int8" in state["draft"]
        for number, options in enumerate([*OPTIONS, {}, {}]):
            prefix = CODE[50 * number :]
            answer = engine.infill(input_prefix=prefix, prompt="    return self.it", n_predict=16, **options)
            assert answer["tokens_predicted"] > 0
