"""One thread that loads the model and completes: a round of one request, a round of another (order.py).

    loading ─► ready ─► [ whose turn? ─► one round of it, told ─► its results, if that was the last ]*
        └─► failed (why)

Between rounds, and between the steps of a prompt, the thread looks again at who waits: that is what makes one engine
feel like one's own in every window. A newer request of a session makes that session's older ones pointless: those not
begun are answered at once, those under way are cancelled and end before another round. A request for no tokens only
reads a prompt ahead of the request it expects: that one, if it comes, waits for it and finds its work done; any other
ends it. The same thread loads and completes because OpenMP keeps a pool of workers for each thread that ever computed.

A request that runs out of memory fails, and the engine goes on with less (holding.py). A step that hangs (watchdog.py),
or a device that no longer answers, is the end of all requests and of the process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from speclsp.engine.api import Cancel, Completer, Completion, Piece, Request, Result, Start
from speclsp.engine.scheduling.device_errors import let_go, ran_out_of_memory
from speclsp.engine.scheduling.loaded_model import Load
from speclsp.engine.scheduling.residency import Residency
from speclsp.engine.scheduling.round_order import Entrant, RoundOrder
from speclsp.engine.scheduling.watchdog import Watchdog
from speclsp.errors import EngineError, SpeclspError, error_site
from speclsp.observability.metrics import Metrics

READ_S = 1e-6  # at most, to make a character of a request a part of its prompt
NO_MEMORY = (
    "there was not enough memory for this request. The engine goes on with less; if this happens often, close other "
    "programs, or set a smaller pair (`speclsp models list`) or a smaller engine.context_tokens."
)
IDLE_S = 2.0  # since another session asked: before that, nobody is idle here
ALTERNATIVE_TEMPERATURE = 0.8  # the least at which further completions are drawn: greedy ones would all be the same

log = logging.getLogger("speclsp.engine")


@dataclass(frozen=True, slots=True)
class RoundEvent:
    """One round of one of the wanted completions."""

    index: int
    piece: Piece
    start: Start | None = None  # with the first piece of all


@dataclass(frozen=True, slots=True)
class DoneEvent:
    """All there will be; at least one result, and `queue_ms` spent waiting for the turn."""

    results: list[Result]
    queue_ms: float


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """The request could not be completed."""

    error: Exception


Event = RoundEvent | DoneEvent | ErrorEvent
Tell = Callable[[Event], None]


@dataclass(eq=False, slots=True, kw_only=True)
class ScheduledJob(Entrant):
    """A request, who is told about it, from the engine's thread, and how far it is."""

    request: Request
    tell: Tell
    unseen: bool = False  # nobody typed it: one that verifies an older one; neither counted nor kept
    enough: int = 0  # tokens of it; 0: all there are
    cancel: Cancel = field(default_factory=Cancel)
    asked: float = field(default_factory=time.perf_counter)
    cancelled: float = 0.0  # when, as `asked`
    started: float = 0.0  # the same
    wanted: Iterator[Request] | None = None  # the completions to make after this one
    making: tuple[Request, Completer] | None = None  # the one of them under way, and by whom
    completion: Completion | None = None  # of it
    pieces: Iterator[Piece] | None = None  # of it
    told: bool = False  # something
    results: list[Result] = field(default_factory=list)  # of those before it

    @property
    def late(self) -> bool:
        """Whether its deadline has passed, with something to show for it."""
        deadline_ms, completion = self.request.deadline_ms, self.completion
        return 0 < deadline_ms <= ms_since(self.started) and completion is not None and bool(completion.result.tokens)


