"""Whose turn it is: one thread loads the model and then completes, one request at a time, the newest first.

    loading ─► ready ─► [ newest waiting request ─► its rounds, told one by one ─► its results ]*
        └─► failed (why)

A newer request of a session makes that session's older ones pointless: the waiting ones are answered at once, the
running one is cancelled and ends within a round. A request for no tokens only reads a prompt ahead of the request it
expects: that one, if it comes, waits for it and finds its work done; any other does not wait. The same thread loads and
completes because OpenMP keeps a pool of workers for each thread that ever computed.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from speclsp.engine.holding import Holding, Load
from speclsp.engine.seam import Cancel, Completer, Piece, Request, Result
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


@dataclass(eq=False, slots=True)
class Job:
    """A request and who is told about it, from the engine's thread."""

    request: Request
    tell: Tell
    cancel: Cancel = field(default_factory=Cancel)
    asked: float = field(default_factory=time.perf_counter)
    cancelled: float = 0.0  # when, as `asked`


class Turns:
    """The engine's one thread, and the requests that wait for it."""

    def __init__(self, load: Load, metrics: Metrics, pair: str = "") -> None:
        """`load` is called in the thread, with what to tell its progress to. `pair`: the name until it is known."""
        self.metrics = metrics
        self.holding = Holding(load, pair)
        self._turn = threading.Condition()
        self._waiting: list[Job] = []  # oldest first
        self._running: Job | None = None
        self._ahead: Request | None = None  # the last one that read ahead, until it is known what for
        self._closed = False
        self.thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def ask(self, request: Request, tell: Tell) -> Job:
        """Queue `request`, and cancel its session's older ones. `tell` gets Said* and then Done or Failed.

        One that reads ahead is not cancelled for the request it was meant for: nothing would be saved.
        """
        job = Job(request, tell)
        with self._turn:
            older = [*self._waiting, self._running] if request.session else []
            stale = [old for old in older if old and old.request.session == request.session]
            stale = [old for old in stale if old is not self._running or not is_expected(old.request, request)]
            if (
                self._running
                and reads_ahead(self._running.request)
                and self._running.request.session != request.session
            ):
                stale.append(self._running)
            self._judge_ahead(request)
            if self._closed:
                stale = [job]
            for old in stale:
                self._cancel(old, "shutdown" if self._closed else "superseded")
            self._waiting = [old for old in [*self._waiting, job] if old not in stale]
            ended = [old for old in stale if old is not self._running]
            self._turn.notify()
        for old in ended:
            self._end_unserved(old)
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

    def drop(self, job: Job) -> None:
        """Nobody waits for this one any more: forget it, or stop it within a round. Nothing if it has ended."""
        with self._turn:
            queued = job in self._waiting
            if queued:
                self._waiting.remove(job)
            if queued or job is self._running:
                self._cancel(job, "closed")
        if queued:
            self._end_unserved(job)

    def close(self) -> None:
        """Cancel everything and end the thread after its round."""
        with self._turn:
            self._closed = True
            waiting, self._waiting = self._waiting, []
            for job in [*waiting, self._running]:
                if job:
                    self._cancel(job, "shutdown")
            self._turn.notify()
        for job in waiting:
            self._end_unserved(job)

    def counts(self) -> tuple[int, int]:
        """How many requests are running (0 or 1), and how many wait."""
        with self._turn:
            return int(self._running is not None), len(self._waiting)

    def _cancel(self, job: Job, why: str) -> None:
        if not job.cancel.is_set():
            job.cancelled = time.perf_counter()
            job.cancel.set()
            self.metrics.count("cancelled_total", why=why)

    def _run(self) -> None:
        holding = self.holding
        holding.tend()
        while (job := self._next()) is not None:
            holding.tend()
            end = self._complete(holding.completer, job) if holding.completer else Failed(EngineError(holding.message))
            self._end(job, end)
            if job.cancelled:
                self.metrics.time("stale_work_ms", ms_since(job.cancelled))

    def _next(self) -> Job | None:
        with self._turn:
            self._running = None
            while not self._waiting and not self._closed:
                self._turn.wait()
            first = [job for job in self._waiting if not reads_ahead(job.request)] or self._waiting
            self._running = first[-1] if not self._closed else None
            self._waiting = [job for job in self._waiting if job is not self._running]
            return self._running

    def _complete(self, completer: Completer, job: Job) -> Done | Failed:
        """Run every completion the job wants, telling each round."""
        started, results = time.perf_counter(), []
        try:
            for index, request in enumerate(alternatives(job.request)):
                spent_ms = round(ms_since(started))
                if index and (job.cancel.is_set() or 0 < request.deadline_ms <= spent_ms):
                    break
                if index and request.deadline_ms:
                    request = replace(request, deadline_ms=request.deadline_ms - spent_ms)
                completion = completer.complete(request, job.cancel)
                for piece in completion:
                    job.tell(Said(index, piece))
                results.append(completion.result)
        except Exception as error:  # one request's failure is that request's
            if not isinstance(error, SpeclspError):
                log.error("a request failed: %s", where(error))
            error.__traceback__ = error.__context__ = error.__cause__ = None  # they would keep tensors alive
            return Failed(error)
        return Done(results, (started - job.asked) * 1000)

    def _end_unserved(self, job: Job) -> None:
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
