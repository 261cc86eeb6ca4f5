"""One editor's completions: the newest keystroke wins, and what the user types along with is not computed twice.

    snapshot ─► answered before? ─► debounce ─► its turn: pipeline.py ─► remembered ─► answered
       │            └ being answered, and the user types along with it? the stream is taken over ─┘
       └ a newer one for the same document: this one is answered empty at once, its stream taken over or closed

Every request ends in one Outcome: suggestions, or the reason why there are none. What it took is in its Trace, which
holds numbers and names, never a piece of the document.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace

from speclsp.config import Config
from speclsp.errors import EngineError, error_site
from speclsp.lsp.backend.types import Backend
from speclsp.lsp.completion.answer_cache import AnswerCache
from speclsp.lsp.completion.next_suggestion import NextSuggestion
from speclsp.lsp.completion.pipeline import ENDED, CompletionJob, Outcome, Pipeline
from speclsp.lsp.completion.prefill_ahead import CompletionInput, PrefillAhead
from speclsp.lsp.completion.trace import Trace
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.postprocess.plan import NoSuggestion
from speclsp.lsp.reasons import (
    CANCELLED,
    CLOSED,
    DEADLINE,
    ENGINE_AWAY,
    ENGINE_LOST,
    EXCLUDED,
    FAILED,
    LOADING,
    PASSING,
    SERVER_AWAY,
    SUPERSEDED,
    Reason,
)
from speclsp.lsp.visibility.eligibility import why_not
from speclsp.lsp.visibility.ignore_files import IgnoreFiles
from speclsp.observability.metrics import Metrics

LOW_PAUSE_MS = 350  # completion.eagerness = "low" asks only when the typist has stopped
MESSAGES_A_KEY = 3  # the older request cancelled, the edit, the newer request
LET_IN_S = 0.02  # so long, while one request comes after the other, they are read before work is begun
FORGOTTEN = (ENGINE_LOST, EXCLUDED, FAILED, Reason.UNSURE)  # outcomes that say nothing about the next request

log = logging.getLogger("speclsp.session")


class Session:
    """Completes for one editor."""

    def __init__(
        self,
        config: Config,
        backend: Callable[[], Backend | None],
        metrics: Metrics,
        on_busy: Callable[[], None] = lambda: None,
        on_trace: Callable[[Trace], None] = lambda trace: None,
        ignored: IgnoreFiles | None = None,
    ) -> None:
        """`on_busy` is called when `busy` may have changed, `on_trace` at the end of every request."""
        self.metrics = metrics
        self.memory = AnswerCache()
        self._backend = backend
        self._on_busy = on_busy
        self._on_trace = on_trace
        self._ignored = ignored if ignored is not None else IgnoreFiles()
        self.pipeline = Pipeline(config, backend, metrics, self.memory, self._ignored)
        self._jobs: dict[str, CompletionJob] = {}  # by URI: one at a time
        self._streams = self.pipeline.streams
        self.tastes = self.pipeline.tastes
        self._ahead = PrefillAhead(self._read_ahead)
        self._next = NextSuggestion(self._begin_next, self._stop, self._streams)
        self._asked = 0  # requests so far
        self._desk = asyncio.Lock()  # held by who is next to work on a text

    @property
    def config(self) -> Config:
        """The settings that hold."""
        return self.pipeline.config

    @property
    def busy(self) -> bool:
        """Whether the engine is at work for us."""
        return any(job.task is not None for job in self._jobs.values())

    async def complete(
        self,
        snapshot: Snapshot,
        wanted: int = 1,
        others: Callable[[], Sequence[Snapshot]] = tuple,
        root: str | None = None,
        *,
        by_hand: bool = False,
        menu: bool = False,
        request: int | str = "",
        place: tuple[int, int] = (0, 0),
    ) -> Outcome:
        """Up to `wanted` different suggestions. Cancel the caller's task to give up; the engine stops as well.

        `by_hand`: somebody asked for it, who need not be spared. `menu`: for the completion menu, which an editor may
        fill beside showing the suggestion inline: then both get the same one. `request`: a name for it in the trace;
        `place`: line and column there.
        """
        loop = asyncio.get_running_loop()
        trace = Trace.of(snapshot, wanted, request, place)
        look, completion = CompletionInput(snapshot, others, root), self.config.completion
        job = CompletionJob(
            look, wanted, menu, completion, trace, loop.create_future(), time.perf_counter(), by_hand=by_hand
        )
        if by_hand and job.completion.eagerness == "low":
            job.completion = replace(job.completion, eagerness="medium")
            self.memory.forget(snapshot.uri)  # it holds what low left of the answers
            self._streams.leave(snapshot.uri)
        self._asked += 1
        self._ahead.asked(snapshot.uri)
        older = self._jobs.get(snapshot.uri)
        if older is not None and older.menu != menu and older.serves(job):
            return await self._answer(older)
        older, early = self._jobs.pop(snapshot.uri, None), self._without_engine(job)
        prepared = self._next.asked(snapshot, known=early is not None or wanted > 1)
        if early is not None or wanted > 1:  # no stream that was begun for one tells of alternatives
            self._streams.leave(snapshot.uri)
        elif (stream := self._streams.take_over(snapshot, job)) is not None:
            job.stream = stream
            trace.adopted, trace.draft_only, trace.prepared = True, self.pipeline.draft_only(), prepared is not None
            if stream.start is not None:
                trace.began(stream.start)
            self.metrics.count("adopted_total")
        if older is not None:
            self._give_up(older, SUPERSEDED)
        self._jobs[snapshot.uri] = job
        if early is None:
            job.task = asyncio.create_task(self._run(job))
            self._on_busy()
        else:
            loop.call_soon(self._end, job, early)  # not sooner: answers leave in the order of their requests
        job.timer = loop.call_later(job.completion.deadline_ms / 1000, self._deadline, job)
        if trace.prepared:
            self.metrics.count("prepared_used_total")
        if prepared is not None and prepared.eyes is not None:  # and what comes after it goes on from there
            self.pipeline.choose(snapshot.uri, prepared.eyes)
        return await self._answer(job)

    def changed(self, uri: str, look: Callable[[], CompletionInput | None]) -> None:
        """The document was edited; `look` tells how it is now, with the cursor where the edit ended.

        A stream that nobody reads lives on if it agrees with the edit. Where nothing is under way, the engine is given
        the prompt to read if no request comes at once: most of what a first token costs.
        """
        if uri in self._streams:
            seen = look()
            self._streams.changed(uri, seen.snapshot if seen is not None else None)
        self._next.changed(uri, look)
        self._ahead.changed(uri, look)

    def take(self, config: Config) -> None:
        """Other settings hold from the next request on, and nothing made under the old ones is shown for it."""
        self.pipeline.config = config
        self.start_afresh()

    def start_afresh(self) -> None:
        """Show nothing again that was made so far, and go on with nothing that is being made."""
        self.memory.clear()
        self.pipeline.shelves.clear()
        for job in self._jobs.values():
            job.outdated = True
        self._next.drop_all()
        self._streams.unlist()

    def forget(self, uri: str) -> None:
        """The document was closed."""
        job = self._jobs.get(uri)
        if job is not None:
            self._give_up(job, CLOSED)
        self._next.drop(uri)
        self.pipeline.forget(uri)
        self._ahead.forget(uri)
        self.memory.forget(uri)

    def close(self) -> None:
        """Answer everything that is under way."""
        for job in list(self._jobs.values()):
            self._give_up(job, CLOSED)
        self._next.drop_all()
        self._streams.unlist()
        self._ahead.close()

    # ── one request ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _answer(self, job: CompletionJob) -> Outcome:
        """Wait for it. The last one to give up, of the menu and inline, gives it up."""
        job.readers += 1
        try:
            return await asyncio.shield(job.answer)  # who gives up takes no answer from the other one
        except asyncio.CancelledError:
            if job.readers == 1:
                if job.stream is not None and job.stream.reader is job:
                    self._streams.linger(job.stream)
                self._give_up(job, CANCELLED)
            raise
        finally:
            job.readers -= 1

    def _without_engine(self, job: CompletionJob) -> Outcome | None:
        """The outcome where the engine need not, or cannot, be asked."""
        refused = self._refused(job.look)
        if refused and refused not in (LOADING, ENGINE_AWAY, SERVER_AWAY):
            return Outcome(reason=refused)
        known = self.memory.recall(job.snapshot, job.wanted)
        if known is not None:
            job.trace.reused, job.trace.prepared = True, self.memory.was_prepared(job.snapshot)
            return Outcome(*known)
        return Outcome(reason=refused) if refused else None

    def _refused(self, look: CompletionInput) -> str:
        """Why the engine is not asked about a text, whatever it is; "" when it can be."""
        snapshot, root, backend = look.snapshot, look.root, self._backend()
        excluded = self._ignored.of(snapshot.uri, root).no_suggestions
        reason, _ = why_not(snapshot.uri, snapshot.language, len(snapshot.text), self.config, root, excluded)
        if reason or (backend is not None and backend.status.usable):
            return reason
        if backend is None or backend.status.state not in ("error", "stopped", "waiting"):
            return LOADING
        return SERVER_AWAY if backend.status.remote else ENGINE_AWAY

    async def _run(self, job: CompletionJob) -> None:
        """Find the job's outcome; whatever happens, there is one."""
        try:
            low_ms = LOW_PAUSE_MS if job.completion.eagerness == "low" else 0
            pause_ms = 0 if job.stream is not None else max(job.completion.debounce_ms, low_ms)
            await asyncio.sleep(pause_ms / 1000)
            async with self._desk:
                await self._let_others_in()
            outcome = await self.pipeline.answer(job)
        except EngineError as error:
            log.info("no suggestion: %s", error)
            outcome = Outcome(reason=ENGINE_LOST)
        except Exception as error:  # its message may quote the document
            log.error("a completion failed: %s", error_site(error))
            outcome = Outcome(reason=FAILED)
        if job.stream is not None and job.stream.reader is job:  # taken over, and not worth showing
            self._streams.drop(job.stream)
        outdated = job.outdated or (job.trace.draft_only and not self.pipeline.draft_only())
        outdated = outdated or (job.idle and job.trace.stop == ENDED)
        if outcome.reason not in FORGOTTEN and not outdated and not job.answer.done():
            self.memory.keep(job.snapshot, outcome.suggestions, job.wanted, outcome.reason, prepared=job.idle)
        self._end(job, outcome)

    async def _let_others_in(self) -> None:
        """What has come already goes first: it may make this work pointless, or be answered sooner than it is done.

        The event loop takes a message in each of its turns. Work is begun at one desk, so between two texts that are
        parsed and looked around in there are such turns as well, however many are asked about at once.
        """
        until_s = time.perf_counter() + LET_IN_S
        asked = -1
        while asked != self._asked and time.perf_counter() < until_s:
            asked = self._asked
            for _message in range(MESSAGES_A_KEY):
                await asyncio.sleep(0)

    async def _read_ahead(self, look: CompletionInput) -> None:
        """Give the engine the prompt that a request at the cursor would have; it answers nothing to it."""
        async with self._desk:
            await self._let_others_in()
        snapshot, backend = look.snapshot, self._backend()
        if self._next.is_at(snapshot):
            return
        if snapshot.uri in self._jobs or snapshot.uri in self._streams or backend is None or not backend.reads_ahead:
            return
        if backend.status.state != "ready":  # nothing but a question wakes an engine that is asleep
            return
        if self._refused(look) or self.memory.recall(snapshot, 1) is not None:
            return
        request = self.pipeline.reading_ahead(look)
        if request is None:
            return
        self.metrics.count("prefill_ahead_total")
        async with aclosing(backend.stream(request)) as pieces:
            async for _piece in pieces:
                pass

    def _begin_next(self, look: CompletionInput) -> CompletionJob | None:
        """Make what would be suggested there, and keep it; None where that is not to be."""
        snapshot, completion, backend = look.snapshot, self.config.completion, self._backend()
        wanted = completion.prepare_next and completion.eagerness != "low" and snapshot.uri not in self._jobs
        if not wanted or backend is None or backend.status.state != "ready" or backend.status.remote:
            return None  # it wakes no engine that is asleep, and costs nobody's money
        if backend.status.memory != "full":
            return None  # and takes no room that is short
        if self._refused(look) or self.memory.recall(snapshot, 1) is not None:
            return None
        self.metrics.count("prepared_total")
        answer, trace = asyncio.get_running_loop().create_future(), Trace.of(snapshot, 1)
        job = CompletionJob(look, 1, False, completion, trace, answer, time.perf_counter(), idle=True)
        job.eyes = self.pipeline.chosen(snapshot.uri)
        job.task = asyncio.create_task(self._run(job))
        return job

    # ── the end of one ────────────────────────────────────────────────────────────────────────────────────────────────

    def _deadline(self, job: CompletionJob) -> None:
        """Time is up: show what there is."""
        found = list(job.found)
        if not found and job.plan is not None and job.stream is not None and job.stream.rest:
            job.trace.stop = DEADLINE
            made = self.pipeline.cleaned(job.stream, job.plan, job, whole=False)
            found = [] if isinstance(made, NoSuggestion) else [made]
        self._end(job, Outcome(tuple(found), "" if found else DEADLINE))
        self._stop(job)

    def _give_up(self, job: CompletionJob, reason: str) -> None:
        """End a job without suggestions."""
        self._end(job, Outcome(reason=reason))
        self._stop(job)

    def _stop(self, job: CompletionJob) -> None:
        stream, job.stream = job.stream, None
        if stream is not None and stream.reader is job:  # and not taken over
            self._streams.drop(stream)
        if job.task is not None:
            job.task.cancel()

    def _end(self, job: CompletionJob, outcome: Outcome) -> None:
        """Give the answer, unless there is one already, and put down what it took."""
        if job.idle:
            return
        if self._jobs.get(job.snapshot.uri) is job:
            del self._jobs[job.snapshot.uri]
        if job.trace.outcome:
            return
        if not job.answer.done():
            job.answer.set_result(outcome)
            if outcome.suggestions and not job.menu:
                self._next.shown(job.look, outcome.suggestions[0])
        if job.timer is not None:
            job.timer.cancel()
        trace = job.trace
        trace.outcome = outcome.reason or "shown"
        trace.suggestions = len(outcome.suggestions)
        trace.shown_characters = len(outcome.suggestions[0].text) if outcome.suggestions else 0
        backend = self._backend()
        trace.about.status = backend.status if backend is not None else None
        job.waited()
        trace.total_ms = job.ms()
        self.metrics.count("requests_total", stop=trace.outcome)
        if trace.tokens and not trace.reused and outcome.reason not in PASSING:
            self.metrics.time("latency_ms", trace.total_ms)
        self._on_trace(trace)
        if outcome.reason != SUPERSEDED:  # the one that superseded it says so
            self._on_busy()
