"""An engine that computes in forward.c never imports torch, which takes seconds and 195 MiB of the process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.engine.engine_process import COMMAND, EngineProcess
from support.engine.random_models import NATIVE
from support.waiting import wait_until
from support.weights import small_adapters

LOADED_S = 300.0  # a busy machine takes a minute
LIBRARY = "libtorch"  # in the memory map of a process that imported torch
CODE = "".join(f"def f{number}(items):\n    return self.items[{number}]\n\n\n" for number in range(20))
OPTIONS = [
    {"n_probs": 3},
    {"round_logprobs": True, "ignore_eos": True},
    {"n_branches": 3},
    {"speculation": {"enabled": False}},
    {"cache_prompt": False},
]


@pytest.mark.skipif(not NATIVE, reason="forward.c does not run here")
@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory map of a process")
def test_an_engine_in_forward_c_answers_greedily_without_torch(isolated: Path):
    """With an adapter, drafts, probabilities, branches, and more texts than cache slots.

    A single `import torch` on that path, at any depth, takes 195 MiB from every user and makes the start twice as long.
    A sampled request imports it: this shows that the check can fail.
    """
    small_adapters.write(isolated)
    socket = isolated / "engine.sock"
    words = ["--model", "tiny", "--socket", str(socket), "--set", f"models_dir={isolated}", "--set", "engine.threads=1"]
    native = ["--set", "engine.quantization=int8", "--set", "engine.draft=false"]
    engine = EngineProcess(socket, program=[*COMMAND, *words, *native])
    try:
        engine.wait()
        wait_until(lambda: engine.http.get("/health").json()["status"] in ("ok", "error"), LOADED_S)
        state = engine.http.get("/health").json()
        assert "adapter mine" in state["target"] and "int8" in state["target"]
        memory_map = Path(f"/proc/{engine.process.pid}/maps")
        for number, options in enumerate([*OPTIONS, {}, {}]):
            prefix = CODE[50 * number :]
            answer = engine.infill(input_prefix=prefix, prompt="    return self.it", n_predict=16, **options)
            assert answer["tokens_predicted"] > 0
        assert LIBRARY not in memory_map.read_text()
        engine.infill(temperature=0.8, n_predict=4)
        assert LIBRARY in memory_map.read_text()
    finally:
        engine.close()
