"""Speculative next suggestion: prepared while the user reads the shown one, as if that one had been accepted.

    shown "append(item)"   PAUSE_S without a key ─► the document with it, through the usual pipeline, without a caller
                           └─► stored in the answer cache
    accepted               the next suggestion is in the cache; or its stream still runs, and is adopted
    word by word           each accepted word is on track, and changes nothing
    anything else          the stream is closed: the engine stops within its round

Each document has one preparation at most. It is not extended: the prepared suggestion has a next one of its own, once
it is accepted and shown. The engine computes it only while it has nothing else to do (FimRequest.idle).

The methods that end a preparation return its job: the session stops it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from speclsp.lsp.completion.job import CompletionInput, CompletionJob
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.postprocess.plan import Suggestion

PAUSE_S = 0.35  # after a suggestion is shown, and after each key that agrees with it; fluent typing is faster


@dataclass(slots=True)
class Preparation:
    """The preparation of one document."""

    shown: Snapshot  # where the suggestion is on the screen
    input: CompletionInput  # the document with the suggestion accepted
    timer: asyncio.TimerHandle
    due_s: float = 0.0  # by the loop's clock: it begins at this time, where that is later than the timer
    capture: Callable[[], CompletionInput | None] | None = None  # the document's state since the last key
    job: CompletionJob | None = None

    def still_on_track(self, now: Snapshot) -> bool:
        """True if `now` is the document with the beginning of the suggestion accepted, or all of it."""
        shown, after, below = self.shown, self.input.snapshot, now.text[now.cursor :]
        return (
            shown.cursor <= now.cursor <= after.cursor
            and after.text.startswith(now.text[: now.cursor])
            and below.endswith(after.text[after.cursor :])
            and shown.text[shown.cursor :].endswith(below)
        )


class NextSuggestion:
    """Schedules the preparation of the next suggestion, by URI."""

    def __init__(self, start: Callable[[CompletionInput], CompletionJob | None]) -> None:
        """`start` is called after the pause. It starts a job, or returns None where none is wanted."""
        self._start = start
        self._preparations: dict[str, Preparation] = {}  # by URI

    def get(self, uri: str) -> Preparation | None:
        """The preparation of a document."""
        return self._preparations.get(uri)

    def schedule(self, current: CompletionInput, suggestion: Suggestion) -> CompletionJob | None:
        """`suggestion` is shown at `current`: prepare the next one after a pause. Returns the job that it replaces."""
        uri, after = current.snapshot.uri, accepted(current.snapshot, suggestion)
        preparation = self._preparations.get(uri)
        if preparation is not None:
            prepared = preparation.input.snapshot
            if prepared == replace(after, version=prepared.version):
                return None  # the user typed through the suggestion: the same document after accepting
        replaced = self.drop(uri)
        timer = asyncio.get_running_loop().call_later(PAUSE_S, self._pause_over, uri)
        self._preparations[uri] = Preparation(current.snapshot, replace(current, snapshot=after), timer)
        return replaced

    def document_changed(self, uri: str, capture: Callable[[], CompletionInput | None]) -> CompletionJob | None:
        """The document was edited; `capture` returns its state, if known. Returns the job of an ended preparation.

        Only an edit that accepts the beginning of the suggestion keeps the preparation. One that has not begun waits
        for a new pause and is checked then: the engine and the keys share the processor.
        """
        preparation = self._preparations.get(uri)
        if preparation is None:
            return None
        if preparation.job is None:  # the timer is not moved: when it fires before due_s, it is set again
            preparation.due_s, preparation.capture = asyncio.get_running_loop().time() + PAUSE_S, capture
        elif (current := capture()) is None or not preparation.still_on_track(current.snapshot):
            return self.drop(uri)
        return None

    def is_streaming_at(self, now: Snapshot) -> bool:
        """True if the engine is completing exactly this text for a preparation."""
        preparation = self._preparations.get(now.uri)
        if preparation is None or preparation.job is None or preparation.job.stream is None:
            return False
        prepared = preparation.input.snapshot
        return not preparation.job.stream.stop and prepared.text == now.text and prepared.cursor == now.cursor

    def drop(self, uri: str) -> CompletionJob | None:
        """End the preparation of a document. Returns its job, if it has begun."""
        preparation = self._preparations.pop(uri, None)
        if preparation is None:
            return None
        preparation.timer.cancel()
        return preparation.job

    def drop_all(self) -> list[CompletionJob]:
        """End all preparations. Returns the jobs of those that have begun."""
        jobs = [self.drop(uri) for uri in list(self._preparations)]
        return [job for job in jobs if job is not None]

    def _pause_over(self, uri: str) -> None:
        preparation = self._preparations[uri]
        if preparation.due_s > preparation.timer.when():
            preparation.timer = asyncio.get_running_loop().call_at(preparation.due_s, self._pause_over, uri)
            return
        capture = preparation.capture
        if capture is not None:
            current = capture()
            if current is None or not preparation.still_on_track(current.snapshot):
                self.drop(uri)  # it has no job yet
                return
        preparation.job = self._start(preparation.input)
        if preparation.job is None:
            del self._preparations[uri]


def accepted(snapshot: Snapshot, suggestion: Suggestion) -> Snapshot:
    """The document with the suggestion in it, and the cursor at its end."""
    text = snapshot.text[: suggestion.start] + suggestion.text + snapshot.text[suggestion.end :]
    return replace(snapshot, text=text, cursor=suggestion.start + len(suggestion.text))
