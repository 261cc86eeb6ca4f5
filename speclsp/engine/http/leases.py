"""Who uses the engine, how it says how it is, and when it leaves because nobody is left. A door to starlette.

    GET /health     how it is, once
    GET /lease      the same now and at every change; whoever holds this stream open wants the engine to stay
    GET /status     the same, who holds a lease, and what the process has of the machine
    POST /leave     end, if nobody is left

A lease ends with its stream, so it ends with its client however that ends: the system closes a dead process's sockets.
What is asked without a lease keeps the engine for as long as it is answered. Everything here runs on the event loop.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import Request as Http
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from speclsp import __version__
from speclsp.engine.http import json_fields
from speclsp.engine.scheduling.residency import Residency

COMMENT_S = 5.0  # so long without a change, and a comment says that the engine is there; clients doubt it after 15
FIRST_USE_S = 4.0  # whoever started it has so long to come, however short the grace
THROTTLE_S = 0.1  # between two events that tell of the same state: how far loading is
LONGEST_NAME = 60
LONGEST_LEAVE_BYTES = 4096

log = logging.getLogger("speclsp.engine")


@dataclass(eq=False, slots=True)
class Lease:
    """One open stream."""

    client: str
    pid: int  # 0: it did not say
    since: float = field(default_factory=time.monotonic)
    changed: asyncio.Event = field(default_factory=asyncio.Event)  # there may be something to tell it

    def __str__(self) -> str:
        return f"{self.client} (pid {self.pid})" if self.pid else self.client


class Leases:
    """The streams that are open, and the wish to leave when there has been none for `grace_s`."""

    def __init__(self, residency: Residency, leave: Callable[[], None], grace_s: float | None = None) -> None:
        """`leave` ends the process, once; it is called when nobody is left, if there is a `grace_s`."""
        self.held: list[Lease] = []
        self.leaving = False
        self.url = ""  # of the TCP port, where there is one besides
        self.started = time.monotonic()
        self._residency, self._leave, self._grace_s = residency, leave, grace_s
        self._users = 0  # leases, and requests being answered
        self._used = False  # there has been one
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._state = residency.state
        residency.on_change = self._changed_elsewhere

    def begin(self) -> None:
        """The event loop runs, and somebody may come; who does not come in time is not waited for."""
        self._loop = asyncio.get_running_loop()
        self._wait_for_users()
        self.changed()

    # ── how it is ────────────────────────────────────────────────────────────────────────────────────────────

    def how_it_is(self) -> json_fields.Json:
        """What /health says, and every event of /lease."""
        residency = self._residency
        made, state = residency.completer, residency.state
        told: json_fields.Json = {"status": state, "pair": residency.pair, "version": __version__, "pid": os.getpid()}
        if made is not None:
            told |= {"target": made.target, "draft": made.draft, "device": made.device}
        told |= {
            "draft_only": residency.draft_only,
            "clients": len(self.held),
            "memory": residency.memory,
        }
        if state == "error":
            return told | json_fields.error_json(503, residency.message)
        if state == "loading":
            told["progress"] = round(residency.progress, 4)
        if state == "loading" or residency.message:
            told["message"] = residency.message
        return told

    def whole_status(self) -> json_fields.Json:
        """What `speclsp engine --status` shows."""
        now = time.monotonic()
        leases = [{"client": one.client, "pid": one.pid, "seconds": round(now - one.since)} for one in self.held]
        return self.how_it_is() | {"leases": leases, "uptime_s": round(now - self.started), "url": self.url} | taken()

    def changed(self) -> None:
        """Tell every stream."""
        before, self._state = self._state, self._residency.state
        if self._state == "ok" != before:
            log.info("%s is loaded", self._residency.pair)
        for lease in self.held:
            lease.changed.set()

    def _changed_elsewhere(self) -> None:
        """`changed`, from the engine's thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has closed: the process is ending
                self._loop.call_soon_threadsafe(self.changed)

    # ── who uses it ──────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def lease(self, client: str, pid: int) -> Iterator[Lease]:
        """Hold a lease."""
        with self.used():
            lease = Lease(client, pid)
            self.held.append(lease)
            log.info("%s holds a lease; %s", lease, counted(len(self.held)))
            self.changed()
            try:
                yield lease
            finally:
                self.held.remove(lease)
                log.info("%s has gone; %s", lease, counted(len(self.held)))
                self.changed()

    @contextmanager
    def used(self) -> Iterator[None]:
        """Somebody wants the engine to stay."""
        self._users += 1
        self._used = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            yield
        finally:
            self._users -= 1
            self._wait_for_users()

    def _wait_for_users(self) -> None:
        if self._grace_s is not None and self._loop is not None and not self._users and not self.leaving:
            grace_s = self._grace_s if self._used else max(self._grace_s, FIRST_USE_S)
            self._timer = self._loop.call_later(grace_s, self.leave, f"nobody has used it for {grace_s:g} s")

    def leave(self, why: str) -> None:
        """End the process, and every stream first."""
        if not self.leaving:
            self.leaving = True  # who comes now is refused, and starts another
            if log.isEnabledFor(logging.INFO):
                log.info("leaving: %s; gives back %s", why, in_words(taken()))
            self._leave()

    def close(self) -> None:
        """The process is ending: so do the streams."""
        self.leaving = True
        self.changed()

    def counting(self, app: ASGIApp) -> ASGIApp:
        """`app`, whose requests for completions keep the engine while they are answered."""

        async def counted_app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http" and scope["method"] == "POST" and scope["path"] != "/leave":
                with self.used():
                    await app(scope, receive, send)
            else:
                await app(scope, receive, send)

        return counted_app


