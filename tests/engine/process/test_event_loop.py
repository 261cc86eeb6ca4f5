"""The engine's event loop: one that goes on listening when a client resets a connection before it is accepted."""

from __future__ import annotations

import asyncio
import logging
import select
import signal
import sys

import pytest
from support.waiting import PATIENCE_S

from speclsp.config import Config
from speclsp.engine.process import event_loop
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


def test_on_windows_a_signal_ends_the_wait_of_the_selector(monkeypatch: pytest.MonkeyPatch):
    """A handler of signal.signal runs in the main thread, which Windows' select() would keep until the next event."""
    loop = asyncio.SelectorEventLoop()
    awaited: list[int] = []
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(loop, "add_reader", lambda reader, *_: awaited.append(reader.fileno()))
    monkeypatch.setattr(loop, "remove_reader", lambda reader: awaited.remove(reader.fileno()))
    previous = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with event_loop.woken_by_signals(loop):
            signal.raise_signal(signal.SIGTERM)
            assert select.select(awaited, [], [], PATIENCE_S)[0] == awaited != []
    finally:
        signal.signal(signal.SIGTERM, previous)
        loop.close()
    assert awaited == [] and signal.set_wakeup_fd(-1) == -1


@pytest.mark.parametrize(("system", "is_logged"), [("win32", False), ("linux", True)])
def test_a_connection_that_fails_is_no_error_on_windows(
    system: str, is_logged: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(sys, "platform", system)
    loop = asyncio.SelectorEventLoop()
    with caplog.at_level(logging.WARNING):
        event_loop.report_exception(loop, {"message": "accept", "exception": ConnectionResetError(104, "reset")})
        event_loop.report_exception(loop, {"message": "a fault", "exception": ValueError("x")})
    loop.close()
    assert [record.getMessage().partition("\n")[0] for record in caplog.records] == ["accept"] * is_logged + ["a fault"]
