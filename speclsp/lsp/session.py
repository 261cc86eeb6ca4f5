"""One editor's completions: the newest keystroke wins, and what the user types along with is not computed twice.

    snapshot ─► answered before? ─► debounce ─► parse ─► plan ─► context ─► backend, streamed ─► finished ─► clean
       └ a newer one for the same document: this one is answered empty at once and its stream closed

Every request ends in one Outcome: suggestions, or the reason why there are none. What it took is in its Trace, which
holds numbers and names, never a piece of the document.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from pathlib import Path

from speclsp.config import Config
from speclsp.errors import EngineError
from speclsp.lsp import context, postprocess, syntax
from speclsp.lsp.backend import Backend, FimRequest
from speclsp.lsp.document import Snapshot
from speclsp.lsp.postprocess import Nothing, Plan, Suggestion
from speclsp.lsp.reuse import Memory
from speclsp.metrics import Metrics

CUT_SHORT = ("limit", "deadline")  # how a completion ends that has not come to its end
ALTERNATIVE_TEMPERATURE = 0.8

# Why nothing is shown, besides the reasons of postprocess.
DISABLED = "disabled"  # completion.enabled, or the language in completion.languages_off
TOO_LARGE = "too_large"  # context.max_file_bytes
LOADING = "loading"  # the backend is not ready
ENGINE_LOST = "engine_lost"  # it went away, or refused
DEADLINE = "deadline"  # and nothing worth showing by then
SUPERSEDED = "superseded"
CANCELLED = "cancelled"  # by the editor
CLOSED = "closed"  # the document, or the server
FAILED = "failed"  # a bug of ours; the log says where

log = logging.getLogger("speclsp.session")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one request."""

    suggestions: tuple[Suggestion, ...] = ()
    reason: str = ""  # why there are none


@dataclass(slots=True)
class Trace:
    """Where one request's milliseconds and tokens went; one JSON line each with --trace."""

    document: str  # the start of a hash of its URI
    language: str
    version: int
    characters: int
    wanted: int
    outcome: str = ""  # "shown", or the reason
    reused: bool = False  # answered without the engine
    parse_ms: float = 0.0
    context_ms: float = 0.0
    first_ms: float = 0.0  # from the request to the first text
    total_ms: float = 0.0
    prompt_tokens: int = 0  # these two only when the engine came to its own end
    cached_tokens: int = 0
    tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    by_source: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Job:
    """One request under way."""

    snapshot: Snapshot
    wanted: int
    trace: Trace
    answer: asyncio.Future[Outcome]
    started: float  # time.perf_counter()
    task: asyncio.Task[None] | None = None
    plan: Plan | None = None
    found: list[Suggestion] = field(default_factory=list)
    streamed: str = ""  # of the suggestion under way
    whole: bool = True  # it came to an end of its own, and not to a limit in mid-line

    def ms(self) -> float:
        return (time.perf_counter() - self.started) * 1000


