"""How one request is answered, once it is its turn: what is parsed, planned, shown to the model, streamed and cleaned.

    ignore files ─► parse ─► plan ─► a stream taken over? its end ─┐
                              └─► context ─► backend, streamed ────┴─► cleaned ─► sure enough?

session.py says which request's turn it is and what becomes of the answer; next.py has answers made that nobody has
asked for yet, and what is chosen for those stays theirs until somebody does.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from speclsp.config import CompletionConfig, Config
from speclsp.errors import EngineError
from speclsp.lsp.backend.http import is_loopback_url
from speclsp.lsp.backend.types import Backend, FimRequest, StreamPiece
from speclsp.lsp.completion import alternatives
from speclsp.lsp.completion.answer_cache import AnswerCache
from speclsp.lsp.completion.confidence import CURVES, AcceptanceHistory, Place, apply_gate, evaluate
from speclsp.lsp.completion.prefill_ahead import CompletionInput
from speclsp.lsp.completion.stream import ENOUGH, FAR_LINGER_S, LINGER_S, PARTED, Stream, Streams
from speclsp.lsp.completion.trace import Trace, digest, note
from speclsp.lsp.context import build
from speclsp.lsp.context.cross_file import CrossFileSources
from speclsp.lsp.context.recent_activity import RecentActivity
from speclsp.lsp.context.selection import Selections
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.index.reader import IndexReader
from speclsp.lsp.postprocess import plan as postprocess
from speclsp.lsp.postprocess.plan import NoSuggestion, Suggestion, SuggestionPlan
from speclsp.lsp.reasons import EXCLUDED, Reason
from speclsp.lsp.syntax import tree as syntax
from speclsp.lsp.visibility.ignore_files import UNREAD, IgnoreFiles
from speclsp.observability.metrics import Metrics

ENDED = "cancelled"  # by the engine, for somebody else: a preparation only
CUT_SHORT = ("limit", "deadline")  # how a completion ends that has not come to its end


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one request."""

    suggestions: tuple[Suggestion, ...] = ()
    reason: str = ""  # why there are none


Eyes = tuple[build.Windows, Selections]  # what was chosen last, by URI: it stays while somebody types on


@dataclass(eq=False, slots=True)
class CompletionJob:
    """One request under way."""

    look: CompletionInput
    wanted: int
    menu: bool
    completion: CompletionConfig  # as it holds for this request
    trace: Trace
    answer: asyncio.Future[Outcome]
    started: float  # time.perf_counter()
    task: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None  # to its deadline
    readers: int = 0  # who wait for the answer: an editor may ask for its menu and inline
    plan: SuggestionPlan | None = None
    found: list[Suggestion] = field(default_factory=list)
    stream: Stream | None = None  # the suggestion under way
    waiting_from: float | None = None  # ms; while it waits for the engine
    outdated: bool = False  # other settings hold by now, or another model answers: good to show, not to remember
    idle: bool = False  # nobody waits for it (next.py)
    eyes: Eyes | None = None  # its own, until it is wanted
    by_hand: bool = False

    @property
    def snapshot(self) -> Snapshot:
        return self.look.snapshot

    def serves(self, newer: CompletionJob) -> bool:
        """Whether its answer is one to that, too."""
        same = self.snapshot == newer.snapshot and self.wanted == newer.wanted
        return same and (self.by_hand or not newer.by_hand)  # by hand also what is not sure enough is shown

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

    def heard(self, piece: StreamPiece) -> None:
        """A round has come, or the end."""
        self.trace.first_ms = self.trace.first_ms or self.ms()
        self.trace.add(piece)