class Scheduler:
    """The engine's one thread, and the requests that wait for it."""

    def __init__(
        self, load: Load, metrics: Metrics, pair: str = "", *, idle_s: float = 0.0, keep_free_mib: int = 0
    ) -> None:
        """`load` is called in the thread, with what to tell its progress to; the rest is Holding's."""
        self.metrics = metrics
        self.holding = Residency(load, pair, idle_s=idle_s, keep_free_mib=keep_free_mib)
        self.on_result: Callable[[Request, Result, Completer], None] = lambda request, result, completer: None
        self.on_lost: Callable[[], None] = lambda: None  # nothing works any more, and everybody has been told
        self.holding.on_lost = self.give_up
        self.watchdog = Watchdog(self._hangs)
        self._lost = ""  # why, once the device is known not to answer
        self._turn = threading.Condition()
        self._order: RoundOrder[ScheduledJob] = RoundOrder()
        self._served: ScheduledJob | None = None  # the last one
        self._ahead: Request | None = None  # the last one that read ahead, until it is known what for
        self._asked_s: dict[object, float] = {}  # by session, of the last moments: when it asked for an answer
        self._closed = False
        self.thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def ask(self, request: Request, tell: Tell) -> ScheduledJob:
        """Queue `request`, and cancel its session's older ones. `tell` gets Said* and then Done or Failed.

        One that reads ahead is not cancelled for the request it was meant for: nothing would be saved.
        """
        who, ahead = request.session or object(), reads_ahead(request) or request.idle
        job = ScheduledJob(who=who, nameless=not request.session, ahead=ahead, request=request, tell=tell)
        with self._turn:
            live = self._order.entrants
            own = [old for old in live if old.who == job.who]
            older = [old for old in own if not (old.begun and is_expected(old.request, request))]
            elsewhere = [old for old in live if old.ahead and old.begun and old.who != job.who]
            self._judge_ahead(request)
            self._order.join(job, since=min((old.since for old in older), default=None))
            unwelcome = request.idle and not self._is_idle(job)
            if unwelcome:
                older, elsewhere = [job], []
            stale = [job] if self._closed else [*older, *elsewhere]
            ended = self._cancel(stale, "shutdown" if self._closed else "busy" if unwelcome else "superseded")
            if not unwelcome:
                self.holding.asked()
            if not ahead:
                self._asked_s = {**{by: s for by, s in self._asked_s.items() if job.asked - s < IDLE_S}, who: job.asked}
            self._turn.notify()
        self._end_unserved(ended)
        return job

    def _is_idle(self, job: ScheduledJob) -> bool:
        """Whether to make what nobody waits for: the model is there, nobody asks, and no other session did lately."""
        live = (entrant for entrant in self._order.entrants if entrant is not job and not entrant.cancel.is_set())
        others = any(entrant.who != job.who or not entrant.ahead for entrant in live)
        lately = any(by != job.who and job.asked - asked_s < IDLE_S for by, asked_s in self._asked_s.items())
        return self.holding.completer is not None and not others and not lately

    def ask_unseen(self, request: Request, tell: Tell, enough: int) -> ScheduledJob:
        """As `ask`, for one completion that has its turns like any other and is neither counted nor kept.

        It ends when it has `enough` tokens, at the latest.
        """
        job = ScheduledJob(who=object(), nameless=True, request=request, tell=tell, unseen=True, enough=enough)
        with self._turn:
            self._order.join(job)
            self._order.entrants.insert(0, self._order.entrants.pop())  # never the newest: that is what is typed
            ended = self._cancel([job] if self._closed else [], "shutdown")
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

    def drop(self, job: ScheduledJob, why: str = "closed") -> None:
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
        self.watchdog.close()
        self._end_unserved(ended)

    def give_up(self, why: str) -> None:
        """Fail all there is: nothing will come of it. From any thread; what runs there may never end."""
        log.error("%s", why)
        with self._turn:
            self._closed = True
            jobs, self._order.entrants = self._order.entrants, []
            self._turn.notify()
        for job in jobs:
            job.cancel.set()
            self._end(job, ErrorEvent(EngineError(why)))
        self.on_lost()

    def _hangs(self, took_s: float, expected_s: float) -> None:
        self.give_up(
            f"a step of {self.holding.pair} hangs: {took_s:.0f} s so far, {expected_s * 1000:.0f} ms are usual. "
            "The engine ends, and whoever needs it starts another."
        )

    def counts(self) -> tuple[int, int]:
        """How many requests are under way, and how many have not begun."""
        with self._turn:
            begun = sum(job.begun for job in self._order.entrants)
            return begun, len(self._order.entrants) - begun

    def _cancel(self, jobs: Sequence[ScheduledJob], why: str) -> list[ScheduledJob]:
        """Cancel those; the ones not begun, which are to be told so, are no more among those that wait."""
        for job in jobs:
            if not job.cancel.is_set():
                job.cancelled = time.perf_counter()
                job.cancel.set()
                if not job.unseen:
                    self.metrics.count("cancelled_total", why=why)
        ended = [job for job in jobs if not job.begun]
        self._order.entrants = [job for job in self._order.entrants if job not in ended]
        return ended

    # ── the engine's thread ──────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        self.watchdog.start()
        while (job := self._next()) is not None:
            end = self._serve(job)
            if self._lost:
                self.give_up(self._lost)
            elif end is not None:
                with self._turn:
                    if job not in self._order.entrants:
                        return  # all have been told that nothing would come of it
                    self._order.entrants.remove(job)
                self._end(job, end)
                if job.cancelled and not job.unseen:
                    self.metrics.time("stale_work_ms", ms_since(job.cancelled))

    def _next(self) -> ScheduledJob | None:
        """Whose round is next, waiting until there is one; None at the end."""
        while True:
            self.holding.tend(busy=self.counts()[0] > 0)
            with self._turn:
                job = self._choose()
                if job is not None or self._closed:
                    return job
                self._turn.wait(self.holding.due_s())

    def _choose(self) -> ScheduledJob | None:
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
            if before is not chosen and before in order.entrants and not chosen.unseen:
                self.metrics.count("preempted_rounds_total")
            self.metrics.set("longest_wait_rounds", order.longest_wait)
        return chosen

    def _serve(self, job: ScheduledJob) -> DoneEvent | ErrorEvent | None:
        """One round of the job, told; its end, if that was the last."""
        try:
            if job.completion is None:
                request = self._further(job)
                if request is None:
                    return self._done(job)
                completer = self._completer()
                self._step(completer, request)
                job.making = request, completer
                job.completion = completer.complete(request, job.cancel)
                job.pieces = iter(job.completion)
            elif job.making is not None:
                self._step(job.making[1])
            assert job.pieces is not None
            piece = next(job.pieces, None)
            if piece is not None:
                self._tell(job, piece)
            if 0 < job.enough <= len(job.completion.result.tokens):
                job.cancel.set()
            if piece is None or job.completion.result.stop_type:
                for piece in job.pieces:  # there is no more, but for what ends itself in this way
                    self._tell(job, piece)
                job.results.append(job.completion.result)
                self._keep(job, job.completion.result)
                job.completion = job.pieces = job.making = None
                if len(job.results) == (1 if job.unseen else max(1, job.request.n)):
                    return self._done(job)
        except Exception as error:  # one request's failure is that request's
            job.completion = job.pieces = job.making = None
            return ErrorEvent(self._failure(error))
        finally:
            self.watchdog.end()
        return None

    def _step(self, completer: Completer, begins: Request | None = None) -> None:
        """A step begins: of one under way, or the first one of a request, which is read before it."""
        chars = 0
        if begins is not None:
            texts = (begins.raw_prompt or "", begins.prefix, begins.line_prefix, begins.suffix, begins.previous)
            chars = sum(map(len, (*texts, *(extra.text for extra in begins.extra))))
        expected_s = getattr(completer, "step_ms", 0.0) / 1000 + chars * READ_S
        self.watchdog.begin(expected_s, self._passes)

    def _passes(self) -> int:
        return getattr(self.holding.completer, "passes", 0)  # looked up: nobody may hold on to what is to be unloaded

    def _failure(self, error: Exception) -> Exception:
        """What the one who asked is told of an error. Nothing that was computed is kept by it."""
        if not isinstance(error, SpeclspError):
            log.error("a request failed: %s", error_site(error))
        let_go(error)
        if ran_out_of_memory(error):
            self.metrics.count("oom_total")
            self.holding.ran_out()
            return EngineError(NO_MEMORY)
        self._lost = self.holding.lost(error)
        return error

    def _completer(self) -> Completer:
        if self.holding.completer is None:
            self.holding.asked()  # it may have fallen asleep since
            self.holding.tend()
        if self.holding.completer is None:
            raise EngineError(self.holding.message)
        return self.holding.completer

    def _further(self, job: ScheduledJob) -> Request | None:
        """The next completion to make; None when all are made, or there is no time for another."""
        if job.wanted is None:
            job.started = time.perf_counter()
            job.wanted = iter([job.request]) if job.unseen else alternatives(job.request)
            return next(job.wanted)
        spent_ms = round(ms_since(job.started))
        deadline_ms = job.request.deadline_ms
        request = next(job.wanted, None)
        if request is None or job.cancel.is_set() or 0 < deadline_ms <= spent_ms:
            return None
        return replace(request, deadline_ms=deadline_ms - spent_ms) if deadline_ms else request

    def _tell(self, job: ScheduledJob, piece: Piece) -> None:
        if not piece.tokens and not piece.text:
            return
        start = None
        if not job.told and job.completion is not None:
            result, queue_ms = job.completion.result, (job.started - job.asked) * 1000
            start = Start(
                queue_ms=queue_ms,
                prompt_tokens=result.prompt_tokens,
                cached_tokens=result.cached_tokens,
                left_out_tokens=result.left_out_tokens,
                prompt_ms=result.prompt_ms,
            )
        job.told = True
        job.tell(RoundEvent(len(job.results), piece, start))

    def _keep(self, job: ScheduledJob, result: Result) -> None:
        """Whoever wants to know what was given gets it."""
        if not job.unseen and job.making is not None:
            self.on_result(job.making[0], result, job.making[1])

    def _done(self, job: ScheduledJob) -> DoneEvent:
        return DoneEvent(job.results, (job.started - job.asked) * 1000)

    def _end_unserved(self, jobs: Sequence[ScheduledJob]) -> None:
        for job in jobs:
            self._end(job, DoneEvent([Result(stop_type="cancelled")], ms_since(job.asked)))

    def _end(self, job: ScheduledJob, end: DoneEvent | ErrorEvent) -> None:
        """Count the request and tell its end."""
        metrics = self.metrics
        if job.unseen:
            pass
        elif isinstance(end, ErrorEvent):
            metrics.count("requests_total", stop="failed")
        else:
            first = end.results[0]
            waited_for = not job.ahead
            if waited_for:
                metrics.count("requests_total", stop=first.stop_type)
            for result in end.results:
                metrics.count("prompt_tokens_total", result.prompt_tokens)
                metrics.count("cached_tokens_total", result.cached_tokens)
                metrics.count("prefilled_tokens_total", result.prefilled_tokens)
                if result.rounds:
                    made = len(result.tokens) - len(job.request.begin)
                    metrics.speculated(made, result.rounds, result.by_source)
            if first.rounds and waited_for:
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


def ms_since(start: float) -> float:
    """Milliseconds since `start`, a `time.perf_counter()`."""
    return (time.perf_counter() - start) * 1000
