"""One editor's completions: the newest keystroke wins, and what the user types along with is not computed twice.

    snapshot ─► answered before? ─► debounce ─► parse ─► plan ─► context ─► backend, streamed ─► finished ─► clean
       │            └ being answered, and the user types along with it? the stream is taken over ─┘
       └ a newer one for the same document: this one is answered empty at once, its stream taken over or closed

Every request ends in one Outcome: suggestions, or the reason why there are none. What it took is in its Trace, which
holds numbers and names, never a piece of the document.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from speclsp.config import CompletionConfig, Config
from speclsp.errors import EngineError
from speclsp.lsp import alternatives, context, postprocess, syntax
from speclsp.lsp.ahead import Ahead, Look
from speclsp.lsp.backend import Backend, FimRequest, Piece
from speclsp.lsp.budget import Shelves
from speclsp.lsp.confidence import CURVES, Place, Tastes, judged, sure
from speclsp.lsp.document import Snapshot
from speclsp.lsp.doing import Doing
from speclsp.lsp.elsewhere import Sources
from speclsp.lsp.here import why_not
from speclsp.lsp.ignored import UNREAD, Ignored
from speclsp.lsp.index import Index
from speclsp.lsp.next import Next
from speclsp.lsp.postprocess import Nothing, Plan, Reason, Suggestion
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
)
from speclsp.lsp.reuse import Memory
from speclsp.lsp.stream import FAR_LINGER_S, LINGER_S, PARTED, Stream, Streams
from speclsp.lsp.trace import Trace, digest, note, place
from speclsp.lsp.wire import is_loopback
from speclsp.metrics import Metrics

ENDED = "cancelled"  # by the engine, for somebody else: a preparation only
CUT_SHORT = ("limit", "deadline")  # how a completion ends that has not come to its end
LOW_PAUSE_MS = 350  # completion.eagerness = "low" asks only when the typist has stopped
MESSAGES_A_KEY = 3  # the older request cancelled, the edit, the newer request
LET_IN_S = 0.02  # so long, while one request comes after the other, they are read before work is begun

log = logging.getLogger("speclsp.session")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one request."""

    suggestions: tuple[Suggestion, ...] = ()
    reason: str = ""  # why there are none


Eyes = tuple[context.Windows, Shelves]  # what was chosen last, by URI: it stays while somebody types on


@dataclass(eq=False, slots=True)
class Job:
    """One request under way."""

    snapshot: Snapshot
    wanted: int
    menu: bool
    completion: CompletionConfig  # as it holds for this request
    trace: Trace
    answer: asyncio.Future[Outcome]
    started: float  # time.perf_counter()
    task: asyncio.Task[None] | None = None
    plan: Plan | None = None
    found: list[Suggestion] = field(default_factory=list)
    stream: Stream | None = None  # the suggestion under way
    waiting_from: float | None = None  # ms; while it waits for the engine
    idle: bool = False  # nobody waits for it (next.py)
    eyes: Eyes | None = None  # its own, until it is wanted
    by_hand: bool = False

    def ms(self) -> float:
        return (time.perf_counter() - self.started) * 1000

    async def wait_for(self, stream: Stream) -> None:
        """Until the stream has ended."""
        self.waiting_from = self.ms()
        await stream.ended.wait()
        self.waited()

    def waited(self) -> None:
        """It waits no more."""
        if self.waiting_from is not None:
            self.trace.engine_ms += self.ms() - self.waiting_from
            self.waiting_from = None

    def heard(self, piece: Piece) -> None:
        """A round has come, or the end."""
        self.trace.first_ms = self.trace.first_ms or self.ms()
        self.trace.add(piece)


