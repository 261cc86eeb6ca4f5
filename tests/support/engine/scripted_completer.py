"""A completer whose rounds a test controls, and the scheduler's events as a queue."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Queue

from speclsp.engine.api import Piece, Request, Result
from speclsp.engine.scheduling.scheduled_job import Event, RoundEvent
from speclsp.engine.scheduling.scheduler import Scheduler


class ScriptedCompleter:
    """Completes each request with its prefix, in one round, once `gate` is open; or raises `error`."""

    model = target = "talker"
    draft = device = ""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.served: list[str] = []
        self.deadlines: list[int] = []
        self.error: Exception | None = None

    def complete(self, request: Request, cancel: threading.Event) -> ScriptedCompletion:
        self.served.append(request.prefix)
        self.deadlines.append(request.deadline_ms)
        if self.error:
            raise self.error
        return ScriptedCompletion(self, request, cancel)


class ScriptedCompletion:
    """One completion of a ScriptedCompleter."""

    def __init__(self, completer: ScriptedCompleter, request: Request, cancel: threading.Event) -> None:
        self.completer, self.request, self.cancel = completer, request, cancel
        self.result = Result(prompt_tokens=1)

    def __iter__(self) -> Iterator[Piece]:
        while not self.completer.gate.wait(0.005):
            if self.cancel.is_set():
                self.result.stop_type = "cancelled"
                return
        self.result.text, self.result.rounds, self.result.stop_type = self.request.prefix, 1, "eos"
        yield Piece(text=self.request.prefix, tokens=(1,), source="", drafted=0, accepted=0, ms=1.0)


def submit(scheduler: Scheduler, prefix: str, **fields: object) -> Queue[Event]:
    """Submit a request; returns the queue of its events."""
    events: Queue[Event] = Queue()
    scheduler.submit(Request(prefix=prefix, **fields), events.put)
    return events


def wait_for_end(events: Queue[Event]) -> Event:
    """The last event of a request."""
    while isinstance(event := events.get(timeout=60), RoundEvent):
        pass
    return event
