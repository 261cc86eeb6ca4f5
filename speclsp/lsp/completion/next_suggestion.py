"""The suggestion after the one that is shown, made while the user reads that one, as if it had been accepted.

    shown "append(item)"   PAUSE_S without a key ─► the document with it, through the usual pipeline, for nobody
                           └─► kept in Memory
    accepted               the next suggestion is there; or its stream is, and is taken over
    word by word           each word is on the way there, and changes nothing
    anything else          the stream is closed: the engine stops within its round

One for each document, and none after it until somebody comes: what is accepted is shown, and then has a next one of
its own. The engine makes it only while nobody asks it for anything (FimRequest.idle).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from speclsp.lsp.completion.prefill_ahead import CompletionInput
from speclsp.lsp.completion.stream import Stream, Streams
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.postprocess.plan import Suggestion

PAUSE_S = 0.35  # after a suggestion is shown, and after each key that agrees with it: whoever types on does so sooner


class Job(Protocol):
    """A preparation: see session.Job."""

    stream: Stream | None
    task: asyncio.Task[None] | None


AnyJob = TypeVar("AnyJob", bound=Job)


@dataclass(slots=True)
class Preparation(Generic[AnyJob]):
    """One document's preparation."""

    shown: Snapshot  # where the suggestion is on the screen
    look: CompletionInput  # with it accepted
    timer: asyncio.TimerHandle
    due_s: float = 0.0  # by the loop's clock: it begins then, where that is later than the timer
    at_the_key: Callable[[], CompletionInput | None] | None = None  # how the document is since the last one
    job: AnyJob | None = None

    def leads_here(self, now: Snapshot) -> bool:
        """Whether `now` is the document with the beginning of the suggestion accepted, or all of it."""
        shown, then, below = self.shown, self.look.snapshot, now.text[now.cursor :]
        return (
            shown.cursor <= now.cursor <= then.cursor
            and then.text.startswith(now.text[: now.cursor])
            and below.endswith(then.text[then.cursor :])
            and shown.text[shown.cursor :].endswith(below)
        )


class NextSuggestion(Generic[AnyJob]):
    """When the next suggestion is prepared, and whether it is still to come."""

    def __init__(
        self, begin: Callable[[CompletionInput], AnyJob | None], stop: Callable[[AnyJob], None], streams: Streams
    ) -> None:
        """`begin` starts a preparation if there may be one; `stop` ends it and its stream."""
        self._begin, self._stop, self._streams = begin, stop, streams
        self._going: dict[str, Preparation[AnyJob]] = {}  # by URI

    def shown(self, look: CompletionInput, suggestion: Suggestion) -> None:
        """A suggestion is shown where `look` was taken."""
        uri, then = look.snapshot.uri, accepted(look.snapshot, suggestion)
        going = self._going.get(uri)
        if going is not None and going.look.snapshot == replace(then, version=going.look.snapshot.version):
            return  # typed along with: the same place
        self.drop(uri)
        timer = asyncio.get_running_loop().call_later(PAUSE_S, self._prepare, uri)
        self._going[uri] = Preparation(look.snapshot, replace(look, snapshot=then), timer)

    def changed(self, uri: str, look: Callable[[], CompletionInput | None]) -> None:
        """The document was edited; `look` tells how it is, if anybody knows. Only the beginning of accepting leads on.

        What has not begun waits for a pause anew, and is looked at then: the engine and the keys share the processor.
        """
        going = self._going.get(uri)
        if going is None:
            return
        if going.job is None:  # the timer stays as it is: it goes on waiting when it finds that there was a key
            going.due_s, going.at_the_key = asyncio.get_running_loop().time() + PAUSE_S, look
        elif (now := look()) is None or not going.leads_here(now.snapshot):
            self.drop(uri)

    def asked(self, now: Snapshot, known: bool) -> AnyJob | None:
        """A request has come: the preparation that was for it, if one was; its stream, if it is at work, is listed.

        `known`: the engine is not asked, or for something else.
        """
        going = self._going.get(now.uri)
        if going is None:
            return None
        job, there = going.job, now.cursor == going.look.snapshot.cursor and going.leads_here(now)
        if known and going.leads_here(now):
            return job if there else None
        stream = job.stream if job is not None and not known else None
        if job is None or stream is None or stream.typed_into(now) is None:
            self.drop(now.uri)
            return job if there else None
        del self._going[now.uri]
        self._streams.leave(now.uri)
        self._streams.list(stream)
        if job.task is not None:
            job.task.cancel()
        return job

    def is_at(self, now: Snapshot) -> bool:
        """Whether the engine is at work on what comes next at this very place."""
        going = self._going.get(now.uri)
        return (
            going is not None
            and going.job is not None
            and going.job.stream is not None
            and not going.job.stream.stop
            and going.look.snapshot.text == now.text
            and going.look.snapshot.cursor == now.cursor
        )

    def drop(self, uri: str) -> None:
        """It is not wanted any more."""
        going = self._going.pop(uri, None)
        if going is not None:
            going.timer.cancel()
            if going.job is not None:
                self._stop(going.job)

    def drop_all(self) -> None:
        """None is."""
        for uri in list(self._going):
            self.drop(uri)

    def _prepare(self, uri: str) -> None:
        going = self._going[uri]
        if going.due_s > going.timer.when():
            going.timer = asyncio.get_running_loop().call_at(going.due_s, self._prepare, uri)
            return
        look = going.at_the_key
        if look is not None and ((now := look()) is None or not going.leads_here(now.snapshot)):
            self.drop(uri)
            return
        going.job = self._begin(going.look)
        if going.job is None:
            del self._going[uri]


def accepted(snapshot: Snapshot, suggestion: Suggestion) -> Snapshot:
    """The document with the suggestion in it, and the cursor at its end."""
    text = snapshot.text[: suggestion.start] + suggestion.text + snapshot.text[suggestion.end :]
    return replace(snapshot, text=text, cursor=suggestion.start + len(suggestion.text))
