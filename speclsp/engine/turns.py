"""One thread that loads the model and completes: a round of one request, a round of another (order.py).

    loading ─► ready ─► [ whose turn? ─► one round of it, told ─► its results, if that was the last ]*
        └─► failed (why)

Between rounds, and between the steps of a prompt, the thread looks again at who waits: that is what makes one engine
feel like one's own in every window. A newer request of a session makes that session's older ones pointless: those not
begun are answered at once, those under way are cancelled and end before another round. A request for no tokens only
reads a prompt ahead of the request it expects: that one, if it comes, waits for it and finds its work done; any other
ends it. The same thread loads and completes because OpenMP keeps a pool of workers for each thread that ever computed.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from speclsp.engine.holding import Holding
from speclsp.engine.loaded import Load
from speclsp.engine.order import Entrant, Order
from speclsp.engine.seam import Cancel, Completer, Completion, Piece, Request, Result
from speclsp.errors import EngineError, SpeclspError
from speclsp.metrics import Metrics

ALTERNATIVE_TEMPERATURE = 0.8  # the least at which further completions are drawn: greedy ones would all be the same

log = logging.getLogger("speclsp.engine")


@dataclass(frozen=True, slots=True)
class Said:
    """One round of one of the wanted completions."""

    index: int
    piece: Piece


@dataclass(frozen=True, slots=True)
class Done:
    """All there will be; at least one result, and `queue_ms` spent waiting for the turn."""

    results: list[Result]
    queue_ms: float


@dataclass(frozen=True, slots=True)
class Failed:
    """The request could not be completed."""

    error: Exception


Event = Said | Done | Failed
Tell = Callable[[Event], None]


@dataclass(eq=False, slots=True, kw_only=True)
class Job(Entrant):
    """A request, who is told about it, from the engine's thread, and how far it is."""

    request: Request
    tell: Tell
    cancel: Cancel = field(default_factory=Cancel)
    asked: float = field(default_factory=time.perf_counter)
    cancelled: float = 0.0  # when, as `asked`
    started: float = 0.0  # the same
    wanted: Iterator[Request] | None = None  # the completions to make after this one
    completion: Completion | None = None  # under way
    pieces: Iterator[Piece] | None = None  # of it
    results: list[Result] = field(default_factory=list)  # of those before it

    @property
    def late(self) -> bool:
        """Whether its deadline has passed, with something to show for it."""
        deadline_ms, completion = self.request.deadline_ms, self.completion
        return 0 < deadline_ms <= ms_since(self.started) and completion is not None and bool(completion.result.tokens)


