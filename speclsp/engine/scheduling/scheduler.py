"""Request scheduler: one thread that loads the model and runs completions, one round of one request at a time.

    loading ─► ready ─► [ next request in round_order ─► one round ─► its event, and its result if it was the last ]*
        └─► failed (why)

Between rounds, and between the steps of a prompt, the thread looks at the waiting requests again. So a shared engine
answers every window as fast as an own one. A newer request of a session supersedes the session's older ones: those that
have not started end at once, those under way are cancelled and end before another round. A request for no tokens only
prefills a prompt for the request it expects. That request, if it comes, waits for the prefill and finds its work done;
any other request ends the prefill. The same thread loads and completes, because OpenMP keeps a pool of workers for each
thread that ever computed.

A request that runs out of memory fails, and the caches are cleared (residency.py). A step that hangs (watchdog.py), or
a device that no longer answers, ends all requests and the process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from speclsp.engine.api import Completer, Request, Result
from speclsp.engine.scheduling.device_errors import clear_references, ran_out_of_memory
from speclsp.engine.scheduling.loaded_model import Load
from speclsp.engine.scheduling.residency import Residency
from speclsp.engine.scheduling.round_order import RoundOrder
from speclsp.engine.scheduling.scheduled_job import (
    DoneEvent,
    ErrorEvent,
    Notify,
    ScheduledJob,
    count_end,
    is_expected,
    is_prefill_only,
    ms_since,
)
from speclsp.engine.scheduling.watchdog import Watchdog
from speclsp.errors import EngineError, InvalidLogits, SpeclspError, WeightsError, error_site
from speclsp.observability.metrics import Metrics

NO_MEMORY = (
    "there was not enough memory for this request. The engine clears its caches; if this happens often, close other "
    "programs, or set a smaller model (`speclsp models list`) or a smaller engine.context_tokens."
)

log = logging.getLogger("speclsp.engine")


class Scheduler:
    """The engine's thread and the requests that wait for it."""

    def __init__(self, load: Load, metrics: Metrics, model: str = "", *, idle_s: float = 0.0) -> None:
        """`load` is called in the thread with a progress callback; see Residency for the rest."""
        self.metrics = metrics
        self.residency = Residency(load, model, idle_s=idle_s)
        self.on_device_lost: Callable[[], None] = lambda: None  # called after all requests have failed
        self.residency.on_device_lost = self.fail_all
        self.watchdog = Watchdog(self._fail_hung_step)
        self._device_lost = ""  # the reason, once the device is known not to answer
        self._changed = threading.Condition()  # guards the fields below
        self._order: RoundOrder[ScheduledJob] = RoundOrder()
        self._closed = False
        self.thread = threading.Thread(target=self._run, name="engine", daemon=True)

    # ── requests, from any thread ────────────────────────────────────────────────────────────────────────

    def submit(self, request: Request, notify: Notify) -> ScheduledJob:
        """Queue `request` and cancel its session's older ones. `notify` gets RoundEvent* and one Done- or ErrorEvent.

        A prefill is not cancelled for the request that it was meant for: that would save nothing.
        """
        job = ScheduledJob(
            session=request.session or object(),
            anonymous=not request.session,
            prefill_only=is_prefill_only(request) or request.idle,
            request=request,
            notify=notify,
        )
        with self._changed:
            superseded = self._superseded_by(job)
            if self._closed:
                ended = self._cancel([job], "shutdown")
            elif request.idle and not self._is_idle(job):
                ended = self._cancel([job], "busy")
            else:
                older = [old for old in superseded if old.session == job.session]
                self._order.join(job, since=min((old.since for old in older), default=None))
                ended = self._cancel(superseded, "superseded")
                self.residency.note_request()
            self._changed.notify()
        self._end_unstarted(ended)
        return job

    def cancel(self, job: ScheduledJob, why: str = "closed") -> None:
        """Remove a job that nobody waits for, or end it before its next round. No effect once it has ended."""
        with self._changed:
            ended = self._cancel([job] if job in self._order.entrants else [], why)
        self._end_unstarted(ended)

    def close(self) -> None:
        """Cancel everything and end the thread after its round."""
        with self._changed:
            self._closed = True
            ended = self._cancel(self._order.entrants, "shutdown")
            self._changed.notify()
        self.watchdog.close()
        self._end_unstarted(ended)

    def fail_all(self, why: str) -> None:
        """Fail all requests, from any thread. The engine's thread may never end its current round."""
        log.error("%s", why)
        with self._changed:
            self._closed = True
            jobs, self._order.entrants = self._order.entrants, []
            self._changed.notify()
        for job in jobs:
            job.cancel.set()
            self._end(job, ErrorEvent(EngineError(why)))
        self.on_device_lost()

    def counts(self) -> tuple[int, int]:
        """Number of requests under way, and of requests that have not started."""
        with self._changed:
            started = sum(job.started for job in self._order.entrants)
            return started, len(self._order.entrants) - started

    def _fail_hung_step(self, took_s: float, expected_s: float) -> None:
        self.fail_all(
            f"a step of {self.residency.model} hangs: {took_s:.0f} s so far, usually {expected_s * 1000:.0f} ms. "
            "The engine ends, and the next client starts another one."
        )

    # ── queueing and cancelling, with the lock held ──────────────────────────────────────────────────────

    def _superseded_by(self, job: ScheduledJob) -> list[ScheduledJob]:
        """The session's older requests, and other sessions' prefills that have started."""
        live, request = self._order.entrants, job.request
        own = [old for old in live if old.session == job.session]
        older = [old for old in own if not (old.started and is_expected(old.request, request))]
        return older + [old for old in live if old.prefill_only and old.started and old.session != job.session]

    def _is_idle(self, job: ScheduledJob) -> bool:
        """True when work that nobody waits for may run: the model is loaded and no other request is there."""
        live = [entrant for entrant in self._order.entrants if not entrant.cancel.is_set()]
        busy = any(entrant.session != job.session or not entrant.prefill_only for entrant in live)
        return self.residency.completer is not None and not busy

    def _cancel(self, jobs: Sequence[ScheduledJob], why: str) -> list[ScheduledJob]:
        """Cancel `jobs`; returns those that have not started, which leave the queue; the caller reports their end."""
        for job in jobs:
            if not job.cancel.is_set():
                job.cancelled_s = time.perf_counter()
                job.cancel.set()
                self.metrics.count("cancelled_total", why=why)
        unstarted = [job for job in jobs if not job.started]
        self._order.entrants = [job for job in self._order.entrants if job not in unstarted]
        return unstarted

    # ── the engine's thread ──────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        self.watchdog.start()
        while (job := self._next()) is not None:
            end = self._run_round(job)
            if self._device_lost:
                self.fail_all(self._device_lost)
            elif end is not None:
                with self._changed:
                    if job not in self._order.entrants:
                        return  # fail_all has ended every request
                    self._order.entrants.remove(job)
                self._end(job, end)
                if job.cancelled_s:
                    self.metrics.time("stale_work_ms", ms_since(job.cancelled_s))
        self.residency.close()

    def _next(self) -> ScheduledJob | None:
        """Wait for the job that has the next round; None at the end."""
        while True:
            self.residency.maintain(busy=self.counts()[0] > 0)
            with self._changed:
                job = self._choose()
                if job is not None or self._closed:
                    return job
                self._changed.wait(self.residency.next_due_s())

    def _choose(self) -> ScheduledJob | None:
        """The job of the next round. Jobs that only have to end come first, which takes no time."""
        order = self._order
        for job in order.entrants:
            if job.started and (job.cancel.is_set() or job.past_deadline):
                return job
        chosen = order.next()
        if chosen is not None:
            order.serve(chosen)
        return chosen

    def _run_round(self, job: ScheduledJob) -> DoneEvent | ErrorEvent | None:
        """Run one round of the job and report it; returns the job's end if that was the last."""
        try:
            if job.completion is None:
                request = job.next_request()
                if request is None:
                    return DoneEvent(job.results, job.queue_ms)
                completer = self._completer()
                self._begin_step()
                job.begin(request, completer)
            else:
                self._begin_step()
            assert job.pieces is not None and job.completion is not None
            piece = next(job.pieces, None)
            if piece is not None:
                job.report(piece)
            if piece is None or job.completion.result.stop_type:
                for piece in job.pieces:  # usually none: lets the generator finish
                    job.report(piece)
                job.results.append(job.completion.result)
                job.clear_current()
                if len(job.results) == job.request.n:
                    return DoneEvent(job.results, job.queue_ms)
        except Exception as error:  # a failure ends this request only
            job.clear_current()
            return ErrorEvent(self._failure(error))
        finally:
            self.watchdog.end()
        return None

    def _begin_step(self) -> None:
        """Start the watchdog for a step of the loaded model, which stays while a completion is under way."""
        self.watchdog.begin(getattr(self.residency.completer, "step_ms", 0.0) / 1000, self._passes)

    def _passes(self) -> int:
        return getattr(self.residency.completer, "passes", 0)  # not bound: a reference would keep it from unloading

    def _failure(self, error: Exception) -> Exception:
        """The error to report for a request. It keeps no tensor alive."""
        if isinstance(error, InvalidLogits):
            log.error("a request failed: %s", error)
        elif not isinstance(error, SpeclspError):
            log.error("a request failed: %s", error_site(error))
        clear_references(error)
        if ran_out_of_memory(error):
            self.metrics.count("oom_total")
            self.residency.report_out_of_memory()
            return EngineError(NO_MEMORY)
        if isinstance(error, WeightsError):
            self.residency.report_altered_weights()
        self._device_lost = self.residency.memory.lost_message(error)
        return error

    def _completer(self) -> Completer:
        if self.residency.completer is None:
            self.residency.note_request()  # it may have been unloaded since
            self.residency.maintain()
        if self.residency.completer is None:
            raise EngineError(self.residency.message)
        return self.residency.completer

    def _end_unstarted(self, jobs: Sequence[ScheduledJob]) -> None:
        for job in jobs:
            self._end(job, DoneEvent([Result(stop_type="cancelled")], ms_since(job.submitted_s)))

    def _end(self, job: ScheduledJob, end: DoneEvent | ErrorEvent) -> None:
        """Count the request and report its end."""
        count_end(self.metrics, job, end)
        job.notify(end)
