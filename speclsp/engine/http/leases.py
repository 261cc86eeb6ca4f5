"""Client connections (leases), health reports, and idle shutdown. One of the modules that import starlette.

    GET /health     the state, once
    GET /lease      the state now and at every change; the engine stays while a client holds this stream open
    GET /status     the state, the leases, and the process's use of memory
    POST /leave     end the process, if there is no lease

A lease ends with its stream, and so with its client, however that ends: the system closes a dead process's sockets. A
request without a lease keeps the engine only until it is answered. Everything here runs on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator
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
from speclsp.engine.http.responses import EventStream, json_response, sse
from speclsp.engine.scheduling.device_memory import trim_malloc
from speclsp.engine.scheduling.residency import Residency

COMMENT_S = 5.0  # without a change: then a comment shows that the engine is alive; clients suspect a hang after 15 s
FIRST_USE_S = 4.0  # for the first client to connect, however short the idle shutdown delay
THROTTLE_S = 0.1  # between two events, such as the progress of loading
TRIM_S = 1.0  # from a large body until what it took is freed
MAX_NAME_CHARS = 60
MAX_LEAVE_BYTES = 4096

log = logging.getLogger("speclsp.engine")


@dataclass(eq=False, slots=True)
class Lease:
    """One client's open stream."""

    client: str
    pid: int  # 0: not given
    since_s: float = field(default_factory=time.monotonic)
    changed: asyncio.Event = field(default_factory=asyncio.Event)  # there may be a change to report

    def __str__(self) -> str:
        return f"{self.client} (pid {self.pid})" if self.pid else self.client


class Leases:
    """The open leases, and the idle shutdown after `grace_s` without one."""

    def __init__(self, residency: Residency, leave: Callable[[], None], grace_s: float | None = None) -> None:
        """`leave` ends the process. It is called once, after `grace_s` without users; None: never for that reason."""
        self.open: list[Lease] = []
        self.leaving = False
        self.url = ""  # of the TCP port, if there is one
        self.started_s = time.monotonic()
        self._residency, self._leave, self._grace_s = residency, leave, grace_s
        self._users = 0  # leases, and requests being answered
        self._used = False  # there has been a user
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._state = residency.state
        residency.on_change = self._changed_in_thread

    def begin(self) -> None:
        """Start the idle shutdown delay, on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._wait_for_users()
        self.changed()

    # ── the state ────────────────────────────────────────────────────────────────────────────────────────

    def state_object(self) -> json_fields.Json:
        """The object of /health, and of every event of /lease."""
        residency = self._residency
        completer, state = residency.completer, residency.state
        fields: json_fields.Json = {
            "status": state,
            "model": residency.model,
            "version": __version__,
            "pid": os.getpid(),
        }
        if completer is not None:
            fields |= {"target": completer.target, "draft": completer.draft, "device": completer.device}
        if state == "ok" and residency.adapter:
            fields["adapter"] = dict(residency.adapter)
        fields["clients"] = len(self.open)
        if residency.reason:
            fields["reason"] = residency.reason
        if state == "error":
            return fields | json_fields.error_json(503, residency.message)
        if state == "loading":
            fields["progress"] = round(residency.progress, 4)
        if state == "loading" or residency.message:
            fields["message"] = residency.message
        return fields

    def status_object(self) -> json_fields.Json:
        """The object of /status, which `speclsp engine status` shows."""
        now = time.monotonic()
        leases = [
            {"client": lease.client, "pid": lease.pid, "seconds": round(now - lease.since_s)} for lease in self.open
        ]
        return (
            self.state_object()
            | {"leases": leases, "uptime_s": round(now - self.started_s), "url": self.url}
            | memory_use()
        )

    def changed(self) -> None:
        """Report the state to every lease."""
        before, self._state = self._state, self._residency.state
        if self._state == "ok" != before:
            log.info("%s is loaded", self._residency.model)
        for lease in self.open:
            lease.changed.set()

    def _changed_in_thread(self) -> None:
        """`changed`, called in the engine's thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has closed: the process is ending
                self._loop.call_soon_threadsafe(self.changed)

    # ── users ────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def lease(self, client: str, pid: int) -> Iterator[Lease]:
        """Hold a lease for the duration of the context."""
        with self.used():
            lease = Lease(client, pid)
            self.open.append(lease)
            log.info("%s connected; %s", lease, clients_text(len(self.open)))
            self.changed()
            try:
                yield lease
            finally:
                self.open.remove(lease)
                log.info("%s disconnected; %s", lease, clients_text(len(self.open)))
                self.changed()

    @contextmanager
    def used(self) -> Iterator[None]:
        """Keep the engine for the duration of the context."""
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
            self._timer = self._loop.call_later(grace_s, self.leave, f"no client for {grace_s:g} s")

    def leave(self, why: str) -> None:
        """End the process, and every lease first."""
        if not self.leaving:
            self.leaving = True  # a new client is refused, and starts another engine
            log.info("shutting down: %s", why)
            self._leave()

    def close(self) -> None:
        """End every lease, because the process is ending."""
        self.leaving = True
        self.changed()

    def while_answering(self, app: ASGIApp) -> ASGIApp:
        """`app`, with POST requests keeping the engine while they are answered."""

        async def counted_app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http" and scope["method"] == "POST" and scope["path"] != "/leave":
                with self.used():
                    await app(scope, receive, send)
            else:
                await app(scope, receive, send)

        return counted_app