class Session:
    """Completes for one editor."""

    def __init__(
        self,
        config: Config,
        backend: Callable[[], Backend | None],
        metrics: Metrics,
        on_busy: Callable[[], None] = lambda: None,
        on_trace: Callable[[Trace], None] = lambda trace: None,
        ignored: Ignored | None = None,
    ) -> None:
        """`on_busy` is called when `busy` may have changed, `on_trace` at the end of every request."""
        self.config = config
        self.metrics = metrics
        self.memory = Memory()
        self._backend = backend
        self._on_busy = on_busy
        self._on_trace = on_trace
        self._ignored = ignored if ignored is not None else Ignored()
        self._parser = syntax.Parser()
        self._windows: context.Windows = {}
        self._shelves: Shelves = {}
        self._jobs: dict[str, Job] = {}  # by URI: one at a time
        self._streams = Streams(self.memory, metrics, self._cleaned)
        self.tastes = Tastes()
        self._name = f"{os.getpid()}-{os.urandom(4).hex()}"
        self._ahead = Ahead(self._read_ahead)
        self._next = Next(self._begin_next, self._stop, self._streams)
        self._asked = 0  # requests so far
        self.index_of: Callable[[str | None], Index | None] = lambda _root: None  # of a workspace folder, by its URI
        self.doing: Doing | None = None  # what the user did lately, where somebody tells
        self._desk = asyncio.Lock()  # held by who is next to work on a text

    @property
    def busy(self) -> bool:
        """Whether the engine is at work for us."""
        return any(job.task is not None for job in self._jobs.values())

    async def complete(
        self,
        snapshot: Snapshot,
        wanted: int = 1,
        others: Sequence[Snapshot] = (),
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
        job = Job(snapshot, wanted, menu, self.config.completion, trace, loop.create_future(), time.perf_counter())
        job.by_hand = by_hand
        if by_hand and job.completion.eagerness == "low":
            job.completion = replace(job.completion, eagerness="medium")
            self.memory.forget(snapshot.uri)  # it holds what low left of the answers
        self._asked += 1
        self._ahead.asked(snapshot.uri)
        older = self._jobs.get(snapshot.uri)
        if older is not None and older.menu != menu and older.snapshot == snapshot and older.wanted == wanted:
            return await asyncio.shield(older.answer)
        older, early = self._jobs.pop(snapshot.uri, None), self._without_engine(job, root)
        prepared = self._next.asked(snapshot, known=early is not None or wanted > 1)
        if early is not None or wanted > 1:  # no stream that was begun for one tells of alternatives
            self._streams.leave(snapshot.uri)
        elif (stream := self._streams.take_over(snapshot, job)) is not None:
            job.stream = stream
            trace.adopted, trace.draft_only, trace.prepared = True, self._draft_only(), prepared is not None
            if stream.start is not None:
                trace.began(stream.start)
            self.metrics.count("adopted_total")
        if older is not None:
            self._give_up(older, SUPERSEDED)
        self._jobs[snapshot.uri] = job
        if early is None:
            job.task = asyncio.create_task(self._run(job, others, root))
            self._on_busy()
        else:
            loop.call_soon(self._end, job, early)  # not sooner: answers leave in the order of their requests
        timer = loop.call_later(job.completion.deadline_ms / 1000, self._deadline, job)
        if trace.prepared:
            self.metrics.count("prepared_used_total")
        if prepared is not None and prepared.eyes is not None:  # and what comes after it goes on from there
            windows, shelves = prepared.eyes
            self._windows |= {uri: windows[uri] for uri in (snapshot.uri,) if uri in windows}
            self._shelves |= shelves
        try:
            outcome = await job.answer
            if outcome.suggestions and not menu:
                self._next.shown(Look(snapshot, others, root), outcome.suggestions[0])
            return outcome
        except asyncio.CancelledError:
            if job.stream is not None and job.stream.reader is job:
                self._streams.linger(job.stream)
            self._give_up(job, CANCELLED)
            raise
        finally:
            timer.cancel()

    def changed(self, uri: str, look: Callable[[], Look | None]) -> None:
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
        self.config = config
        self.start_afresh()

    def start_afresh(self) -> None:
        """Show nothing again that was made so far, and go on with nothing that is being made."""
        self.memory.clear()
        self._shelves.clear()
        self._next.drop_all()
        self._streams.unlist()

    def forget(self, uri: str) -> None:
        """The document was closed."""
        job = self._jobs.get(uri)
        if job is not None:
            self._give_up(job, CLOSED)
        self._next.drop(uri)
        self._streams.leave(uri)
        self._ahead.forget(uri)
        self._windows.pop(uri, None)
        self._shelves.pop(uri, None)
        self.memory.forget(uri)

    def close(self) -> None:
        """Answer everything that is under way."""
        for job in list(self._jobs.values()):
            self._give_up(job, CLOSED)
        self._next.drop_all()
        self._streams.unlist()
        self._ahead.close()

    # ── one request ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _without_engine(self, job: Job, root: str | None) -> Outcome | None:
        """The outcome where the engine need not, or cannot, be asked."""
        refused = self._refused(job.snapshot, root)
        if refused and refused not in (LOADING, ENGINE_AWAY, SERVER_AWAY):
            return Outcome(reason=refused)
        known = self.memory.recall(job.snapshot, job.wanted)
        if known is not None:
            job.trace.reused, job.trace.prepared = True, self.memory.was_prepared(job.snapshot)
            return Outcome(*known)
        return Outcome(reason=refused) if refused else None

    def _refused(self, snapshot: Snapshot, root: str | None) -> str:
        """Why the engine is not asked about a text, whatever it is; "" when it can be."""
        backend = self._backend()
        excluded = self._ignored.of(snapshot.uri, root).no_suggestions
        reason, _ = why_not(snapshot.uri, snapshot.language, len(snapshot.text), self.config, root, excluded)
        if reason or (backend is not None and backend.status.usable):
            return reason
        if backend is None or backend.status.state not in ("error", "stopped", "waiting"):
            return LOADING
        return SERVER_AWAY if backend.status.remote else ENGINE_AWAY

    async def _run(self, job: Job, others: Sequence[Snapshot], root: str | None) -> None:
        """Find the job's outcome; whatever happens, there is one."""
        try:
            low_ms = LOW_PAUSE_MS if job.completion.eagerness == "low" else 0
            pause_ms = 0 if job.stream is not None else max(job.completion.debounce_ms, low_ms)
            await asyncio.sleep(pause_ms / 1000)
            async with self._desk:
                await self._let_others_in()
            outcome = await self._pipeline(job, others, root)
        except EngineError as error:
            log.info("no suggestion: %s", error)
            outcome = Outcome(reason=ENGINE_LOST)
        except Exception as error:  # its message may quote the document
            log.error("a completion failed: %s at %s", type(error).__name__, place(error))
            outcome = Outcome(reason=FAILED)
        if job.stream is not None and job.stream.reader is job:  # taken over, and not worth showing
            self._streams.drop(job.stream)
        outdated = job.trace.draft_only and not self._draft_only()
        outdated = outdated or (job.idle and job.trace.stop == ENDED)
        if (
            outcome.reason not in (ENGINE_LOST, EXCLUDED, FAILED, Reason.UNSURE)
            and not outdated
            and not job.answer.done()
        ):
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

    async def _pipeline(self, job: Job, others: Sequence[Snapshot], root: str | None) -> Outcome:
        snapshot, trace = job.snapshot, job.trace
        verdict, backend = await self._ignored.settled(snapshot.uri, root), self._backend()
        far = backend is not None and bool(backend.status.remote)
        if verdict.no_suggestions or (far and verdict == UNREAD):  # what nobody has read may say that it must not leave
            return Outcome(reason=EXCLUDED)
        start = trace.waited_ms = job.ms()
        plan, tree = self._plan(snapshot, job.completion, others)
        trace.parse_ms = job.ms() - start
        if isinstance(plan, Nothing):
            return Outcome(reason=reason_of(plan))
        job.plan = plan
        made = await self._taken_over(job, plan) if job.stream is not None else None
        if made is not None:
            return outcome_of(made)
        start = job.ms()
        seen = self._see(snapshot, tree, others, root, job.eyes)
        trace.context_ms = job.ms() - start
        note(trace, seen)

        def asking() -> FimRequest:
            return FimRequest(
                **as_fields(seen),
                max_tokens=plan.max_tokens,
                deadline_ms=max(1, round(job.completion.deadline_ms - job.ms())),
                temperature=job.completion.temperature,
                session=f"{self._name}-{trace.document}",
                previous=self.memory.expected(snapshot),
                branches=alternatives.BRANCHES if job.wanted > 1 else 0,
                idle=job.idle,
            )

        async def make(request: FimRequest) -> tuple[Suggestion | Nothing, Stream]:
            stream = job.stream = self._ask(job, plan, request)
            await job.wait_for(stream)
            return self._read(job, stream, plan), stream

        made, stream = await make(asking())
        if job.wanted > 1:
            await alternatives.find(job, made, stream, asking, make)
        return Outcome(tuple(job.found)) if job.found else outcome_of(made)

    def _plan(
        self, snapshot: Snapshot, completion: CompletionConfig, others: Sequence[Snapshot]
    ) -> tuple[Plan | Nothing, syntax.Tree | None]:
        """How far a suggestion may go, and the syntax that says so."""
        budget_ms, backend = self.config.context.parse_budget_ms, self._backend()
        tree = self._parser.parse(snapshot.language, snapshot.text, budget_ms, near=snapshot.cursor)
        verbatim = backend is not None and backend.status.pair == "echo"  # its answers are evidence, not to be touched
        if backend is not None and backend.status.remote and not is_loopback(self.config.backend.url):
            verbatim = False  # any server may call its model so
        return postprocess.plan(snapshot, tree, completion, others, verbatim=verbatim), tree

    def _see(
        self,
        snapshot: Snapshot,
        tree: syntax.Tree | None,
        others: Sequence[Snapshot],
        root: str | None,
        eyes: Eyes | None = None,
    ) -> context.Context:
        """What the model is shown."""
        settings, (windows, shelves) = self.config.context, eyes or (self._windows, self._shelves)
        doing = self.doing.candidates if self.doing is not None else None
        sources = Sources(index=self.index_of(root), doing=doing)
        return context.build(snapshot, tree, settings, root, others, windows, shelves=shelves, sources=sources)

    def _draft_only(self) -> bool:
        """Whether the draft model answers alone, as long as the target loads."""
        backend = self._backend()
        return backend is not None and backend.status.draft_only

    def _ask(self, job: Job, plan: Plan, request: FimRequest) -> Stream:
        """A stream of what the backend says. Raises EngineError."""
        backend = self._backend()
        if backend is None:
            raise EngineError("the backend is being replaced")
        job.trace.draft_only = self._draft_only()
        linger_s = FAR_LINGER_S if backend.status.remote else LINGER_S
        stream = self._streams.begin(backend.stream(request), job.snapshot, plan, job, linger_s)
        if request.seed == 0 and not request.begin and not job.idle:  # others stay their reader's
            self._streams.list(stream)
        return stream

    def _read(self, job: Job, stream: Stream, plan: Plan) -> Suggestion | Nothing:
        """What a stream that has ended comes to for its reader. Raises what ended it."""
        job.stream = None
        self._streams.done(stream)
        job.trace.stop = stream.stop
        if stream.error is not None:
            raise stream.error
        made = self._cleaned(stream, plan, job, whole=stream.stop not in CUT_SHORT)
        if isinstance(made, Nothing) and made.reason is Reason.UNSURE:
            self._streams.drop(stream)  # good to draft from
        return made

    def _cleaned(self, stream: Stream, plan: Plan, job: Job | None = None, whole: bool = True) -> Suggestion | Nothing:
        """What is shown of a stream; of a request's first one the trace keeps how it came to that."""
        said, cuts = stream.rest or "", [] if job is None or job.found else job.trace.cuts
        cuts.clear()
        made = plan.clean(said, whole=whole, cuts=cuts)
        if job is not None and not job.found:
            job.trace.streamed_characters = len(said)
        backend, eagerness = self._backend(), (job.completion if job else self.config.completion).eagerness
        curve = CURVES.get(backend.status.pair) if backend is not None and not self._draft_only() else None
        if curve is None:
            return made
        language, place = stream.asked.language, Place.of(plan.around.line, plan.around.rest)
        wanted = 0.0 if job and job.by_hand else self.tastes.wanted(language, eagerness, curve)
        verdict = judged(stream.text, stream.told, len(stream.typed), place, wanted, curve)
        if job is not None and not job.found:
            job.trace.confidence, job.trace.least_confidence = verdict.confidence, verdict.wanted
            job.trace.taken_and_left = self.tastes.seen(language)
        return sure(made, plan, said, verdict, cuts)

    async def _taken_over(self, job: Job, plan: Plan) -> Suggestion | Nothing | None:
        """The same for a stream that an older request began; None when the engine must be asked after all.

        It must where what was typed and what comes have parted, where all that came has been typed, and where the newer
        request may go further than the older one.
        """
        stream = job.stream
        if stream is None:
            return None
        agrees = stream.hand(job.snapshot, plan)
        if agrees:
            await job.wait_for(stream)
            further = stream.stop == "limit" and plan.max_tokens > stream.max_tokens
            agrees = stream.error is not None or not (
                stream.stop in (PARTED, ENDED) or further or not (stream.rest or "").strip()
            )
        if not agrees:
            job.stream = None
            self._streams.drop(stream)
            return None
        return self._read(job, stream, plan)

    async def _read_ahead(self, look: Look) -> None:
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
        if self._refused(snapshot, look.root) or self.memory.recall(snapshot, 1) is not None:
            return
        plan, tree = self._plan(snapshot, self.config.completion, look.others)
        if isinstance(plan, Nothing):
            return
        seen = self._see(snapshot, tree, look.others, look.root)
        session = f"{self._name}-{digest(snapshot.uri)}"
        request = FimRequest(
            **as_fields(seen), max_tokens=0, deadline_ms=self.config.completion.deadline_ms, session=session
        )
        self.metrics.count("prefill_ahead_total")
        async with aclosing(backend.stream(request)) as pieces:
            async for _piece in pieces:
                pass

    def _begin_next(self, look: Look) -> Job | None:
        """Make what would be suggested there, and keep it; None where that is not to be."""
        snapshot, completion, backend = look.snapshot, self.config.completion, self._backend()
        wanted = completion.prepare_next and completion.eagerness != "low" and snapshot.uri not in self._jobs
        if not wanted or backend is None or backend.status.state != "ready" or backend.status.remote:
            return None  # it wakes no engine that is asleep, and costs nobody's money
        if backend.status.memory != "full":
            return None  # and takes no room that is short
        if self._refused(snapshot, look.root) or self.memory.recall(snapshot, 1) is not None:
            return None
        self.metrics.count("prepared_total")
        answer = asyncio.get_running_loop().create_future()
        job = Job(snapshot, 1, False, completion, Trace.of(snapshot, 1), answer, time.perf_counter(), idle=True)
        shelf = self._shelves.get(snapshot.uri)
        job.eyes = dict(self._windows), {snapshot.uri: replace(shelf)} if shelf is not None else {}
        job.task = asyncio.create_task(self._run(job, look.others, look.root))
        return job

    # ── the end of one ────────────────────────────────────────────────────────────────────────────────────────────────

    def _deadline(self, job: Job) -> None:
        """Time is up: show what there is."""
        found = list(job.found)
        if not found and job.plan is not None and job.stream is not None and job.stream.rest:
            job.trace.stop = DEADLINE
            made = self._cleaned(job.stream, job.plan, job, whole=False)
            found = [] if isinstance(made, Nothing) else [made]
        self._end(job, Outcome(tuple(found), "" if found else DEADLINE))
        self._stop(job)

    def _give_up(self, job: Job, reason: str) -> None:
        """End a job without suggestions."""
        self._end(job, Outcome(reason=reason))
        self._stop(job)

    def _stop(self, job: Job) -> None:
        stream, job.stream = job.stream, None
        if stream is not None and stream.reader is job:  # and not taken over
            self._streams.drop(stream)
        if job.task is not None:
            job.task.cancel()

    def _end(self, job: Job, outcome: Outcome) -> None:
        """Give the answer, unless there is one already, and put down what it took."""
        if job.idle:
            return
        if self._jobs.get(job.snapshot.uri) is job:
            del self._jobs[job.snapshot.uri]
        if job.trace.outcome:
            return
        if not job.answer.done():
            job.answer.set_result(outcome)
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


def as_fields(seen: context.Context) -> dict[str, Any]:
    """What the model sees, as FimRequest names it."""
    extra = tuple((chunk.path, chunk.text) for chunk in seen.extra)
    return {
        "prefix": seen.prefix,
        "line_prefix": seen.line_prefix,
        "suffix": seen.suffix,
        "path": seen.path,
        "extra": extra,
    }


def outcome_of(made: Suggestion | Nothing) -> Outcome:
    """A request's, of which one suggestion was wanted."""
    return Outcome(reason=reason_of(made)) if isinstance(made, Nothing) else Outcome((made,))


def reason_of(nothing: Nothing) -> str:
    """The reason as one word."""
    return str(getattr(nothing.reason, "value", nothing.reason))
