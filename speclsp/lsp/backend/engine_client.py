"""Client of the shared engine that serves the user's settings: finds it, or starts it, and leaves it for other editors.

    read its file ─► hold a lease ─► it crashed: the process that gets the lock starts another
         └ none: start it            │  it hung: it is killed for all clients, then as above
                                     └► it left in order: the user wanted the memory back, so it is not restarted before
                                        the user asks for it here; one that another editor has started is used

A lease (GET /lease) is an event stream that reports the engine's state for as long as it is open. A crash costs one
empty answer: the request in flight ends at once. An engine that hangs (liveness.py) is killed, which counts as a crash.
An engine that exits with an error message is not restarted, and neither is one that crashes in a loop. In both cases
the Status shows the reason until the user asks for another try. The language server itself never exits because of the
engine. An engine that serves other clients is never ended from here.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from speclsp.config import Config
from speclsp.daemon import launch
from speclsp.daemon.engine_files import NOT_AN_ENGINE, EngineEndpoint, EngineFiles
from speclsp.errors import EngineError, SpeclspError
from speclsp.lsp.backend import infill_codec, liveness
from speclsp.lsp.backend.engine_http import ConnectionLost, EngineHttp, InvalidResponse, ResponseTimeout, http_to
from speclsp.lsp.backend.engine_state import with_state
from speclsp.lsp.backend.liveness import LivenessProbe
from speclsp.lsp.backend.types import FimRequest, OnStatus, Status, StreamPiece, end_task
from speclsp.private_files.os_errors import message

CRASHES, CRASH_WINDOW_S = 3, 60.0  # after this many without a completion between them, the engine is not restarted
HANG_WINDOW_S = 300.0  # the same window when the last crash was a hang: confirming a hang takes time
HANGS = "it did not answer"
BACKOFF_S = (0.0, 0.5, 2.0)  # delay before the next start, by the number of crashes
POLL_S = 2.0  # interval of looking for an engine that another editor has started
STARTING_S = 90.0  # another process has the lock and does not listen: longer than a start takes
LEAVE_S = 3.0  # from the request until the engine's process has ended
# Completes a sentence that begins with "To try again: ". Each client adds its own command.
TRY_AGAIN = "the editor's command for that, any change of a setting or a restart of the language server"
STOPPED = f"the engine was stopped, and typing does not start it. To start it again: {TRY_AGAIN}."


class EngineHung(EngineError):
    """The engine listens and no longer answers anything."""


class EngineClient:
    """A lease on the user's shared engine for these settings."""

    reads_ahead = True

    def __init__(self, config: Config, on_status: OnStatus, client: str = "") -> None:
        """`client` is the editor's name."""
        self._config, self._on_status, self._client = config, on_status, client
        self.status = Status(state="starting", model=config.model, device=config.device)
        self._files = EngineFiles.of(config)
        self._engine: EngineEndpoint | None = None  # in use, or last used
        self._http: EngineHttp | None = None
        self._life: asyncio.Task[None] | None = None
        self._launch: asyncio.Task[EngineEndpoint | None] | None = None  # the last start of an engine, from here
        self._lost = asyncio.Event()
        self._liveness = LivenessProbe()  # of the engine in use
        self._crash_times_s: deque[float] = deque(maxlen=CRASHES)

    def start(self) -> None:
        self._life = asyncio.create_task(self._live())

    async def close(self, replaced: bool = False) -> None:
        is_loading = self.status.engine_pid and not self.status.target
        if self._life is not None:
            await end_task(self._life)
        await self._disconnect()
        if replaced or is_loading:  # nobody waits for that load
            with suppress(SpeclspError, OSError):
                if self._launch is not None:
                    self._engine = await self._launch or self._engine
                await self._end_if_unused()

    async def stream(self, request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
        http, probe = self._http, self._liveness
        if http is None or not self.status.usable:
            raise EngineError(self.status.message or "the engine is not ready yet")
        probe.request_sent()
        route, body = infill_codec.route(request), infill_codec.request_body(request)
        try:
            async with aclosing(http.post_events(route, body, request.deadline_ms, infill_codec.is_last)) as events:
                async for event in events:
                    piece = infill_codec.parse_piece(event)
                    probe.output_received()
                    yield piece
        except GeneratorExit:  # the caller has all it needs
            self._completed(request)
            raise
        except (asyncio.CancelledError, ResponseTimeout):
            probe.request_abandoned(request.deadline_ms)
            raise
        except ConnectionLost:
            if self._http is http:
                self._report_gone()
                self._lost.set()
            raise
        self._completed(request)

    def _completed(self, request: FimRequest) -> None:
        """Forget the crashes: this engine can complete. A prefill (zero tokens) proves nothing."""
        if request.max_tokens:
            self._crash_times_s.clear()

    # ── finding and replacing the engine ─────────────────────────────────────────────────────────────────────────────

    async def _live(self) -> None:
        """Find or start an engine, use it, and decide how to continue when it is gone; until cancelled."""
        self._set_status("starting", "looking for the engine")
        while True:
            try:
                cause = await self._use_engine()
            except (SpeclspError, OSError) as error:
                with suppress(SpeclspError, OSError):
                    await self._end_if_unused()  # in this state it serves no client
                await self._wait_for_another("error", message(error))
                continue
            if not cause and not self._another_runs():
                await self._wait_for_another("stopped", STOPPED)
            elif not cause:
                self._set_status("starting", "another engine has replaced it")
            elif too_often := self._count_crash(cause):
                await self._wait_for_another("error", too_often)
            else:
                self._set_status("starting", f"the engine ended ({cause}); starting it again")
                await asyncio.sleep(BACKOFF_S[len(self._crash_times_s) - 1])

    async def _use_engine(self) -> str:
        """Find or start an engine and use it until it is gone; the cause, or "" when it shut down in order.

        Raises SpeclspError.
        """
        pause_s, deadline_s = 0.01, time.monotonic() + STARTING_S  # an engine listens after half a second
        has_started = False  # an engine of this call's own, which has no lease yet
        while True:
            engine = self._files.find()
            if engine is not None:
                self._engine = engine
                try:
                    return "" if await self._hold_lease(engine) else "connection lost"
                except ConnectionLost:
                    pass  # the file of an engine that was killed
                except EngineHung:
                    if await self._end_hung(engine):
                        return HANGS
                    deadline_s = time.monotonic() + STARTING_S
                    continue  # it may recover
            if has_started:
                return "it ended before its first client connected"
            self._launch = asyncio.create_task(asyncio.to_thread(launch.start, self._config))
            has_started = await asyncio.shield(self._launch) is not None
            if not has_started:
                if time.monotonic() > deadline_s:
                    raise EngineError(
                        f"{self._files.lock} is locked by a process that does not listen: end that process. "
                        f"To try again: {TRY_AGAIN}."
                    )
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 1.05, 0.25)

    async def _end_hung(self, engine: EngineEndpoint) -> bool:
        """Kill an engine that does not answer; True once it is gone."""
        from speclsp.daemon import control  # only here: its HTTP client takes 20 ms to import

        if await asyncio.to_thread(control.end_hung, self._files, engine):
            return True
        problem = "does not answer, and could not be ended: `speclsp engine stop`"
        self._set_status("error", f"the engine (process {engine.pid}) {problem}.")
        return False

    async def _wait_for_another(self, state: str, message: str) -> None:
        """Show `state` and start nothing, until another engine with these settings is running."""
        while True:
            self._set_status(state, message)
            await asyncio.sleep(POLL_S)
            if self._another_runs():
                return

    def _another_runs(self) -> bool:
        """True if there is an engine other than the last used one."""
        with suppress(SpeclspError, OSError):
            engine = self._files.find()
            return engine is not None and (self._engine is None or engine.pid != self._engine.pid)
        return False

    async def _end_if_unused(self) -> None:
        """End the last used engine and wait for that, unless other clients use it. Raises SpeclspError, OSError.

        It may notice only after a moment that this client left.
        """
        last, until_s = self._engine, time.monotonic() + LEAVE_S
        while last is not None and self._files.is_locked() and time.monotonic() < until_s:
            with suppress(ConnectionLost):  # it is ending
                http = http_to(last)
                try:
                    answer = await http.post("/leave", {"pid": last.pid})
                finally:
                    await http.close()
                if (answer.get("clients") or 0) > 1:
                    return
            await asyncio.sleep(0.05)

    def _count_crash(self, cause: str) -> str:
        """Count a crash; the error message when it was one too many, else ""."""
        self._crash_times_s.append(time.monotonic())
        window_s = HANG_WINDOW_S if cause == HANGS else CRASH_WINDOW_S
        if len(self._crash_times_s) < CRASHES or self._crash_times_s[-1] - self._crash_times_s[0] >= window_s:
            return ""
        return (
            f"the engine ended {CRASHES} times within {window_s:.0f} s (last: {cause}). Its output is in "
            f"the log. To try again: {TRY_AGAIN}."
        )

    # ── the lease ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _hold_lease(self, engine: EngineEndpoint) -> bool:
        """Use an engine and report its state until it is gone; whether it left in order.

        Raises ConnectionLost when nothing ever answered, EngineHung when nothing answers any more, other EngineErrors
        when the engine cannot serve or is no engine.
        """
        http = http_to(engine)
        await self._disconnect()
        self._lost.clear()
        self._http, self._liveness = http, LivenessProbe()
        reading = asyncio.create_task(self._read_lease(http))
        watching = asyncio.create_task(self._watch_liveness(http, engine.pid))
        losing = asyncio.create_task(self._lost.wait())
        try:
            await asyncio.wait([reading, watching, losing], return_when=asyncio.FIRST_COMPLETED)
            self._report_gone()
            if not reading.done() and watching.done():
                watching.result()
            return reading.done() and reading.result()
        except ConnectionLost:
            if not self._liveness.has_output:
                raise
            return False
        finally:
            for task in (losing, watching, reading):
                task.cancel()
            await self._disconnect()  # ends a lease whose cancellation wait_for has lost (CPython issue 86296)
            await asyncio.gather(reading, watching, return_exceptions=True)

    async def _read_lease(self, http: EngineHttp) -> bool:
        """Report each state the engine sends; True when the stream ended in order after at least one event."""
        query = urlencode({"client": self._client or "editor", "pid": os.getpid()})
        async with aclosing(http.get_events(f"/lease?{query}")) as events:
            try:
                async for event in events:
                    self._liveness.output_received()
                    if event:
                        self._state_received(event)
            except InvalidResponse as error:
                raise EngineError(NOT_AN_ENGINE) from error
        return self._liveness.has_output

    async def _watch_liveness(self, http: EngineHttp, pid: int) -> None:
        """Probe the engine whenever it is suspected to hang. Raises EngineHung, EngineError."""
        message = f"the engine (process {pid}) does not answer; if that lasts, another one is started."
        while True:
            await self._liveness.wait_until_suspected()
            patience_s = liveness.PROBE_S if self.status.state == "ready" else liveness.LOADING_PROBE_S
            answer = asyncio.create_task(http.get("/health", timeout_s=None))
            try:
                if not await liveness.done_in_time(answer, liveness.SHORT_S):
                    if self.status.state != "error":
                        self._set_status("starting", message)
                    if not await liveness.done_in_time(answer, patience_s - liveness.SHORT_S, pid):
                        raise EngineHung(message)
                health = answer.result()
            except ConnectionLost:
                self._lost.set()
                return
            except InvalidResponse as error:
                raise EngineError(NOT_AN_ENGINE) from error
            finally:
                answer.cancel()
            self._liveness.output_received()
            if not self.status.usable and isinstance(health, dict):  # the lease does not repeat an unchanged state
                self._state_received(health)

    def _state_received(self, event: Mapping[str, Any]) -> None:
        """Report the engine's state. Raises EngineError when it cannot serve, or is no engine."""
        self._report(with_state(self.status, event))

    def _set_status(self, state: str, message: str) -> None:
        self._report(replace(self.status, state=state, message=message, progress=None, clients=0, engine_pid=0))

    def _report(self, status: Status) -> None:
        if status != self.status:
            self.status = status
            self._on_status(status)

    def _report_gone(self) -> None:
        """Change the status before open streams end, so that no caller takes the engine for usable."""
        if self.status.usable:
            self._set_status("starting", "the engine ended")

    async def _disconnect(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.close()
