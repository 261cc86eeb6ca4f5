"""Retries of an engine that cannot restore its own endpoint file."""

from __future__ import annotations

import asyncio
import logging

import pytest

from speclsp.config import Config
from speclsp.engine.process.server_process import EngineServer, Listeners
from speclsp.engine.scheduling.scheduler import Scheduler
from speclsp.errors import EngineError
from speclsp.observability.metrics import Metrics


def test_a_failed_restore_of_the_endpoint_is_retried_at_each_tick_and_logged_once(caplog: pytest.LogCaptureFixture):
    tried: list[int] = []

    def restore() -> None:
        tried.append(len(tried))
        if len(tried) in (2, 3):
            raise EngineError("the runtime directory cannot be written.")

    scheduler = Scheduler(lambda progress: None, Metrics())
    server = EngineServer(Config(model="echo"), Metrics(), Listeners(restore=restore), scheduler, None, lambda: None)

    async def tick_on() -> None:
        for ticks in range(5):
            await server.on_tick(ticks)

    with caplog.at_level(logging.WARNING, "speclsp.engine"):
        asyncio.run(tick_on())
    assert len(tried) == 5
    assert [record.getMessage() for record in caplog.records] == ["the runtime directory cannot be written."]
