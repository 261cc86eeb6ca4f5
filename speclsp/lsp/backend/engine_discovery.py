"""Client of the user's one shared engine: finds it, or starts it; leaves it running for the other editors.

    read engine.json ─► does it suit? ─► hold a lease ─► it crashed: the process that gets the lock starts another
         └ none: start it  └ no: wait until no client  │  it hung: it is killed for all clients, then as above
                             uses it, then end it      └► it left in order: the user wanted the memory back, so it is
                                                          not restarted before the user asks for it here; an engine
                                                          that another editor has started is used

An engine that serves other clients is never ended from here.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from speclsp.config import Config
from speclsp.daemon import endpoint, launch
from speclsp.daemon.endpoint import EngineEndpoint
from speclsp.errors import EngineError, SpeclspError
from speclsp.lsp.backend.engine_client import BACKOFF_S, HANGS, POLL_S, TRY_AGAIN, EngineClient, EngineHung, int_or_zero
from speclsp.lsp.backend.engine_http import ConnectionLost, InvalidResponse, http_to
from speclsp.private_files.os_errors import message

PATIENCE_S = 1.0  # when all windows change together, the other engine is gone by then: no message before
UNCLAIMED_S = 0.2  # a client that has just started an engine needs a moment to take its lease
STARTING_S = 90.0  # another process has the lock and does not listen: longer than a start takes
LEAVE_S = 1.0
STOPPED = f"the engine was stopped, and typing does not start it. To start it again: {TRY_AGAIN}."


class SharedEngine(EngineClient):
    """A lease on the user's shared engine."""

    kept_while_off = False  # the engine itself stays for engine.shutdown_delay_seconds

    _endpoint: EngineEndpoint | None = None  # of the engine in use, or last used

    async def _live(self) -> None:
        self._set_status("starting", "looking for the engine")
        while True:
            try:
                cause = await self._use_engine()
            except (SpeclspError, OSError) as error:
                await self._end_if_unused()  # in this state it serves no client
                await self._wait_for_another("error", message(error))
                continue
            if not cause and not await self._another_suits():
                await self._wait_for_another("stopped", STOPPED)
            elif not cause:
                self._set_status("starting", "another engine has replaced it")
            elif too_often := self._count_crash(cause):
                await self._wait_for_another("error", too_often)
            else:
                self._set_status("starting", f"the engine ended ({cause}); starting it again")
                await asyncio.sleep(BACKOFF_S[len(self._crash_times_s) - 1])

    async def close(self) -> None:
        is_loading = self.status.engine_pid and not self.status.target
        await super().close()
        if is_loading:  # a load that no client waits for any more
            await self._end_if_unused()

    async def _use_engine(self) -> str:
        """Find or start an engine and use it until it is gone; the cause, or "" when it shut down in order.

        Raises SpeclspError.
        """
        pause_s, deadline_s = 0.01, time.monotonic() + STARTING_S  # an engine listens after half a second
        has_started = False  # an engine of this call's own, which has no lease yet
        while True:
            engine = endpoint.find()
            if engine is not None:
                with suppress(ConnectionLost):  # the file of an engine that was killed
                    if differences := await settings_differences(engine, self._config):
                        await self._wait_for_turn(engine, differences)
                        self._set_status("starting", "starting another engine")
                        deadline_s = time.monotonic() + STARTING_S
                        continue
                    self._endpoint = engine
                    try:
                        address = engine.socket or f"port {engine.port}"
                        in_order = await self._hold_lease(http_to(engine), address, engine.pid)
                        return "" if in_order else "connection lost"
                    except EngineHung:
                        from speclsp.daemon import control  # only here: its HTTP client takes 20 ms to import

                        if await asyncio.to_thread(control.end_hung, engine):
                            return HANGS
                        problem = "does not answer, and could not be ended: `speclsp engine stop`"
                        self._set_status("error", f"the engine (process {engine.pid}) {problem}.")
                        deadline_s = time.monotonic() + STARTING_S
                        continue  # it may recover
            if has_started:
                return "it ended before its first client connected"
            has_started = await asyncio.to_thread(launch.start, self._config) is not None
            if not has_started:
                if time.monotonic() > deadline_s:
                    raise EngineError(
                        f"{endpoint.lock_path()} is locked by a process that does not listen: end that process. "
                        f"To try again: {TRY_AGAIN}."
                    )
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 1.05, 0.25)

    async def _wait_for_turn(self, engine: EngineEndpoint, differences: list[str]) -> None:
        """Wait until no client uses the engine at `engine`, which does not suit, and end it."""
        since_s, pause_s = time.monotonic(), 0.02
        await asyncio.sleep(UNCLAIMED_S)
        while True:
            current = endpoint.find()
            if current is None or current.pid != engine.pid:
                return
            answer = await request_leave(engine)
            if answer.get("leaving"):
                await asyncio.sleep(pause_s)
                return
            if time.monotonic() - since_s > PATIENCE_S:
                self._set_status("waiting", in_use_by_others(int_or_zero(answer.get("clients")), differences))
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.3, POLL_S)

    async def _wait_for_another(self, state: str, message: str) -> None:
        """Show `state` and start nothing, until another engine that suits is running."""
        while True:
            self._set_status(state, message)
            await asyncio.sleep(POLL_S)
            if await self._another_suits():
                return

    async def _another_suits(self) -> bool:
        """True if an engine is running that suits and is not the last used one."""
        last_pid = self._endpoint.pid if self._endpoint is not None else 0
        with suppress(SpeclspError, OSError):
            if (engine := endpoint.find()) is not None and engine.pid != last_pid:
                return not await settings_differences(engine, self._config)
        return False

    async def _end_if_unused(self) -> None:
        """End the last used engine unless other clients use it. It may notice only after a moment that we left."""
        last, until_s = self._endpoint, time.monotonic() + LEAVE_S
        with suppress(SpeclspError, OSError):
            while last is not None and time.monotonic() < until_s:
                answer = await request_leave(last)
                if answer.get("leaving") or int_or_zero(answer.get("clients")) > 1:
                    return
                await asyncio.sleep(0.05)


async def settings_differences(engine: EngineEndpoint, config: Config) -> list[str]:
    """Settings in which the engine at `engine` differs from `config`; [] when it suits. Raises ConnectionLost."""
    differences = endpoint.differences(engine, config)
    if not differences:
        return []
    http = http_to(engine)
    try:  # it may run the configured model under another name
        health = await http.get("/health")
    except InvalidResponse:
        health = {}
    finally:
        await http.close()
    running_model = str(health.get("pair") or "") if isinstance(health, dict) else ""
    return endpoint.differences(engine, config, running_model)


async def request_leave(engine: EngineEndpoint) -> dict[str, object]:
    """Ask the engine at `engine` to end if no client uses it; its answer. Raises ConnectionLost."""
    http = http_to(engine)
    try:
        return await http.post("/leave", {"pid": engine.pid})
    except InvalidResponse:
        return {}
    finally:
        await http.close()


def in_use_by_others(clients: int, differences: list[str]) -> str:
    """Message for an engine that does not suit and that other clients use."""
    users = f"{clients} other editor{'s' if clients > 1 else ''}" if clients else "another program"
    return (
        f"the engine is in use by {users} and differs: {'; '.join(differences)}. It changes when they are closed or "
        f"set alike; engine.shared = false gives this editor one of its own; `speclsp engine stop` ends it for all."
    )