class Turns:
    """The engine's one thread, and the requests that wait for it."""

    def __init__(
        self, load: Load, metrics: Metrics, pair: str = "", *, idle_s: float = 0.0, keep_free_mib: int = 0
    ) -> None:
        """`load` is called in the thread, with what to tell its progress to; the rest is Holding's."""
        self.metrics = metrics
        self.holding = Holding(load, pair, idle_s=idle_s, keep_free_mib=keep_free_mib)
        self._turn = threading.Condition()
        self._order: Order[Job] = Order()
        self._served: Job | None = None  # the last one
        self._ahead: Request | None = None  # the last one that read ahead, until it is known what for
        self._closed = False
        self.thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def ask(self, request: Request, tell: Tell) -> Job:
        """Queue `request`, and cancel its session's older ones. `tell` gets Said* and then Done or Failed.

        One that reads ahead is not cancelled for the request it was meant for: nothing would be saved.
        """
        who, ahead = request.session or object(), reads_ahead(request)
        job = Job(who=who, nameless=not request.session, ahead=ahead, request=request, tell=tell)
        with self._turn:
            live = self._order.entrants
            own = [old for old in live if old.who == job.who]
            older = [old for old in own if not (old.begun and is_expected(old.request, request))]
            elsewhere = [old for old in live if old.ahead and old.begun and old.who != job.who]
            self._judge_ahead(request)
            self._order.join(job, since=min((old.since for old in older), default=None))
            stale = [job] if self._closed else [*older, *elsewhere]
            ended = self._cancel(stale, "shutdown" if self._closed else "superseded")
            self.holding.asked()
            self._turn.notify()
        self._end_unserved(ended)
        return job

    def _judge_ahead(self, request: Request) -> None:
        """Count what became of the last prompt read ahead, now that its session's next request is here."""
        ahead, further = self._ahead, reads_ahead(request)
        if ahead is not None and (further or request.session == ahead.session):
            used = is_expected(ahead, request)
            if not (used and further):  # else the same bet goes on
                self.metrics.count("prefill_ahead_total", outcome="used" if used else "wasted")
            self._ahead = None
        if further:
            self._ahead = request

    def drop(self, job: Job, why: str = "closed") -> None:
        """Nobody waits for this one any more: forget it, or end it before its next round. Nothing if it has ended."""
        with self._turn:
            ended = self._cancel([job] if job in self._order.entrants else [], why)
        self._end_unserved(ended)

    def close(self) -> None:
        """Cancel everything and end the thread after its round."""
        with self._turn:
            self._closed = True
            ended = self._cancel(self._order.entrants, "shutdown")
            self._turn.notify()
        self._end_unserved(ended)

    def counts(self) -> tuple[int, int]:
        """How many requests are under way, and how many have not begun."""
        with self._turn:
            begun = sum(job.begun for job in self._order.entrants)
            return begun, len(self._order.entrants) - begun

    def _cancel(self, jobs: Sequence[Job], why: str) -> list[Job]:
        """Cancel those; the ones not begun, which are to be told so, are no more among those that wait."""
        for job in jobs:
            if not job.cancel.is_set():
                job.cancelled = time.perf_counter()
                job.cancel.set()
                self.metrics.count("cancelled_total", why=why)
        ended = [job for job in jobs if not job.begun]
        self._order.entrants = [job for job in self._order.entrants if job not in ended]
        return ended

    # ── the engine's thread ──────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        while (job := self._next()) is not None:
            end = self._serve(job)
            if end is not None:
                with self._turn:
                    self._order.entrants.remove(job)
                self._end(job, end)
                if job.cancelled:
                    self.metrics.time("stale_work_ms", ms_since(job.cancelled))

    def _next(self) -> Job | None:
        """Whose round is next, waiting until there is one; None at the end."""
        while True:
            self.holding.tend(busy=self.counts()[0] > 0)
            with self._turn:
                job = self._choose()
                if job is not None or self._closed:
                    return job
                self._turn.wait(self.holding.due_s())

    def _choose(self) -> Job | None:
        """Those that only have to end come first: that takes no time."""
        order = self._order
        if self.holding.hurry:
            self._cancel([job for job in order.entrants if job.begun], "quiet")
        for job in order.entrants:
            if job.begun and (job.cancel.is_set() or job.late):
                return job
        chosen = order.next(begun_only=self.holding.quiet_wanted)
        if chosen is not None:
            order.serve(chosen)
            before, self._served = self._served, chosen
            if before is not chosen and before in order.entrants:
                self.metrics.count("preempted_rounds_total")
            self.metrics.set("longest_wait_rounds", order.longest_wait)
        return chosen

    def _serve(self, job: Job) -> Done | Failed | None:
        """One round of the job, told; its end, if that was the last."""
        try:
            if job.completion is None:
                request = self._further(job)
                if request is None:
                    return self._done(job)
                job.completion = self._completer().complete(request, job.cancel)
                job.pieces = iter(job.completion)
            assert job.pieces is not None
            piece = next(job.pieces, None)
            if piece is not None:
                self._tell(job, piece)
            if piece is None or job.completion.result.stop_type:
                for piece in job.pieces:  # there is no more, but for what ends itself in this way
                    self._tell(job, piece)
                job.results.append(job.completion.result)
                job.completion = job.pieces = None
                if len(job.results) == max(1, job.request.n):
                    return self._done(job)
        except Exception as error:  # one request's failure is that request's
            if not isinstance(error, SpeclspError):
                log.error("a request failed: %s", where(error))
            error.__traceback__ = error.__context__ = error.__cause__ = None  # they would keep tensors alive
            job.completion = job.pieces = None
            return Failed(error)
        return None

    def _completer(self) -> Completer:
        if self.holding.completer is None:
            self.holding.tend()  # it may have fallen asleep just before it was asked
        if self.holding.completer is None:
            raise EngineError(self.holding.message)
        return self.holding.completer

    def _further(self, job: Job) -> Request | None:
        """The next completion to make; None when all are made, or there is no time for another."""
        if job.wanted is None:
            job.started = time.perf_counter()
            job.wanted = alternatives(job.request)
            return next(job.wanted)
        spent_ms = round(ms_since(job.started))
        deadline_ms = job.request.deadline_ms
        request = next(job.wanted, None)
        if request is None or job.cancel.is_set() or 0 < deadline_ms <= spent_ms:
            return None
        return replace(request, deadline_ms=deadline_ms - spent_ms) if deadline_ms else request

    def _tell(self, job: Job, piece: Piece) -> None:
        if piece.tokens or piece.text:
            job.tell(Said(len(job.results), piece))

    def _done(self, job: Job) -> Done:
        return Done(job.results, (job.started - job.asked) * 1000)

    def _end_unserved(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._end(job, Done([Result(stop_type="cancelled")], ms_since(job.asked)))

    def _end(self, job: Job, end: Done | Failed) -> None:
        """Count the request and tell its end."""
        metrics = self.metrics
        if isinstance(end, Failed):
            metrics.count("requests_total", stop="failed")
        else:
            first = end.results[0]
            waited_for = not reads_ahead(job.request)
            if waited_for:
                metrics.count("requests_total", stop=first.stop_type)
            for result in end.results:
                metrics.count("prompt_tokens_total", result.prompt_tokens)
                metrics.count("cached_tokens_total", result.cached_tokens)
                metrics.count("prefilled_tokens_total", result.prefilled_tokens)
                if result.rounds:
                    metrics.speculated(len(result.tokens), result.rounds, result.by_source)
            if first.rounds:
                metrics.time("ttft_ms", end.queue_ms + first.ttft_ms)
                metrics.time("predicted_ms", first.decode_ms)
            if waited_for and not job.cancelled:
                metrics.time("latency_ms", ms_since(job.asked))
        job.tell(end)


def reads_ahead(request: Request) -> bool:
    """Whether nobody waits for its answer: it is there to fill the cache."""
    return bool(request.session) and request.max_tokens == 0


def is_expected(ahead: Request, request: Request) -> bool:
    """Whether `ahead` reads the prompt of `request`, or its beginning: only more was typed on the line since."""
    same = replace(request, line_prefix=ahead.line_prefix)
    names = ("session", "prefix", "line_prefix", "suffix", "filename", "extra", "raw_prompt", "heal")
    return (
        reads_ahead(ahead)
        and request.line_prefix.startswith(ahead.line_prefix)
        and all(getattr(same, name) == getattr(ahead, name) for name in names)
    )


def alternatives(request: Request) -> Iterator[Request]:
    """The `request.n` completions to make: as asked, then drawn with other seeds. `n` numbers them from 1."""
    yield replace(request, n=1)
    warm = max(ALTERNATIVE_TEMPERATURE, request.temperature)
    for index in range(1, request.n):
        yield replace(request, n=index + 1, temperature=warm, seed=request.seed + index)


def where(error: BaseException) -> str:
    """The kind of an unforeseen error and the line it came from: its text may hold source, so a log does not get it."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {frame.filename}:{frame.lineno}"


def ms_since(start: float) -> float:
    """Milliseconds since `start`, a `time.perf_counter()`."""
    return (time.perf_counter() - start) * 1000
