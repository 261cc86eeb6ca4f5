"""Backend with a fallback: the local engine answers only while the server at `remote.url` cannot.

the server works                    it answers; no engine is started
the server cannot be used           the engine is started, and answers once it is ready; the status reports both
the server works again              it answers at once; the engine is closed after KEPT_S
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import replace

from speclsp.lsp.backend.types import Backend, FimRequest, OnStatus, StreamPiece, end_task

KEPT_S = 60.0  # the engine is kept for so long after the server works again: it may fail again

Connect = Callable[[OnStatus], Backend]


class FallbackBackend:
    """`first` while it can be used, else the backend that `connect_other` creates."""

    def __init__(self, connect_first: Connect, connect_other: Connect, on_status: OnStatus) -> None:
        self._connect_other, self._on_status = connect_other, on_status
        self._first = connect_first(lambda status: self._status_changed())
        self._other: Backend | None = None
        self._life: asyncio.Task[None] | None = None
        self._first_failed = False
        self._switched = asyncio.Event()  # `first` has failed, or works again
        self.status = self._first.status

    @property
    def reads_ahead(self) -> bool:
        return self._active.reads_ahead

    @property
    def kept_while_off(self) -> bool:
        return self._other is None or self._other.kept_while_off

    @property
    def _active(self) -> Backend:
        return self._other if self._first_failed and self._other is not None else self._first

    def start(self) -> None:
        self._first.start()
        self._life = asyncio.create_task(self._live())

    async def stream(self, request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
        async with aclosing(self._active.stream(request)) as pieces:
            async for piece in pieces:
                yield piece

    async def close(self) -> None:
        if self._life is not None:
            await end_task(self._life)
        await self._first.close()
        await self._close_other()

    def end(self) -> None:
        self._first.end()
        if self._other is not None:
            self._other.end()

    async def _live(self) -> None:
        """Start the engine when it is needed, and close it when it has not been needed for KEPT_S."""
        while True:
            self._switched.clear()
            if not self._first_failed:
                if self._other is not None:
                    with suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(self._switched.wait(), KEPT_S)
                        continue
                    await self._close_other()
            elif self._other is None:
                self._other = self._connect_other(lambda status: self._status_changed())
                self._other.start()
                self._status_changed()
            await self._switched.wait()

    async def _close_other(self) -> None:
        other, self._other = self._other, None
        if other is not None:
            await other.close()

    def _status_changed(self) -> None:
        first = self._first.status
        failed = first.state == "error"
        if failed != self._first_failed:
            self._first_failed = failed
            self._switched.set()
        status = first
        if self._first_failed and self._other is not None:  # the problem of the first, with the state of the other
            other = self._other.status
            local = "The engine on this machine" + (" answers" if other.usable else f": {other.message}")
            status = replace(other, message=f"{first.message} {local}".rstrip(" .:") + ".", remote="")
        if status != self.status:
            self.status = status
            self._on_status(status)
