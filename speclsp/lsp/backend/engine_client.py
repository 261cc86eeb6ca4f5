"""Backends on this machine: the part that all local engines share, and the engine that someone else runs.

A client holds a lease (GET /lease), an event stream that reports the engine's state for as long as it is open. A crash
costs one empty answer: the request in flight ends at once. An engine that hangs (liveness.py) is killed, which counts
as a crash. An engine that exits with an error message is not restarted, and neither is one that crashes in a loop. In
both cases the Status shows the reason until the user asks for another try. The language server itself never exits
because of the engine.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from speclsp import __version__
from speclsp.config import Config
from speclsp.daemon import endpoint, platform
from speclsp.daemon.launch import rooted
from speclsp.errors import EngineError
from speclsp.lsp.backend import infill_codec, liveness
from speclsp.lsp.backend.engine_http import ConnectionLost, EngineHttp, InvalidResponse, ResponseTimeout, http_to
from speclsp.lsp.backend.liveness import LivenessProbe
from speclsp.lsp.backend.types import AdapterUse, FimRequest, OnStatus, Status, StreamPiece, end_task
from speclsp.private_files.os_errors import reason

CRASHES, CRASH_WINDOW_S = 3, 60.0  # after this many without a completion between them, the engine is not restarted
HANG_WINDOW_S = 300.0  # the same window when the last crash was a hang: confirming a hang takes time
HANGS = "it did not answer"
BACKOFF_S = (0.0, 0.5, 2.0)  # delay before the next start, by the number of crashes
POLL_S = 2.0  # interval of looking for an engine that is not ours to start
# Completes a sentence that begins with "To try again: ". Each client adds its own command.
TRY_AGAIN = "the editor's command for that, any change of a setting or a restart of the language server"


class EngineHung(EngineError):
    """The engine listens and no longer answers anything."""


class EngineClient:
    """Base of the local backends: lease, liveness, streaming. Subclasses find or start the engine in `_live`."""

    reads_ahead = True
    kept_while_off = True
    shared = True

    def __init__(self, config: Config, on_status: OnStatus, client: str = "") -> None:
        """`client` is the editor's name."""
        self._config, self._on_status, self._client = rooted(config), on_status, client
        self.status = Status(state="starting", model=config.model, device=config.device, shared=self.shared)
        self._http: EngineHttp | None = None
        self._life: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()
        self._liveness = LivenessProbe()  # of the engine in use
        self._crash_times_s: deque[float] = deque(maxlen=CRASHES)

    def start(self) -> None:
        self._life = asyncio.create_task(self._live())

    async def _live(self) -> None:
        """Find or start an engine, use it, and decide how to continue when it is gone; until cancelled."""
        raise NotImplementedError

    async def close(self) -> None:
        if self._life is not None:
            await end_task(self._life)
        await self._disconnect()

    def end(self) -> None:
        pass  # the lease ends with this process

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

    async def _hold_lease(self, http: EngineHttp, address: str, pid: int = 0) -> bool:
        """Use an engine and report its state until it is gone; whether it left in order. Closes `http`.

        `pid`: its process, if known before the engine reports it. Raises ConnectionLost when nothing ever answered,
        EngineHung when nothing answers any more, other EngineErrors when the engine cannot serve or is no engine.
        """
        await self._disconnect()
        self._lost.clear()
        self._http, self._liveness = http, LivenessProbe()
        reading = asyncio.create_task(self._read_lease(http, address))
        watching = asyncio.create_task(self._watch_liveness(http, address, pid))
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

    async def _read_lease(self, http: EngineHttp, address: str) -> bool:
        """Report each state the engine sends; True when the stream ended in order after at least one event."""
        query = urlencode({"client": self._client or "editor", "pid": os.getpid()})
        async with aclosing(http.get_events(f"/lease?{query}")) as events:
            try:
                async for event in events:
                    self._liveness.output_received()
                    if event:
                        self._state_received(event, address)
            except InvalidResponse as error:
                raise EngineError(not_an_engine(address)) from error
        return self._liveness.has_output

    async def _watch_liveness(self, http: EngineHttp, address: str, pid: int) -> None:
        """Probe the engine whenever it is suspected to hang. Raises EngineHung, EngineError."""
        message = "the engine does not answer"
        if pid:
            message = f"the engine (process {pid}) does not answer; if that lasts, another one is started."
        while True:
            await self._liveness.wait_until_suspected()
            patience_s = liveness.PROBE_S if self.status.state == "ready" else liveness.LOADING_PROBE_S
            pid = pid or self.status.engine_pid
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
                raise EngineError(not_an_engine(address)) from error
            finally:
                answer.cancel()
            self._liveness.output_received()
            if not self.status.usable and isinstance(health, dict):  # the lease does not repeat an unchanged state
                self._state_received(health, address)

    def _state_received(self, event: Mapping[str, Any], address: str) -> None:
        """Turn the engine's state into a Status. Raises EngineError when it cannot serve, or is no engine."""
        state, error = event.get("status"), event.get("error")
        if state == "error" and isinstance(error, dict):
            raise EngineError(
                str(error.get("message") or "the engine could not load the model; its log has the details.")
            )
        if state == "leaving":
            return
        if state not in ("ok", "asleep", "loading") or (state != "loading" and "pair" not in event):
            raise EngineError(not_an_engine(address))
        facts: dict[str, Any] = {name: str(event[name]) for name in ("target", "device") if event.get(name)}
        facts |= {"model": str(event["pair"])} if event.get("pair") else {}
        facts["model_reason"] = str(event.get("reason") or "")
        if "target" in event:
            facts["draft"] = str(event.get("draft") or "")
        facts["clients"], facts["engine_pid"] = int_or_zero(event.get("clients")), int_or_zero(event.get("pid"))
        facts["adapter"] = AdapterUse.of(event.get("adapter"))
        progress, message = None, str(event.get("message") or "")
        if state == "loading":
            progress = float(event["progress"]) if isinstance(event.get("progress"), int | float) else None
            message = message or "loading the model"
        elif state == "asleep":
            message = message or "the model is unloaded until the next request"
        elif event.get("version", __version__) != __version__:
            message = message or f"the engine has version {event['version']}, not {__version__}"
        self._set_status("ready" if state == "ok" else str(state), message, progress, **facts)

    def _set_status(self, state: str, message: str = "", progress: float | None = None, **facts: Any) -> None:
        if state not in ("ready", "asleep", "loading"):
            facts = {"clients": 0, "engine_pid": 0, **facts}
        status = replace(self.status, state=state, message=message, progress=progress, **facts)
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


