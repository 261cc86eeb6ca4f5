"""The memory of an unloaded model returns to the system."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from promises import Measured
from support.engine.managed_model import ManagedModel, tiny
from support.engine.random_models import save_random

from speclsp.engine.loading import checkpoint
from speclsp.engine.scheduling.device_memory import DeviceMemory

pytestmark = pytest.mark.usefixtures("one_thread")

CONFIG = tiny(512)


def rss_mib() -> int:
    return psutil.Process().memory_info().rss >> 20


@pytest.mark.promise(20)
def test_released_memory_returns_to_the_system(tmp_path: Path, promise: Measured):
    save_random("qwen2", tmp_path, hidden_size=512, intermediate_size=2048, num_hidden_layers=8, vocab_size=2000)
    DeviceMemory("cpu").trim()  # garbage of other tests
    bare_mib = rss_mib()

    class Weights:
        """A completer that only holds a model."""

        model = target = draft = device = ""

        def __init__(self) -> None:
            self.weights = checkpoint.read_decoder(tmp_path, "fp32", "cpu", 512, 2000)

    subject = ManagedModel(CONFIG, load=lambda progress: Weights(), idle_s=60.0)
    loaded_mib = rss_mib()
    assert loaded_mib - bare_mib > 80, "130 MiB of weights"
    subject.after(60.0)
    left_mib = rss_mib() - bare_mib
    assert left_mib < 0.3 * (loaded_mib - bare_mib), "all but what the allocators' rounding keeps"
    promise.measured(f"asleep: {left_mib} of {loaded_mib - bare_mib} MiB of weights stay", holds=True)
