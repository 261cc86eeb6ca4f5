"""The shared engine as a Backend: statuses, crashes, hangs and replacement.

A `Pretender` is a fake engine with the HTTP interface of a real one. It answers as the test sets it, and records its
requests. It listens on a Unix socket, or on a port where there are no Unix sockets.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.faults.local_listener import TOKEN, listening, listening_on_port

from speclsp import config as settings
from speclsp.config import Config, parse
from speclsp.daemon import control, launch, platform
from speclsp.daemon.engine_files import EngineEndpoint, EngineFiles
from speclsp.errors import EngineError
from speclsp.lsp.backend import engine_client, liveness
from speclsp.lsp.backend.engine_client import EngineClient
from speclsp.lsp.backend.remote.backend_choice import connect
from speclsp.lsp.backend.types import FimRequest, Status

ASK = FimRequest(prefix="a\n", line_prefix="b", suffix="c", deadline_ms=500)
OK = {"status": "ok", "model": "echo", "target": "echo", "draft": "", "device": "cpu", "clients": 1, "pid": 7}
LAST = {"content": "", "stop": True, "stop_type": "eos"}


class Pretender:
    """A fake engine that answers HTTP requests as an engine does."""

    def __init__(self, pid: int = 7) -> None:
        self.says: dict[str, object] = {**OK, "pid": pid}
        self.mute = False  # reads requests and never answers
        self.slow = False  # delays the answers to /infill
        self.requests: list[tuple[str, str, Any]] = []  # path, authorization, body
        self.found = EngineEndpoint(pid=pid)
        self._streams: dict[asyncio.StreamWriter, asyncio.Queue[bytes | None]] = {}

    @asynccontextmanager
    async def at(self, path: Path | None) -> AsyncIterator[Pretender]:
        """Listen at `path`, or on a port on every system when there is none."""
        listener = listening(self._serve, path) if path is not None else listening_on_port(self._serve)
        async with listener as address:
            self.found = replace(self.found, **address)
            try:
                yield self
            finally:
                self.vanish()

    def say(self, **changes: object) -> None:
        """Send another state to all leases."""
        self.says = {**self.says, **changes}
        for stream in self._streams.values():
            stream.put_nowait(event(self.says))

    def leave(self) -> None:
        """End every lease properly, as a leaving engine does."""
        for stream in self._streams.values():
            stream.put_nowait(None)

    def vanish(self) -> None:
        """Break every lease, as a killed process does."""
        for writer in list(self._streams):
            writer.transport.abort()

    def paths(self) -> list[str]:
        return [path.partition("?")[0] for path, _, _ in self.requests]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            lines = {name.lower(): value for name, _, value in (line.partition(": ") for line in head.splitlines()[1:])}
            body = await reader.readexactly(int(lines.get("content-length", 0)))
            path = head.split()[1]
            self.requests.append((path, lines.get("authorization", ""), json.loads(body) if body else None))
            while self.mute:
                await asyncio.sleep(0.005)
            if path.startswith("/lease"):
                await self._lease(reader, writer)
            elif path == "/infill":
                while self.slow:
                    await asyncio.sleep(0.005)
                await respond(writer, "text/event-stream", event({"content": "said", "tokens": [1]}) + event(LAST))
            else:
                answer = {"leaving": True, "clients": 0} if path == "/leave" else self.says
                await respond(writer, "application/json", json.dumps(answer).encode())
        writer.close()

    async def _lease(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = self._streams[writer] = asyncio.Queue[bytes | None]()
        stream.put_nowait(event(self.says))
        writer.write(b"HTTP/1.1 200 -\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        try:
            while (part := await stream.get()) is not None:
                writer.write(b"%x\r\n%b\r\n" % (len(part), part))
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            del self._streams[writer]


async def respond(writer: asyncio.StreamWriter, kind: str, body: bytes) -> None:
    head = f"HTTP/1.1 200 -\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()


def event(data: object) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


class World:
    """Fakes of EngineFiles.find and launch.start: the engine that is found, and the effect of starting one."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.here: EngineEndpoint | None = None
        self.starts = 0
        self.on_start: Callable[[], EngineEndpoint | None] = lambda: None
        patch.setattr(EngineFiles, "find", lambda files: self.here)
        patch.setattr(launch, "start", self._start)
        patch.setattr(engine_client, "POLL_S", 0.02)
        patch.setattr(engine_client, "BACKOFF_S", (0.0, 0.0, 0.0))

    def _start(self, config: Config) -> EngineEndpoint | None:
        self.starts += 1
        self.here = self.on_start()
        return self.here


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, isolated: Path) -> World:
    return World(monkeypatch)


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


