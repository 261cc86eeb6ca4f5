"""Prefill ahead of a request: after an edit, a change of focus or a rest, the engine prefills the likely prompt.

    didChange ─► a request within PAUSE_S? then no prefill
              └► else the prompt is prefilled, and the request that follows continues from its KV cache
    didFocus  ─► the prompt is prefilled after FOCUS_PAUSE_S; a request in any document cancels it
    rest      ─► REST_S after an edit, or after the prefill of a focus: work that only saves time later

Editors that wait before they send a request (Neovim 200 ms, VS Code up to 50 ms) leave that time unused. If another
key comes first, its own prompt replaces this one within a prefill step, and their common prefix stays cached.

At rest the engine prefills one prompt ahead: that of a new line below the cursor, or the same with a better selection
of chunks from other files. Any key ends it, except the Enter that it was computed for. A prefill generates no text, and
one at rest runs only while the engine is idle.

PrefillAhead decides when to prefill, and Prefill what.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

from speclsp.errors import EngineError
from speclsp.lsp.backend.types import Backend, FimRequest
from speclsp.lsp.completion.job import CompletionInput
from speclsp.lsp.completion.pipeline import Pipeline
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.syntax.text_windows import line_end, line_start

PAUSE_S = 0.005  # clients that send a request with each key do so within a millisecond: then nothing is prefilled
FOCUS_PAUSE_S = 0.1  # a user who looks for a file passes others by
REST_S = 0.4  # longer than next_suggestion.PAUSE_S: the next suggestion comes first
POLL_S = 0.05  # at rest, while the engine works for the cursor
MAX_UNREQUESTED = 32  # prefills in a row without a request: the user does not seem to want completions here
PAIRS = ("()", "[]", "{}")

log = logging.getLogger("speclsp.session")


class PrefillAhead:
    """Schedules prefills at the cursor: in documents that have had a request, and in the one that gets the focus."""

    def __init__(
        self,
        prefill: Callable[[CompletionInput], Awaitable[None]],
        work_at_rest: Callable[[CompletionInput], Awaitable[None]],
    ) -> None:
        """`prefill` may find that there is nothing to prefill. Both may raise EngineError."""
        self._prefill, self._work_at_rest = prefill, work_at_rest
        self._requested: set[str] = set()  # URIs of documents that have had a request
        self._unrequested = 0  # prefills since the last request
        self._timer: asyncio.TimerHandle | None = None  # one cursor, one prefill and one rest
        self._rest_timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._rest: tuple[asyncio.Task[None], Snapshot] | None = None  # its work, and where the cursor rests

    def request_arrived(self, uri: str) -> None:
        """A request has arrived: it prefills its prompt itself, or continues a prefill under way."""
        self._requested.add(uri)
        self._unrequested = 0
        self._cancel_timer()

    def document_focused(self, capture: Callable[[], CompletionInput | None]) -> None:
        """The cursor rests in a document; `capture` is called after the pause. Only the newest focus counts."""
        self._cancel_timer()
        if self._unrequested < MAX_UNREQUESTED:
            self._timer = asyncio.get_running_loop().call_later(FOCUS_PAUSE_S, self._focus_settled, capture)

    def document_changed(self, uri: str, capture: Callable[[], CompletionInput | None]) -> None:
        """The document was edited; `capture` is called after the pause."""
        self._cancel_timer()
        self._end_rest(uri, capture)
        if uri in self._requested and self._unrequested < MAX_UNREQUESTED:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(PAUSE_S, self._pause_over, capture)
            self._rest_timer = loop.call_later(REST_S, self._rest_began, capture)

    def document_closed(self, uri: str) -> None:
        """The document was closed: forget it."""
        self._cancel_timer()
        self._end_rest(uri)
        self._requested.discard(uri)

    def end_work(self) -> None:
        """Cancel the prefills under way, and the work at rest."""
        self._end_rest()
        for task in self._tasks:
            task.cancel()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _focus_settled(self, capture: Callable[[], CompletionInput | None]) -> None:
        self._timer = None
        self._unrequested += 1
        self._begin_rest(capture(), prefills=True)

    def _rest_began(self, capture: Callable[[], CompletionInput | None]) -> None:
        self._rest_timer = None
        if self._tasks:  # the prompt at the cursor comes first
            self._rest_timer = asyncio.get_running_loop().call_later(POLL_S, self._rest_began, capture)
        else:
            self._begin_rest(capture(), prefills=False)

    def _begin_rest(self, current: CompletionInput | None, prefills: bool) -> None:
        """Start the work at a resting cursor; `prefills`: its own prompt first."""
        self._end_rest()
        if current is not None:
            work = (self._prefill, self._work_at_rest) if prefills else (self._work_at_rest,)
            self._rest = self._start(current, *work), current.snapshot

    def _end_rest(self, uri: str = "", capture: Callable[[], CompletionInput | None] = lambda: None) -> None:
        """End the work at rest, unless the edit that `capture` shows is the one that it was done for."""
        if self._rest_timer is not None:
            self._rest_timer.cancel()
            self._rest_timer = None
        if self._rest is None:
            return
        task, rested = self._rest
        current = capture() if not task.done() and uri == rested.uri else None
        if current is None or not is_new_line(current.snapshot, rested):
            task.cancel()
            self._rest = None

    def _pause_over(self, capture: Callable[[], CompletionInput | None]) -> None:
        self._timer = None
        current = capture()
        if current is not None:
            self._unrequested += 1
            self._start(current, self._prefill)

    def _start(
        self, current: CompletionInput, *work: Callable[[CompletionInput], Awaitable[None]]
    ) -> asyncio.Task[None]:
        task = asyncio.create_task(self._run_quietly(current, *work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _run_quietly(self, current: CompletionInput, *work: Callable[[CompletionInput], Awaitable[None]]) -> None:
        """Log errors only: no caller waits, and the request that follows reports its own."""
        try:
            for step in work:
                await step(current)
        except EngineError as error:
            log.debug("not prefilled ahead: %s", error)
        except Exception as error:  # its message may quote the document
            log.error("a prefill failed: %s", type(error).__name__)


@dataclass(frozen=True, slots=True)
class Prefill:
    """Prefills for one editor. Both ways may raise EngineError.

    Args:
        is_computing: True if the engine computes the prompt at a cursor, or an answer in its document.
        has_work: True while a request or a preparation of a document waits or is computed.
    """

    _pipeline: Pipeline
    _backend: Callable[[], Backend | None]
    _wait_for_turn: Callable[[], Awaitable[None]]
    _is_computing: Callable[[Snapshot], bool]
    _has_work: Callable[[str], bool]

    async def at_cursor(self, current: CompletionInput) -> None:
        """Let the engine compute the prompt of a request at the cursor."""
        await self._wait_for_turn()
        backend = self._backend()
        if backend is None or not backend.reads_ahead or backend.status.state != "ready":
            return  # only a request wakes an unloaded engine
        if not self._is_computing(current.snapshot):
            await self._compute(self._pipeline.prefill_request(current))

    async def at_rest(self, current: CompletionInput) -> None:
        """Compute the prompt of a new line, then the same with a better selection of chunks, if there is one.

        On a blank line the prompt is that of the cursor: the user will type there. Without work ahead, the better
        selection is used at once: in a pause, and not while the user types.
        """
        uri = current.snapshot.uri
        await self._wait_for_rest(uri)
        backend, new_line = self._backend(), new_line_below(current.snapshot)
        works_ahead = backend is not None and backend.reads_ahead and self._pipeline.may_work_ahead()
        if new_line is not None:
            current = replace(current, snapshot=new_line)
            if works_ahead:
                await self._compute(self._pipeline.prefill_request(current, at_rest=True))
                await self._wait_for_rest(uri)
        request = self._pipeline.prefill_request(current, at_rest=True, better=True)
        if request is not None:
            selection = self._pipeline.selections[uri]
            better = selection.better
            if not works_ahead or await self._compute(request):
                selection.use_better(better)

    async def _wait_for_rest(self, uri: str) -> None:
        """Wait for the end of the work at the cursor: another prompt of its session would end a preparation."""
        await self._wait_for_turn()
        while self._has_work(uri):
            await asyncio.sleep(POLL_S)
            await self._wait_for_turn()

    async def _compute(self, request: FimRequest | None) -> bool:
        """Let the engine compute a prompt; True if it computed all of it."""
        backend = self._backend()
        if request is None or backend is None:
            return False
        stop = "cancelled"
        async with aclosing(backend.stream(request)) as pieces:
            async for piece in pieces:
                stop = piece.cost.stop_type if piece.cost is not None else stop
        return stop != "cancelled"


def new_line_below(snapshot: Snapshot) -> Snapshot | None:
    """The document after Enter, without the indentation; None on a blank line.

    Enter between two brackets puts the closing one on a line of its own. In the middle of a line, the new line is the
    one that an editor opens below.
    """
    text, cursor = snapshot.text, snapshot.cursor
    start, end = line_start(text, cursor), line_end(text, cursor)
    line = text[start:end]
    if not line.strip():
        return None
    newline = "\r\n" if "\r\n" in text else "\n"
    if text[cursor - 1 : cursor + 1] in PAIRS and cursor > start:
        indent = line[: len(line) - len(line.lstrip())]
        return replace(
            snapshot, text=text[:cursor] + 2 * newline + indent + text[cursor:], cursor=cursor + len(newline)
        )
    return replace(snapshot, text=text[:end] + newline + text[end:], cursor=end + len(newline))


def is_new_line(now: Snapshot, before: Snapshot) -> bool:
    """True if `now` is `before` after Enter, with any indentation."""
    after = new_line_below(before)
    if after is None:
        return False
    above = now.text[: now.cursor].rstrip(" \t")
    return above == after.text[: after.cursor] and now.text[now.cursor :] == after.text[after.cursor :]
