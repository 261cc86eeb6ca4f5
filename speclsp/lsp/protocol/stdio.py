"""JSON messages in and out over two pipes, and leaving for good when the other end has gone.

    Room            a thread reads ahead of the loop, so far and no further
    Outbox          a thread and a queue: a client that stops reading stops nobody but itself
    Lifetime        the one way out: asks the loop to stop, and 1.5 s later stops asking

Nothing here knows LSP. The server's own fd 0 and 1 are pointed elsewhere first, so that a stray print, in Python or C,
ends up on stderr and never between two messages.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import logging
import os
import queue
import select
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from speclsp.lsp.protocol.framing import MessageReader

MAX_UNREAD_BYTES = 8 * 2**20  # what a client may leave unread before its messages have to wait
MAX_UNREAD_NEWS_BYTES = 2**20  # ... and before notifications are dropped: they alone never make it wait
AT_ONCE_BYTES = getattr(select, "PIPE_BUF", 0)  # that much fits where poll says that there is room: write(2), pipe(7)
MAX_WAITING_MESSAGES = 1024  # read but not yet handled; more stay in the pipe, where they take no memory of ours
MAX_WAITING_BYTES = 8 * 2**20  # ... of which one may be larger, alone
GRACE_S = 1.5  # from being told to stop until os._exit
FLUSH_S = 0.4  # for the last replies
PAUSE_S = 0.02  # between looks at whether the client reads again
LOOK_S = 0.5  # how often a reader that has to wait looks whether anyone is still there
POLL_S = 1.0  # between looks at the client's process

logger = logging.getLogger("speclsp.lsp.stdio")


class MessageWriter:
    """Frames messages and writes them in order. Anyone may call `write`; it never blocks.

    A short frame goes out at once where the client reads: a reply need not wait for another thread to be woken. All
    others are written from a thread of its own, which may wait for the client.
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
        """Queue a message; a droppable one is lost when the client has MAX_UNREAD_NEWS_BYTES to read already."""
        frame = b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        with self._changed:
            if self._closed:
                return
            if droppable and self._unread_bytes >= MAX_UNREAD_NEWS_BYTES:
                if not self._warned:
                    logger.warning("the client does not read: notifications are dropped until it does")
                self._warned = True
                return
            if not self._unread_bytes and len(frame) <= AT_ONCE_BYTES and self._writable():
                with contextlib.suppress(OSError):  # the thread finds out what is wrong
                    frame = frame[os.write(self._fd, frame) :]
                if not frame:
                    return
            self._frames.append(frame)
            self._unread_bytes += len(frame)
            self._changed.notify_all()

    def has_room(self) -> bool:
        """False while the client has MAX_UNREAD_BYTES or more to read."""
        return self._closed or self._unread_bytes < MAX_UNREAD_BYTES

    def close(self) -> None:
        """Write what is queued, for FLUSH_S at most, and take no more."""
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
    """Whether AT_ONCE_BYTES can be written now without waiting for anybody; never, where that cannot be known."""
    if not hasattr(select, "poll"):
        return lambda: False
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return lambda: poll.poll(0) == [(fd, select.POLLOUT)]


class Backpressure:
    """How much may wait between the thread that reads and the loop."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._messages = 0
        self._bytes = 0

    def take(self, size_bytes: int, timeout_s: float) -> bool:
        """Wait until there is room for a message, and take it; False when there was none in this time."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._fits(size_bytes), timeout_s):
                return False
            self._messages += 1
            self._bytes += size_bytes
            return True

    def give_back(self, size_bytes: int) -> None:
        with self._changed:
            self._messages -= 1
            self._bytes -= size_bytes
            self._changed.notify_all()

    def _fits(self, size_bytes: int) -> bool:
        few = self._messages < MAX_WAITING_MESSAGES and self._bytes + size_bytes <= MAX_WAITING_BYTES
        return few or not self._messages