async def becomes_true(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


async def text_of(engine: EngineClient) -> str:
    return "".join([piece.text async for piece in engine.stream(ASK)])


# ── statuses ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_engine_on_a_port_is_sent_the_token_with_every_request(world: World):
    """As on systems without Unix sockets: Windows."""
    statuses: list[Status] = []
    async with Pretender().at(None) as engine:
        world.here = engine.found
        async with using(statuses) as client:
            assert (await until(statuses, "ready")).engine_pid == 7
            assert await text_of(client) == "said"
    assert engine.paths()[:2] == ["/lease", "/infill"]
    assert {authorization for _, authorization, _ in engine.requests} == {f"Bearer {TOKEN}"}
    query = engine.requests[0][0].partition("?")[2]
    assert "client=an+editor" in query and f"pid={os.getpid()}" in query
    assert world.starts == 0


@pytest.mark.parametrize(
    ("changes", "state", "usable"),
    [
        ({"status": "asleep"}, "asleep", True),
        ({"status": "loading", "progress": 0.5}, "loading", False),
        ({"status": "ok", "message": "engine.adapter is not used"}, "ready", True),
    ],
)
async def test_a_request_is_sent_in_every_usable_state(
    world: World, isolated: Path, changes: dict[str, object], state: str, usable: bool
):
    statuses: list[Status] = []
    async with Pretender().at(isolated / "s") as engine:
        engine.says = {**engine.says, **changes}
        world.here = engine.found
        async with using(statuses) as client:
            status = await until(statuses, state)
            assert status.usable is usable and status.message
            if usable:
                assert await text_of(client) == "said"
            else:
                with pytest.raises(EngineError):
                    await text_of(client)
                assert engine.paths() == ["/lease"]


@pytest.mark.skipif(not platform.HAS_UNIX_SOCKETS, reason="asyncio has no Unix sockets on Windows")
async def test_a_path_that_is_not_an_engine_socket_is_never_connected_to(world: World, isolated: Path):
    (isolated / "plain").write_text("")
    (isolated / "link").symlink_to(isolated / "s")
    async with Pretender().at(isolated / "s") as engine:
        for name in ("plain", "link"):
            statuses: list[Status] = []
            world.here = EngineEndpoint(pid=7, socket=str(isolated / name))
            async with using(statuses):
                assert str(isolated / name) in (await until(statuses, "error")).message
        assert engine.requests == [] and world.starts == 0


# ── engines that end ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_completion_between_crashes_resets_the_crash_count(world: World, isolated: Path):
    statuses: list[Status] = []
    async with Pretender().at(isolated / "s") as engine:
        world.here = engine.found
        async with using(statuses) as client:
            for number in range(engine_client.CRASHES + 2):
                await until(statuses, "ready", after=len(statuses) if number else 0)
                assert await text_of(client) == "said"
                engine.vanish()
            await until(statuses, "ready", after=len(statuses))
    assert "error" not in [status.state for status in statuses]


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the limits: silence is suspected at once and a hang is confirmed soon."""
    for name, seconds in {"FIRST_EVENT_S": 0.05, "SHORT_S": 0.05, "PROBE_S": 0.2, "LOADING_PROBE_S": 0.2}.items():
        monkeypatch.setattr(liveness, name, seconds)
    monkeypatch.setattr(liveness, "TICK_S", 0.02)


async def test_an_engine_that_hangs_repeatedly_is_not_restarted(
    world: World, isolated: Path, hasty: None, monkeypatch: pytest.MonkeyPatch
):
    """The limit holds however long each detection takes."""
    monkeypatch.setattr(control, "end_hung", lambda files, found: True)
    monkeypatch.setattr(engine_client, "CRASH_WINDOW_S", 0.0)
    statuses: list[Status] = []
    async with Pretender().at(isolated / "s") as engine:
        engine.mute = True
        world.here = engine.found
        async with using(statuses):
            assert "3 times within 300 s (last: it did not answer)" in (await until(statuses, "error")).message


async def test_an_abandoned_request_alone_does_not_confirm_a_hang(world: World, isolated: Path, hasty: None):
    """A slow engine only gets a health check."""
    statuses: list[Status] = []
    async with Pretender().at(isolated / "s") as engine:
        engine.slow = True
        world.here = engine.found
        async with using(statuses) as client:
            await until(statuses, "ready")
            for _ in range(3):
                request = asyncio.create_task(text_of(client))
                await asyncio.sleep(ASK.deadline_ms / 1000)
                request.cancel()
                await asyncio.wait([request])
            await becomes_true(lambda: "/health" in engine.paths())
            engine.slow = False
            assert await text_of(client) == "said"
        assert [status.state for status in statuses[1:]] == ["ready"]


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


async def test_a_starting_engine_is_waited_for_with_a_time_limit(
    world: World, isolated: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(engine_client, "STARTING_S", 0.2)
    statuses: list[Status] = []
    async with Pretender().at(isolated / "s") as engine, using(statuses):
        assert str(EngineFiles.of(Config(model="echo")).lock) in (await until(statuses, "error")).message
        assert world.starts > 1, "it looks again and again"
        world.here = engine.found
        await until(statuses, "ready")


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
