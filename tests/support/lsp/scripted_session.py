"""A completion session with a scripted backend, for tests of the session and of its parts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from async_tests import check_at_end

from speclsp.config import Config, parse
from speclsp.lsp.backend.types import CompletionCost, FimRequest, Status, StreamPiece
from speclsp.lsp.completion.job import CompletionInput, CompletionRequest, Outcome
from speclsp.lsp.completion.session import Session
from speclsp.lsp.completion.trace import Trace
from speclsp.lsp.documents.document import Snapshot

URI = "file:///a.py"
TEXT = "items = []\nitems."


class ScriptedBackend:
    """A backend that streams `answers` in turn, one character per round, and records its requests."""

    def __init__(self, *answers: str | Exception, round_s: float = 0.0) -> None:
        self.answers = list(answers)
        self.round_s = round_s
        self.requests: list[FimRequest] = []
        self.streamed: list[str] = []  # for each request, the text sent before the stream was closed
        self.status = Status(state="ready")
        self.reads_ahead = True

    def start(self) -> None: ...
    def end(self) -> None: ...
    async def close(self, replaced: bool = False) -> None: ...

    async def stream(self, request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
        number = len(self.requests)
        self.requests.append(request)
        self.streamed.append("")
        answer = self.answers[min(number, len(self.answers) - 1)]
        if isinstance(answer, Exception):
            raise answer
        for char in answer:
            await asyncio.sleep(self.round_s)
            self.streamed[number] += char
            yield StreamPiece(text=char, tokens=1, source="ngram", drafted=2, accepted=1)
        yield StreamPiece(cost=CompletionCost(stop_type="eos", prompt_tokens=7, cached_tokens=3))


class TokenBackend(ScriptedBackend):
    """A backend whose model writes `document` on, one character per token and round, as the own engine reports it.

    The forced tokens of a request come first, as one round. `logprobs` are those of the document's lines, by number;
    without one, a token is certain.
    """

    def __init__(self, document: str, logprobs: Mapping[int, float] | None = None, round_s: float = 0.0) -> None:
        super().__init__(round_s=round_s)
        self.document, self.logprobs = document, logprobs or {}
        self.stop_after: int | None = None  # tokens after which the engine's deadline has passed

    async def stream(self, request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
        number, before = len(self.requests), request.prefix + request.line_prefix
        self.requests.append(request)
        self.streamed.append("")
        text = self.document[len(before) :] if self.document.startswith(before) else "?"
        if request.begin:
            begin = "".join(map(chr, request.begin))
            assert text.startswith(begin), "the model's own tokens"
            certain = ((1, 0.0),) * len(begin)
            yield StreamPiece(text=begin, tokens=len(begin), ids=request.begin, logprobs=certain)
        most = request.max_tokens if self.stop_after is None else min(request.max_tokens, self.stop_after)
        for end in range(len(request.begin), min(len(text), most)):
            await asyncio.sleep(self.round_s)
            self.streamed[number] += text[end]
            logprob = self.logprobs.get((before + text[:end]).count("\n"), 0.0)
            yield StreamPiece(text=text[end], tokens=1, ids=(ord(text[end]),), logprobs=((1, logprob),))
        stop = "eos" if len(text) <= most else "limit" if self.stop_after is None else "deadline"
        yield StreamPiece(cost=CompletionCost(stop_type=stop, prompt_tokens=7, cached_tokens=3))


async def until(condition: Callable[[], object]) -> None:
    """Wait until the condition is true; no time is assumed, whatever else the machine does."""
    for _ in range(5000):
        if condition():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("the condition stayed false")


def at(text: str, cursor: int | None = None, version: int = 1, uri: str = URI, language: str = "python") -> Snapshot:
    """A document with the cursor at `cursor`, by default at its end."""
    return Snapshot(uri, language, version, text, len(text) if cursor is None else cursor)


def captured(text: str, version: int = 1) -> Callable[[], CompletionInput]:
    """The `capture` callback of an edit after which the document is `text`, with the cursor at its end."""
    return lambda: CompletionInput(at(text, version=version))


class ScriptedSession:
    """A session with a scripted backend, and its traces."""

    def __init__(self, backend: ScriptedBackend | None, follows_growth: bool = True, **settings: object) -> None:
        """`settings` are keys of the configuration; `backend` is None while none is connected."""
        config, problems = parse(settings, Config())
        assert problems == []
        self.backend, self.traces = backend, list[Trace]()
        self.on_busy: Callable[[], object] = lambda: None
        connected, on_busy = lambda: self.backend, lambda: self.on_busy()
        self.grown = list[CompletionRequest]()  # the requests whose answers have grown, in the order of their reports
        on_grown = self.grown.append if follows_growth else None
        self.session = Session(config, connected, on_busy=on_busy, on_trace=self.traces.append, on_grown=on_grown)
        check_at_end(self._check_idle)

    def close(self) -> None:
        """Close the document, and end all other work."""
        self.session.document_closed(URI)
        self.session.discard_answers()

    def _check_idle(self) -> None:
        assert not self.session.busy
        assert asyncio.all_tasks() == {asyncio.current_task()}, "something still runs"

    async def complete(self, snapshot: Snapshot, wanted: int = 1, **options: Any) -> Outcome:
        """The outcome of one request; `options` are fields of CompletionRequest."""
        return await self.session.complete(CompletionRequest(CompletionInput(snapshot), wanted, **options))

    async def texts(self, snapshot: Snapshot, wanted: int = 1) -> list[str]:
        """The texts of the suggestions, each from the cursor on."""
        outcome = await self.complete(snapshot, wanted)
        return [suggestion.text[snapshot.cursor - suggestion.start :] for suggestion in outcome.suggestions]


async def streamed(scripted: ScriptedSession, characters: int, number: int = 0) -> None:
    """Wait until the backend has streamed that many characters of an answer."""
    streams = scripted.backend.streamed
    while len(streams) <= number or len(streams[number]) < characters:
        await asyncio.sleep(0.001)


def start_request(scripted: ScriptedSession, text: str, **options: Any) -> asyncio.Task[Outcome]:
    """A task with one request at the end of `text`; `options` are those of `at`."""
    return asyncio.create_task(scripted.complete(at(text, **options)))
