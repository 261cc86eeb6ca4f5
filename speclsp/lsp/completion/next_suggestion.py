"""Speculative next suggestion: prepared while the user reads the shown one, as if that one had been accepted.

    shown "append(item)"   PAUSE_S without a key ─► the document with it, through the usual pipeline, without a caller
                           └─► stored in the answer cache
    first line shown       its stream is continued at the same place; lines worth showing join it in the cache
    accepted               the next suggestion is in the cache; or its stream still runs, and is adopted
    word by word           each accepted word is on track, and changes nothing
    anything else          the stream is closed: the engine stops within its round

A first line that ended where no block opens is continued before anything else: the engine has its prompt and its tokens
in the KV cache. Where the further lines are worth more than the first one alone, they replace it in the cache, and the
editor is told that it has grown. Otherwise the next suggestion is read from the same stream.

Each document has one preparation at most. It is not extended: the prepared suggestion has a next one of its own, once
it is accepted and shown. The engine computes it only while it has nothing else to do (FimRequest.idle).

The methods that end a preparation return its job: the session stops it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from speclsp.config import CompletionConfig
from speclsp.lsp.completion.job import CompletionInput, CompletionJob, CompletionRequest, FirstLine
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.postprocess.plan import Suggestion

PAUSE_S = 0.35  # after a suggestion is shown, and after each key that agrees with it; fluent typing is faster


@dataclass(slots=True)
class Preparation:
    """The preparation of one document."""

    shown: Snapshot  # where the suggestion is on the screen
    input: CompletionInput  # the document with the suggestion accepted
    timer: asyncio.TimerHandle
    request: CompletionRequest | None = None  # the newest one that the shown suggestion answered
    first_line: FirstLine | None = None  # further lines can join it
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

    def __init__(self, start: Callable[[Preparation], CompletionJob | None]) -> None:
        """`start` is called after the pause. It starts a job, or returns None where none is wanted."""
        self._start = start
        self._preparations: dict[str, Preparation] = {}  # by URI

    def get(self, uri: str) -> Preparation | None:
        return self._preparations.get(uri)

    def is_working(self, uri: str) -> bool:
        """True while a preparation of the document waits for its pause, or is computed."""
        preparation = self._preparations.get(uri)
        if preparation is None:
            return False
        task = preparation.job.task if preparation.job is not None else None
        return preparation.job is None or (task is not None and not task.done())

    def schedule(
        self, request: CompletionRequest, suggestion: Suggestion, first_line: FirstLine | None = None
    ) -> CompletionJob | None:
        """`suggestion` answers `request`: prepare the next one after a pause. Returns the job that it replaces."""
        current = request.input
        uri, after = current.snapshot.uri, accepted(current.snapshot, suggestion)
        preparation = self._preparations.get(uri)
        if preparation is not None:
            prepared = preparation.input.snapshot
            if prepared == replace(after, version=prepared.version):
                preparation.request = request
                return None  # the user typed through the suggestion: the same document after accepting
        replaced = self.drop(uri)
        timer = asyncio.get_running_loop().call_later(PAUSE_S, self._pause_over, uri)
        after_accept = replace(current, snapshot=after)
        self._preparations[uri] = Preparation(current.snapshot, after_accept, timer, request, first_line)
        return replaced

    def document_changed(self, uri: str, capture: Callable[[], CompletionInput | None]) -> CompletionJob | None:
        """The document was edited; `capture` returns its state, if known. Returns the job of an ended preparation.

        Only an edit that accepts the beginning of the suggestion keeps the preparation. One that has not begun waits
        for a new pause and is checked then: the engine and the keys share the processor.
        """
        preparation = self._preparations.get(uri)
        if preparation is None:
            return None
        if preparation.job is None:
            preparation.timer.cancel()
            preparation.timer = asyncio.get_running_loop().call_later(PAUSE_S, self._pause_over, uri)
            preparation.capture = capture
        elif (current := capture()) is None or not preparation.still_on_track(current.snapshot):
            return self.drop(uri)
        return None

    def request_of(self, job: CompletionJob) -> CompletionRequest | None:
        """The newest request that the suggestion answered which `job` prepares for; None if that is not current."""
        preparation = self._preparations.get(job.snapshot.uri)
        return preparation.request if preparation is not None and preparation.job is job else None

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
        capture = preparation.capture
        if capture is not None:
            current = capture()
            if current is None or not preparation.still_on_track(current.snapshot):
                self.drop(uri)  # it has no job yet
                return
        preparation.job = self._start(preparation)
        if preparation.job is None:
            del self._preparations[uri]


def with_several_lines(completion: CompletionConfig) -> CompletionConfig:
    """The settings of a preparation: several lines wherever the user allows any, since none of them is waited for."""
    return replace(completion, multiline="always") if completion.multiline == "auto" else completion


def joins(longer: Suggestion, shown: Suggestion) -> bool:
    """True if `longer` is `shown` with further lines."""
    further_lines = longer.text[len(shown.text) :]
    is_same_place = (longer.start, longer.end) == (shown.start, shown.end)
    return is_same_place and longer.text.startswith(shown.text) and further_lines.startswith(("\n", "\r"))


def accepted(snapshot: Snapshot, suggestion: Suggestion) -> Snapshot:
    """The document with the suggestion in it, and the cursor at its end."""
    text = snapshot.text[: suggestion.start] + suggestion.text + snapshot.text[suggestion.end :]
    return replace(snapshot, text=text, cursor=suggestion.start + len(suggestion.text))
