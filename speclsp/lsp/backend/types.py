"""FimRequest in, a stream of Pieces out: from the engine on this machine, or from a server somewhere else.

    shared.Shared    this user's one engine, started by whoever needs it first; HTTP over a Unix socket, POST /infill
    local.Own        `engine.shared` = false: our child process, which ends with us
    local.Attached   the one that listens on `engine.socket`
    remote.Remote    `backend.url`: a server's own /infill, or /v1/completions with the card's markers
    fallback.Fallback    the last, and one of the others while it cannot be used

Closing the stream is cancelling: the other side stops within a round. A backend that is not ready, or that goes away,
raises EngineError from `stream`, and its Status says what is wrong and what to do.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from speclsp.config import BackendConfig, Config


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
    begin: tuple[int, ...] = ()  # tokens that it begins with: those up to an earlier answer's Branch, and the branch's
    branches: int = 0  # tell of so many others at each place
    idle: bool = False  # nobody waits for it: only while the engine has nothing else to do


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionCost:
    """What a completion took. Zeros where the server does not say."""

    stop_type: str = ""
    prompt_tokens: int = 0  # those in the cache included
    cached_tokens: int = 0  # of the prompt, found in the KV cache
    tokens: int = 0
    ttft_ms: float = 0.0
    draft_only: bool = False  # the target was still loading: the draft model alone says so
    rounds: int = 0
    by_source: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # {"ngram": {"drafted": 8, "accepted": 5}}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStart:
    """What came before the first round. Told with it, for whoever stops reading before the end."""

    queue_ms: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    left_out_tokens: int = 0  # of the text that was sent, cut from the prompt for want of room
    prompt_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamBranch:
    """Where the answer might have gone on otherwise."""

    at: int  # how many of the answer's tokens come before it
    chars: int  # the same in characters
    token: int
    text: str
    p: float  # that the answer goes so, from what it was told to begin with to here


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPiece:
    """What one round added."""

    text: str = ""
    tokens: int = 0
    source: str = ""  # which drafter guessed
    drafted: int = 0
    accepted: int = 0
    ms: float = 0.0
    logprobs: tuple[tuple[int, float], ...] = ()  # of each token: characters it brought, log-probability
    ids: tuple[int, ...] = ()  # the tokens, if it says so
    branches: tuple[StreamBranch, ...] | None = None  # at their places; None: the server tells of none
    start: StreamStart | None = None  # on the first piece only, where the server says so
    cost: CompletionCost | None = None  # on the last piece only


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What a backend is doing, for the status line."""

    state: str  # "starting" | "loading" | "ready" | "asleep" | "waiting" | "stopped" | "error"
    message: str = ""  # one sentence for a person
    progress: float | None = None  # 0 to 1 while loading, when known
    pair: str = ""
    target: str = ""
    draft: str = ""
    device: str = ""
    remote: str = ""  # the server that the code is sent to; "" when it stays on this machine
    shared: bool = False  # other editors use the same engine
    clients: int = 0  # editors that use it, this one included
    engine_pid: int = 0
    draft_only: bool = False  # while loading: single lines, by the draft model alone
    memory: str = "full"  # or what was given back because another program needed it: "small cache" | "no draft"

    @property
    def usable(self) -> bool:
        """Whether there is a use in asking: an engine that is asleep wakes up when it is asked."""
        return self.state in ("ready", "asleep") or (self.state == "loading" and self.draft_only)

    @property
    def made_by(self) -> tuple[object, ...]:
        """Which models make the answers: where this changes, older answers are worth nothing."""
        return self.pair, self.target, self.draft_only


OnStatus = Callable[[Status], None]


class Backend(Protocol):
    """Whoever makes completions."""

    status: Status

    @property
    def reads_ahead(self) -> bool:
        """Whether a request for no tokens is worth making: it only warms the cache."""

    @property
    def kept_while_off(self) -> bool:
        """Whether to hold on to it while completion is off."""

    def start(self) -> None:
        """Begin to make it ready; `status` changes from then on. Call once, from the event loop."""

    def stream(self, request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
        """The completion, round by round. Close the iterator to cancel. Raises EngineError."""

    async def close(self) -> None:
        """Stop, and leave nothing behind."""

    def end(self) -> None:
        """Leave no process behind; when the event loop has stopped already. Takes a second or so at most."""


def connect(
    config: Config, on_status: OnStatus, log: Callable[[str], None], client: str = "", own_url: str = ""
) -> Backend:
    """The backend that `config` asks for; not started yet.

    `log` gets what an engine of ours prints; `client` is the editor's name, for who asks the engine whom it serves;
    `own_url` is the server that the user's own settings name, to which a key may go that is for no server by name.
    """
    if config.backend.url:
        from speclsp.lsp.backend.remote.remote import RemoteBackend

        if not config.backend.fallback:
            return RemoteBackend(config, on_status, own_url)
        from speclsp.lsp.backend.fallback import FallbackBackend

        here = replace(config, backend=BackendConfig())
        return FallbackBackend(
            lambda told: RemoteBackend(config, told, own_url), lambda told: connect(here, told, log, client), on_status
        )
    if config.engine.shared and not config.engine.socket:
        from speclsp.lsp.backend.shared_engine import SharedEngine

        return SharedEngine(config, on_status, client)
    from speclsp.lsp.backend.engine_client import AttachedEngine, PrivateEngine

    return (
        AttachedEngine(config, on_status, client)
        if config.engine.socket
        else PrivateEngine(config, on_status, client, log)
    )
