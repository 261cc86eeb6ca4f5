"""A completion session with a scripted backend, for tests of the session and its helpers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from speclsp.config import Config, parse
from speclsp.lsp.backend.types import CompletionCost, FimRequest, Status, StreamPiece
from speclsp.lsp.completion.session import Session, Trace
from speclsp.lsp.documents.document import Snapshot
from speclsp.observability.metrics import Metrics

URI = "file:///a.py"


TEXT = "items = []\nitems."


class Scripted:
    """A backend that says `answers` in turn, one character a round, and remembers what it was asked."""

    def __init__(self, *answers: str | Exception, round_s: float = 0.0) -> None:
        self.answers = list(answers)
        self.round_s = round_s
        self.asked: list[FimRequest] = []
        self.said: list[str] = []  # for each request, what was taken before the stream was closed
        self.status = Status(state="ready")
        self.reads_ahead = True

    def start(self) -> None: ...
    def end(self) -> None: ...
    async def close(self) -> None: ...

    async def stream(self, request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
        number = len(self.asked)
        self.asked.append(request)
        self.said.append("")
        answer = self.answers[min(number, len(self.answers) - 1)]
        if isinstance(answer, Exception):
            raise answer
        for char in answer:
            await asyncio.sleep(self.round_s)
            self.said[number] += char
            yield StreamPiece(text=char, tokens=1, source="ngram", drafted=2, accepted=1)
        yield StreamPiece(cost=CompletionCost(stop_type="eos", prompt_tokens=7, cached_tokens=3))


def at(text: str, cursor: int | None = None, version: int = 1, uri: str = URI, language: str = "python") -> Snapshot:
    return Snapshot(uri, language, version, text, len(text) if cursor is None else cursor)


class Room:
    """A session with a scripted backend."""

    def __init__(self, backend: Scripted | None, **settings: object) -> None:
        config, problems = parse(settings, Config())
        assert problems == []
        self.backend, self.traces = backend, list[Trace]()
        self.metrics = Metrics()
        self.session = Session(config, lambda: self.backend, self.metrics, on_trace=self.traces.append)

    async def texts(self, snapshot: Snapshot, wanted: int = 1) -> list[str]:
        """What is inserted at the cursor."""
        outcome = await self.session.complete(snapshot, wanted)
        return [made.text[snapshot.cursor - made.start :] for made in outcome.suggestions]


def run(room: Room, work: Callable[[Room], Awaitable[object]]) -> None:
    async def whole() -> None:
        await work(room)
        assert not room.session.busy
        assert asyncio.all_tasks() == {asyncio.current_task()}, "something still runs"

    asyncio.run(whole())
