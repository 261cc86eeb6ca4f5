"""The engine's event loop: one that goes on listening when a client resets a connection before it is accepted."""

from __future__ import annotations

import asyncio
import sys

import pytest

from speclsp.config import Config
from speclsp.engine.process.server_process import EngineServer, Listeners
from speclsp.engine.scheduling.scheduler import Scheduler
from speclsp.observability.metrics import Metrics


@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
def test_the_engine_has_the_selector_loop_on_every_system(system: str, monkeypatch: pytest.MonkeyPatch):
    metrics = Metrics()
    server = EngineServer(
        Config(model="echo"), metrics, Listeners(), Scheduler(lambda *_: None, metrics), None, lambda: None
    )
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(asyncio, "ProactorEventLoop", None, raising=False)  # as uvicorn names Windows' default
    assert server.config.get_loop_factory() is asyncio.SelectorEventLoop
