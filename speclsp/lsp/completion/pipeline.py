"""Computes the answer of one completion request: parse, plan, context, stream, post-processing, confidence gate.

    ignore files ─► parse ─► plan ─► an adopted stream? its end ───┐
                              └─► context ─► backend, streamed ────┴─► post-processed ─► sure enough?

session.py decides when a request runs, and stores its answer.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from speclsp.config import CompletionConfig, Config
from speclsp.errors import EngineError
from speclsp.lsp.backend.engine_http import is_loopback_url
from speclsp.lsp.backend.types import Backend, FimRequest
from speclsp.lsp.completion import alternatives
from speclsp.lsp.completion.answer_cache import AnswerCache
from speclsp.lsp.completion.gate import ConfidenceGate
from speclsp.lsp.completion.job import CompletionInput, CompletionJob, FirstLine, Outcome
from speclsp.lsp.completion.next_suggestion import joins
from speclsp.lsp.completion.stream import Stream, Streams
from speclsp.lsp.context import build
from speclsp.lsp.context.cross_file import CrossFileSources
from speclsp.lsp.context.selection import Selections
from speclsp.lsp.index.workspace_index import WorkspaceIndex
from speclsp.lsp.postprocess import plan as postprocess
from speclsp.lsp.postprocess.plan import NoSuggestion, Suggestion, SuggestionPlan
from speclsp.lsp.reasons import Reason, reason_without_backend
from speclsp.lsp.syntax import tree as syntax
from speclsp.lsp.syntax.parser import SyntaxParser
from speclsp.lsp.visibility.eligibility import exclusion
from speclsp.lsp.visibility.ignore_files import UNREAD, IgnoreFiles
from speclsp.plain_text import digest

# refusals under which a cached answer is still good
BACKEND_AWAY = (Reason.LOADING, Reason.ENGINE_AWAY, Reason.SERVER_AWAY)
BLOCK_SHARE = 1 / 25  # of the timeout, 120 ms: after it a block's first line is shown alone, and further lines join it
CUT_SHORT = ("limit", "deadline")  # stop types of a completion that was ended early


@dataclass(eq=False, repr=False)
class Pipeline:
    """Computes the answers of one editor's session. `selections` keeps each document's last context."""

    _config: Callable[[], Config]
    _backend: Callable[[], Backend | None]
    _cache: AnswerCache
    _streams: Streams
    _gate: ConfidenceGate
    _ignored: IgnoreFiles
    _index_of: Callable[[str | None], WorkspaceIndex | None]  # by URI of a workspace folder
    _client_outdents: bool  # the client shows text that takes back the indentation left of the cursor
    _client_follows_growth: bool  # the client shows further lines that join a suggestion on the screen
    _parser: SyntaxParser = field(default_factory=SyntaxParser)
    _name: str = field(default_factory=lambda: f"{os.getpid()}-{os.urandom(4).hex()}")
    _windows: build.Windows = field(default_factory=dict)
    selections: Selections = field(default_factory=dict)

    def document_closed(self, uri: str) -> None:
        """The document was closed: forget its context, and end its stream unless it has a reader."""
        self._streams.leave(uri)
        self.selections.pop(uri, None)

    def refusal_reason(self, current: CompletionInput) -> str:
        """The reason to refuse a document, whatever its text; "" when the engine can be asked."""
        snapshot, root, backend = current.snapshot, current.root, self._backend()
        if not self._config().completion.enabled:
            return Reason.DISABLED
        excluded = self._ignored.of(snapshot.uri, root).no_suggestions
        reason, _ = exclusion(snapshot.uri, snapshot.language, len(snapshot.text), self._config(), root, excluded)
        if reason or (backend is not None and backend.status.usable):
            return reason
        if backend is None:
            return Reason.LOADING
        return reason_without_backend(backend.status.state, bool(backend.status.remote))

    def may_work_ahead(self) -> bool:
        """True if the engine may compute a prompt or a suggestion that nobody has requested yet."""
        completion, backend = self._config().completion, self._backend()
        if not completion.prefetch_next or completion.eagerness == "low" or completion.trigger == "manual":
            return False
        # it neither wakes an unloaded engine nor uses a server that may cost money
        return backend is not None and backend.status.state == "ready" and not backend.status.remote

    def may_prepare(self, after_accept: CompletionInput) -> bool:
        """True if the suggestion at a document that nobody has requested yet should be computed."""
        if not self.may_work_ahead():
            return False
        return not self.refusal_reason(after_accept) and self._cache.lookup(after_accept.snapshot, 1) is None

    async def answer(self, job: CompletionJob) -> Outcome:
        """The outcome of a request. Raises EngineError."""
        verdict, backend = await self._ignored.settled(job.snapshot.uri, job.input.root), self._backend()
        remote = backend is not None and bool(backend.status.remote)
        if verdict.no_suggestions or (remote and verdict == UNREAD):  # an unread ignore file may forbid sending it
            return Outcome(reason=Reason.EXCLUDED)
        further_lines = await self._join_further_lines(job, job.first_line) if job.first_line is not None else None
        if further_lines is not None:
            return further_lines
        start_ms = job.trace.waited_ms = job.elapsed_ms()
        plan, tree = self._plan(job.input, job.completion)
        job.trace.parse_ms = job.elapsed_ms() - start_ms
        if isinstance(plan, NoSuggestion):
            return outcome_of(plan)
        job.plan = plan
        adopted = await self._read_adopted(job, plan)
        if adopted is not None:
            return outcome_of(adopted)
        start_ms = job.elapsed_ms()
        context = self._build_context(job.input, tree)
        job.trace.context_ms = job.elapsed_ms() - start_ms
        job.trace.record_context(context)
        next_request, complete = partial(self._request, job, plan, context), partial(self._complete, job, plan)
        first, stream = await complete(next_request())
        if job.request.wanted > 1:
            await alternatives.generate(job, first, stream, next_request, complete)
        return Outcome(tuple(job.suggestions)) if job.suggestions else outcome_of(first)

    def prefill_request(
        self, current: CompletionInput, *, at_rest: bool = False, better: bool = False
    ) -> FimRequest | None:
        """The prompt of a request at the cursor, without text to generate; None where a request would ask nothing.

        Args:
            at_rest: computed only while the engine has nothing else to do.
            better: with a better selection of chunks; None if there is none.
        """
        completion = self._config().completion
        if self.refusal_reason(current):
            return None
        if not better and (completion.trigger == "manual" or self._cache.lookup(current.snapshot, 1) is not None):
            return None
        plan, tree = self._plan(current, completion)
        if isinstance(plan, NoSuggestion):
            return None
        context = self._build_context(current, tree, better)
        if better and not self.selections[current.snapshot.uri].better:
            return None
        request = to_request(context, max_tokens=0, deadline_ms=completion.timeout_ms)
        return replace(request, session=self.engine_session(current.snapshot.uri), idle=at_rest)

    def engine_session(self, uri: str) -> str:
        """The name under which the engine keeps the KV cache of a document."""
        return f"{self._name}-{digest(uri)}"

    def _plan(
        self, current: CompletionInput, completion: CompletionConfig
    ) -> tuple[SuggestionPlan | NoSuggestion, syntax.SyntaxTree | None]:
        """The extent of a suggestion at the cursor, and the syntax tree it follows from."""
        snapshot, config, backend = current.snapshot, self._config(), self._backend()
        tree = self._parser.parse(
            snapshot.language, snapshot.text, config.context.parse_budget_ms, near=snapshot.cursor
        )
        verbatim = backend is not None and backend.status.model == "echo"  # its answers are evidence: kept unchanged
        if backend is not None and backend.status.remote and not is_loopback_url(config.remote.url):
            verbatim = False  # any remote server may call its model "echo"
        others, outdents = current.others(), self._client_outdents
        return postprocess.plan(snapshot, tree, completion, others, verbatim=verbatim, outdents=outdents), tree

    def _build_context(
        self, current: CompletionInput, tree: syntax.SyntaxTree | None, better: bool = False
    ) -> build.Context:
        """The text that the model is shown."""
        return build.build(
            current.snapshot,
            tree,
            self._config().context,
            current.root,
            current.others(),
            self._windows,
            selections=self.selections,
            sources=CrossFileSources(index=self._index_of(current.root)),
            better=better,
        )

    def _request(self, job: CompletionJob, plan: SuggestionPlan, context: build.Context) -> FimRequest:
        """The request to the engine, with the time that is left until the deadline."""
        deadline_ms = max(1, round(job.completion.timeout_ms - job.elapsed_ms()))
        request = to_request(context, plan.max_tokens, deadline_ms)
        request = replace(request, session=self.engine_session(job.snapshot.uri))
        return replace(
            request,
            previous=self._cache.draft_hint(job.snapshot),
            branches=alternatives.BRANCHES if job.request.wanted > 1 else 0,
            idle=job.prepares_next,
        )

    async def _complete(
        self, job: CompletionJob, plan: SuggestionPlan, request: FimRequest
    ) -> tuple[Suggestion | NoSuggestion, Stream]:
        """Stream `request` to its end. Raises EngineError."""
        backend = self._backend()
        if backend is None:
            raise EngineError("the backend is being replaced")
        stream = self._streams.begin(backend.stream(request), job.snapshot, plan, job, request)
        job.stream = stream
        if request.seed == 0 and not request.begin and not job.prepares_next:  # alternatives are never adopted
            self._streams.enlist(stream)
        await self._wait_for_end(job, stream)
        return self._read(job, stream, job.plan or plan), stream

    async def _wait_for_end(self, job: CompletionJob, stream: Stream) -> None:
        """Wait for the end of a stream. A slow block ends with its first line, if further lines can join that."""
        if job.may_grow and self._client_follows_growth and self.may_work_ahead():
            wait_s = max(0.0, BLOCK_SHARE * job.completion.timeout_ms - job.elapsed_ms()) / 1000
            asyncio.get_running_loop().call_later(wait_s, self._end_with_first_line, job, stream)
        await job.wait_for(stream)

    def _end_with_first_line(self, job: CompletionJob, stream: Stream) -> None:
        """End a block with its first line, unless it has ended or is another job's by now."""
        plan = job.plan if stream.reader is job and not stream.stop else None
        if plan is not None and plan.multiline and stream.retarget(job.snapshot, plan.first_line()):
            job.plan = plan.first_line()

    def _read(self, job: CompletionJob, stream: Stream, plan: SuggestionPlan) -> Suggestion | NoSuggestion:
        """The suggestion from a stream that has ended. Raises the error that ended it."""
        job.stream = None
        job.trace.stop = stream.stop
        if stream.error is not None:
            self._streams.unlist(stream)
            raise stream.error
        suggestion = self._gate.to_suggestion(stream, plan, job, whole=stream.stop not in CUT_SHORT)
        if isinstance(suggestion, NoSuggestion) and suggestion.reason is Reason.UNSURE:
            self._streams.hold_back(stream)
        else:
            self._streams.unlist(stream)
            job.read_stream = stream
        return suggestion

    async def _read_adopted(self, job: CompletionJob, plan: SuggestionPlan) -> Suggestion | NoSuggestion | None:
        """The suggestion from a stream that an older request began; None when the engine must be asked after all.

        The engine is asked where the typed text and the stream diverge, where the user has typed all of the stream, and
        where the newer request may go further than the older one.
        """
        stream = job.stream
        if stream is None:
            return None
        if stream.retarget(job.snapshot, plan):
            await self._wait_for_end(job, stream)
            shown = job.plan or plan
            if stream.error is not None or not (stream.diverged or stream.nothing_left or stream.wants_more(shown)):
                return self._read(job, stream, shown)
        job.stream, job.plan = None, plan
        self._streams.drop(stream)
        return None

    async def _join_further_lines(self, job: CompletionJob, first_line: FirstLine) -> Outcome | None:
        """Continue the stream of a first line at idle priority. Lines worth showing join it in the cache.

        Returns those lines, which `job` prepares. None: they are to be computed, or read from `job.stream`.
        """
        shown, earlier = first_line
        backend, plan, request = self._backend(), earlier.plan, earlier.request
        if backend is None or plan is None or request is None:
            return None
        plan, deadline_ms = plan.with_further_lines(), round(job.completion.timeout_ms)
        request = replace(
            request,
            begin=tuple(earlier.ids),
            branches=0,
            max_tokens=plan.max_tokens,
            deadline_ms=deadline_ms,
            idle=True,
        )
        stream = self._streams.begin(backend.stream(request), earlier.origin, plan, job, request, earlier=earlier)
        job.stream = stream
        await self._wait_for_end(job, stream)
        job.trace.stop = stream.stop
        if stream.error is not None:
            raise stream.error
        if stream.diverged:
            return Outcome(reason=Reason.ENGINE_LOST)
        longer = self._gate.to_suggestion(stream, plan, whole=stream.stop not in CUT_SHORT)
        if isinstance(longer, NoSuggestion) or not joins(longer, shown):
            return None
        self._cache.store(stream.reader_snapshot, [longer], 1)
        job.is_joined, job.stream = True, None
        rest = self._cache.lookup(job.snapshot, 1)
        return Outcome(*rest) if rest is not None else Outcome(reason=Reason.ENGINE_LOST)


def to_request(context: build.Context, max_tokens: int, deadline_ms: int) -> FimRequest:
    """A request for the text of `context`."""
    return FimRequest(
        prefix=context.prefix,
        line_prefix=context.line_prefix,
        suffix=context.suffix,
        path=context.path,
        extra=tuple((chunk.path, chunk.text) for chunk in context.extra),
        max_tokens=max_tokens,
        deadline_ms=deadline_ms,
    )


def outcome_of(result: Suggestion | NoSuggestion) -> Outcome:
    """The outcome of a request for one suggestion."""
    return Outcome(reason=result.reason) if isinstance(result, NoSuggestion) else Outcome((result,))
