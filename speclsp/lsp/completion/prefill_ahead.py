"""Reading ahead: when a document has changed and nobody asks at once, the engine gets the likely prompt to read.

    didChange ─► a request within PAUSE_S? then nothing was done
              └► else the prompt is prefilled, and the request that follows goes on from there

Editors that wait before they ask (Neovim 200 ms, VS Code up to 50 ms) leave that time unused. Where the next key comes
first, its own prompt takes over within a step of prefill, and what the two have in common stays cached.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from speclsp.errors import EngineError
from speclsp.lsp.documents.document import Snapshot

PAUSE_S = 0.005  # a client that asks with each key does so in the same millisecond: then there is nothing to do
UNASKED_AT_MOST = 32  # changes read ahead in a row without a request: nobody seems to want completions here

log = logging.getLogger("speclsp.session")


@dataclass(frozen=True, slots=True)
class CompletionInput:
    """What a request would see now."""

    snapshot: Snapshot
    others: Callable[[], Sequence[Snapshot]] = tuple  # other open documents; called only when a prompt is built
    root: str | None = None


class PrefillAhead:
    """When to read ahead, for each document that completions were asked in."""

    def __init__(self, read: Callable[[CompletionInput], Awaitable[None]]) -> None:
        """`read` may find that there is nothing to read; it may raise EngineError."""
        self._read = read
        self._unasked: dict[str, int] = {}  # by URI: read ahead since the last request
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._reading: set[asyncio.Task[None]] = set()

    def asked(self, uri: str) -> None:
        """A request has come: it does the work itself, or goes on where reading ahead has got to."""
        self._unasked[uri] = 0
        self._wait_no_more(uri)

    def changed(self, uri: str, look: Callable[[], CompletionInput | None]) -> None:
        """The document was edited; `look` is called when it has come to a pause."""
        self._wait_no_more(uri)
        if self._unasked.get(uri, UNASKED_AT_MOST) < UNASKED_AT_MOST:
            self._timers[uri] = asyncio.get_running_loop().call_later(PAUSE_S, self._begin, uri, look)

    def forget(self, uri: str) -> None:
        """The document was closed."""
        self._wait_no_more(uri)
        self._unasked.pop(uri, None)

    def close(self) -> None:
        """Nothing is read any more."""
        for uri in list(self._timers):
            self._wait_no_more(uri)
        for task in self._reading:
            task.cancel()

    def _wait_no_more(self, uri: str) -> None:
        timer = self._timers.pop(uri, None)
        if timer is not None:
            timer.cancel()

    def _begin(self, uri: str, look: Callable[[], CompletionInput | None]) -> None:
        self._timers.pop(uri, None)
        seen = look()
        if seen is not None:
            self._unasked[uri] = self._unasked.get(uri, 0) + 1
            task = asyncio.create_task(self._read_quietly(seen))
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)

    async def _read_quietly(self, seen: CompletionInput) -> None:
        """Nobody waits for it, so nobody hears of what goes wrong; the request that follows will."""
        try:
            await self._read(seen)
        except EngineError as error:
            log.debug("not read ahead: %s", error)
        except Exception as error:  # its message may quote the document
            log.error("reading ahead failed: %s", type(error).__name__)