class AttachedEngine(EngineClient):
    """The engine that listens on `engine.socket`, now or as soon as there is one. Never starts one."""

    async def _live(self) -> None:
        socket = Path(self._config.engine.socket)
        self._set_status("starting", f"looking for the engine on {socket}")
        while True:
            try:
                await self._hold_lease(http_to_socket(socket), str(socket))
                continue
            except ConnectionLost:  # a file without a listener, or a listener that hangs up
                problem = (
                    f"no engine answers on {socket}: a previous engine may have left it. "
                    f"Start `speclsp engine --socket {socket}`, or unset engine.socket."
                )
            except EngineError as error:
                problem = str(error)
            self._set_status("error", problem)
            await asyncio.sleep(POLL_S)


def http_to_socket(socket: Path) -> EngineHttp:
    """HTTP to the engine at `engine.socket`. Raises EngineError: no engine can be there, and the way out.

    Where there are no Unix sockets, the path is that of a file that describes the engine.
    """
    setting = f"engine.socket = {str(socket)!r}"
    try:
        status = socket.stat()
    except OSError as error:
        raise EngineError(
            f"{setting}: {reason(error)}. Start `speclsp engine --socket {socket}`, or unset engine.socket."
        ) from error
    if sys.platform != "win32" and status.st_uid != os.getuid():
        raise EngineError(f"{setting} belongs to another user. Use an engine of your own, or unset it.")
    if platform.HAS_UNIX_SOCKETS and stat.S_ISSOCK(status.st_mode):
        return EngineHttp(socket=str(socket))
    engine = None if platform.HAS_UNIX_SOCKETS else endpoint.at(socket)
    if engine is None:
        raise EngineError(f"{setting} is not a socket. Set it to an engine's socket, or unset it.")
    return http_to(engine)


def not_an_engine(address: str) -> str:
    """Message for an address at which another program answers."""
    return f"the process that listens on {address} is not a speclsp engine. Correct engine.socket, or unset it."


def int_or_zero(value: object) -> int:
    """A JSON integer; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
