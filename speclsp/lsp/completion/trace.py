"""Where one request's milliseconds and tokens went: numbers and names, never a piece of the document."""

from __future__ import annotations

import hashlib
import time
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from speclsp.lsp.backend.types import Status, StreamPiece, StreamStart
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.reasons import Cuts

if TYPE_CHECKING:
    from speclsp.lsp.context.build import Context


@dataclass(slots=True)
class RequestInfo:
    """What a request was about, and who answered: names, paths and sizes."""

    uri: str = ""
    files: tuple[tuple[str, int, str], ...] = ()  # shown to the model: path, characters, source
    not_shown: tuple[int, int] = (0, 0)  # characters of the document above and below what was shown
    left_out: tuple[str, ...] = ()  # for each other document that was not shown: why
    status: Status | None = None  # of the backend when it ended


@dataclass(slots=True)
class Trace:
    """Where one request's milliseconds and tokens went; one JSON line each with --trace."""

    document: str  # the start of a hash of its URI
    language: str
    version: int
    characters: int
    wanted: int
    request: int | str = ""  # the editor's id of it
    at_ms: float = 0.0  # of the system's monotonic clock, when it came: a log of the wire has the same
    outcome: str = ""  # "shown", or the reason
    reused: bool = False  # answered without the engine
    adopted: bool = False  # from the stream of an older request, typed along with
    prepared: bool = False  # before it was asked for: either of the two above, then
    draft_only: bool = False  # the target was still loading, and this is what the draft model alone says
    line: int = 0  # of the document, from 0
    column: int = 0  # the same, in the editor's units
    waited_ms: float = 0.0  # for further keys
    parse_ms: float = 0.0
    context_ms: float = 0.0
    engine_ms: float = 0.0  # waited for the engine's stream
    first_ms: float = 0.0  # from the request to the first text
    rounds_ms: float = 0.0  # in the engine
    queue_ms: float = 0.0  # the same: until its turn
    prompt_ms: float = 0.0  # the same: reading what was not cached
    total_ms: float = 0.0
    prompt_tokens: int = 0  # zeros where a server does not tell until its own end
    cached_tokens: int = 0
    left_out_tokens: int = 0  # cut from the prompt by the engine
    tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    by_source: dict[str, dict[str, int]] = field(default_factory=dict)
    stop: str = ""  # why the engine stopped: stream.py's words, or its own
    streamed_characters: int = 0  # the model's text for this request, of which the rest was cut
    shown_characters: int = 0  # of the first suggestion
    suggestions: int = 0
    cuts: Cuts = field(default_factory=list)
    confidence: float | None = None  # in its first line; None where the engine does not say what it thought
    least_confidence: float = 0.0  # that was wanted; 0: any
    taken_and_left: tuple[float, float] = (0.0, 0.0)  # suggestions in this language lately, which decide about that
    about: RequestInfo = field(default_factory=lambda: RequestInfo())  # names: for the user who asks, and for no log

    @classmethod
    def of(cls, snapshot: Snapshot, wanted: int, request: int | str = "", place: tuple[int, int] = (0, 0)) -> Trace:
        """A request's that has just come."""
        return cls(
            document=digest(snapshot.uri),
            language=snapshot.language,
            version=snapshot.version,
            characters=len(snapshot.text),
            wanted=wanted,
            request=request,
            at_ms=time.monotonic() * 1000,
            line=place[0],
            column=place[1],
            about=RequestInfo(uri=snapshot.uri),
        )

    def began(self, start: StreamStart) -> None:
        """The first round has come."""
        self.prompt_tokens, self.cached_tokens = start.prompt_tokens, start.cached_tokens
        self.left_out_tokens, self.queue_ms, self.prompt_ms = start.left_out_tokens, start.queue_ms, start.prompt_ms

    def add(self, piece: StreamPiece) -> None:
        """Count what a round brought; the last piece says what the whole took."""
        if piece.cost is not None:
            self.prompt_tokens, self.cached_tokens = piece.cost.prompt_tokens, piece.cost.cached_tokens
            self.draft_only = self.draft_only or piece.cost.draft_only
            return
        if piece.start is not None:
            self.began(piece.start)
        self.tokens, self.rounds = self.tokens + piece.tokens, self.rounds + 1
        self.rounds_ms += piece.ms
        if piece.drafted:
            self.drafted, self.accepted = self.drafted + piece.drafted, self.accepted + piece.accepted
            counts = self.by_source.setdefault(piece.source, {"drafted": 0, "accepted": 0})
            counts["drafted"] += piece.drafted
            counts["accepted"] += piece.accepted


def digest(text: str) -> str:
    """Tells one document from another without naming it."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def as_json(trace: Trace) -> dict[str, object]:
    """A trace with its milliseconds rounded, and without names."""
    told = asdict(replace(trace, about=RequestInfo()))
    del told["about"]
    digits = {"confidence": 4, "least_confidence": 4}
    return {
        name: round(value, digits.get(name, 1)) if isinstance(value, float) else value for name, value in told.items()
    }


def note(trace: Trace, seen: Context) -> None:
    """What the model is shown, in sizes."""
    here = len(seen.prefix) + len(seen.line_prefix) + len(seen.suffix)
    shown = [(chunk.path, len(chunk.text), chunk.source) for chunk in seen.extra]
    about, (above, below) = trace.about, seen.around
    about.files = ((seen.path, here, "document"), *shown)
    about.not_shown = max(0, above - len(seen.prefix) - len(seen.line_prefix)), max(0, below - len(seen.suffix))
    about.left_out = seen.left_out
