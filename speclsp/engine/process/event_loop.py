"""The engine's event loop: a selector loop on every system. Imports uvicorn, as server_process.py does.

Windows' default, the Proactor loop, closes the listening socket when a client resets its connection before it is
accepted (CPython issue 93821); the engine would then have the lock and no listener. The engine uses neither pipes nor
child processes, which need the Proactor. select() has room for 512 sockets there, and tcp_guard.py admits 64.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

log = logging.getLogger("speclsp.engine")


class SelectorConfig(uvicorn.Config):
    """uvicorn's settings, with the selector loop."""

    @property
    def use_subprocess(self) -> bool:
        """True: on Windows uvicorn then chooses the selector loop."""
        return True


def report_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """The loop's exception handler: a failed connection on Windows, as one reset before accept(), is no error."""
    error = context.get("exception")
    if sys.platform == "win32" and isinstance(error, OSError):
        log.debug("a connection failed: %s", error)
    else:
        loop.default_exception_handler(context)


@contextmanager
def woken_by_signals(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """On Windows, let a signal end the loop's select(), so that its handler runs at once and not at the next event."""
    if sys.platform != "win32":
        yield  # add_signal_handler does it
        return
    reader, writer = socket.socketpair()
    with reader, writer:
        reader.setblocking(False)
        writer.setblocking(False)
        loop.add_reader(reader, reader.recv, 64)
        previous = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(previous)
            loop.remove_reader(reader)
