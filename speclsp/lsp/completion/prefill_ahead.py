"""Prefill ahead of a request: after an edit or a change of focus, the engine prefills the likely prompt.

    didChange ─► a request within PAUSE_S? then no prefill
              └► else the prompt is prefilled, and the request that follows continues from its KV cache
    didFocus  ─► the prompt is prefilled after FOCUS_PAUSE_S; a request in any document cancels it

Editors that wait before they send a request (Neovim 200 ms, VS Code up to 50 ms) leave that time unused. If another
key comes first, its own prompt replaces this one within a prefill step, and their common prefix stays cached.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from speclsp.errors import EngineError
from speclsp.lsp.completion.job import CompletionInput

PAUSE_S = 0.005  # clients that send a request with each key do so within a millisecond: then nothing is prefilled
FOCUS_PAUSE_S = 0.1  # a user who looks for a file passes others by
MAX_UNREQUESTED = 32  # prefills in a row without a request: the user does not seem to want completions here

log = logging.getLogger("speclsp.session")


class PrefillAhead:
    """Schedules prefills, for each document that has had a request and for the one that has the focus."""

    def __init__(self, prefill: Callable[[CompletionInput], Awaitable[None]]) -> None:
        """`prefill` may find that there is nothing to prefill; it may raise EngineError."""
        self._prefill = prefill
        self._focused = ""  # URI of the document whose prefill waits for FOCUS_PAUSE_S
        self._focused_unrequested = 0  # since the last request, in any document
        self._unrequested: dict[str, int] = {}  # by URI: prefills since the last request
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def request_arrived(self, uri: str) -> None:
        """A request has arrived: it prefills its prompt itself, or continues a prefill under way."""
        self._unrequested[uri] = self._focused_unrequested = 0
        self._cancel_timer(uri)

    def document_focused(self, uri: str, capture: Callable[[], CompletionInput | None]) -> None:
        """The document got the user's focus; `capture` is called after the pause. Only the newest focus counts."""
        self._cancel_timer(self._focused)
        self._focused = uri
        if self._focused_unrequested < MAX_UNREQUESTED:
            self._focused_unrequested += 1
            self._cancel_timer(uri)
            loop = asyncio.get_running_loop()
            self._timers[uri] = loop.call_later(FOCUS_PAUSE_S, self._pause_over, uri, capture, True)

    def document_changed(self, uri: str, capture: Callable[[], CompletionInput | None]) -> None:
        """The document was edited; `capture` is called after the pause."""
        self._cancel_timer(uri)
        if self._unrequested.get(uri, MAX_UNREQUESTED) < MAX_UNREQUESTED:
            loop = asyncio.get_running_loop()
            self._timers[uri] = loop.call_later(PAUSE_S, self._pause_over, uri, capture, False)

    def document_closed(self, uri: str) -> None:
        """The document was closed: forget it."""
        self._cancel_timer(uri)
        self._unrequested.pop(uri, None)

    def close(self) -> None:
        """Cancel all timers and prefills."""
        for uri in list(self._timers):
            self._cancel_timer(uri)
        for task in self._tasks:
            task.cancel()

    def _cancel_timer(self, uri: str) -> None:
        timer = self._timers.pop(uri, None)
        if timer is not None:
            timer.cancel()

    def _pause_over(self, uri: str, capture: Callable[[], CompletionInput | None], focused: bool) -> None:
        self._timers.pop(uri, None)
        current = capture()
        if current is not None:
            if not focused:
                self._unrequested[uri] = self._unrequested.get(uri, 0) + 1
            task = asyncio.create_task(self._prefill_quietly(current))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _prefill_quietly(self, current: CompletionInput) -> None:
        """Log errors only: no caller waits, and the request that follows reports its own."""
        try:
            await self._prefill(current)
        except EngineError as error:
            log.debug("not prefilled ahead: %s", error)
        except Exception as error:  # its message may quote the document
            log.error("a prefill failed: %s", type(error).__name__)
