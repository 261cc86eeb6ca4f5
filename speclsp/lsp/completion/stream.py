"""Streams of engine answers, adopted by newer requests while the user types through them.

    request at "items."    streamed "append("     the first reader shows "append(item)"
    typed "app"            agrees                 the second reader adopts the stream and shows "end(item)"
    typed "append(x"       runs ahead             it waits: the next round brings "append(i", and they diverge

The engine does not notice an adoption: no request is cancelled and none is sent. A reader whose text diverges from the
stream gets its end at once, and the text streamed so far is kept for drafting.

A stream that ended with its reader's first line can be continued: a second one begins with its tokens, which the engine
still has in its KV cache.

An editor that cancels a request before it sends the next one leaves a stream without a reader. The stream lingers for
a moment, until a newer request adopts it. A stream that was read and held back by the confidence gate waits until
other text is typed or requested in its document.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Protocol

from speclsp.lsp.backend.types import FimRequest, StreamBranch, StreamPiece, StreamStart
from speclsp.lsp.completion.answer_cache import AnswerCache
from speclsp.lsp.completion.confidence import TokenSpan, token_spans
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.postprocess.plan import NoSuggestion, Suggestion, SuggestionPlan
from speclsp.lsp.reasons import Reason
from speclsp.lsp.syntax.text_windows import normal_newlines

LINGER_S = 0.03  # lifetime without a reader
AGREED_LINGER_S = 0.1  # the same after an edit that agrees: VS Code waits up to 50 ms before its next request
MAX_AHEAD_CHARACTERS = 4  # typed beyond the streamed text: more than that is rarely confirmed by the stream

# Ends of a stream besides the engine's own stop types.
ENOUGH = "enough"  # it holds all that its reader will show
PARTED = "parted"  # it diverged from the text that its reader has typed
FAILED = "failed"
CLOSED = "closed"
PREEMPTED = "cancelled"  # the engine's stop type when it ended a preparation for another request

COMPLETE = (ENOUGH, "eos")  # stop types of a stream that was not cut short


class Reader(Protocol):
    """The consumer of a stream."""

    def piece_arrived(self, piece: StreamPiece) -> None:
        """A round has arrived."""
        ...


@dataclass(eq=False, repr=False)
class Stream:
    """Reads the backend until its reader has enough, its reader's text diverges from it, or it is closed."""

    _pieces: AsyncGenerator[StreamPiece, None]
    origin: Snapshot  # the text that the engine completes
    plan: SuggestionPlan | None  # None between the adoption and the new reader's plan
    reader: Reader | None
    _on_end: Callable[[Stream], None]  # called once, when nothing more comes
    request: FimRequest | None = None  # of the pieces
    linger_s: float = LINGER_S  # longer where the text typed since its reader's request agrees
    typed: str = ""
    text: str = ""
    token_spans: list[TokenSpan] = field(default_factory=list)  # of `text`, where the engine reports log-probabilities
    ids: list[int] = field(default_factory=list)  # the tokens of `text`, where the engine reports them
    branches: list[StreamBranch] | None = None  # likely alternatives; None: the engine does not report them
    stop: str = ""  # "" while more is to come
    error: Exception | None = None
    start: StreamStart | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    max_tokens: int = field(init=False)  # of the plan that it began with
    _repeated_ids: int = 0  # of the earlier stream that it continues, still to come again

    def __post_init__(self) -> None:
        assert self.plan is not None
        self.max_tokens = self.plan.max_tokens
        self.reader_snapshot = self.origin  # the reader's text: the origin, with the first `typed` of `text` typed
        self._task = asyncio.create_task(self._read_pieces())

    @property
    def rest(self) -> str | None:
        """The streamed text after the reader's cursor; None where they differ, or the stream is behind the cursor."""
        return self.text[len(self.typed) :] if self.text.startswith(self.typed) else None

    @property
    def diverged(self) -> bool:
        """True if it ended with text that its reader cannot use."""
        return self.stop in (PARTED, PREEMPTED)

    @property
    def nothing_left(self) -> bool:
        """True if the reader has typed all of its text."""
        return not (self.rest or "").strip()

    @property
    def can_continue(self) -> bool:
        """True if it ended with a first line that further lines may follow, and its tokens are known."""
        further_tokens = self.plan.further_tokens if self.plan is not None and self.stop == ENOUGH else 0
        return self.request is not None and 0 < len(self.ids) == len(self.token_spans) < further_tokens

    def wants_more(self, plan: SuggestionPlan) -> bool:
        """True if it ended before `plan` does: the plan may be longer than the one it began with."""
        if self.stop == "limit":
            return plan.max_tokens > self.max_tokens
        return self.stop == ENOUGH and not plan.finished(self.rest or "")

    def typed_into(self, now: Snapshot) -> str | None:
        """The text in `now` between the origin's cursor and its own, if it is the only change and the stream agrees.

        Its newlines are \\n. None: the stream cannot complete `now`.
        """
        origin, grown = self.origin, now.cursor - self.origin.cursor
        if grown < 0 or len(now.text) - len(origin.text) != grown or self.stop in (PARTED, FAILED, CLOSED):
            return None
        if not now.text.startswith(origin.text[: origin.cursor]) or not now.text.endswith(origin.text[origin.cursor :]):
            return None
        typed = normal_newlines(now.text[origin.cursor : now.cursor])
        if self.text.startswith(typed):
            return typed if not self.stop or self.text[len(typed) :].strip() else None
        ahead = len(typed) - len(self.text)
        return typed if not self.stop and typed.startswith(self.text) and ahead <= MAX_AHEAD_CHARACTERS else None

    def retarget(self, now: Snapshot, plan: SuggestionPlan) -> bool:
        """Complete `now` from here on, as far as `plan` allows; False when it has diverged from `now` already."""
        typed = self.typed_into(now)
        if typed is not None:
            self.reader_snapshot, self.plan, self.typed = now, plan, typed
            self._check_end()
        return typed is not None

    def close(self, why: str = CLOSED) -> None:
        """Stop the engine within its round; no effect after the end."""
        if not self.stop:
            self._end(why)
            self._task.cancel()

    async def _read_pieces(self) -> None:
        try:
            async with aclosing(self._pieces) as pieces:
                async for piece in pieces:
                    self._add(piece)
                    if piece.cost is not None:
                        self._end(piece.cost.stop_type or "eos")
                    elif not self.stop:
                        self._check_end(stop_engine=False)
                    if self.stop:
                        break
        except Exception as error:  # its reader decides how to handle it
            self.error = error
            self._end(FAILED)
        finally:
            self._end(CLOSED)

    def continue_from(self, earlier: Stream) -> None:
        """Begin with the text of `earlier`, whose tokens the engine is about to repeat, and with its reader's place."""
        self.text, self.ids, self.token_spans = earlier.text, list(earlier.ids), list(earlier.token_spans)
        self._repeated_ids = len(earlier.ids)
        self.reader_snapshot, self.typed = earlier.reader_snapshot, earlier.typed

    def _add(self, piece: StreamPiece) -> None:
        if self._repeated_ids > 0:  # in rounds of their own; their log-probabilities are not reported again
            self._repeated_ids -= len(piece.ids)
            self.start = self.start or piece.start
            return
        self.token_spans += token_spans(piece.logprobs, self.token_spans[-1].end if self.token_spans else 0)
        self.text += piece.text
        self.ids += piece.ids
        if piece.branches is not None:
            self.branches = [*(self.branches or ()), *piece.branches]
        self.start = self.start or piece.start
        if self.reader is not None:
            self.reader.piece_arrived(piece)

    def _check_end(self, stop_engine: bool = True) -> None:
        """End the stream if it holds enough for its reader, or has diverged from the reader's text."""
        if self.plan is None:
            return
        rest, why = self.rest, ""
        if rest is None:
            why = "" if self.typed.startswith(self.text) else PARTED
        elif self.plan.finished(rest):
            why = ENOUGH
        if why and stop_engine:
            self.close(why)
        elif why:
            self._end(why)

    def _end(self, why: str) -> None:
        if not self.stop:
            self.stop = why
            self.ended.set()
            self._on_end(self)


