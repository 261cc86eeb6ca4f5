"""Accounting of requests: counts ends, cancellations, stale work and the use of prefills in the metrics.

A shadow request is not counted. A request that nobody waits for (prefill-only or idle) counts only in tokens.
"""

from __future__ import annotations

from speclsp.engine.api import Request
from speclsp.engine.scheduling.scheduled_job import (
    DoneEvent,
    ErrorEvent,
    ScheduledJob,
    is_expected,
    is_prefill_only,
    ms_since,
)
from speclsp.observability.metrics import Metrics


class RequestAccounting:
    """Writes the scheduler's metrics. The scheduler's lock guards `count_prefill`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._prefill: Request | None = None  # the last prefill whose outcome is not known yet

    def count_prefill(self, request: Request) -> None:
        """Count the last prefill as used or wasted, now that its session's next request is here."""
        prefill, is_another = self._prefill, is_prefill_only(request)
        if prefill is not None and (is_another or request.session == prefill.session):
            used = is_expected(prefill, request)
            if not (used and is_another):  # otherwise the same prefill is continued
                self._metrics.count("prefill_ahead_total", outcome="used" if used else "wasted")
            self._prefill = None
        if is_another:
            self._prefill = request

    def count_cancelled(self, job: ScheduledJob, why: str) -> None:
        """Count a cancellation with its reason."""
        if not job.shadow:
            self._metrics.count("cancelled_total", why=why)

    def count_round(self, job: ScheduledJob, preempts: bool, longest_wait_rounds: int) -> None:
        """Count a round that is given to `job`; `preempts`: another unfinished request had the one before."""
        if preempts and not job.shadow:
            self._metrics.count("preempted_rounds_total")
        self._metrics.set("longest_wait_rounds", longest_wait_rounds)

    def count_stale_work(self, job: ScheduledJob) -> None:
        """Record the time from a job's cancellation to the end of its last round."""
        if job.cancelled_s and not job.shadow:
            self._metrics.time("stale_work_ms", ms_since(job.cancelled_s))

    def count_out_of_memory(self) -> None:
        """Count a request that ran out of memory."""
        self._metrics.count("oom_total")

    def count_end(self, job: ScheduledJob, end: DoneEvent | ErrorEvent) -> None:
        """Count the end of a request, its tokens and its latencies."""
        metrics = self._metrics
        if job.shadow:
            return
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
        if not job.cancelled_s:
            metrics.time("latency_ms", ms_since(job.submitted_s))
