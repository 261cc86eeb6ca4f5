"""An engine on this machine as a Backend: what every way to one has in common, and two of the ways.

    Own             `engine.shared` = false: a child process of ours, started again when it crashes, ended with us
    Attached        `engine.socket`: an engine that somebody else runs, now or later
    shared.Shared   the usual one: this user's one engine

GET /lease tells how the engine is for as long as we hold it open. A crash costs one empty answer: the request in flight
ends at once. An engine that hangs (pulse.py) is ended, which is a crash like any other. An engine of ours that says why
it cannot run is not started a second time, and one that crashes in a loop is left alone; either way the Status says so
until the user wants another try. The language server never ends because of it.
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
from urllib.parse import urlencode

from speclsp import __version__
from speclsp.config import Config
from speclsp.daemon.launch import rooted
from speclsp.errors import EngineError, SpeclspError
from speclsp.lsp.backend import liveness
from speclsp.lsp.backend.http import BadAnswer, ConnectionLost, EngineHttp, TooLate, infill
from speclsp.lsp.backend.liveness import LivenessProbe
from speclsp.lsp.backend.own_engine import EngineProcess
from speclsp.lsp.backend.types import FimRequest, OnStatus, Status, StreamPiece

CRASHES, CRASH_WINDOW_S = 3, 60.0  # this many, with no completion made between them, and we stop starting it
HANG_WINDOW_S = 300.0  # the same where one hung: to find that out takes its time
HANGS = "it did not answer"
BACKOFF_S = (0.0, 0.5, 2.0)  # before the next start, by crashes so far
GAVE_UP = 75  # the exit code of an engine whose device, or a round of it, hangs: another may do better
LOOK_AGAIN_S = 2.0  # at an engine that is not ours to start
AGAIN = (  # to be said after "To try again: "
    'the editor\'s command for that ("Try Again", `:Speclsp retry`), any change of a setting or a restart of the '
    "language server"
)
SHORT_OF_MEMORY = {
    "small cache": "another program needs memory: what was read is kept for fewer documents",
    "no draft": "another program needs memory: the draft model is unloaded",
}


class EngineHung(EngineError):
    """The engine is there and answers nothing any more."""


class EngineClient:
    """An engine, however it is reached."""

    reads_ahead = True
    kept_while_off = True
    shared = True

    def __init__(self, config: Config, on_status: OnStatus, client: str = "") -> None:
        """`client` is the editor's name."""
        self._config, self._on_status, self._client = rooted(config), on_status, client
        self.status = Status(state="starting", pair=config.pair, device=config.device, shared=self.shared)
        self._wire: EngineHttp | None = None
        self._life: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()
        self._pulse = LivenessProbe()  # of the engine that is used
        self._crashes: deque[float] = deque(maxlen=CRASHES)

    def start(self) -> None:
        self._life = asyncio.create_task(self._live())

    async def _live(self) -> None:
        """Find or make an engine, hold on to it, and see what to do when it is gone; until cancelled."""
        raise NotImplementedError

    async def close(self) -> None:
        if self._life is not None:
            self._life.cancel()
            with suppress(asyncio.CancelledError):
                await self._life
        await self._disconnect()

    def end(self) -> None:
        pass  # the lease ends with our process

    async def stream(self, request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
        wire, beat = self._wire, self._pulse
        if wire is None or not self.status.usable:
            raise EngineError(self.status.message or "the engine is not ready yet")
        beat.asked()
        try:
            async with aclosing(infill(wire, "/infill", request)) as pieces:
                async for piece in pieces:
                    beat.beat()
                    yield piece
        except GeneratorExit:  # the caller has all it wants
            self._made(request)
            raise
        except (asyncio.CancelledError, TooLate):
            beat.given_up(request.deadline_ms)
            raise
        except ConnectionLost:
            if self._wire is wire:
                self._gone()
                self._lost.set()
            raise
        self._made(request)

    def _made(self, request: FimRequest) -> None:
        """A completion was made, so the engine is no hopeless one. To have read ahead says nothing about that."""
        if request.max_tokens:
            self._crashes.clear()

    # ── the lease ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _hold(self, wire: EngineHttp, where: str, pid: int = 0) -> bool:
        """Use an engine, and pass on how it is, until it is gone: whether it left in order. Closes `wire`.

        `pid`: its process, if that is known before it says so. Raises ConnectionLost when nobody answered at all, Hung
        when nobody does any more, other EngineErrors when the engine cannot serve or is none.
        """
        await self._disconnect()
        self._lost.clear()
        self._wire, self._pulse = wire, LivenessProbe()
        reading = asyncio.create_task(self._listen(wire, where))
        watching = asyncio.create_task(self._watch(wire, where, pid))
        losing = asyncio.create_task(self._lost.wait())
        try:
            await asyncio.wait([reading, watching, losing], return_when=asyncio.FIRST_COMPLETED)
            self._gone()
            if not reading.done() and watching.done():
                watching.result()
            return reading.done() and reading.result()
        except ConnectionLost:
            if not self._pulse.heard:
                raise
            return False
        finally:
            for task in (losing, watching, reading):
                task.cancel()
            await asyncio.gather(reading, watching, return_exceptions=True)
            await self._disconnect()

    async def _listen(self, wire: EngineHttp, where: str) -> bool:
        """Pass on what the engine says; True when it has said all in order."""
        query = urlencode({"client": self._client or "editor", "pid": os.getpid()})
        async with aclosing(wire.events(f"/lease?{query}")) as said:
            try:
                async for event in said:
                    self._pulse.beat()
                    if event:
                        self._heard(event, where)
            except BadAnswer as error:
                raise EngineError(foreign(where)) from error
        return self._pulse.heard

    async def _watch(self, wire: EngineHttp, where: str, pid: int) -> None:
        """Ask the engine how it is whenever that is in doubt. Raises Hung, EngineError."""
        words = silent(pid) if pid else "the engine does not answer"
        while True:
            await self._pulse.doubtful()
            patience_s = liveness.PROBE_S if self.status.state in ("ready", "asleep") else liveness.LOADING_PROBE_S
            pid = pid or self.status.engine_pid
            answer = asyncio.create_task(wire.get("/health", timeout_s=None))
            try:
                if not await liveness.in_time(answer, liveness.SHORT_S):
                    if self.status.state != "error":
                        self._say("starting", words)
                    if not await liveness.in_time(answer, patience_s - liveness.SHORT_S, pid):
                        raise EngineHung(words)
                said = answer.result()
            except ConnectionLost:
                self._lost.set()
                return
            except BadAnswer as error:
                raise EngineError(foreign(where)) from error
            finally:
                answer.cancel()
            self._pulse.beat()
            if not self.status.usable and isinstance(said, dict):  # the lease says nothing of what has not changed
                self._heard(said, where)

    def _heard(self, said: Mapping[str, Any], where: str) -> None:
        """Pass on one state. Raises EngineError when the engine cannot serve, or is none."""
        state, error = said.get("status"), said.get("error")
        if state == "error" and isinstance(error, dict):
            raise EngineError(str(error.get("message") or "the engine could not load the model; its log says more."))
        if state == "leaving":
            return
        if state not in ("ok", "asleep", "loading") or (state != "loading" and "pair" not in said):
            raise EngineError(foreign(where))
        facts: dict[str, Any] = {name: str(said[name]) for name in ("pair", "target", "device") if said.get(name)}
        if "target" in said:
            facts["draft"] = str(said.get("draft") or "")
        facts["clients"], facts["engine_pid"] = whole(said.get("clients")), whole(said.get("pid"))
        facts["draft_only"] = state == "loading" and said.get("draft_only") is True
        facts["memory"] = str(said.get("memory") or "full")
        progress, message = None, str(said.get("message") or "")
        if state == "loading":
            progress = float(said["progress"]) if isinstance(said.get("progress"), int | float) else None
            message = message or "loading the model"
        elif state == "asleep":
            message = message or "the model is unloaded until the next suggestion is asked for"
        elif said.get("version", __version__) != __version__:
            message = message or f"the engine is of version {said['version']}, not {__version__}"
        else:
            message = message or SHORT_OF_MEMORY.get(facts["memory"], "")
        self._say("ready" if state == "ok" else str(state), message, progress, **facts)

    def _say(self, state: str, message: str = "", progress: float | None = None, **facts: Any) -> None:
        if state not in ("ready", "asleep", "loading"):
            facts = {"clients": 0, "engine_pid": 0, "draft_only": False, "memory": "full", **facts}
        new = replace(self.status, state=state, message=message, progress=progress, **facts)
        if new != self.status:
            self.status = new
            self._on_status(new)

    def _gone(self) -> None:
        """Say so before what is being streamed ends: nobody must think that there is an engine."""
        if self.status.usable:
            self._say("starting", "the engine went away")

    async def _disconnect(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()

    def _crashed(self, why: str) -> str:
        """Count a crash; what to say when it was one too many, else ""."""
        self._crashes.append(time.monotonic())
        window_s = HANG_WINDOW_S if why == HANGS else CRASH_WINDOW_S
        if len(self._crashes) < CRASHES or self._crashes[-1] - self._crashes[0] >= window_s:
            return ""
        return (
            f"the engine ended {CRASHES} times within {window_s:.0f} s (last: {why}). Its output is in "
            f"the log. To try again: {AGAIN}."
        )


# ── our own child ─────────────────────────────────────────────────────────────────────────────────────────────────────


class PrivateEngine(EngineClient):
    """A private engine."""

    shared = False

    def __init__(self, config: Config, on_status: OnStatus, client: str, log: Callable[[str], None]) -> None:
        super().__init__(config, on_status, client)
        self._log = log
        self.child: EngineProcess | None = None
        self._served = False  # this child was ready once
        self._hung = False  # ... and answered nothing in the end

    async def close(self) -> None:
        await super().close()
        await asyncio.to_thread(self.end)

    def end(self) -> None:
        child, self.child = self.child, None
        if child is not None:
            child.end()

    async def _live(self) -> None:
        """Start the engine, and again when it crashes; give up on one that cannot start, or crashes in a loop."""
        self._say("starting", "starting the engine")
        while True:
            try:
                why = await self._run_once()
            except (SpeclspError, OSError) as error:
                await asyncio.to_thread(self.end)
                self._say("error", str(error))
                return
            if too_often := self._crashed(why):
                self._say("error", too_often)
                return
            self._say("starting", f"the engine ended ({why}); starting it again")
            await asyncio.sleep(BACKOFF_S[len(self._crashes) - 1])

    async def _run_once(self) -> str:
        """One engine from start to end; why it ended. Raises EngineError when there is no use in another try."""
        self.child = child = EngineProcess.start(self._config, self._log)
        ended, self._served, self._hung = asyncio.create_task(child.ended()), False, False
        ended.add_done_callback(lambda task: None if task.cancelled() else self._gone())
        try:
            await first_of(ended, self._attend(child))
            code, self.child = await ended, None
        finally:
            ended.cancel()
        if code > 0 and code != GAVE_UP and not self._served:  # it said why on its way out, and would say so again
            raise EngineError(child.last_words or f"the engine ended with exit code {code}; its output is in the log.")
        if self._hung:
            return HANGS
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    async def _attend(self, child: EngineProcess) -> None:
        """Hold on to it as soon as it listens, and again should the connection break, until it hangs.

        Raises EngineError.
        """
        pause_s, socket = 0.02, str(child.socket)
        while True:
            try:
                if child.socket.exists():
                    await self._hold(EngineHttp(socket=socket), socket, child.pid)
            except ConnectionLost:
                pass
            except EngineHung:
                self._hung = True
                child.kill()
                return
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.3, 0.25)

    def _heard(self, said: Mapping[str, Any], where: str) -> None:
        super()._heard(said, where)
        self._served = self._served or self.status.state == "ready"


async def first_of(ended: asyncio.Task[int], other: Coroutine[Any, Any, None]) -> None:
    """Wait for `other`, but no longer than until the process has ended. Raises what `other` raises."""
    task = asyncio.ensure_future(other)
    try:
        await asyncio.wait([ended, task], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.wait([task])


# ── somebody else's ───────────────────────────────────────────────────────────────────────────────────────────────────


class AttachedEngine(EngineClient):
    """The engine that listens on `engine.socket`, now or as soon as there is one. Never starts one."""

    async def _live(self) -> None:
        socket = Path(self._config.engine.socket)
        self._say("starting", f"looking for the engine on {socket}")
        while True:
            problem = whats_wrong(socket)
            if not problem:
                try:
                    await self._hold(EngineHttp(socket=str(socket)), str(socket))
                    continue
                except ConnectionLost:  # a file that nobody listens on, or somebody who hangs up
                    problem = (
                        f"no engine answers on {socket}: it may be left over from one that ended. "
                        f"Start `speclsp engine --socket {socket}`, or unset engine.socket."
                    )
                except EngineError as error:
                    problem = str(error)
            self._say("error", problem)
            await asyncio.sleep(LOOK_AGAIN_S)


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


def silent(pid: int) -> str:
    """The sentence for an engine that listens and says nothing, for now."""
    return f"the engine (process {pid}) does not answer; if that lasts, another one is started."


def foreign(where: str) -> str:
    """The sentence for an address where something else answers."""
    return f"what listens on {where} is not a speclsp engine. Correct engine.socket, or unset it."


def whole(value: object) -> int:
    """A whole number from JSON, 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