class ProcessExit:
    """Ends the process once. `end` may be called from any thread and from signal handlers."""

    def __init__(self) -> None:
        self.code: int | None = None
        self.wake: Callable[[], None] = lambda: None  # set by the loop: makes it stop
        self._on_exit: Callable[[], None] = lambda: None
        self._asked: queue.SimpleQueue[None] = queue.SimpleQueue()  # its put is the one that signal handlers may use
        self._left = threading.Event()  # set when the interpreter has joined its threads: nothing can hang any more

    def begin(self, on_exit: Callable[[], None]) -> None:
        """From here on `end` holds; `on_exit` runs once, on the way out."""
        self._on_exit = on_exit
        atexit.register(self._left.set)
        threading.Thread(target=self._enforce, name="speclsp-exit", daemon=True).start()

    def hurry(self) -> None:
        """Start the grace: by its end the process is gone, whether `end` was called or not."""
        self._asked.put(None)

    def end(self, code: int) -> None:
        """Stop with this exit code; the first call decides."""
        if self.code is None:
            self.code = code
            self.hurry()
            self.wake()

    def leave(self, join: Callable[[], None]) -> int:
        """The loop has stopped: run on_exit, wait for `join` as long as the grace lasts, and give the exit code."""
        self.end(1)
        self._run_on_exit()
        join()
        return self.code or 0

    def watch(self, pid: int) -> None:
        """End when this process has: the client may die while someone else holds our stdin open."""
        born = _process_identity(pid)
        if born is None:
            logger.info("the client's process %d cannot be seen from here: only its end of the pipe is watched", pid)
            return

        def look() -> None:
            while not self._left.wait(POLL_S):
                if _process_identity(pid) != born:
                    logger.info("the client's process %d has ended", pid)
                    self.end(1)
                    return

        threading.Thread(target=look, name="speclsp-watch", daemon=True).start()

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """SIGTERM, SIGINT and SIGHUP end the process with code 0."""
        names = [n for n in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, n)]
        before = {n: signal.signal(getattr(signal, n), lambda *_: self.end(0)) for n in names}
        try:
            yield
        finally:
            for name, handler in before.items():
                signal.signal(getattr(signal, name), handler)

    def _run_on_exit(self) -> None:
        on_exit, self._on_exit = self._on_exit, lambda: None
        try:
            on_exit()
        except Exception as error:
            logger.error("stopping: %s", type(error).__name__)

    def _enforce(self) -> None:
        self._asked.get()
        if not self._left.wait(GRACE_S):
            last = threading.Thread(target=self._run_on_exit, daemon=True)
            last.start()
            last.join(FLUSH_S)
            os._exit(1 if self.code is None else self.code)


async def converse(
    in_fd: int,
    outbox: MessageWriter,
    life: ProcessExit,
    receive: Callable[[object], None],
    exit_code: Callable[[], int],
) -> None:
    """Hand each message to `receive`, in the loop's thread, until the stream or the life ends.

    Between two messages every task that is ready runs, so what `receive` starts gets as far as its first await.
    """
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    inbox: asyncio.Queue[tuple[object, int] | None] = asyncio.Queue()
    room, reader = Backpressure(), MessageReader(functools.partial(os.read, in_fd))

    def tell(call: Callable[..., object], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            loop.call_soon_threadsafe(call, *args)

    def read() -> None:
        try:
            for message in reader:
                while not room.take(reader.message_bytes, LOOK_S):
                    if hung_up(in_fd):
                        return
                tell(inbox.put_nowait, (message, reader.message_bytes))
        except OSError:
            logger.info("stdin cannot be read any more")
        finally:
            life.hurry()  # the loop may be busy: what has come is still handled, as far as the grace lasts
            tell(inbox.put_nowait, None)

    async def handle() -> None:
        while (waiting := await inbox.get()) is not None:
            message, size_bytes = waiting
            while not outbox.has_room():  # the client does not read: it can wait, and its replies stay unmade
                await asyncio.sleep(PAUSE_S)
            room.give_back(size_bytes)
            receive(message)
            await asyncio.sleep(0)
        life.end(exit_code())

    life.wake = functools.partial(tell, stopped.set)
    handling = asyncio.ensure_future(handle())
    threading.Thread(target=read, name="speclsp-reader", daemon=True).start()
    if life.code is None:
        await stopped.wait()
    handling.cancel()


def take_stdio() -> tuple[int, int]:
    """Our own copies of fd 0 and 1, not inherited by children; 0 now reads nothing and 1 writes to stderr."""
    wire = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    try:
        os.dup2(2, 1)
    except OSError:  # started with stderr closed
        os.dup2(null, 1)
    os.close(null)
    return wire


def hung_up(fd: int) -> bool:
    """True when nobody can write to this pipe any more, whatever is still in it."""
    if not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(fd, 0)
    return any(event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0))


def _process_identity(pid: int) -> str | None:
    """Something that changes when the process of this id is another one; None when there is none, or a zombie."""
    if pid <= 0:
        return None
    if Path("/proc/self/stat").exists():
        try:
            state, *fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            return None
        return None if state in "ZX" else fields[18]  # when it started
    if os.name != "posix":
        return None
    try:
        os.kill(pid, 0)  # macOS: asks, and sends nothing
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return "alive"
