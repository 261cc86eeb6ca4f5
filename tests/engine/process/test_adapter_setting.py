"""The setting `engine.adapter` in a real engine process."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.engine.engine_process import EngineProcess
from support.waiting import wait_until
from support.weights import small_adapters

LOADED_S = 300.0  # a busy machine takes a minute
HOLE = {"input_prefix": "class Stack:\n    def __init__(self):\n        self._items = []\n\n", "prompt": "    def "}


@contextmanager
def engine(models_dir: Path, *more: str) -> Iterator[EngineProcess]:
    """An engine with the tiny model that is loaded and served."""
    place = models_dir / f"run{len(list(models_dir.iterdir()))}"  # a killed engine leaves its files
    settings = ("--set", f"models_dir={models_dir}", "--set", "engine.threads=1")
    process = EngineProcess(place, *settings, *more, model="tiny")
    try:
        process.wait()
        wait_until(lambda: process.http.get("/health").json()["status"] == "ok", LOADED_S)
        yield process
    finally:
        process.close()


def without_adapter(process: EngineProcess) -> str:
    """The text of an engine whose target has no adapter."""
    state = process.http.get("/health").json()
    assert "adapter" not in state["target"] and "adapter" not in state
    return process.infill(**HOLE, n_predict=24)["content"]


def test_the_adapter_of_the_weights_is_on_unless_it_is_damaged(isolated: Path):
    file = small_adapters.write(isolated, scale="16.0")
    with engine(isolated) as adapted:
        state = adapted.http.get("/health").json()
        assert "adapter mine " in state["target"] and "message" not in state
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        assert state["adapter"] == {"name": "mine", "sha256": digest, "jobs": ["fill"]}
        text = adapted.infill(**HOLE, n_predict=24)["content"]
    file.write_bytes(file.read_bytes()[:-1])
    with engine(isolated) as damaged:
        message = damaged.http.get("/health").json()["message"]
        assert message.startswith(f"{file} is ") and "truncated" in message
        assert without_adapter(damaged) != text
