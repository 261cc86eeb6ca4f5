"""JSON messages over two pipes, with backpressure in both directions.

    reader thread     reads ahead of the event loop, up to the limits of Input
    event loop        handles one message after the other
    MessageWriter     a thread and a queue: a client that does not read blocks only itself

Nothing here knows LSP. The server's own file descriptors 0 and 1 are redirected first, so that a stray print, in
Python or C, ends up on stderr and never between two messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Callable

from speclsp.lsp.protocol.framing import MessageReader, framed
from speclsp.lsp.protocol.process_exit import ProcessExit

MAX_UNREAD_BYTES = 8 * 2**20  # sent but not read by the client; above it, its messages are not handled
MAX_UNREAD_NEWS_BYTES = 2**20  # the same; above it, notifications are dropped: they alone never block the client
ATOMIC_WRITE_BYTES = getattr(select, "PIPE_BUF", 0)  # fits into a pipe that poll reports as writable: write(2), pipe(7)
MAX_WAITING_MESSAGES = 1024  # read but not handled; further ones stay in the pipe, where they take none of our memory
MAX_WAITING_BYTES = 8 * 2**20  # the same; a single larger message is let through alone
FLUSH_S = 0.4  # for the last replies
CLIENT_PAUSE_S = 0.02  # between two checks whether the client reads again

logger = logging.getLogger("speclsp.lsp.stdio")


class MessageWriter:
    """Frames messages and writes them in order. Any thread may call `write`; it never blocks.

    A short frame is written directly if the client reads: so a reply does not wait for a thread switch. All other
    frames are written by a thread of its own, which may block.
    """

    def __init__(self, fd: int, on_broken: Callable[[], None]) -> None:
        self._fd = fd
        self._on_broken = on_broken
        self._changed = threading.Condition()
        self._frames: deque[bytes] = deque()
        self._unread_bytes = 0
        self._writable = writable(fd)
        self._warned = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="speclsp-writer", daemon=True)
        self._thread.start()

    def write(self, body: bytes, droppable: bool = False) -> None:
        """Queue a message. A droppable one is dropped if the client has MAX_UNREAD_NEWS_BYTES unread."""
        frame = framed(body)
        with self._changed:
            if self._closed:
                return
            if droppable and self._unread_bytes >= MAX_UNREAD_NEWS_BYTES:
                if not self._warned:
                    logger.warning("the client does not read: notifications are dropped until it does")
                self._warned = True
                return
            if not self._unread_bytes and len(frame) <= ATOMIC_WRITE_BYTES and self._writable():
                with contextlib.suppress(OSError):  # the thread meets the same error and handles it
                    frame = frame[os.write(self._fd, frame) :]
                if not frame:
                    return
            self._frames.append(frame)
            self._unread_bytes += len(frame)
            self._changed.notify_all()

    def has_room(self) -> bool:
        """False while the client has MAX_UNREAD_BYTES or more unread."""
        return self._closed or self._unread_bytes < MAX_UNREAD_BYTES

    def close(self) -> None:
        """Write the queued messages, for FLUSH_S at most, and accept no more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(FLUSH_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._frames or self._closed)
                if not self._frames:
                    return
                frame = self._frames.popleft()
            try:
                view = memoryview(frame)
                while view:
                    view = view[os.write(self._fd, view) :]
            except OSError:
                with self._changed:
                    self._closed = True
                    self._frames.clear()
                self._on_broken()
                return
            with self._changed:
                self._unread_bytes -= len(frame)


def writable(fd: int) -> Callable[[], bool]:
    """A function: whether ATOMIC_WRITE_BYTES can be written without blocking. Always False without poll(2)."""
    if sys.platform == "win32":
        return lambda: False
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return lambda: poll.poll(0) == [(fd, select.POLLOUT)]


Entry = tuple[object, int] | None  # a message and its bytes; None at the end of the stream


class Input:
    """The client's messages: a thread reads them ahead of the event loop, up to MAX_WAITING_MESSAGES and _BYTES."""

    def __init__(self, in_fd: int, on_early: Callable[[object], None] = lambda message: None) -> None:
        """Begin to read. `on_early` receives each message that arrives before `next`, in the thread."""
        self._reader, self._on_early = MessageReader(functools.partial(os.read, in_fd)), on_early
        self._changed = threading.Condition()
        self._waiting: deque[Entry] = deque()
        self._waiting_bytes = 0
        self._notify: Callable[[Entry], None] | None = None  # set by the event loop
        threading.Thread(target=self._read, name="speclsp-reader", daemon=True).start()

    def follow(self, notify: Callable[[Entry], None]) -> None:
        """Call `notify` for each message that waits, and in the thread for each later one."""
        with self._changed:
            self._notify = notify
            for entry in self._waiting:
                notify(entry)

    def next(self) -> Entry:
        """Remove the message that has waited longest. Call it once for each notification."""
        with self._changed:
            entry = self._waiting.popleft()
            self._waiting_bytes -= entry[1] if entry is not None else 0
            self._changed.notify_all()
        return entry

    def _read(self) -> None:
        try:
            for message in self._reader:
                self._put((message, self._reader.message_bytes))
        except OSError:
            logger.info("stdin can no longer be read")
        finally:
            self._put(None)

    def _put(self, entry: Entry) -> None:
        """Wait for room, and add a message; a single large one is let through alone."""
        size_bytes = entry[1] if entry is not None else 0
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    not self._waiting
                    or (
                        len(self._waiting) < MAX_WAITING_MESSAGES
                        and self._waiting_bytes + size_bytes <= MAX_WAITING_BYTES
                    )
                )
            )
            self._waiting.append(entry)
            self._waiting_bytes += size_bytes
            if self._notify is not None:
                self._notify(entry)
            elif entry is not None:
                try:
                    self._on_early(entry[0])
                except Exception as error:  # its message may quote the client's
                    logger.info("a first message was left to the server: %s", type(error).__name__)


async def converse(
    source: Input,
    writer: MessageWriter,
    process_exit: ProcessExit,
    receive: Callable[[object], None],
    exit_code: Callable[[], int],
) -> None:
    """Pass each message to `receive`, in the event loop's thread, until the stream or the process ends.

    Between two messages every ready task runs. So a task that `receive` starts reaches its first await before the next
    message is handled.
    """
    loop, stopped, arrived = asyncio.get_running_loop(), asyncio.Event(), asyncio.Semaphore(0)

    def call_in_loop(function: Callable[..., object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(function)

    def on_message(entry: Entry) -> None:
        if entry is None:
            process_exit.start_grace()  # the loop may be busy: queued messages are handled within the grace period
        call_in_loop(arrived.release)

    async def handle() -> None:
        while True:
            await arrived.acquire()
            while not writer.has_room():  # the client does not read: its messages wait, and produce no more replies
                await asyncio.sleep(CLIENT_PAUSE_S)
            entry = source.next()
            if entry is None:
                return process_exit.end(exit_code())
            receive(entry[0])
            await asyncio.sleep(0)

    process_exit.wake = functools.partial(call_in_loop, stopped.set)
    handling = asyncio.ensure_future(handle())
    source.follow(on_message)
    if process_exit.code is None:
        await stopped.wait()
    handling.cancel()


def redirect_stdio() -> tuple[int, int]:
    """Private copies of file descriptors 0 and 1, not inherited by children. Then 0 is empty and 1 writes to stderr."""
    pipes = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    try:
        os.dup2(2, 1)
    except OSError:  # started with stderr closed
        os.dup2(null, 1)
    os.close(null)
    return pipes
