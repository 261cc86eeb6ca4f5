"""Access control of the TCP port: token, Host header, browser checks, timeouts. Imports uvicorn, as server_process.py.

    listen        opens a port, on loopback unless another address is requested
    TcpGuard      refuses requests without the token, and any that a web page could have sent
    TimedProtocol limits the number of connections, and closes those without an admitted request

The Unix socket needs none of this: the system tells which user is at the other end (server_process.py). A TCP port is
open to every user of the machine and to every web page in a browser on it, so its requests must authenticate. The
checks cover known attacks on local servers through browsers: cross-origin posts, DNS rebinding, WebSockets.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import ipaddress
import json
import re
import socket
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from speclsp.daemon import platform
from speclsp.engine.http.json_fields import error_json
from speclsp.engine.http.responses import json_response
from speclsp.errors import EngineError
from speclsp.private_files import os_errors

IDLE_S = 60.0  # from a connection's beginning, or an answer's end, to the next admitted request
MAX_CONNECTIONS = 64
MAX_SHOWN_CHARS = 60  # of a header
MAX_DRAINED_BYTES = 16 * 2**20  # of a refused request's body, so that its sender can read the refusal
BACKLOG = 128
HOW_TO_SEND = "send `Authorization: Bearer TOKEN`; the engine prints the path of the token file when it starts"
ADVICE = {
    errno.EADDRINUSE: "another program listens there. Choose another port with --port, or stop that program",
    errno.EACCES: "the system does not allow it. Choose a port from 1024 up with --port",
    errno.EADDRNOTAVAIL: "that is not an address of this machine. Leave out --host for loopback",
}


# ── the port ─────────────────────────────────────────────────────────────────────────────────────────────


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket; port 0 is any free one. Raises EngineError with the obstacle and its fix."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise EngineError(f"{host!r} is not an address: leave out --host for loopback.") from error
    # IPv4 first: localhost is then 127.0.0.1.
    family, kind, protocol, _, address = min(addresses, key=lambda item: item[0] != socket.AF_INET)
    listener = socket.socket(family, kind, protocol)
    try:
        platform.set_address_options(listener)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        why = ADVICE.get(error.errno or 0, os_errors.reason(error))
        raise EngineError(f"cannot listen on port {port} of {host}: {why}.") from error
    return listener


def warning(host: str) -> str:
    """The warning about listening on `host`; "" for loopback."""
    if is_loopback(host):
        return ""
    return (
        f"the port is open to the network on {host}, and HTTP is not encrypted: source text and the token can be read "
        "on the way. An SSH tunnel to a loopback port, or a proxy that speaks HTTPS, is the safe way."
    )


def is_loopback(host: str) -> bool:
    """True when the name or address can only mean this machine."""
    address = address_of(host)
    return address.is_loopback if address else host.lower() == "localhost"


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The IP address; None for a name."""
    with suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]").partition("%")[0])
    return None


# ── requests ─────────────────────────────────────────────────────────────────────────────────────────────


