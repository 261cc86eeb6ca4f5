"""This user's one engine as a Backend: found, or started by whoever finds none; left running for the other editors.

    find engine.json ─► is it what we need? ─► hold a lease ─► it crashed: whoever gets the lock starts another
         └ none: start it      └ no: ended when nobody     │  or hung: ended for all who use it, then the same
                                 uses it; until then wait  └► it left in order: somebody wanted the memory back, so it
                                                              is not started again before the user says so here; one
                                                              that somebody else has started is used

Nothing that serves others is ended from here.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path

from speclsp.config import Config
from speclsp.daemon import endpoint, launch
from speclsp.daemon.endpoint import EngineEndpoint
from speclsp.errors import EngineError, SpeclspError
from speclsp.lsp.backend.engine_client import AGAIN, BACKOFF_S, HANGS, LOOK_AGAIN_S, EngineClient, EngineHung, whole
from speclsp.lsp.backend.http import BadAnswer, ConnectionLost, EngineHttp

PATIENCE_S = 1.0  # another engine is gone by then when all windows change together: no word about it before
UNCLAIMED_S = 0.2  # whoever has just started an engine needs a moment to take hold of it
ON_ITS_WAY_S = 90.0  # somebody has the lock and does not listen: longer than a starter waits
LET_GO_S = 1.0
STOPPED = f"the engine was stopped, and is not started by typing. To start it again: {AGAIN}."


class SharedEngine(EngineClient):
    """A lease on the one engine."""

    kept_while_off = False  # the engine stays for engine.grace_seconds

    _found: EngineEndpoint | None = None  # the engine that is used, or was

    async def _live(self) -> None:
        self._say("starting", "looking for the engine")
        while True:
            try:
                why = await self._use_one()
            except (SpeclspError, OSError) as error:
                await self._let_it_leave()  # as it is, it serves nobody
                await self._wait_for_another("error", str(error))
                continue
            if not why and not await self._is_another():
                await self._wait_for_another("stopped", STOPPED)
            elif not why:
                self._say("starting", "another engine has taken its place")
            elif too_often := self._crashed(why):
                await self._wait_for_another("error", too_often)
            else:
                self._say("starting", f"the engine ended ({why}); starting it again")
                await asyncio.sleep(BACKOFF_S[len(self._crashes) - 1])

    async def close(self) -> None:
        unfinished = self.status.engine_pid and not self.status.target
        await super().close()
        if unfinished:  # a load that nobody waits for any more
            await self._let_it_leave()

    async def _use_one(self) -> str:
        """Find an engine or start one, and use it until it is gone: why, or "" when it left in order.

        Raises SpeclspError.
        """
        pause_s, give_up_s = 0.02, time.monotonic() + ON_ITS_WAY_S
        while True:
            found = endpoint.find()
            if found is not None:
                with suppress(ConnectionLost):  # left behind by one that was killed
                    if told := await differences(found, self._config):
                        await self._wait_for_turn(found, told)
                        self._say("starting", "starting another engine")
                        give_up_s = time.monotonic() + ON_ITS_WAY_S
                        continue
                    self._found = found
                    try:
                        where = found.socket or f"port {found.port}"
                        in_order = await self._hold(wire_to(found), where, found.pid)
                        return "" if in_order else "it went away"
                    except EngineHung:
                        if await asyncio.to_thread(end_hung, found):
                            return HANGS
                        self._say("error", stuck(found))
                        give_up_s = time.monotonic() + ON_ITS_WAY_S
                        continue  # it may come to itself
            if await asyncio.to_thread(launch.start, self._config) is None:
                if time.monotonic() > give_up_s:
                    raise EngineError(
                        f"{endpoint.lock_path()} is locked by a process that does not listen: end that. To try again: "
                        f"{AGAIN}."
                    )
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 1.3, 0.25)

    async def _wait_for_turn(self, found: EngineEndpoint, told: list[str]) -> None:
        """Wait until nobody uses the engine at `found`, which is not what we need, and end it."""
        since, pause_s = time.monotonic(), 0.02
        await asyncio.sleep(UNCLAIMED_S)
        while True:
            current = endpoint.find()
            if current is None or current.pid != found.pid:
                return
            said = await leave(found)
            if said.get("leaving"):
                await asyncio.sleep(pause_s)
                return
            if time.monotonic() - since > PATIENCE_S:
                self._say("waiting", in_the_way(whole(said.get("clients")), told))
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.3, LOOK_AGAIN_S)

    async def _wait_for_another(self, state: str, message: str) -> None:
        """Say so, and start nothing, until there is another engine that suits."""
        while True:
            self._say(state, message)
            await asyncio.sleep(LOOK_AGAIN_S)
            if await self._is_another():
                return

    async def _is_another(self) -> bool:
        """Whether there is an engine that suits, and not the one that was used."""
        gone = self._found.pid if self._found is not None else 0
        with suppress(SpeclspError, OSError):
            found = endpoint.find()
            return found is not None and found.pid != gone and not await differences(found, self._config)
        return False

    async def _let_it_leave(self) -> None:
        """End the engine that was used unless others use it; it may take a moment until it knows that we do not."""
        found, until_s = self._found, time.monotonic() + LET_GO_S
        with suppress(SpeclspError, OSError):
            while found is not None and time.monotonic() < until_s:
                said = await leave(found)
                if said.get("leaving") or whole(said.get("clients")) > 1:
                    return
                await asyncio.sleep(0.05)


async def differences(found: EngineEndpoint, config: Config) -> list[str]:
    """What keeps us from using the engine at `found`; [] when it suits. Raises ConnectionLost: nobody is there."""
    told = endpoint.differences(found, config)
    if not told:
        return []
    wire = wire_to(found)
    try:  # it may run the pair that is asked for by another name
        said = await wire.get("/health")
    except BadAnswer:
        said = {}
    finally:
        await wire.close()
    running = str(said.get("pair") or "") if isinstance(said, dict) else ""
    return endpoint.differences(found, config, running)


async def leave(found: EngineEndpoint) -> dict[str, object]:
    """Ask the engine at `found` to end if nobody uses it; what it says. Raises ConnectionLost."""
    wire = wire_to(found)
    try:
        return await wire.tell("/leave", {"pid": found.pid})
    except BadAnswer:
        return {}
    finally:
        await wire.close()


def wire_to(found: EngineEndpoint) -> EngineHttp:
    """HTTP to the engine at `found`. Raises ConnectionLost; EngineError: what is there is not this user's."""
    if found.socket:
        if not os.path.lexists(found.socket):
            raise ConnectionLost("its socket is gone")
        endpoint.check_socket(Path(found.socket))
        return EngineHttp(socket=found.socket)
    return EngineHttp(f"http://127.0.0.1:{found.port}", headers={"authorization": f"Bearer {found.token}"})


def in_the_way(clients: int, told: list[str]) -> str:
    """The sentence for an engine that others use and that is not what we need."""
    users = f"{clients} other editor{'s' if clients > 1 else ''}" if clients else "another program"
    return (
        f"the engine is in use by {users} and differs: {'; '.join(told)}. It changes when they are closed or set "
        f"alike; engine.shared = false gives this editor one of its own; `speclsp engine --stop` ends it for all."
    )


def end_hung(found: EngineEndpoint) -> bool:
    """`running.end_hung`, whose imports only who needs them pays for."""
    from speclsp.daemon import control as running

    return running.end_hung(found)


def stuck(found: EngineEndpoint) -> str:
    """The sentence for an engine that answers nothing and is not known to be ours to end."""
    return f"the engine (process {found.pid}) does not answer, and could not be ended: `speclsp engine --stop`."
