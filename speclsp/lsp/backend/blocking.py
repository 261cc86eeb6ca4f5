"""A backend for a program without an event loop: each call blocks.

    with ready(connect, on_status) as backend:
        for piece in backend.pieces(request): ...

The block ends with `close`, so a shared engine stays for its next client. An exception in the block, Ctrl-C included,
cancels the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from contextlib import aclosing, contextmanager

from speclsp.errors import EngineError
from speclsp.lsp.backend.types import Backend, FimRequest, OnStatus, Status, StreamPiece

READY = ("ready", "asleep")  # not `Status.usable`: while a target loads, its draft model answers with other text
UNAVAILABLE = ("error", "stopped")


def without_retry(message: str) -> str:
    """A backend's message without its next try, which belongs to a process that stays."""
    return message.partition(" Next try at")[0].partition(" To try again:")[0]


class Unavailable(EngineError):
    """The backend cannot serve; the message is that of its Status."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message or f"the engine is in the state {status.state!r}.")
        self.state = status.state


class BlockingBackend:
    """A backend that is ready, and the loop that runs it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, backend: Backend) -> None:
        self._loop, self._backend = loop, backend

    @property
    def status(self) -> Status:
        """The state of the backend, and the names of its models."""
        return self._backend.status

    def pieces(self, request: FimRequest) -> Generator[StreamPiece, None, None]:
        """The completion, round by round. Close the iterator to cancel. Raises EngineError."""
        queue: asyncio.Queue[StreamPiece | Exception | None] = asyncio.Queue()
        reading = self._loop.create_task(read(self._backend, request, queue))
        try:
            while (item := self._loop.run_until_complete(queue.get())) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            cancel(self._loop, {reading})


async def read(backend: Backend, request: FimRequest, queue: asyncio.Queue[StreamPiece | Exception | None]) -> None:
    """Put the pieces into the queue, then None, or the exception that ended the stream."""
    try:
        async with aclosing(backend.stream(request)) as stream:
            async for piece in stream:
                queue.put_nowait(piece)
    except Exception as error:
        queue.put_nowait(error)
    else:
        queue.put_nowait(None)


@contextmanager
def ready(connect: Callable[[OnStatus], Backend], on_status: OnStatus) -> Iterator[BlockingBackend]:
    """The backend that `connect` makes, once its model is loaded; `on_status` gets each Status until then.

    Raises Unavailable.
    """
    loop = asyncio.new_event_loop()
    try:
        backend = loop.run_until_complete(start(connect, on_status))
        try:
            yield BlockingBackend(loop, backend)
        finally:
            loop.run_until_complete(backend.close())
    finally:
        cancel(loop, asyncio.all_tasks(loop))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


async def start(connect: Callable[[OnStatus], Backend], on_status: OnStatus) -> Backend:
    """A backend whose model is loaded, or unloaded until the next request. Raises Unavailable."""
    changed = asyncio.Event()
    backend = connect(lambda status: changed.set())
    backend.start()
    try:
        while backend.status.state not in READY:
            on_status(backend.status)
            if backend.status.state in UNAVAILABLE:
                raise Unavailable(backend.status)
            await changed.wait()
            changed.clear()
    except BaseException:
        await backend.close()
        raise
    return backend


def cancel(loop: asyncio.AbstractEventLoop, tasks: set[asyncio.Task[None]]) -> None:
    """Cancel tasks of `loop` and wait for their end. A Ctrl-C that ends one is raised here, and printed nowhere."""
    for task in tasks:
        task.cancel()
    try:
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks))
    finally:
        for task in tasks:
            if task.done() and not task.cancelled():
                task.exception()  # one that nobody has read would be printed with its traceback
