"""Retries of an engine that cannot restore its own endpoint file."""

from __future__ import annotations

import asyncio
import logging

import pytest

from speclsp.config import Config
from speclsp.engine.process.server_process import CHECK_TICKS, FAILED_CHECK_TICKS, EngineServer, Listeners
from speclsp.engine.scheduling.scheduler import Scheduler
from speclsp.errors import EngineError
from speclsp.observability.metrics import Metrics


def test_a_failed_restore_of_the_endpoint_is_retried_seldom_and_logged_once(caplog: pytest.LogCaptureFixture):
    tried: list[int] = []
    ticks = 0

    def restore() -> None:
        tried.append(ticks)
        if len(tried) in (2, 3):
            raise EngineError("the runtime directory cannot be written.")

    scheduler = Scheduler(lambda progress, with_draft=True: None, Metrics())
    server = EngineServer(Config(model="echo"), Metrics(), Listeners(restore=restore), scheduler, None, lambda: None)

    async def tick_on() -> None:
        nonlocal ticks
        for ticks in range(3 * FAILED_CHECK_TICKS):
            await server.on_tick(ticks)

    with caplog.at_level(logging.WARNING, "speclsp.engine"):
        asyncio.run(tick_on())
    assert tried[:2] == [CHECK_TICKS - 1, 2 * CHECK_TICKS - 1], "often while all is well"
    assert tried[2:4] == [FAILED_CHECK_TICKS - 1, 2 * FAILED_CHECK_TICKS - 1], "seldom when it cannot be mended"
    assert tried[4] - tried[3] == CHECK_TICKS, "and often again"
    assert [record.getMessage() for record in caplog.records] == ["the runtime directory cannot be written."]
