"""Types of the completion backend: a FimRequest goes in, a stream of pieces comes out.

    engine_client.EngineClient     the user's shared engine for these settings; HTTP over a Unix socket
    remote.remote.RemoteBackend    `remote.url`: the server's own /infill, or /v1/completions with the card's markers

Closing the stream cancels the request: the server stops within one round. If a backend is not ready or disappears,
`stream` raises EngineError, and its Status states the problem and the fix. `backend_choice.connect` chooses a backend.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class FimRequest:
    """One fill-in-the-middle request, in text with \\n newlines.

    `line_prefix` goes after the middle marker, so typing only appends to the prompt.
    """

    prefix: str = ""  # all text before the current line
    line_prefix: str = ""  # the current line up to the cursor
    suffix: str = ""
    path: str = ""  # shown to the model
    extra: tuple[tuple[str, str], ...] = ()  # (path, text) of context from other places
    max_tokens: int = 64
    deadline_ms: int = 3000
    temperature: float = 0.0
    seed: int = 0
    session: str = ""  # the newest request of a session supersedes its older ones
    raw_prompt: str | None = None  # a whole prompt with its markers, instead of the text around the cursor
    previous: str = ""  # a text that the answer is expected to repeat: a draft, always verified
    begin: tuple[int, ...] = ()  # forced first tokens: those of an earlier answer up to a branch, and the branch's own
    branches: int = 0  # number of alternatives to report at each position
    idle: bool = False  # background request: served only while the engine has nothing else to do
    speculate: bool = True  # False: the engine decodes without drafts; the text is the same


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionCost:
    """Cost of one completion. Zero where the server does not report a value."""

    stop_type: str = ""
    prompt_tokens: int = 0  # cached tokens included
    cached_tokens: int = 0  # tokens of the prompt found in the KV cache


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStart:
    """Cost up to the first round. Sent with that round, for a reader that stops before the end."""

    queue_ms: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    left_out_tokens: int = 0  # tokens of the request's text that did not fit into the prompt
    prompt_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamBranch:
    """An alternative token at one position of the answer."""

    at: int  # number of answer tokens before it
    chars: int  # the same in characters
    token: int
    text: str
    p: float  # probability of the answer up to here and this token, after the forced first tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPiece:
    """Text and tokens that one round added."""

    text: str = ""
    tokens: int = 0
    source: str = ""  # the drafter of this round
    drafted: int = 0
    accepted: int = 0
    ms: float = 0.0
    logprobs: tuple[tuple[int, float], ...] = ()  # for each token: (characters it added, log-probability)
    ids: tuple[int, ...] = ()  # the tokens, where the server reports them
    branches: tuple[StreamBranch, ...] | None = None  # alternatives by position; None: the server reports none
    start: StreamStart | None = None  # on the first piece only, where the server reports it
    cost: CompletionCost | None = None  # on the last piece only


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """State of a backend, for the status line."""

    state: str  # "starting" | "loading" | "ready" | "asleep" | "stopped" | "error"
    message: str = ""  # one sentence for a person
    progress: float | None = None  # 0 to 1 while loading, when known
    model: str = ""
    model_reason: str = ""  # of "auto", in sentences; "" for a model chosen by name
    target: str = ""
    draft: str = ""
    device: str = ""
    remote: str = ""  # the server that receives the code; "" when the code stays on this machine
    clients: int = 0  # editors that use it, this one included
    engine_pid: int = 0
    edit_format: str = ""  # of a remote server's model

    @property
    def usable(self) -> bool:
        """True if requests can be sent. An unloaded ("asleep") engine loads its model on the next request."""
        return self.state in ("ready", "asleep")

    @property
    def model_identity(self) -> tuple[object, ...]:
        """The models that produce the answers. When it changes, cached answers are invalid."""
        return self.model, self.target


def without_retry(message: str) -> str:
    """A backend's message without its next try, which belongs to a process that stays."""
    return message.partition(" Next try at")[0].partition(" To try again:")[0]


OnStatus = Callable[[Status], None]


class Backend(Protocol):
    """A source of completions."""

    status: Status

    @property
    def reads_ahead(self) -> bool:
        """True if a request for zero tokens is useful: it only fills the prompt cache."""

    def start(self) -> None:
        """Begin to make it ready; `status` changes from then on. Call once, from the event loop."""

    def stream(self, request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
        """The completion, round by round. Close the iterator to cancel. Raises EngineError."""

    async def close(self, replaced: bool = False) -> None:
        """Stop, and release every resource. `replaced`: end an engine too that no other client uses."""


CANCEL_AGAIN_S = 0.5


async def end_task(task: asyncio.Task[None]) -> None:
    """Cancel a task until it has ended. Raises what it raises.

    In Python 3.10 and 3.11 `asyncio.wait_for` loses a cancellation that comes together with its result
    (github.com/python/cpython/issues/86296). The task then goes on, so one cancellation does not suffice.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=CANCEL_AGAIN_S)
    with suppress(asyncio.CancelledError):
        await task
