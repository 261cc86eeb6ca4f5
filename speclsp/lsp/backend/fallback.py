"""Two backends as one: the local engine answers while the server at `backend.url` cannot, and only then.

the server is well                  it answers; no engine is started
it cannot be used                   the engine is started, and answers when it is ready; the status says both
it is well again                    it answers at once; the engine is let go when that has lasted
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import replace

from speclsp.lsp.backend.types import Backend, FimRequest, OnStatus, Status, StreamPiece

KEPT_S = 60.0  # the engine, after the server has come back: it may be gone again

Make = Callable[[OnStatus], Backend]


class FallbackBackend:
    """`first` while it can be used, else what `other` makes."""

    def __init__(self, first: Make, other: Make, on_status: OnStatus) -> None:
        self._make, self._on_status = other, on_status
        self._first = first(lambda status: self._heard())
        self._other: Backend | None = None
        self._life: asyncio.Task[None] | None = None
        self._away = False
        self._turned = asyncio.Event()  # it went away, or came back
        self.status = self._first.status

    @property
    def reads_ahead(self) -> bool:
        return self._active.reads_ahead

    @property
    def kept_while_off(self) -> bool:
        return self._other is None or self._other.kept_while_off

    @property
    def _active(self) -> Backend:
        return self._other if self._away and self._other is not None else self._first

    def start(self) -> None:
        self._first.start()
        self._life = asyncio.create_task(self._live())

    async def stream(self, request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
        async with aclosing(self._active.stream(request)) as pieces:
            async for piece in pieces:
                yield piece

    async def close(self) -> None:
        if self._life is not None:
            self._life.cancel()
            with suppress(asyncio.CancelledError):
                await self._life
        await self._first.close()
        await self._let_go()

    def end(self) -> None:
        self._first.end()
        if self._other is not None:
            self._other.end()

    async def _live(self) -> None:
        """Start the engine when it is needed, and let it go when it has not been for a while."""
        while True:
            self._turned.clear()
            if not self._away:
                if self._other is not None:
                    with suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(self._turned.wait(), KEPT_S)
                        continue
                    await self._let_go()
            elif self._other is None:
                self._other = self._make(lambda status: self._heard())
                self._other.start()
                self._heard()
            await self._turned.wait()

    async def _let_go(self) -> None:
        other, self._other = self._other, None
        if other is not None:
            await other.close()

    def _heard(self) -> None:
        """One of them has changed."""
        away = self._first.status.state == "error"
        if away != self._away:
            self._away = away
            self._turned.set()
        told = self._combined()
        if told != self.status:
            self.status = told
            self._on_status(told)

    def _combined(self) -> Status:
        """What is going on, in one Status: of the one that answers, with the trouble of the other."""
        first = self._first.status
        if not self._away or self._other is None:
            return first
        other = self._other.status
        here = "The engine on this machine answers" if other.usable else f"The engine on this machine: {other.message}"
        return replace(other, message=f"{first.message} {here}".rstrip(" .:") + ".", remote="")
