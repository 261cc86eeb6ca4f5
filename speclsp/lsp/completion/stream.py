"""One answer of the engine as it comes, and whom it is for at the moment: typing along with it hands it on.

    asked at "items."      streamed "append("     the first reader shows "append(item)"
    typed "app"            agrees                 the second reader takes over and shows "end(item)"
    typed "append(x"       runs ahead             it waits: the next round says "append(i", and they have parted

The engine notices nothing of this: no request is cancelled and none is made. A reader whose text has parted from the
stream gets the end of it at once, with what was streamed so far good for drafting. An editor that cancels a request
before it asks the next one leaves a stream without a reader: for a moment it waits for the one that may want it. One
that was read and not shown, for want of confidence, waits until something else is typed or asked in its document.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Protocol

from speclsp.lsp.backend.types import StreamBranch, StreamPiece, StreamStart
from speclsp.lsp.completion.answer_cache import AnswerCache
from speclsp.lsp.completion.confidence import TokenSpan, token_spans
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.postprocess.plan import NoSuggestion, Suggestion, SuggestionPlan
from speclsp.lsp.reasons import Reason
from speclsp.lsp.syntax.text_windows import normal_newlines
from speclsp.observability.metrics import Metrics

LINGER_S = 0.03  # without a reader
FAR_LINGER_S = 0.003  # the same at a server that serves others too: the edit comes right behind the cancelling
AGREED_LINGER_S = 0.1  # the same where what was typed since agrees: VS Code waits up to 50 ms before it asks
AHEAD_CHARACTERS = 4  # typed beyond what is streamed, and waited for: more than that seldom comes true

# How a stream ends besides the engine's own stop types.
ENOUGH = "enough"  # it holds all that its reader will show
PARTED = "parted"  # it says something else than its reader has typed
FAILED = "failed"
CLOSED = "closed"

WHOLE = (ENOUGH, "eos")  # of all ways to end, those of a stream that was not cut short


class Reader(Protocol):
    """Whom a stream is for."""

    def heard(self, piece: StreamPiece) -> None:
        """A round has come."""
        ...


class Stream:
    """Takes text from the backend until its reader has enough, its reader's text parts from it, or it is closed."""

    def __init__(
        self,
        pieces: AsyncGenerator[StreamPiece, None],
        snapshot: Snapshot,
        plan: SuggestionPlan,
        reader: Reader,
        on_end: Callable[[Stream], None],
        linger_s: float = LINGER_S,
    ) -> None:
        """`on_end` is called once, when nothing more comes."""
        self.asked = snapshot  # what the engine completes
        self.at = snapshot  # where its reader stands: the same, with the first `typed` of `text` typed
        self.plan: SuggestionPlan | None = plan  # None while a new reader has not made one yet
        self.reader: Reader | None = reader
        self.max_tokens = plan.max_tokens
        self.typed = ""
        self.text = ""
        self.told: list[TokenSpan] = []  # of the tokens of `text`, where the engine says what it thought of them
        self.ids: list[int] = []  # the tokens of `text`, where the engine tells of them
        self.branches: list[StreamBranch] | None = (
            None  # and where it might have gone on otherwise; None: it does not tell
        )
        self.stop = ""  # "" while more is to come
        self.error: Exception | None = None
        self.agreed = False  # with what was typed since its reader asked
        self.linger_s = linger_s
        self.tokens = self.rounds = 0
        self.start: StreamStart | None = None
        self.by_source: dict[str, dict[str, int]] = {}
        self.ended = asyncio.Event()
        self._on_end = on_end
        self._pieces = pieces
        self._task = asyncio.create_task(self._take())

    @property
    def rest(self) -> str | None:
        """What is streamed of the text after the reader's cursor; None where they differ, or it is not so far yet."""
        return self.text[len(self.typed) :] if self.text.startswith(self.typed) else None

    def typed_into(self, now: Snapshot) -> str | None:
        """What `now` has at the cursor beyond the text asked about, if that is all that is new and the stream agrees.

        Newlines are \\n in it. None: this stream says nothing about `now`.
        """
        old, grown = self.asked, now.cursor - self.asked.cursor
        if grown < 0 or len(now.text) - len(old.text) != grown or self.stop in (PARTED, FAILED, CLOSED):
            return None
        if not now.text.startswith(old.text[: old.cursor]) or not now.text.endswith(old.text[old.cursor :]):
            return None
        typed = normal_newlines(now.text[old.cursor : now.cursor])
        if self.text.startswith(typed):
            return typed if not self.stop or self.text[len(typed) :].strip() else None
        ahead = len(typed) - len(self.text)
        return typed if not self.stop and typed.startswith(self.text) and ahead <= AHEAD_CHARACTERS else None

    def hand(self, now: Snapshot, plan: SuggestionPlan) -> bool:
        """From here on it is for `now`, and goes as far as `plan` says; False when it has parted from `now` already."""
        typed = self.typed_into(now)
        if typed is not None:
            self.at, self.plan, self.typed = now, plan, typed
            self._judge()
        return typed is not None

    def close(self, why: str = CLOSED) -> None:
        """Stop the engine within its round; nothing where it has ended."""
        if not self.stop:
            self._end(why)
            self._task.cancel()

    async def _take(self) -> None:
        try:
            async with aclosing(self._pieces) as pieces:
                async for piece in pieces:
                    self._hear(piece)
                    if piece.cost is not None:
                        self._end(piece.cost.stop_type or "eos")
                    elif not self.stop:
                        self._judge(stop_engine=False)
                    if self.stop:
                        break
        except Exception as error:  # it is the reader's, who says what becomes of it
            self.error = error
            self._end(FAILED)
        finally:
            self._end(CLOSED)

    def _hear(self, piece: StreamPiece) -> None:
        self.told += token_spans(piece.logprobs, self.told[-1].end if self.told else 0)
        self.text += piece.text
        self.ids += piece.ids
        if piece.branches is not None:
            self.branches = [*(self.branches or ()), *piece.branches]
        self.start = self.start or piece.start
        if self.reader is not None:
            self.reader.heard(piece)
        if piece.cost is None:
            self.tokens, self.rounds = self.tokens + piece.tokens, self.rounds + 1
        if piece.drafted:
            counts = self.by_source.setdefault(piece.source, {"drafted": 0, "accepted": 0})
            counts["drafted"] += piece.drafted
            counts["accepted"] += piece.accepted

    def _judge(self, stop_engine: bool = True) -> None:
        """Whether what is streamed is enough for the reader, or will never be for it."""
        rest = self.rest
        why = ""
        if self.plan is None:
            return
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