class Pipeline:
    """Makes the answers of one editor's session: `streams` are under way, `windows` and `shelves` what was chosen."""

    def __init__(
        self,
        config: Config,
        backend: Callable[[], Backend | None],
        metrics: Metrics,
        memory: AnswerCache,
        ignored: IgnoreFiles,
    ) -> None:
        self.config = config
        self.index_of: Callable[[str | None], IndexReader | None] = lambda _root: (
            None
        )  # of a workspace folder, by its URI
        self.recent_activity: RecentActivity | None = None  # recent edits, where the settings ask for them
        self.tastes = AcceptanceHistory()
        self.streams = Streams(memory, metrics, self.cleaned)
        self.windows: build.Windows = {}
        self.shelves: Selections = {}
        self._backend = backend
        self._memory = memory
        self._ignored = ignored
        self._parser = syntax.SyntaxParser()
        self._name = f"{os.getpid()}-{os.urandom(4).hex()}"

    def forget(self, uri: str) -> None:
        """The document was closed."""
        self.streams.leave(uri)
        self.windows.pop(uri, None)
        self.shelves.pop(uri, None)

    def draft_only(self) -> bool:
        """Whether the draft model answers alone, as long as the target loads."""
        backend = self._backend()
        return backend is not None and backend.status.draft_only

    def chosen(self, uri: str) -> Eyes:
        """What was chosen for a document, to go on from without changing it."""
        shelf = self.shelves.get(uri)
        return dict(self.windows), {uri: replace(shelf)} if shelf is not None else {}

    def choose(self, uri: str, eyes: Eyes) -> None:
        """Go on from what was chosen so."""
        windows, shelves = eyes
        self.windows |= {one: windows[one] for one in (uri,) if one in windows}
        self.shelves |= shelves

    async def answer(self, job: CompletionJob) -> Outcome:
        """What a request comes to. Raises EngineError."""
        look, snapshot, trace = job.look, job.snapshot, job.trace
        verdict, backend = await self._ignored.settled(snapshot.uri, look.root), self._backend()
        far = backend is not None and bool(backend.status.remote)
        if verdict.no_suggestions or (far and verdict == UNREAD):  # what nobody has read may say that it must not leave
            return Outcome(reason=EXCLUDED)
        start = trace.waited_ms = job.ms()
        plan, tree = self._plan(look, job.completion)
        trace.parse_ms = job.ms() - start
        if isinstance(plan, NoSuggestion):
            return Outcome(reason=reason_of(plan))
        job.plan = plan
        made = await self._taken_over(job, plan) if job.stream is not None else None
        if made is not None:
            return outcome_of(made)
        start = job.ms()
        seen = self._see(look, tree, job.eyes)
        trace.context_ms = job.ms() - start
        note(trace, seen)

        def asking() -> FimRequest:
            return FimRequest(
                **as_fields(seen),
                max_tokens=plan.max_tokens,
                deadline_ms=max(1, round(job.completion.deadline_ms - job.ms())),
                temperature=job.completion.temperature,
                session=self._engine_session(snapshot.uri),
                previous=self._memory.expected(snapshot),
                branches=alternatives.BRANCHES if job.wanted > 1 else 0,
                idle=job.idle,
            )

        async def make(request: FimRequest) -> tuple[Suggestion | NoSuggestion, Stream]:
            stream = job.stream = self._ask(job, plan, request)
            await job.wait_for(stream)
            return self._read(job, stream, plan), stream

        made, stream = await make(asking())
        if job.wanted > 1:
            await alternatives.find(job, made, stream, asking, make)
        return Outcome(tuple(job.found)) if job.found else outcome_of(made)

    def reading_ahead(self, look: CompletionInput) -> FimRequest | None:
        """What a request there would ask, for the engine to read and no more; None where it would ask nothing."""
        plan, tree = self._plan(look, self.config.completion)
        if isinstance(plan, NoSuggestion):
            return None
        seen, deadline_ms = self._see(look, tree), self.config.completion.deadline_ms
        session = self._engine_session(look.snapshot.uri)
        return FimRequest(**as_fields(seen), max_tokens=0, deadline_ms=deadline_ms, session=session)

    def _engine_session(self, uri: str) -> str:
        """Under which name the engine keeps what it has read of a document."""
        return f"{self._name}-{digest(uri)}"

    def _plan(
        self, look: CompletionInput, completion: CompletionConfig
    ) -> tuple[SuggestionPlan | NoSuggestion, syntax.SyntaxTree | None]:
        """How far a suggestion may go, and the syntax that says so."""
        snapshot = look.snapshot
        budget_ms, backend = self.config.context.parse_budget_ms, self._backend()
        tree = self._parser.parse(snapshot.language, snapshot.text, budget_ms, near=snapshot.cursor)
        verbatim = backend is not None and backend.status.pair == "echo"  # its answers are evidence, not to be touched
        if backend is not None and backend.status.remote and not is_loopback_url(self.config.backend.url):
            verbatim = False  # any server may call its model so
        return postprocess.plan(snapshot, tree, completion, look.others(), verbatim=verbatim), tree

    def _see(self, look: CompletionInput, tree: syntax.SyntaxTree | None, eyes: Eyes | None = None) -> build.Context:
        """What the model is shown."""
        settings, (windows, shelves) = self.config.context, eyes or (self.windows, self.shelves)
        recent_edits = self.recent_activity.candidates if self.recent_activity is not None else None
        sources = CrossFileSources(index=self.index_of(look.root), recent_edits=recent_edits)
        return build.build(
            look.snapshot, tree, settings, look.root, look.others(), windows, shelves=shelves, sources=sources
        )

    def _ask(self, job: CompletionJob, plan: SuggestionPlan, request: FimRequest) -> Stream:
        """A stream of what the backend says. Raises EngineError."""
        backend = self._backend()
        if backend is None:
            raise EngineError("the backend is being replaced")
        job.trace.draft_only = self.draft_only()
        linger_s = FAR_LINGER_S if backend.status.remote else LINGER_S
        stream = self.streams.begin(backend.stream(request), job.snapshot, plan, job, linger_s)
        if request.seed == 0 and not request.begin and not job.idle:  # others stay their reader's
            self.streams.list(stream)
        return stream

    def _read(self, job: CompletionJob, stream: Stream, plan: SuggestionPlan) -> Suggestion | NoSuggestion:
        """What a stream that has ended comes to for its reader. Raises what ended it."""
        job.stream = None
        job.trace.stop = stream.stop
        if stream.error is not None:
            self.streams.done(stream)
            raise stream.error
        made = self.cleaned(stream, plan, job, whole=stream.stop not in CUT_SHORT)
        if isinstance(made, NoSuggestion) and made.reason is Reason.UNSURE:
            self.streams.hold_back(stream)
        else:
            self.streams.done(stream)
        return made

    def cleaned(
        self, stream: Stream, plan: SuggestionPlan, job: CompletionJob | None = None, whole: bool = True
    ) -> Suggestion | NoSuggestion:
        """What is shown of a stream; of a request's first one the trace keeps how it came to that."""
        said, cuts = stream.rest or "", [] if job is None or job.found else job.trace.cuts
        cuts.clear()
        made = plan.clean(said, whole=whole, cuts=cuts)
        if job is not None and not job.found:
            job.trace.streamed_characters = len(said)
        backend, eagerness = self._backend(), (job.completion if job else self.config.completion).eagerness
        curve = CURVES.get(backend.status.pair) if backend is not None and not self.draft_only() else None
        if curve is None:
            return made
        language, place = stream.asked.language, Place.of(plan.around.line, plan.around.rest)
        wanted = 0.0 if job and job.by_hand else self.tastes.wanted(language, eagerness, curve)
        verdict = evaluate(stream.text, stream.told, len(stream.typed), place, wanted, curve)
        if job is not None and not job.found:
            job.trace.confidence, job.trace.least_confidence = verdict.confidence, verdict.wanted
            job.trace.taken_and_left = self.tastes.seen(language)
        return apply_gate(made, plan, said, verdict, cuts)

    async def _taken_over(self, job: CompletionJob, plan: SuggestionPlan) -> Suggestion | NoSuggestion | None:
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
            further = further or (stream.stop == ENOUGH and not plan.finished(stream.rest or ""))
            agrees = stream.error is not None or not (
                stream.stop in (PARTED, ENDED) or further or not (stream.rest or "").strip()
            )
        if not agrees:
            job.stream = None
            self.streams.drop(stream)
            return None
        return self._read(job, stream, plan)


def as_fields(seen: build.Context) -> dict[str, Any]:
    """What the model sees, as FimRequest names it."""
    extra = tuple((chunk.path, chunk.text) for chunk in seen.extra)
    return {
        "prefix": seen.prefix,
        "line_prefix": seen.line_prefix,
        "suffix": seen.suffix,
        "path": seen.path,
        "extra": extra,
    }


def outcome_of(made: Suggestion | NoSuggestion) -> Outcome:
    """A request's, of which one suggestion was wanted."""
    return Outcome(reason=reason_of(made)) if isinstance(made, NoSuggestion) else Outcome((made,))


def reason_of(nothing: NoSuggestion) -> str:
    """The reason as one word."""
    return str(getattr(nothing.reason, "value", nothing.reason))