class TcpGuard:
    """ASGI middleware: a request over TCP must pass the checks; one over a Unix socket passes."""

    def __init__(self, app: ASGIApp, token: str, host: str = "127.0.0.1") -> None:
        """`host`: the listening address, as it was requested."""
        if not token:
            raise ValueError("no token")  # an empty one would admit everybody
        self.app = app
        self.token = token.encode()
        self.host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        server = scope.get("server")
        if server is not None and server[1] is None:
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not supported")
        headers = Headers(scope=scope)
        try:
            check_host(headers, self.host)
            check_sender(headers, scope["method"])
            scope["admitted"] = self.has_token(headers)
            is_open = scope["path"] == "/health" and scope["method"] in ("GET", "HEAD")
            if not scope["admitted"] and not is_open:
                fix = {"www-authenticate": "Bearer"}
                raise HTTPException(401, f"the token is missing or wrong: {HOW_TO_SEND}.", fix)
        except HTTPException as refused:
            await drain(receive)
            body, fields = error_json(refused.status_code, refused.detail), {"connection": "close"}
            response = json_response(body, refused.status_code, fields | dict(refused.headers or {}))
            await response(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def has_token(self, headers: Headers) -> bool:
        """True when a header has the token. The comparison takes constant time, however much of a token is right."""
        sent = [value.strip() for value in headers.getlist("x-api-key")]
        for value in headers.getlist("authorization"):
            kind, _, credentials = value.strip().partition(" ")
            if kind.lower() == "bearer":
                sent.append(credentials.strip())
        return any(hmac.compare_digest(token.encode("latin-1"), self.token) for token in sent)


def check_host(headers: Headers, bound: str) -> None:
    """Refuse a Host that is not this machine's: after DNS rebinding a web page sends its own name."""
    hosts = headers.getlist("host")
    if len(hosts) != 1:
        raise HTTPException(403, f"the request has {len(hosts)} Host headers: send one.")
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:@/\s]+)(:\d{1,5})?", hosts[0].strip())
    name = match[1].lower() if match else ""
    if is_loopback(name) or (name and name.strip("[]") == bound.strip("[]").lower()):
        return
    listening = address_of(bound)
    is_wildcard = listening is not None and listening.is_unspecified
    if is_wildcard and address_of(name):  # rebinding needs a name, so an address is safe
        return
    own = "an IP address of this machine" if is_wildcard else bound
    raise HTTPException(
        403,
        f"the Host header is {shown(hosts[0])}: connect to {own}, or start the engine with --host "
        "and that name, if it is this machine's. Behind a proxy, set the header to localhost.",
    )


def shown(header: str) -> str:
    """A header's value for an error, in ASCII."""
    return json.dumps(header if len(header) <= MAX_SHOWN_CHARS else header[:MAX_SHOWN_CHARS] + "...")


def check_sender(headers: Headers, method: str) -> None:
    """Refuse browsers: they send the origin of a request, and no editor or library does."""
    if "origin" in headers:
        raise HTTPException(403, "requests from web pages are refused (the request has an Origin header).")
    if any(value.strip() != "none" for value in headers.getlist("sec-fetch-site")):
        raise HTTPException(403, "requests from web pages are refused (the request has a Sec-Fetch-Site header).")
    if method in ("OPTIONS", "TRACE", "CONNECT"):
        raise HTTPException(403, "requests from other origins (CORS) are refused.")


async def drain(receive: Receive) -> None:
    """Read and discard the rest of the body: closing the connection in the middle of it would lose the answer."""
    size, more = 0, True
    while more and size <= MAX_DRAINED_BYTES:
        message = await receive()
        size += len(message.get("body", b""))
        more = message["type"] == "http.request" and message.get("more_body", False)


# ── connections ──────────────────────────────────────────────────────────────────────────────────────────


class TimedProtocol(H11Protocol):
    """HTTP with one timeout and a limit on connections, over TCP only."""

    _alarm: asyncio.TimerHandle | None = None  # None: not over TCP

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family == getattr(socket, "AF_UNIX", None):
            return
        self._restart_timer()
        over_tcp = [other for other in self.connections if isinstance(other, TimedProtocol) and other._alarm]
        if len(over_tcp) > MAX_CONNECTIONS:
            transport.abort()

    def on_response_complete(self) -> None:
        super().on_response_complete()  # begins the next request, if there is one
        if self._alarm is not None:
            self._restart_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        super().connection_lost(exc)
        # uvicorn leaves this timer after an error, and the timer keeps the whole connection in memory.
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()

    def _restart_timer(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self.loop.call_later(IDLE_S, self._expire)

    def _expire(self) -> None:
        """Close the connection, unless an admitted request is being answered."""
        if not (self.cycle and not self.cycle.response_complete and self.cycle.scope.get("admitted")):
            self.transport.abort()
