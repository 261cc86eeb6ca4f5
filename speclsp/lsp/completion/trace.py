"""Trace of one completion request: its times, token counts and names, never text of the document."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from speclsp.lsp.backend.types import StreamPiece, StreamStart
from speclsp.lsp.documents.document import Snapshot
from speclsp.plain_text import digest

if TYPE_CHECKING:
    from speclsp.lsp.context.build import Context
    from speclsp.lsp.postprocess.plan import Suggestion


@dataclass(slots=True)
class RequestInfo:
    """Names, paths and sizes of a request."""

    uri: str = ""
    files: tuple[tuple[str, int, str], ...] = ()  # shown to the model: path, characters, source


@dataclass(slots=True)
class Trace:
    """The cost of one request; with --trace, one JSON line each."""

    document: str  # the start of a hash of its URI
    language: str
    version: int
    characters: int
    wanted: int
    request: int | str = ""  # the editor's id of it
    at_ms: float = 0.0  # its arrival, by the system's monotonic clock: a log of the wire uses the same clock
    outcome: str = ""  # "shown", or the reason
    reused: bool = False  # answered without the engine
    adopted: bool = False  # from the stream of an older request, typed through by the user
    prepared: bool = False  # reused or adopted from a preparation
    line: int = 0  # of the document, from 0
    column: int = 0  # in the editor's units, from 0
    waited_ms: float = 0.0  # debounce
    parse_ms: float = 0.0
    context_ms: float = 0.0
    engine_ms: float = 0.0  # waited for the engine's stream
    first_ms: float = 0.0  # from the request to the first text
    rounds_ms: float = 0.0  # in the engine
    queue_ms: float = 0.0  # in the engine: until its turn
    prompt_ms: float = 0.0  # in the engine: prefill of the part that was not cached
    total_ms: float = 0.0
    prompt_tokens: int = 0  # 0 if a server reports it only at the end, and was stopped before
    cached_tokens: int = 0
    left_out_tokens: int = 0  # cut from the prompt by the engine
    tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    by_source: dict[str, dict[str, int]] = field(default_factory=dict)
    stop: str = ""  # stop type: the engine's, or one of stream.py
    streamed_characters: int = 0  # the model's text for this request, before post-processing
    shown_characters: int = 0  # of the first suggestion
    suggestions: int = 0
    confidence: float | None = None  # in its first line; None if the engine reports no log-probabilities
    least_confidence: float = 0.0  # the threshold; 0: any
    about: RequestInfo = field(default_factory=lambda: RequestInfo())  # names: for speclsp/explain, not for logs

    @classmethod
    def of(cls, snapshot: Snapshot, wanted: int, request: int | str = "", position: tuple[int, int] = (0, 0)) -> Trace:
        """The trace of a request that has just arrived; `position` is line and column."""
        return cls(
            document=digest(snapshot.uri),  # identifies a document without naming it
            language=snapshot.language,
            version=snapshot.version,
            characters=len(snapshot.text),
            wanted=wanted,
            request=request,
            at_ms=time.monotonic() * 1000,
            line=position[0],
            column=position[1],
            about=RequestInfo(uri=snapshot.uri),
        )

    def record_context(self, context: Context) -> None:
        """Record the paths and sizes of the text that the model is shown."""
        shown = len(context.prefix) + len(context.line_prefix) + len(context.suffix)
        other_files = [(chunk.path, len(chunk.text), "similar") for chunk in context.extra]
        self.about.files = ((context.path, shown, "document"), *other_files)

    def stream_started(self, start: StreamStart) -> None:
        """Record the engine's work before the first round."""
        self.prompt_tokens, self.cached_tokens = start.prompt_tokens, start.cached_tokens
        self.left_out_tokens, self.queue_ms, self.prompt_ms = start.left_out_tokens, start.queue_ms, start.prompt_ms

    def add(self, piece: StreamPiece) -> None:
        """Add a round; the last piece carries the cost of the whole completion instead."""
        if piece.cost is not None:
            self.prompt_tokens, self.cached_tokens = piece.cost.prompt_tokens, piece.cost.cached_tokens
            return
        if piece.start is not None:
            self.stream_started(piece.start)
        self.tokens, self.rounds = self.tokens + piece.tokens, self.rounds + 1
        self.rounds_ms += piece.ms
        if piece.drafted:
            self.drafted, self.accepted = self.drafted + piece.drafted, self.accepted + piece.accepted
            counts = self.by_source.setdefault(piece.source, {"drafted": 0, "accepted": 0})
            counts["drafted"] += piece.drafted
            counts["accepted"] += piece.accepted

    def ended(self, suggestions: Sequence[Suggestion], reason: str) -> None:
        """Record the outcome."""
        self.outcome = reason or "shown"
        self.suggestions = len(suggestions)
        self.shown_characters = len(suggestions[0].text) if suggestions else 0


def as_json(trace: Trace) -> dict[str, object]:
    """A trace with its milliseconds rounded, and without names."""
    fields = asdict(replace(trace, about=RequestInfo()))
    del fields["about"]
    numbers = {name: value for name, value in fields.items() if isinstance(value, float)}
    return fields | {name: round(value, 4 if "confidence" in name else 1) for name, value in numbers.items()}
