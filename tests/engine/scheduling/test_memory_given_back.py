"""Unloading and reloading real models: the memory returns to the system, and the text stays the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from promises import Measured
from support.engine.managed_model import ManagedModel, tiny
from support.engine.random_models import save_random

from speclsp.config import Config, EngineConfig
from speclsp.engine.loading import checkpoint, loading
from speclsp.engine.scheduling.device_memory import DeviceMemory
from speclsp.weights import cards

pytestmark = pytest.mark.usefixtures("one_thread")

CONFIG = tiny(512)


# ── memory returned to the system ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.promise(20)
def test_released_memory_returns_to_the_system(tmp_path: Path, promise: Measured):
    save_random("qwen2", tmp_path, hidden_size=512, intermediate_size=2048, num_hidden_layers=8, vocab_size=2000)
    DeviceMemory("cpu").trim()  # garbage of other tests
    bare_mib = DeviceMemory("cpu").held_mib()

    class Weights:
        """A completer that only holds a model."""

        model = target = draft = device = ""

        def __init__(self) -> None:
            self.weights = checkpoint.read_decoder(tmp_path, "fp32", "cpu", 512, 2000)

    subject = ManagedModel(CONFIG, load=lambda progress: Weights(), idle_s=60.0)
    loaded_mib = DeviceMemory("cpu").held_mib()
    assert loaded_mib - bare_mib > 80, "130 MiB of weights"
    subject.after(60.0)
    left_mib = DeviceMemory("cpu").held_mib() - bare_mib
    assert left_mib < 0.3 * (loaded_mib - bare_mib), "all but what the allocators' rounding keeps"
    promise.measured(f"asleep: {left_mib} of {loaded_mib - bare_mib} MiB of weights stay", holds=True)


# ── through the engine's thread ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.soak
@pytest.mark.real
def test_the_real_model_leaves_memory_and_comes_back_the_same(coder_0_5b: Path, record_property: Any):
    torch.set_num_threads(2)
    config = Config(models_dir=str(coder_0_5b.parent), engine=EngineConfig(offline=True))
    card = cards.load("qwen2.5-coder-0.5b-instruct")
    subject = ManagedModel(CONFIG, load=lambda progress: loading.start(config, card, progress), idle_s=60.0)
    before, full_mib = subject.says(), DeviceMemory("cpu").held_mib()
    subject.after(60.0)
    freed_mib = full_mib - DeviceMemory("cpu").held_mib()
    assert freed_mib > 400, "half a billion weights of a byte each"
    after = subject.says()
    assert (after.text, after.tokens) == (before.text, before.tokens)
    again_mib = DeviceMemory("cpu").held_mib()
    assert again_mib < full_mib + 200, "waking leaves nothing behind twice"
    record_property("freed_mib", freed_mib)
