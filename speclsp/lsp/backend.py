"""FimRequest in, a stream of Pieces out: from the engine on this machine, or from a server somewhere else.

    local.Engine   our child process, or the one that listens on `engine.socket`; HTTP over a Unix socket, POST /infill
    remote.Remote  `backend.url`: llama.cpp's /infill, or /v1/completions with the card's fill-in-the-middle template

Closing the stream is cancelling: the other side stops within a round. A backend that is not ready, or that goes away,
raises EngineError from `stream`, and its Status says what is wrong and what to do.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from speclsp.config import Config


@dataclass(frozen=True, slots=True, kw_only=True)
class FimRequest:
    """One completion to make, in text, newlines as \\n. `line_prefix` goes after the middle marker: typing appends."""

    prefix: str = ""  # all before the current line
    line_prefix: str = ""  # the current line up to the cursor
    suffix: str = ""
    path: str = ""  # shown to the model
    extra: tuple[tuple[str, str], ...] = ()  # (path, text) from elsewhere
    max_tokens: int = 64
    deadline_ms: int = 3000
    temperature: float = 0.0
    seed: int = 0
    session: str = ""  # the newest request of a session supersedes its older ones
    previous: str = ""  # expected after the cursor, from an earlier suggestion: drafted from, never trusted


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a completion took. Zeros where the server does not say."""

    stop_type: str = ""
    prompt_tokens: int = 0  # those in the cache included
    cached_tokens: int = 0  # of the prompt, found in the KV cache
    tokens: int = 0
    ttft_ms: float = 0.0
    rounds: int = 0
    by_source: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # {"ngram": {"drafted": 8, "accepted": 5}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one round added."""

    text: str = ""
    tokens: int = 0
    source: str = ""  # which drafter guessed
    drafted: int = 0
    accepted: int = 0
    cost: Cost | None = None  # on the last piece only


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What a backend is doing, for the status line."""

    state: str  # "starting" | "loading" | "ready" | "error"
    message: str = ""  # one sentence for a person
    progress: float | None = None  # 0 to 1 while loading, when known
    pair: str = ""
    target: str = ""
    draft: str = ""
    device: str = ""


OnStatus = Callable[[Status], None]


class Backend(Protocol):
    """Whoever makes completions."""

    status: Status
    reads_ahead: bool  # whether a request for no tokens is worth making: it only warms the cache

    def start(self) -> None:
        """Begin to make it ready; `status` changes from then on. Call once, from the event loop."""

    def stream(self, request: FimRequest) -> AsyncGenerator[Piece, None]:
        """The completion, round by round. Close the iterator to cancel. Raises EngineError."""

    async def close(self) -> None:
        """Stop, and leave nothing behind."""

    def end(self) -> None:
        """Leave no process behind; when the event loop has stopped already. Takes a second or so at most."""


def connect(config: Config, on_status: OnStatus, log: Callable[[str], None]) -> Backend:
    """The backend that `config` asks for; not started yet. `log` gets what an engine of ours prints."""
    if config.backend.url:
        from speclsp.lsp.remote import Remote

        return Remote(config, on_status)
    from speclsp.lsp.local import Engine

    return Engine(config, on_status, log)