async def lease_events(leases: Leases, client: str, pid: int, receive: Receive) -> AsyncGenerator[bytes, None]:
    """The state, now and at every change, for as long as the client is connected and the engine serves."""
    disconnect = asyncio.create_task(until_disconnect(receive))
    try:
        with leases.lease(client, pid) as lease:
            disconnect.add_done_callback(lambda _: lease.changed.set())
            sent: json_fields.Json = {}
            while not (leases.leaving or disconnect.done()):
                lease.changed.clear()
                current = leases.state_object()
                if current != sent:
                    sent = current
                    yield sse(current)
                    await asyncio.sleep(THROTTLE_S)
                try:
                    await asyncio.wait_for(lease.changed.wait(), COMMENT_S)
                except asyncio.TimeoutError:
                    yield b": here\n\n"
            yield sse(leases.state_object() | {"status": "leaving"})
    finally:
        disconnect.cancel()


async def until_disconnect(receive: Receive) -> None:
    """Wait until the client has closed its stream, or died."""
    while (await receive())["type"] != "http.disconnect":
        pass


# ── the addresses ────────────────────────────────────────────────────────────────────────────────────────


def routes() -> list[Route]:
    """The addresses of this module."""
    return [
        Route("/health", health),
        Route("/lease", lease),
        Route("/status", status),
        Route("/leave", leave, methods=["POST"]),
    ]


def leases_of(http: Http) -> Leases:
    """The engine's leases."""
    leases: Leases = http.app.state.engine.leases
    return leases


async def health(http: Http) -> Response:
    """GET /health: loading, ok, asleep or error; the other fields only for a client that has shown the token."""
    state = leases_of(http).state_object()
    _, port = http.scope.get("server") or ("", None)
    if port and state["status"] == "asleep":
        state |= {"status": "ok"}  # llama.cpp's clients know no third state, and requests are answered as usual
    status, code = state["status"], 200 if state["status"] in ("ok", "asleep") else 503
    if not http.scope.get("admitted", True):  # over TCP without the token (tcp_guard.py)
        sentence = "Loading model" if status == "loading" else "the model is not available"
        state = {"status": status} | (json_fields.error_json(code, sentence) if code >= 400 else {})
    return json_response(state, code)


async def lease(http: Http) -> Response:
    """GET /lease?client=NAME&pid=PID: hold a lease, and receive the state."""
    if leases_of(http).leaving:
        raise HTTPException(503, "the engine is shutting down: start another one, or retry once another one runs.")
    name, pid = http.query_params.get("client", ""), http.query_params.get("pid", "")
    name = "".join(letter for letter in name if letter.isprintable())[:MAX_NAME_CHARS] or "a client"
    number = int(pid) if pid.isascii() and pid.isdigit() and len(pid) < 11 else 0
    return EventStream(lease_events(leases_of(http), name, number, http.receive))


async def status(http: Http) -> Response:
    """GET /status: the state, the leases and the memory."""
    return json_response(leases_of(http).status_object())


async def leave(http: Http) -> Response:
    """POST /leave: end if there is no lease, or in any case with {"anyway": true}.

    With {"pid": N}, only if this process has that id.
    """
    body, leases = bytearray(), leases_of(http)
    async for chunk in http.stream():
        body += chunk
        if len(body) > MAX_LEAVE_BYTES:
            raise HTTPException(413, f'the body has more than {MAX_LEAVE_BYTES} bytes: send {{"anyway": true}}.')
    fields, clients = json_fields.read(bytes(body or b"{}")), len(leases.open)
    is_meant = fields.integer("pid", os.getpid(), *json_fields.ANY) == os.getpid()
    leaving = is_meant and (fields.flag("anyway", False) or not clients)
    why = f"stop requested, with {clients_text(clients)}"
    after_answer = BackgroundTask(leave_now, leases, why) if leaving else None
    return json_response({"leaving": leaving, "clients": clients}, background=after_answer)


async def leave_now(leases: Leases, why: str) -> None:
    """End the process, from the event loop."""
    leases.leave(why)


# ── memory ───────────────────────────────────────────────────────────────────────────────────────────────


def memory_use() -> dict[str, int]:
    """MiB of main memory that this process has, how much of it is mapped files, and of GPU memory if torch has any."""
    import psutil  # 15 ms that only this request pays

    memory = psutil.Process().memory_info()
    mapped_bytes = getattr(memory, "shared", 0)  # only Linux has it
    use = {"rss_mib": memory.rss // 2**20, "mapped_mib": mapped_bytes // 2**20}
    torch = sys.modules.get("torch")  # never imported for this
    with suppress(Exception):  # a lost driver must not keep the engine from ending
        if torch is not None and torch.cuda.is_initialized():
            reserved = sum(torch.cuda.memory_reserved(number) for number in range(torch.cuda.device_count()))
            use["gpu_mib"] = reserved // 2**20
    return use


def trim_memory_soon() -> None:
    """Return freed memory to the system, in a moment and in another thread: malloc keeps it after a large body."""
    loop = asyncio.get_running_loop()
    loop.call_later(TRIM_S, loop.run_in_executor, None, trim_malloc)


def clients_text(clients: int) -> str:
    """The number of leases in words."""
    return "1 client" if clients == 1 else f"{clients or 'no'} clients"
