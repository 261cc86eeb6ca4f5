"""A completer whose rounds a test controls, and the scheduler's events as a queue."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Queue

from speclsp.engine.api import Piece, Request, Result
from speclsp.engine.scheduling.job import Event, RoundEvent
from speclsp.engine.scheduling.scheduler import Scheduler


class Talker:
    """Says the prefix once, after `gate` opens; or raises `error`."""

    pair = target = "talker"
    draft = device = ""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.served: list[str] = []
        self.deadlines: list[int] = []
        self.error: Exception | None = None

    def complete(self, request: Request, cancel: threading.Event) -> Talk:
        self.served.append(request.prefix)
        self.deadlines.append(request.deadline_ms)
        if self.error:
            raise self.error
        return Talk(self, request, cancel)


class Talk:
    def __init__(self, talker: Talker, request: Request, cancel: threading.Event) -> None:
        self.talker, self.request, self.cancel = talker, request, cancel
        self.result = Result(prompt_tokens=1)

    def __iter__(self) -> Iterator[Piece]:
        while not self.talker.gate.wait(0.005):
            if self.cancel.is_set():
                self.result.stop_type = "cancelled"
                return
        self.result.text, self.result.rounds, self.result.stop_type = self.request.prefix, 1, "eos"
        yield Piece(text=self.request.prefix, tokens=(1,), source="", drafted=0, accepted=0, ms=1.0)


def ask(scheduler: Scheduler, prefix: str, **fields: object) -> Queue[Event]:
    told: Queue[Event] = Queue()
    scheduler.submit(Request(prefix=prefix, **fields), told.put)
    return told


def end(told: Queue[Event]) -> Event:
    while isinstance(event := told.get(timeout=5), RoundEvent):
        pass
    return event
