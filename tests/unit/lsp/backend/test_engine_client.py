"""Decisions of the engine's client: hangs, engines that do not start, and engines that never listen."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from speclsp import config as settings
from speclsp.config import Config, parse
from speclsp.daemon import control, launch
from speclsp.daemon.engine_files import EngineEndpoint, EngineFiles
from speclsp.lsp.backend import engine_client, liveness
from speclsp.lsp.backend.engine_client import EngineClient, EngineHung
from speclsp.lsp.backend.remote.backend_choice import connect
from speclsp.lsp.backend.types import Status


@asynccontextmanager
async def using(statuses: list[Status], **changes: object) -> AsyncIterator[EngineClient]:
    """A Backend for the model echo and these settings."""
    config, problems = parse({"model": "echo", **changes})
    assert problems == []
    engine = connect(config, statuses.append, "an editor")
    assert isinstance(engine, EngineClient)
    engine.start()
    try:
        yield engine
    finally:
        await engine.close()


async def until(statuses: list[Status], state: str, after: int = 0) -> Status:
    while state not in [status.state for status in statuses[after:]]:
        await asyncio.sleep(0.005)
    return next(status for status in statuses[after:] if status.state == state)


async def test_an_engine_that_hangs_repeatedly_is_not_restarted(monkeypatch: pytest.MonkeyPatch, isolated: Path):
    """The limit holds however long each detection takes."""

    def hang(engine: EngineEndpoint) -> None:
        raise EngineHung

    monkeypatch.setattr(EngineFiles, "find", lambda files: EngineEndpoint(pid=7))
    monkeypatch.setattr(engine_client, "http_to", hang)
    monkeypatch.setattr(control, "end_hung", lambda files, found: True)
    monkeypatch.setattr(engine_client, "BACKOFF_S", (0.0, 0.0, 0.0))
    monkeypatch.setattr(engine_client, "CRASH_WINDOW_S", 0.0)
    statuses: list[Status] = []
    async with using(statuses):
        assert "3 times within 300 s (last: it did not answer)" in (await until(statuses, "error")).message


async def test_an_engine_that_never_listens_is_waited_for_with_a_time_limit(
    monkeypatch: pytest.MonkeyPatch, isolated: Path
):
    starts: list[Config] = []
    monkeypatch.setattr(launch, "start", starts.append)  # another process has the lock
    monkeypatch.setattr(engine_client, "STARTING_S", 0.2)
    statuses: list[Status] = []
    async with using(statuses):
        assert str(EngineFiles.of(Config(model="echo")).lock) in (await until(statuses, "error")).message
    assert len(starts) > 1, "it looks again and again"


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "TICK_S", 0.02)


async def test_late_ticks_do_not_count_against_the_engine(hasty: None):
    async def busy() -> None:
        for _ in range(10):
            time.sleep(0.05)  # as when the process is swapped out, or the machine was suspended
            await asyncio.sleep(0.001)

    assert await liveness.done_in_time(asyncio.create_task(busy()), 0.1), "half a second of it"
    assert not await liveness.done_in_time(asyncio.create_task(asyncio.sleep(30)), 0.1)


async def test_ticks_with_page_faults_do_not_count_against_the_engine(hasty: None, monkeypatch: pytest.MonkeyPatch):
    pages = count()
    monkeypatch.setattr(liveness, "major_page_faults", lambda pid: next(pages) if pid == 7 else 0)
    slow = asyncio.create_task(asyncio.sleep(0.5))
    assert await liveness.done_in_time(slow, 0.1, pid=7), "its pages came, one after the other"
    assert not await liveness.done_in_time(asyncio.create_task(asyncio.sleep(30)), 0.1, pid=8)


# ── engines that do not start ─────────────────────────────────────────────────────────────────────────────────────────


def python_that(program: str, patch: pytest.MonkeyPatch) -> None:
    """Make every start of an engine run this program instead."""

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, words: list[str], **options: Any) -> None:
            assert words[:4] == [sys.executable, "-m", "speclsp", "engine"]
            super().__init__([sys.executable, "-c", program, *words[3:]], **options)

    patch.setattr(subprocess, "Popen", Popen)


# What a fault leaves: the signal that ended the process, or on Windows an error status as the exit code.
CRASHED = (
    "import os; os._exit(0xC0000005 - 2**32)"
    if sys.platform == "win32"
    else "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
)
CRASH_CAUSE = "exit code 0xc0000005" if sys.platform == "win32" else "signal 9"


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("raise SystemExit('speclsp engine: no weights: run this.')", "no weights: run this."),
        ("raise SystemExit(3)", "ended with exit code 3"),
        (CRASHED, f"ended with {CRASH_CAUSE}"),
        ("raise SystemExit(75)", "ended with exit code 75"),
    ],
)
async def test_an_engine_that_does_not_start_is_reported_with_its_error(
    program: str, message: str, monkeypatch: pytest.MonkeyPatch, isolated: Path
):
    python_that(program, monkeypatch)
    statuses: list[Status] = []
    async with using(statuses):
        assert message in (await until(statuses, "error")).message
    assert [path.suffix for path in settings.runtime_dir().iterdir()] == [".lock"]
