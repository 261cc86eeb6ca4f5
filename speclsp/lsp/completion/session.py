"""Completion session of one editor: the newest request wins, and typing through a suggestion reuses its stream.

    request ─► refused, or cached? ─► debounce ─► pipeline.py ─► cached ─► answered
       │            └ a running stream agrees with the new text? it is adopted ─┘
       └ a newer one for the same document: this one is answered empty at once, its stream adopted or closed

The session owns the order of effects. It calls five passive parts: the answer cache, the streams, the pipeline, the
prefill ahead of a request, and the preparation of the next suggestion. The last two call back when a pause is over.

Every request ends in one Outcome: suggestions, or the reason for none. Its Trace holds numbers and names, never text.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace

from speclsp.config import Config
from speclsp.errors import EngineError, error_site
from speclsp.lsp.backend.types import Backend
from speclsp.lsp.completion.answer_cache import AnswerCache
from speclsp.lsp.completion.gate import ConfidenceGate
from speclsp.lsp.completion.job import CompletionInput, CompletionJob, CompletionRequest, Outcome
from speclsp.lsp.completion.next_suggestion import NextSuggestion, Preparation, with_several_lines
from speclsp.lsp.completion.pipeline import BACKEND_AWAY, Pipeline
from speclsp.lsp.completion.prefill_ahead import Prefill, PrefillAhead
from speclsp.lsp.completion.stream import Streams
from speclsp.lsp.completion.trace import Trace
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.index.workspace_index import WorkspaceIndex
from speclsp.lsp.postprocess.plan import NoSuggestion
from speclsp.lsp.reasons import PASSING, Reason
from speclsp.lsp.visibility.ignore_files import IgnoreFiles

LOW_PAUSE_MS = 350  # debounce of completion.eagerness = "low": requests only when the user has stopped typing
MESSAGES_PER_KEY = 3  # the cancellation of the older request, the edit, the newer request
DRAIN_S = 0.02  # limit of draining queued messages before expensive work begins

log = logging.getLogger("speclsp.session")


class Session:
    """Completes for one editor."""

    def __init__(
        self,
        config: Config,
        backend: Callable[[], Backend | None],
        on_busy: Callable[[], None] = lambda: None,
        on_trace: Callable[[Trace], None] = lambda trace: None,
        ignored: IgnoreFiles | None = None,
        *,
        on_grown: Callable[[CompletionRequest], None] | None = None,
        client_outdents: bool = False,
        index_of: Callable[[str | None], WorkspaceIndex | None] = lambda root: None,
    ) -> None:
        """`on_busy` is called when `busy` may have changed, `on_trace` at the end of every request.

        Args:
            on_grown: called when lines have joined the answer of a request; None: the client does not show them.
            client_outdents: the client shows text that takes back the indentation left of the cursor.
            index_of: the index of a workspace folder, by its URI.
        """
        self.config = config  # the current settings
        self.last_latency_ms: float | None = None  # of the last request that the model answered
        self.cache = AnswerCache()
        self._on_busy, self._on_trace = on_busy, on_trace
        self._on_grown = on_grown
        self._gate = ConfidenceGate(lambda: self.config, backend)
        self._streams = Streams(self.cache, self._gate.to_suggestion)
        files = ignored or IgnoreFiles()
        client = (index_of, client_outdents, on_grown is not None)
        self.pipeline = Pipeline(lambda: self.config, backend, self.cache, self._streams, self._gate, files, *client)
        prefill = Prefill(self.pipeline, backend, self._wait_for_turn, self._is_computing, self._has_work)
        self._prefill_ahead = PrefillAhead(prefill.at_cursor, prefill.at_rest)
        self.next_suggestion = NextSuggestion(self._prepare_next)
        self._jobs: dict[str, CompletionJob] = {}  # by URI: one at a time
        self._arrivals = 0  # requests so far
        self._work_lock = asyncio.Lock()  # held by the job that is next to parse a text and select its context

    @property
    def busy(self) -> bool:
        """True if the engine works for this editor."""
        return any(job.task is not None for job in self._jobs.values())

    async def complete(self, request: CompletionRequest) -> Outcome:
        """Up to `request.wanted` different suggestions. Cancel the caller's task to give up; the engine stops as well.

        The order of the steps matters. The stream is adopted before the older job is given up, which would close it.
        No step awaits, so the job's task begins after the last one.
        """
        uri = request.input.snapshot.uri
        job = self._create_job(request)
        self._arrivals += 1
        self._prefill_ahead.request_arrived(uri)
        older = self._jobs.get(uri)
        if older is not None and older.serves(request):
            return await self._answer(older)
        self._jobs.pop(uri, None)
        early = self._reuse(job)
        streamable = early is None and request.wanted == 1  # a stream for one suggestion reports no alternatives
        prepared = self._claim_preparation(job.snapshot, streamable)
        if streamable:
            self._adopt_stream(job)
        else:
            self._streams.leave(uri)
        if older is not None:
            self._give_up(older, Reason.SUPERSEDED)
        self._jobs[uri] = job
        loop = asyncio.get_running_loop()
        if early is None:
            job.task = asyncio.create_task(self._run(job))
            self._on_busy()
        else:  # in the next turn of the event loop: answers leave in the order of their requests
            loop.call_soon(self._end, job, early)
        job.deadline = loop.call_later(job.completion.timeout_ms / 1000, self._deadline_passed, job)
        if prepared is not None and (job.trace.reused or job.trace.adopted):
            job.trace.prepared = True
        return await self._answer(job)

    def document_changed(self, uri: str, capture: Callable[[], CompletionInput | None]) -> None:
        """The document was edited; `capture` returns its state now, with the cursor where the edit ended.

        A stream without a reader lives on if it agrees with the edit. If no request arrives at once, the engine
        prefills the prompt: most of the cost of a first token.
        """
        if uri in self._streams:
            current = capture()
            self._streams.document_changed(uri, current.snapshot if current is not None else None)
        self._stop(self.next_suggestion.document_changed(uri, capture))
        self._prefill_ahead.document_changed(uri, capture)

    def document_focused(self, capture: Callable[[], CompletionInput | None]) -> None:
        """The cursor rests in a document; `capture` returns its state."""
        self._prefill_ahead.document_focused(capture)

    def apply_config(self, config: Config) -> None:
        """Use other settings from the next request on. No answer made under the old ones is shown for it."""
        self.config = config
        self.discard_answers()

    def discard_answers(self) -> None:
        """Drop all cached answers, and cache or adopt nothing that is under way: other settings or models apply now."""
        self.cache.clear()
        self.pipeline.selections.clear()
        self._prefill_ahead.end_work()
        for job in self._jobs.values():
            job.outdated = True
        for preparing in self.next_suggestion.drop_all():
            self._stop(preparing)
        self._streams.unlist_all()

    def document_closed(self, uri: str) -> None:
        """The document was closed: end its request and forget its state."""
        job = self._jobs.get(uri)
        if job is not None:
            self._give_up(job, Reason.CLOSED)
        self._stop(self.next_suggestion.drop(uri))
        self.pipeline.document_closed(uri)
        self._prefill_ahead.document_closed(uri)
        self.cache.forget(uri)

    # ── the arrival of a request, in the order of complete() ──────────────────────────────────────────────────────────

    def _create_job(self, request: CompletionRequest) -> CompletionJob:
        """The job of a new request. By hand, "low" completes like "medium"."""
        uri, completion = request.input.snapshot.uri, self.config.completion
        if request.by_hand and completion.eagerness == "low":
            completion = replace(completion, eagerness="medium")
            self.cache.forget(uri)  # its answers were shortened for "low"
            self._streams.leave(uri)
        return CompletionJob(request, completion)

    def _reuse(self, job: CompletionJob) -> Outcome | None:
        """The outcome without the engine: a refusal, or a cached answer. None when the engine is needed."""
        refusal = self.pipeline.refusal_reason(job.input)
        if refusal and refusal not in BACKEND_AWAY:
            return Outcome(reason=refusal)
        cached = self.cache.lookup(job.snapshot, job.request.wanted)
        if cached is not None:
            job.trace.reused = True
            return Outcome(*cached)
        if job.request.automatic and job.completion.trigger == "manual":
            return Outcome(reason=Reason.MANUAL)  # a suggestion that the user types through came from the cache above
        return Outcome(reason=refusal) if refusal else None

    def _claim_preparation(self, now: Snapshot, streamable: bool) -> CompletionJob | None:
        """The preparation made for exactly `now`, if any. If its stream still runs, it is listed for adoption.

        Without a need for the stream, a preparation further along the shown suggestion stays as it is.
        """
        preparation = self.next_suggestion.get(now.uri)
        if preparation is None:
            return None
        on_track, job = preparation.still_on_track(now), preparation.job
        matching = job if on_track and now.cursor == preparation.input.snapshot.cursor else None
        if not streamable and on_track:
            return matching
        self.next_suggestion.drop(now.uri)
        stream = job.stream if job is not None and streamable else None
        if job is None or stream is None or stream.typed_into(now) is None:
            self._stop(job)
            return matching
        self._streams.leave(now.uri)
        self._streams.enlist(stream)
        if job.task is not None:  # the stream itself runs on
            job.task.cancel()
        return job

    def _adopt_stream(self, job: CompletionJob) -> None:
        """Continue with the document's running stream, if it agrees with the new text."""
        stream = self._streams.adopt(job.snapshot, job)
        if stream is None:
            return
        job.stream, job.trace.adopted = stream, True
        if stream.start is not None:
            job.trace.stream_started(stream.start)

    async def _answer(self, job: CompletionJob) -> Outcome:
        """Wait for the job's outcome. The job is given up when its last waiter, of menu and inline, is cancelled."""
        job.waiters += 1
        try:
            return await asyncio.shield(job.answer)  # one waiter's cancellation must not cancel the other's answer
        except asyncio.CancelledError:
            if job.waiters == 1:
                if job.stream is not None and job.stream.reader is job:
                    self._streams.linger(job.stream)
                self._give_up(job, Reason.CANCELLED)
            raise
        finally:
            job.waiters -= 1

    # ── the work of a request ─────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self, job: CompletionJob) -> None:
        """Compute the job's outcome. Every error becomes an outcome too."""
        try:
            low_ms = LOW_PAUSE_MS if job.completion.eagerness == "low" else 0
            pause_ms = 0 if job.stream is not None else max(job.completion.debounce_ms, low_ms)
            await asyncio.sleep(pause_ms / 1000)
            await self._wait_for_turn()
            outcome = await self.pipeline.answer(job)
        except EngineError as error:
            log.info("no suggestion: %s", error)
            outcome = Outcome(reason=Reason.ENGINE_LOST)
        except Exception as error:  # its message may quote the document
            log.error("a completion failed: %s", error_site(error))
            outcome = Outcome(reason=Reason.FAILED)
        if job.stream is not None and job.stream.reader is job:  # adopted, and not worth showing
            self._streams.drop(job.stream)
        if job.is_cacheable(outcome):
            self.cache.store(job.snapshot, outcome.suggestions, job.request.wanted, outcome.reason)
        shown_for = self.next_suggestion.request_of(job) if job.is_joined else None
        if shown_for is not None and self._on_grown is not None:
            self._on_grown(shown_for)
        self._end(job, outcome)

    async def _wait_for_turn(self) -> None:
        """Drain messages that are already queued before expensive work begins, up to DRAIN_S.

        A queued message may make this work pointless, or may be answered sooner than the work is done. The event loop
        reads one message per turn. The lock serializes the start of work, so between two texts that are parsed and
        searched for context there are such turns as well, however many requests wait.
        """
        async with self._work_lock:
            until_s = time.perf_counter() + DRAIN_S
            arrivals = -1
            while arrivals != self._arrivals and time.perf_counter() < until_s:
                arrivals = self._arrivals
                for _message in range(MESSAGES_PER_KEY):
                    await asyncio.sleep(0)

    # ── work ahead of requests, started by the timers of PrefillAhead and NextSuggestion ──────────────────────────────

    def _is_computing(self, now: Snapshot) -> bool:
        """True if the engine computes the prompt at the cursor, or an answer in its document."""
        return now.uri in self._jobs or now.uri in self._streams or self.next_suggestion.is_streaming_at(now)

    def _has_work(self, uri: str) -> bool:
        """True while a request or a preparation of a document waits or is computed."""
        return uri in self._jobs or self.next_suggestion.is_working(uri)

    def _prepare_next(self, preparation: Preparation) -> CompletionJob | None:
        """Start a job that completes the accepted document into the cache; None where that is not wanted.

        Nobody waits for its first line, so it may have several lines at once.
        """
        after_accept, snapshot = preparation.input, preparation.input.snapshot
        if snapshot.uri in self._jobs or not self.pipeline.may_prepare(after_accept):
            return None
        request, completion = CompletionRequest(after_accept), with_several_lines(self.config.completion)
        job = CompletionJob(request, completion, prepares_next=True, first_line=preparation.first_line)
        job.task = asyncio.create_task(self._run(job))
        return job

    # ── the end of a request ──────────────────────────────────────────────────────────────────────────────────────────

    def _deadline_passed(self, job: CompletionJob) -> None:
        """Answer with the suggestions so far, or with the text streamed so far."""
        suggestions = list(job.suggestions)
        if not suggestions and job.plan is not None and job.stream is not None and job.stream.rest:
            job.trace.stop = Reason.DEADLINE
            partial = self._gate.to_suggestion(job.stream, job.plan, job, whole=False)
            suggestions = [] if isinstance(partial, NoSuggestion) else [partial]
        self._end(job, Outcome(tuple(suggestions), "" if suggestions else Reason.DEADLINE))
        self._stop(job)

    def _give_up(self, job: CompletionJob, reason: str) -> None:
        """End a job without suggestions."""
        self._end(job, Outcome(reason=reason))
        self._stop(job)

    def _stop(self, job: CompletionJob | None) -> None:
        """Cancel the task of a job, if there is one, and drop its stream unless a newer job has adopted it."""
        if job is None:
            return
        stream, job.stream = job.stream, None
        if stream is not None and stream.reader is job:
            self._streams.drop(stream)
        if job.task is not None:
            job.task.cancel()

    def _end(self, job: CompletionJob, outcome: Outcome) -> None:
        """Answer the job unless it is answered already, and report its trace once."""
        if job.prepares_next:
            return
        if self._jobs.get(job.snapshot.uri) is job:
            del self._jobs[job.snapshot.uri]
        trace = job.trace
        if trace.outcome:
            return
        if not job.answer.done():
            job.answer.set_result(outcome)
            if outcome.suggestions and not job.request.menu and job.completion.trigger == "automatic":
                first_line = job.first_line_of(outcome)
                self._stop(self.next_suggestion.schedule(job.request, outcome.suggestions[0], first_line))
        if job.deadline is not None:
            job.deadline.cancel()
        trace.ended(outcome.suggestions, outcome.reason)
        job.stop_waiting()
        trace.total_ms = job.elapsed_ms()
        if trace.tokens and not trace.reused and outcome.reason not in PASSING:
            self.last_latency_ms = trace.total_ms
        self._on_trace(trace)
        if outcome.reason != Reason.SUPERSEDED:  # the newer request reports the change itself
            self._on_busy()
