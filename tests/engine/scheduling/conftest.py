"""Fixtures of the scheduler's tests: one with a scripted completer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.engine.scripted_completer import ScriptedCompleter
from support.waiting import wait_until

from speclsp.engine.scheduling.scheduler import Scheduler
from speclsp.observability.metrics import Metrics


@pytest.fixture
def talker() -> ScriptedCompleter:
    return ScriptedCompleter()


@pytest.fixture
def scheduler(talker: ScriptedCompleter) -> Iterator[Scheduler]:
    scheduler = Scheduler(lambda progress: talker, Metrics())
    scheduler.thread.start()
    wait_until(lambda: scheduler.residency.completer is not None)
    yield scheduler
    scheduler.close()
    scheduler.thread.join(60)
    assert not scheduler.thread.is_alive()
