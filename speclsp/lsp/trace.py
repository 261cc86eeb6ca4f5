"""Where one request's milliseconds and tokens went: numbers and names, never a piece of the document."""

from __future__ import annotations

import hashlib
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path

from speclsp.lsp.backend import Piece


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
    draft_only: bool = False  # the target was still loading, and this is what the draft model alone says
    parse_ms: float = 0.0
    context_ms: float = 0.0
    engine_ms: float = 0.0  # waited for the engine's stream
    first_ms: float = 0.0  # from the request to the first text
    total_ms: float = 0.0
    prompt_tokens: int = 0  # these two only when the engine came to its own end
    cached_tokens: int = 0
    tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    by_source: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, piece: Piece) -> None:
        """Count what a round brought; the last piece says what the whole took."""
        if piece.cost is not None:
            self.prompt_tokens, self.cached_tokens = piece.cost.prompt_tokens, piece.cost.cached_tokens
            self.draft_only = self.draft_only or piece.cost.draft_only
            return
        self.tokens, self.rounds = self.tokens + piece.tokens, self.rounds + 1
        if piece.drafted:
            self.drafted, self.accepted = self.drafted + piece.drafted, self.accepted + piece.accepted
            counts = self.by_source.setdefault(piece.source, {"drafted": 0, "accepted": 0})
            counts["drafted"] += piece.drafted
            counts["accepted"] += piece.accepted


def digest(text: str) -> str:
    """Tells one document from another without naming it."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def place(error: BaseException) -> str:
    """Where an error came from."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"


def as_json(trace: Trace) -> dict[str, object]:
    """A trace with its milliseconds rounded."""
    return {name: round(value, 1) if isinstance(value, float) else value for name, value in asdict(trace).items()}