class Session:
    """Completes for one editor. `config` may be replaced at any time, and holds from the next request."""

    def __init__(
        self,
        config: Config,
        backend: Callable[[], Backend | None],
        metrics: Metrics,
        on_busy: Callable[[], None] = lambda: None,
        on_trace: Callable[[Trace], None] = lambda trace: None,
    ) -> None:
        """`on_busy` is called when `busy` may have changed, `on_trace` at the end of every request."""
        self.config = config
        self.metrics = metrics
        self.memory = Memory()
        self._backend = backend
        self._on_busy = on_busy
        self._on_trace = on_trace
        self._parser = syntax.Parser()
        self._jobs: dict[str, Job] = {}  # by URI: one at a time
        self._name = f"{os.getpid()}-{os.urandom(4).hex()}"

    @property
    def busy(self) -> bool:
        """Whether the engine is at work for us."""
        return any(job.task is not None for job in self._jobs.values())

    async def complete(
        self, snapshot: Snapshot, wanted: int = 1, others: Sequence[Snapshot] = (), root: str | None = None
    ) -> Outcome:
        """Up to `wanted` different suggestions. Cancel the caller's task to give up; the engine stops as well."""
        loop = asyncio.get_running_loop()
        trace = Trace(
            document=digest(snapshot.uri),
            language=snapshot.language,
            version=snapshot.version,
            characters=len(snapshot.text),
            wanted=wanted,
        )
        job = Job(snapshot, wanted, trace, loop.create_future(), time.perf_counter())
        older = self._jobs.pop(snapshot.uri, None)
        if older is not None:
            self._give_up(older, SUPERSEDED)
        self._jobs[snapshot.uri] = job
        early = self._without_engine(job)
        if early is None:
            job.task = asyncio.create_task(self._run(job, others, root))
            self._on_busy()
        else:
            loop.call_soon(self._end, job, early)  # not sooner: answers leave in the order of their requests
        timer = loop.call_later(self.config.completion.deadline_ms / 1000, self._deadline, job)
        try:
            return await job.answer
        except asyncio.CancelledError:
            self._give_up(job, CANCELLED)
            raise
        finally:
            timer.cancel()

    def forget(self, uri: str) -> None:
        """The document was closed."""
        job = self._jobs.get(uri)
        if job is not None:
            self._give_up(job, CLOSED)
        self.memory.forget(uri)

    def close(self) -> None:
        """Answer everything that is under way."""
        for job in list(self._jobs.values()):
            self._give_up(job, CLOSED)

    # ── one request ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _without_engine(self, job: Job) -> Outcome | None:
        """The outcome where the engine need not, or cannot, be asked."""
        config, snapshot = self.config, job.snapshot
        if not config.completion.enabled or snapshot.language in config.completion.languages_off:
            return Outcome(reason=DISABLED)
        if len(snapshot.text) > config.context.max_file_bytes:
            return Outcome(reason=TOO_LARGE)
        known = self.memory.recall(snapshot, job.wanted)
        if known is not None:
            job.trace.reused = True
            return Outcome(*known)
        backend = self._backend()
        if backend is None or backend.status.state != "ready":
            return Outcome(reason=LOADING)
        return None

    async def _run(self, job: Job, others: Sequence[Snapshot], root: str | None) -> None:
        """Find the job's outcome; whatever happens, there is one."""
        try:
            await asyncio.sleep(
                self.config.completion.debounce_ms / 1000
            )  # 0: the keys that have come already go first
            outcome = await self._pipeline(job, others, root)
        except EngineError as error:
            log.info("no suggestion: %s", error)
            outcome = Outcome(reason=ENGINE_LOST)
        except Exception as error:  # its message may quote the document
            log.error("a completion failed: %s at %s", type(error).__name__, place(error))
            outcome = Outcome(reason=FAILED)
        if outcome.reason not in (ENGINE_LOST, FAILED) and not job.answer.done():
            self.memory.keep(job.snapshot, outcome.suggestions, job.wanted, outcome.reason)
        self._end(job, outcome)

    async def _pipeline(self, job: Job, others: Sequence[Snapshot], root: str | None) -> Outcome:
        config, snapshot, trace, start = self.config, job.snapshot, job.trace, job.ms()
        tree = self._parser.parse(
            snapshot.language, snapshot.text, config.context.parse_budget_ms, near=snapshot.cursor
        )
        plan = postprocess.plan(snapshot, tree, config.completion, verbatim=self._speaks_verbatim())
        trace.parse_ms = job.ms() - start
        if isinstance(plan, Nothing):
            return Outcome(reason=reason_of(plan))
        job.plan = plan
        seen = context.build(snapshot, tree, config.context, root=root, others=others)
        trace.context_ms = job.ms() - start - trace.parse_ms
        reason = ""
        for number in range(job.wanted):
            request = FimRequest(
                prefix=seen.prefix,
                line_prefix=seen.line_prefix,
                suffix=seen.suffix,
                path=seen.path,
                extra=tuple((chunk.path, chunk.text) for chunk in seen.extra),
                max_tokens=plan.max_tokens,
                deadline_ms=max(1, round(config.completion.deadline_ms - job.ms())),
                temperature=max(ALTERNATIVE_TEMPERATURE if number else 0.0, config.completion.temperature),
                seed=number,
                session=f"{self._name}-{trace.document}",
                previous="" if number else self.memory.expected(snapshot),
            )
            await self._stream(job, request, plan)
            made = plan.clean(job.streamed, whole=job.whole)
            if isinstance(made, Nothing):
                reason = reason or reason_of(made)
            elif made not in job.found:
                job.found.append(made)
        return Outcome(tuple(job.found), "" if job.found else reason)

    def _speaks_verbatim(self) -> bool:
        """Whether the backend is the echo pair, whose answers are evidence and must not be touched."""
        backend = self._backend()
        return backend is not None and backend.status.pair == "echo"

    async def _stream(self, job: Job, request: FimRequest, plan: Plan) -> None:
        """Take text from the backend until the plan has enough, counting what each round brought."""
        backend = self._backend()
        if backend is None:
            raise EngineError("the backend is being replaced")
        trace, job.streamed, job.whole = job.trace, "", True
        tokens = rounds = 0
        by_source: dict[str, dict[str, int]] = {}
        async with aclosing(backend.stream(request)) as pieces:
            async for piece in pieces:
                job.streamed += piece.text
                trace.first_ms = trace.first_ms or job.ms()
                if piece.cost is not None:
                    job.whole = piece.cost.stop_type not in CUT_SHORT
                    trace.prompt_tokens, trace.cached_tokens = piece.cost.prompt_tokens, piece.cost.cached_tokens
                    break
                tokens, rounds = tokens + piece.tokens, rounds + 1
                if piece.drafted:
                    counts = by_source.setdefault(piece.source, {"drafted": 0, "accepted": 0})
                    counts["drafted"] += piece.drafted
                    counts["accepted"] += piece.accepted
                if plan.finished(job.streamed):
                    break
        trace.tokens, trace.rounds = trace.tokens + tokens, trace.rounds + rounds
        for source, counts in by_source.items():
            trace.drafted, trace.accepted = trace.drafted + counts["drafted"], trace.accepted + counts["accepted"]
            total = trace.by_source.setdefault(source, {"drafted": 0, "accepted": 0})
            total["drafted"] += counts["drafted"]
            total["accepted"] += counts["accepted"]
        if rounds:
            self.metrics.speculated(tokens, rounds, by_source)

    # ── the end of one ────────────────────────────────────────────────────────────────────────────────────────────────

    def _deadline(self, job: Job) -> None:
        """Time is up: show what there is."""
        found = list(job.found)
        if not found and job.plan is not None and job.streamed:
            made = job.plan.clean(job.streamed, whole=False)
            found = [] if isinstance(made, Nothing) else [made]
        self._end(job, Outcome(tuple(found), "" if found else DEADLINE))
        self._stop(job)

    def _give_up(self, job: Job, reason: str) -> None:
        """End a job without suggestions. What it had streamed is kept to draft from."""
        if not job.answer.done() and job.streamed:
            cursor = job.snapshot.cursor
            self.memory.keep(job.snapshot, [Suggestion(job.streamed, cursor, cursor)], 0, whole=False)
        self._end(job, Outcome(reason=reason))
        self._stop(job)

    def _stop(self, job: Job) -> None:
        if job.task is not None:
            job.task.cancel()

    def _end(self, job: Job, outcome: Outcome) -> None:
        """Give the answer, unless there is one already, and put down what it took."""
        if self._jobs.get(job.snapshot.uri) is job:
            del self._jobs[job.snapshot.uri]
        if job.trace.outcome:
            return
        if not job.answer.done():
            job.answer.set_result(outcome)
        trace = job.trace
        trace.outcome = outcome.reason or "shown"
        trace.total_ms = job.ms()
        self.metrics.count("requests_total", stop=trace.outcome)
        if trace.tokens and not trace.reused and outcome.reason not in (SUPERSEDED, CANCELLED, CLOSED):
            self.metrics.time("latency_ms", trace.total_ms)
        self._on_trace(trace)
        if outcome.reason != SUPERSEDED:  # the one that superseded it says so
            self._on_busy()


def reason_of(nothing: Nothing) -> str:
    """The reason as one word."""
    return str(getattr(nothing.reason, "value", nothing.reason))


def digest(text: str) -> str:
    """Tells one document from another without naming it."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def place(error: BaseException) -> str:
    """Where an error came from."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"


def as_json(trace: Trace) -> dict[str, object]:
    """A trace with its milliseconds rounded."""
    return {name: round(value, 1) if isinstance(value, float) else value for name, value in asdict(trace).items()}
