"""The engine on this machine: started, watched, restarted and ended here, or attached to on `engine.socket`.

A crash costs one empty answer: the request in flight ends at once and the engine is started again. An engine that says
why it cannot run is not started a second time, and one that crashes in a loop is left alone; either way the Status
says so until a setting changes. The language server itself never ends because of its engine.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from speclsp import __version__
from speclsp.config import Config
from speclsp.errors import EngineError, SpeclspError
from speclsp.lsp.backend import FimRequest, OnStatus, Piece, Status
from speclsp.lsp.child import Child
from speclsp.lsp.wire import BadAnswer, ConnectionLost, Wire, infill

CRASHES, CRASH_WINDOW_S = 3, 60.0  # this many, with no completion made between them, and we stop starting it
BACKOFF_S = (0.0, 0.5, 2.0)  # before the next start, by crashes so far
LOOK_AGAIN_S = 2.0  # at an engine that is not ours to start


class Engine:
    """A Backend over the Unix socket of an engine."""

    reads_ahead = True

    def __init__(self, config: Config, on_status: OnStatus, log: Callable[[str], None]) -> None:
        self._config, self._on_status, self._log = config, on_status, log
        self.status = Status(state="starting", pair=config.pair, device=config.device)
        self.child: Child | None = None
        self._wire: Wire | None = None
        self._life: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()
        self._crashes: deque[float] = deque(maxlen=CRASHES)

    def start(self) -> None:
        self._life = asyncio.create_task(self._attach() if self._config.engine.socket else self._keep_running())

    async def close(self) -> None:
        if self._life is not None:
            self._life.cancel()
            with suppress(asyncio.CancelledError):
                await self._life
        await self._disconnect()
        await asyncio.to_thread(self.end)

    def end(self) -> None:
        child, self.child = self.child, None
        if child is not None:
            child.end()

    async def stream(self, request: FimRequest) -> AsyncGenerator[Piece, None]:
        wire = self._wire
        if wire is None or self.status.state != "ready":
            raise EngineError(self.status.message or "the engine is not ready yet")
        try:
            async with aclosing(infill(wire, "/infill", request)) as pieces:
                async for piece in pieces:
                    yield piece
        except GeneratorExit:  # the caller has all it wants
            self._crashes.clear()
            raise
        except ConnectionLost:
            if self._wire is wire and self.status.state == "ready":
                self._say("starting", "the engine went away")
                self._lost.set()
            raise
        self._crashes.clear()

    # ── our own child ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _keep_running(self) -> None:
        """Start the engine, and again when it crashes; give up on one that cannot start, or crashes in a loop."""
        self._say("starting", "starting the engine")
        while True:
            try:
                why = await self._run_once()
            except (SpeclspError, OSError) as error:
                await asyncio.to_thread(self.end)
                self._say("error", str(error))
                return
            self._crashes.append(time.monotonic())
            if len(self._crashes) == CRASHES and self._crashes[-1] - self._crashes[0] < CRASH_WINDOW_S:
                self._say(
                    "error",
                    f"the engine ended {CRASHES} times within {CRASH_WINDOW_S:.0f} s (last: {why}). Its output is in "
                    f"the log; change a setting or restart the language server to try again.",
                )
                return
            self._say("starting", f"the engine ended ({why}); starting it again")
            await asyncio.sleep(BACKOFF_S[len(self._crashes) - 1])

    async def _run_once(self) -> str:
        """One engine from start to end; why it ended. Raises EngineError when there is no use in another try."""
        self.child = child = Child.start(self._config, self._log)
        ended, was_ready = asyncio.create_task(child.ended()), False
        try:
            while not ended.done():
                await first_of(ended, self._until_ready(child.socket))
                was_ready = was_ready or not ended.done()
                await first_of(ended, self._lost.wait())
            code, self.child = await ended, None
            if self.status.state == "ready":  # before what was being streamed ends: nobody must think it still is
                self._say("starting", "the engine went away")
        finally:
            ended.cancel()
            await self._disconnect()
        if code > 0 and not was_ready:  # it said why on its way out, and would say so again
            raise EngineError(child.last_words or f"the engine ended with exit code {code}; its output is in the log.")
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    # ── somebody else's ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _attach(self) -> None:
        """Use the engine that listens on `engine.socket`, now or as soon as there is one. Never starts one."""
        socket = Path(self._config.engine.socket)
        self._say("starting", f"looking for the engine on {socket}")
        while True:
            problem = whats_wrong(socket)
            if not problem:
                try:
                    await self._until_ready(socket, ours=False)
                    await self._lost.wait()
                    continue
                except EngineError as error:
                    problem = str(error)
            if problem != self.status.message:
                self._say("error", problem)
            await asyncio.sleep(LOOK_AGAIN_S)

    # ── both ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _until_ready(self, socket: Path, ours: bool = True) -> None:
        """Ask /health until it says "ok". Raises EngineError when it says "error", or is no engine at all."""
        await self._disconnect()
        self._lost.clear()
        self._wire = wire = Wire(socket=str(socket))
        pause_s = 0.02
        while True:
            health: object = None
            try:
                if not ours or socket.exists():
                    health = await wire.get("/health")
            except ConnectionLost as error:
                if not ours:  # a file that nobody listens on, or somebody who hangs up
                    raise EngineError(
                        f"no engine answers on {socket}: it may be left over from one that ended. "
                        f"Start `speclsp engine --socket {socket}`, or unset engine.socket."
                    ) from error
            except BadAnswer as error:
                raise EngineError(foreign(socket)) from error
            if health is not None and self._heard(health, socket):
                return
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.3, 0.25)

    def _heard(self, health: object, socket: Path) -> bool:
        """Pass on what /health says; whether the engine is ready. Raises EngineError."""
        said: Mapping[str, Any] = health if isinstance(health, dict) else {}
        if said.get("status") == "ok" and "pair" in said:
            pair, target, draft, device = (str(said.get(name) or "") for name in ("pair", "target", "draft", "device"))
            version = said.get("version", __version__)
            other = "" if version == __version__ else f"the engine is of version {version}, not {__version__}"
            self._say("ready", other, pair=pair, target=target, draft=draft, device=device)
            return True
        if said.get("status") == "loading":
            progress = said.get("progress")
            message = str(said.get("message") or "loading the model")
            now = ("loading", message, float(progress) if isinstance(progress, int | float) else None)
            if now != (self.status.state, self.status.message, self.status.progress):
                self._say(*now)
            return False
        error = said.get("error")
        if said.get("status") == "error" and isinstance(error, dict):
            raise EngineError(str(error.get("message") or "the engine could not load the model; its log says more."))
        raise EngineError(foreign(socket))

    def _say(self, state: str, message: str = "", progress: float | None = None, **facts: str) -> None:
        self.status = replace(self.status, state=state, message=message, progress=progress, **facts)
        self._on_status(self.status)

    async def _disconnect(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()


async def first_of(ended: asyncio.Task[int], other: Coroutine[Any, Any, object]) -> None:
    """Wait for `other`, but no longer than until the process has ended. Raises what `other` raises."""
    task = asyncio.ensure_future(other)
    try:
        await asyncio.wait([ended, task], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
    finally:
        task.cancel()


def whats_wrong(socket: Path) -> str:
    """Why `engine.socket` cannot be attached to, as a sentence; "" when it is worth a try."""
    try:
        found = socket.stat()
    except OSError as error:
        return (
            f"engine.socket = {str(socket)!r}: {error.strerror}. "
            f"Start `speclsp engine --socket {socket}`, or unset engine.socket."
        )
    if not stat.S_ISSOCK(found.st_mode):
        return f"engine.socket = {str(socket)!r} is not a socket. Name the one an engine listens on, or unset it."
    if found.st_uid != os.getuid():
        return f"engine.socket = {str(socket)!r} belongs to another user. Use an engine of your own, or unset it."
    return ""


def foreign(socket: Path) -> str:
    """The sentence for a socket where something else answers."""
    return f"what listens on {socket} is not a speclsp engine. Correct engine.socket, or unset it."