class LeaseStream(Response):
    """Server-sent events for as long as the client stays."""

    media_type = "text/event-stream"

    def __init__(self, leases: Leases, client: str, pid: int) -> None:
        self.leases, self.client, self.pid = leases, client, pid
        self.status_code = 200
        self.background = None
        self.init_headers({"cache-control": "no-cache"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.create_task(until_gone(receive))
        try:
            with self.leases.lease(self.client, self.pid) as lease:
                telling = asyncio.create_task(self._tell(lease, send))
                try:
                    await asyncio.wait([gone, telling], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    telling.cancel()
        finally:
            gone.cancel()

    async def _tell(self, lease: Lease, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        said: json_fields.Json = {}
        while not self.leases.leaving:
            lease.changed.clear()
            now = self.leases.how_it_is()
            if now != said:
                said = now
                event = b"data: " + json_fields.dump(now) + b"\n\n"
                await send({"type": "http.response.body", "body": event, "more_body": True})
                await self._pause(now["status"])
            try:
                await asyncio.wait_for(lease.changed.wait(), COMMENT_S)
            except asyncio.TimeoutError:
                await send({"type": "http.response.body", "body": b": here\n\n", "more_body": True})
        last = b"data: " + json_fields.dump(self.leases.how_it_is() | {"status": "leaving"}) + b"\n\n"
        await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _pause(self, state: object) -> None:
        """Let smaller changes gather for a moment; another state, and the end, are told at once."""
        for _ in range(5):
            if self.leases.leaving or self.leases.how_it_is()["status"] != state:
                break
            await asyncio.sleep(THROTTLE_S / 5)


async def until_gone(receive: Receive) -> None:
    """Until the client has closed its stream, or died."""
    while (await receive())["type"] != "http.disconnect":
        pass


# ── the addresses ────────────────────────────────────────────────────────────────────────────────────────────


def routes() -> list[Route]:
    """What this module answers."""
    return [
        Route("/health", health),
        Route("/lease", lease),
        Route("/status", status),
        Route("/leave", leave, methods=["POST"]),
    ]


def of(http: Http) -> Leases:
    """The engine's leases."""
    found: Leases = http.app.state.engine.leases
    return found


async def health(http: Http) -> Response:
    """GET /health: loading, ok, asleep or error."""
    told = of(http).how_it_is()
    _, port = http.scope.get("server") or ("", None)
    if port and told["status"] == "asleep":
        told |= {"status": "ok"}  # llama.cpp's clients know no third state, and a request is answered as ever
    return answer(told, 200 if told["status"] in ("ok", "asleep") else 503)


async def lease(http: Http) -> Response:
    """GET /lease?client=NAME&pid=PID: hold a lease, and hear how it is."""
    if of(http).leaving:
        raise HTTPException(503, "the engine is ending: start another, or wait until somebody has.")
    name, pid = http.query_params.get("client", ""), http.query_params.get("pid", "")
    name = "".join(letter for letter in name if letter.isprintable())[:LONGEST_NAME] or "a client"
    return LeaseStream(of(http), name, int(pid) if pid.isascii() and pid.isdigit() and len(pid) < 11 else 0)


async def status(http: Http) -> Response:
    """GET /status: all there is to say."""
    return answer(of(http).whole_status())


async def leave(http: Http) -> Response:
    """POST /leave: end if nobody holds a lease, or with {"anyway": true} even so.

    With {"pid": N} only where this is still the process that was meant.
    """
    body, leases = bytearray(), of(http)
    async for chunk in http.stream():
        body += chunk
        if len(body) > LONGEST_LEAVE_BYTES:
            raise HTTPException(413, f'the body has more than {LONGEST_LEAVE_BYTES} bytes: send {{"anyway": true}}.')
    try:
        asked = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict) or not isinstance(asked.get("anyway", False), bool):
        raise HTTPException(400, 'the body is not {"anyway": true}, {} or nothing.')
    clients = len(leases.held)
    goes = asked.get("pid", os.getpid()) == os.getpid() and (asked.get("anyway", False) or not clients)
    why = f"it was told to, with {counted(clients)}"
    after = BackgroundTask(at_last, leases, why) if goes else None  # when the answer is on its way
    return answer({"leaving": goes, "clients": clients}, background=after)


async def at_last(leases: Leases, why: str) -> None:
    """Leave, on the event loop."""
    leases.leave(why)


def answer(told: json_fields.Json, code: int = 200, background: BackgroundTask | None = None) -> Response:
    """A JSON response."""
    return Response(json_fields.dump(told), code, media_type="application/json", background=background)


# ── what the process has ─────────────────────────────────────────────────────────────────────────────────────


def taken() -> dict[str, int]:
    """MiB of memory this process has, and of a GPU's where torch has any."""
    import psutil  # 15 ms that only who asks pays

    found = {"rss_mib": psutil.Process().memory_info().rss // 2**20}
    torch = sys.modules.get("torch")  # never imported for this
    with suppress(Exception):  # a driver that is gone must not keep the engine from leaving
        if torch is not None and torch.cuda.is_initialized():
            reserved = sum(torch.cuda.memory_reserved(number) for number in range(torch.cuda.device_count()))
            found["gpu_mib"] = reserved // 2**20
    return found


def in_words(found: dict[str, int]) -> str:
    """`taken` for a person."""
    gpu = f" and {found['gpu_mib']} MiB of GPU memory" if "gpu_mib" in found else ""
    return f"{found['rss_mib']} MiB of memory{gpu}"


def counted(clients: int) -> str:
    """How many hold a lease."""
    return "1 client" if clients == 1 else f"{clients or 'no'} clients"