Clean = Callable[[Stream, SuggestionPlan], Suggestion | NoSuggestion]


class Streams:
    """The streams of one editor, and the one of each document that a newer request may take over."""

    def __init__(self, memory: AnswerCache, metrics: Metrics, clean: Clean) -> None:
        """`clean`: what there is to show of one that has ended."""
        self._memory, self._metrics, self._clean = memory, metrics, clean
        self._listed: dict[str, Stream] = {}  # by URI
        self._lingering: dict[str, asyncio.TimerHandle] = {}  # by URI: the end of a listed one without a reader

    def __contains__(self, uri: str) -> bool:
        return uri in self._listed

    def begin(
        self,
        pieces: AsyncGenerator[StreamPiece, None],
        snapshot: Snapshot,
        plan: SuggestionPlan,
        reader: Reader,
        linger_s: float = LINGER_S,
    ) -> Stream:
        """A stream of `pieces` for `reader`."""
        return Stream(pieces, snapshot, plan, reader, self._ended, linger_s)

    def list(self, stream: Stream) -> None:
        """It may be taken over."""
        self._listed[stream.asked.uri] = stream

    def take_over(self, now: Snapshot, reader: Reader) -> Stream | None:
        """The document's stream if it agrees with `now`; from here on it is for `reader`, who is to `hand` it a plan.

        Another one goes on as long as somebody reads it.
        """
        stream = self._listed.get(now.uri)
        if stream is None or stream.typed_into(now) is None:
            self.leave(now.uri)
            return None
        self._wait_no_more(now.uri)
        stream.reader, stream.agreed, stream.plan = reader, False, None
        return stream

    def leave(self, uri: str) -> None:
        """The document's stream is not wanted: it ends, unless somebody reads it still."""
        stream = self._listed.get(uri)
        if stream is not None and stream.reader is None:
            self.drop(stream)

    def linger(self, stream: Stream) -> None:
        """It has lost its reader: it waits for another, not long."""
        stream.reader = None
        if self._listed.get(stream.asked.uri) is not stream:
            stream.close()
        elif stream.stop:
            self._settle(stream)
        else:
            self._end_later(stream)

    def changed(self, uri: str, now: Snapshot | None) -> None:
        """The document was edited; a stream without a reader lives on if it agrees. None: nobody knows how it is."""
        stream = self._listed.get(uri)
        if stream is None:
            return
        stream.agreed = now is not None and stream.typed_into(now) is not None
        if now is not None and not stream.agreed:
            stream.linger_s = 0.0  # whoever asks next will not want it
        if stream.reader is None and stream.agreed:
            if not stream.stop:  # one that is held back costs nobody anything
                self._end_later(stream)
        elif stream.reader is None:
            self.drop(stream)

    def done(self, stream: Stream) -> None:
        """Its reader has read it."""
        if self._listed.get(stream.asked.uri) is stream:
            self._wait_no_more(stream.asked.uri)
            del self._listed[stream.asked.uri]

    def hold_back(self, stream: Stream) -> None:
        """Its reader did not show it, not being sure of it. Typed along with, it is surer of what is left."""
        stream.reader = None
        if self._listed.get(stream.asked.uri) is not stream or stream.stop not in WHOLE:
            self.drop(stream)
        else:
            self._wait_no_more(stream.asked.uri)

    def drop(self, stream: Stream) -> None:
        """Nobody wants it any more. What came is kept to draft from."""
        self.done(stream)
        stream.close()
        if stream.text:
            cursor = stream.asked.cursor
            self._memory.keep(stream.asked, [Suggestion(stream.text, cursor, cursor)], 0, whole=False)

    def unlist(self) -> None:
        """None is taken over any more; those without a reader end."""
        for stream in list(self._listed.values()):
            if stream.reader is None:
                self.drop(stream)
            self.done(stream)

    def _end_later(self, stream: Stream) -> None:
        uri, pause_s = stream.asked.uri, AGREED_LINGER_S if stream.agreed else stream.linger_s
        self._wait_no_more(uri)
        self._lingering[uri] = asyncio.get_running_loop().call_later(pause_s, self.drop, stream)

    def _wait_no_more(self, uri: str) -> None:
        timer = self._lingering.pop(uri, None)
        if timer is not None:
            timer.cancel()

    def _ended(self, stream: Stream) -> None:
        """Nothing more comes."""
        if stream.rounds:
            self._metrics.speculated(stream.tokens, stream.rounds, stream.by_source)
        if stream.reader is None:
            self._settle(stream)

    def _settle(self, stream: Stream) -> None:
        """It ended without a reader. What it came to is an answer all the same, if it is a whole one."""
        if stream.stop not in WHOLE:
            self.drop(stream)
            return
        made = self._clean(stream, stream.plan) if stream.plan is not None else None
        if isinstance(made, Suggestion):
            self._memory.keep(stream.at, [made], 1)
            self.done(stream)
        elif made is None or made.reason is Reason.UNSURE:  # None: its reader gave up before it looked
            self.hold_back(stream)
        else:
            self.drop(stream)