ToSuggestion = Callable[[Stream, SuggestionPlan], Suggestion | NoSuggestion]


class Streams:
    """The streams of one editor. One stream of each document is listed: a newer request may adopt it."""

    def __init__(self, cache: AnswerCache, to_suggestion: ToSuggestion) -> None:
        """`to_suggestion` computes the suggestion from a stream that ended without a reader, to be cached."""
        self._cache, self._to_suggestion = cache, to_suggestion
        self._listed: dict[str, Stream] = {}  # by URI
        self._linger_timers: dict[str, asyncio.TimerHandle] = {}  # by URI: the end of a listed stream without a reader

    def __contains__(self, uri: str) -> bool:
        return uri in self._listed

    def begin(
        self,
        pieces: AsyncGenerator[StreamPiece, None],
        snapshot: Snapshot,
        plan: SuggestionPlan,
        reader: Reader,
        request: FimRequest | None,
        earlier: Stream | None = None,
    ) -> Stream:
        """A new stream of `pieces`, which answer `request`, for `reader`. It is not listed yet.

        `earlier`: the ended stream whose tokens it begins with.
        """
        stream = Stream(pieces, snapshot, plan, reader, self._stream_ended, request)
        if earlier is not None:
            stream.continue_from(earlier)
        return stream

    def enlist(self, stream: Stream) -> None:
        """List the stream: a newer request may adopt it."""
        self._listed[stream.origin.uri] = stream

    def unlist(self, stream: Stream) -> None:
        """Its reader has read it: it is not adopted any more."""
        if self._listed.get(stream.origin.uri) is stream:
            self._cancel_timer(stream.origin.uri)
            del self._listed[stream.origin.uri]

    def unlist_all(self) -> None:
        """Adopt none of the streams any more; those without a reader end."""
        for stream in list(self._listed.values()):
            if stream.reader is None:
                self.drop(stream)
            self.unlist(stream)

    def adopt(self, now: Snapshot, reader: Reader) -> Stream | None:
        """The document's stream, if it agrees with `now`. It belongs to `reader`, who must `retarget` it.

        A stream that disagrees continues only while it has a reader.
        """
        stream = self._listed.get(now.uri)
        if stream is None or stream.typed_into(now) is None:
            self.leave(now.uri)
            return None
        self._cancel_timer(now.uri)
        stream.reader, stream.linger_s, stream.plan = reader, LINGER_S, None
        return stream

    def leave(self, uri: str) -> None:
        """The document's stream will not be adopted: it ends, unless it has a reader."""
        stream = self._listed.get(uri)
        if stream is not None and stream.reader is None:
            self.drop(stream)

    def linger(self, stream: Stream) -> None:
        """The stream has lost its reader: it waits a short time for another one."""
        stream.reader = None
        if self._listed.get(stream.origin.uri) is not stream:
            stream.close()
        elif stream.stop:
            self._store_unread(stream)
        else:
            self._end_later(stream)

    def document_changed(self, uri: str, now: Snapshot | None) -> None:
        """The document was edited; its unread stream lives on if it agrees. `now` is None where the text is unknown."""
        stream = self._listed.get(uri)
        if stream is None:
            return
        agrees = now is not None and stream.typed_into(now) is not None
        if now is not None:  # the next request will adopt it, or will not
            stream.linger_s = AGREED_LINGER_S if agrees else 0.0
        if stream.reader is None and agrees:
            if not stream.stop:  # a held back stream costs the engine nothing
                self._end_later(stream)
        elif stream.reader is None:
            self.drop(stream)

    def hold_back(self, stream: Stream) -> None:
        """The confidence gate did not show it. It stays listed: once the unsure part is typed, the rest is sure."""
        stream.reader = None
        if self._listed.get(stream.origin.uri) is not stream or stream.stop not in COMPLETE:
            self.drop(stream)
        else:
            self._cancel_timer(stream.origin.uri)

    def drop(self, stream: Stream) -> None:
        """Close an unwanted stream. Its text is kept for drafting, and never shown."""
        self.unlist(stream)
        stream.close()
        if stream.text:
            cursor = stream.origin.cursor
            self._cache.store(stream.origin, [Suggestion(stream.text, cursor, cursor)], 0, whole=False)

    def _end_later(self, stream: Stream) -> None:
        uri = stream.origin.uri
        self._cancel_timer(uri)
        self._linger_timers[uri] = asyncio.get_running_loop().call_later(stream.linger_s, self.drop, stream)

    def _cancel_timer(self, uri: str) -> None:
        timer = self._linger_timers.pop(uri, None)
        if timer is not None:
            timer.cancel()

    def _stream_ended(self, stream: Stream) -> None:
        """Nothing more comes from the stream."""
        if stream.reader is None:
            self._store_unread(stream)

    def _store_unread(self, stream: Stream) -> None:
        """The stream ended without a reader: cache its suggestion, if it is a complete one."""
        if stream.stop not in COMPLETE:
            self.drop(stream)
            return
        suggestion = self._to_suggestion(stream, stream.plan) if stream.plan is not None else None
        if isinstance(suggestion, Suggestion):
            self._cache.store(stream.reader_snapshot, [suggestion], 1)
            self.unlist(stream)
        elif suggestion is None or suggestion.reason is Reason.UNSURE:  # None: its reader gave up before it had a plan
            self.hold_back(stream)
        else:
            self.drop(stream)
