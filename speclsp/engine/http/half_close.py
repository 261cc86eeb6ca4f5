"""Half-closed connections: a client that ends its own side after the request still gets its answer.

    shutdown(SHUT_WR)   the client reads on: it is answered, and then the connection is closed
    close()             the client is gone: its request is cancelled

Both reach the server as end of file. On a Unix socket, poll() tells them apart. On TCP only the reply to a packet does,
as a client that is gone answers it with a reset. "100 Continue" is a packet that clients of HTTP/1.1 discard before an
answer. In the middle of an answer, its next part is one. Only Linux's poll() is known to report both, so elsewhere end
of file means that the client is gone.
"""

from __future__ import annotations

import asyncio
import select
import sys
from typing import Any

import h11

CHECK_S = 0.05  # between two checks that the client is still there
ENDLESS = ("/lease",)  # an open connection is the request itself
PROBE = h11.InformationalResponse(status_code=100, headers=[], reason="Continue")


class HalfClosed:
    """Watches a half-closed connection until it ends, and aborts it when the client is gone."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self.transport, self.loop = transport, loop
        self.timer = loop.call_later(CHECK_S, self._check)

    def _check(self) -> None:
        if self.transport.is_closing():
            return
        if is_gone(self.transport):
            self.transport.abort()  # the protocol's connection_lost cancels the request
        else:
            self.timer = self.loop.call_later(CHECK_S, self._check)

    def cancel(self) -> None:
        """End the watch."""
        self.timer.cancel()


def awaits_answer(cycle: Any) -> bool:
    """True if the request of uvicorn's `cycle` has arrived and its answer has an end that is still to be sent."""
    if cycle is None or cycle.more_body or cycle.response_complete:
        return False
    return cycle.scope["path"] not in ENDLESS


def may_probe(cycle: Any) -> bool:
    """True before an answer to a client of HTTP/1.1; those of HTTP/1.0 do not know PROBE."""
    return not cycle.response_started and cycle.scope["http_version"] != "1.0"


def is_gone(transport: asyncio.Transport) -> bool:
    """True if the client of a connection at end of file can read no more, as far as the system knows."""
    connection: Any = transport.get_extra_info("socket")
    if sys.platform != "linux" or connection is None:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), 0)  # POLLHUP and POLLERR are always reported
    return bool(poll.poll(0))
