"""A scheduled request: its state between rounds, the events that its submitter receives, and its count in the metrics.

A request that nobody waits for (prefill-only or idle) counts only in tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from speclsp.engine.api import Cancel, Completer, Completion, Piece, Request, Result, Start
from speclsp.engine.scheduling.round_order import Entrant
from speclsp.observability.metrics import Metrics

ALTERNATIVE_TEMPERATURE = 0.8  # the least for further completions: greedy ones would all be the same


@dataclass(frozen=True, slots=True)
class RoundEvent:
    """One round of one of the wanted completions."""

    index: int
    piece: Piece
    start: Start | None = None  # with the first piece of all


@dataclass(frozen=True, slots=True)
class DoneEvent:
    """The end of a request: at least one result, and `queue_ms` from submission to its first round."""

    results: list[Result]
    queue_ms: float


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """The request could not be completed."""

    error: Exception


Event = RoundEvent | DoneEvent | ErrorEvent
Notify = Callable[[Event], None]


@dataclass(eq=False, slots=True, kw_only=True)
class ScheduledJob(Entrant):
    """A request, the receiver of its events (called in the engine's thread), and its progress. Times: perf_counter."""

    request: Request
    notify: Notify
    cancel: Cancel = field(default_factory=Cancel)
    submitted_s: float = field(default_factory=time.perf_counter)
    cancelled_s: float = 0.0  # 0: not cancelled
    started_s: float = 0.0
    remaining: Iterator[Request] | None = None  # the completions to make after the current one
    completion: Completion | None = None  # under way
    pieces: Iterator[Piece] | None = None  # of `completion`
    notified: bool = False  # a round was reported
    results: list[Result] = field(default_factory=list)  # of the completions before `completion`

    @property
    def past_deadline(self) -> bool:
        """True when its deadline has passed and it has at least one token to return."""
        deadline_ms, completion = self.request.deadline_ms, self.completion
        return 0 < deadline_ms <= ms_since(self.started_s) and completion is not None and bool(completion.result.tokens)

    @property
    def queue_ms(self) -> float:
        """From submission to its first round."""
        return (self.started_s - self.submitted_s) * 1000

    def next_request(self) -> Request | None:
        """The next completion to make; None when all are made, or no time is left for another."""
        if self.remaining is None:
            self.started_s = time.perf_counter()
            self.remaining = alternatives(self.request)
            return next(self.remaining)
        spent_ms = round(ms_since(self.started_s))
        deadline_ms = self.request.deadline_ms
        request = next(self.remaining, None)
        if request is None or self.cancel.is_set() or 0 < deadline_ms <= spent_ms:
            return None
        return replace(request, deadline_ms=deadline_ms - spent_ms) if deadline_ms else request

    def begin(self, request: Request, completer: Completer) -> None:
        """Start the completion of `request`."""
        self.completion = completer.complete(request, self.cancel)
        self.pieces = iter(self.completion)

    def clear_current(self) -> None:
        """Drop the completion under way."""
        self.completion = self.pieces = None

    def report(self, piece: Piece) -> None:
        """Send a round to the submitter, with the costs of the prompt if it is the first."""
        if not piece.tokens and not piece.text:
            return
        start = None
        if not self.notified and self.completion is not None:
            result = self.completion.result
            start = Start(
                queue_ms=self.queue_ms,
                prompt_tokens=result.prompt_tokens,
                cached_tokens=result.cached_tokens,
                left_out_tokens=result.left_out_tokens,
                prompt_ms=result.prompt_ms,
            )
        self.notified = True
        self.notify(RoundEvent(len(self.results), piece, start))


def is_prefill_only(request: Request) -> bool:
    """True for a request that only fills the cache; nobody waits for its answer."""
    return bool(request.session) and request.max_tokens == 0


def is_expected(prefill: Request, request: Request) -> bool:
    """True when `prefill` reads the prompt of `request` or its beginning: only more was typed on the line since."""
    same_line = replace(request, line_prefix=prefill.line_prefix)
    names = ("session", "prefix", "line_prefix", "suffix", "filename", "extra", "raw_prompt", "heal")
    return (
        is_prefill_only(prefill)
        and request.line_prefix.startswith(prefill.line_prefix)
        and all(getattr(same_line, name) == getattr(prefill, name) for name in names)
    )


def alternatives(request: Request) -> Iterator[Request]:
    """The `request.n` completions to make: the first unchanged, the others drawn with other seeds, numbered by `n`."""
    yield replace(request, n=1)
    temperature = max(ALTERNATIVE_TEMPERATURE, request.temperature)
    for index in range(1, request.n):
        yield replace(request, n=index + 1, temperature=temperature, seed=request.seed + index)


def ms_since(start_s: float) -> float:
    """Milliseconds since `start_s`, a `time.perf_counter()`."""
    return (time.perf_counter() - start_s) * 1000


def count_end(metrics: Metrics, job: ScheduledJob, end: DoneEvent | ErrorEvent) -> None:
    """Count the end of a request, its tokens and its latencies."""
    if isinstance(end, ErrorEvent):
        metrics.count("requests_total", stop="failed")
        return
    first = end.results[0]
    if not job.prefill_only:
        metrics.count("requests_total", stop=first.stop_type)
    for result in end.results:
        metrics.count("prompt_tokens_total", result.prompt_tokens)
        metrics.count("cached_tokens_total", result.cached_tokens)
        metrics.count("prefilled_tokens_total", result.prefilled_tokens)
        if result.rounds:
            tokens = len(result.tokens) - len(job.request.begin)
            metrics.speculated(tokens, result.rounds, result.by_source)
    if job.prefill_only:
        return
    if first.rounds:
        metrics.time("ttft_ms", end.queue_ms + first.ttft_ms)
        metrics.time("predicted_ms", first.decode_ms)
        metrics.time("round_ms", first.decode_ms / first.rounds)
    if not job.cancelled_s:
        metrics.time("latency_ms", ms_since(job.submitted_s))
