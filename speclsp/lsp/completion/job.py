"""State of one completion request: its input, its options, its progress and its outcome."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from speclsp.config import CompletionConfig
from speclsp.lsp.backend.types import StreamPiece
from speclsp.lsp.completion.stream import PREEMPTED, Stream
from speclsp.lsp.completion.trace import Trace
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.postprocess.plan import Suggestion, SuggestionPlan
from speclsp.lsp.reasons import Reason

# outcomes that do not predict the next request's
NOT_CACHED = (Reason.ENGINE_LOST, Reason.EXCLUDED, Reason.FAILED, Reason.UNSURE)


@dataclass(frozen=True, slots=True)
class CompletionInput:
    """The document at the cursor, and what else the prompt may draw on."""

    snapshot: Snapshot
    others: Callable[[], Sequence[Snapshot]] = tuple  # other open documents; called only when a prompt is built
    root: str | None = None  # URI of the workspace folder


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """One request of the editor for suggestions."""

    input: CompletionInput
    wanted: int = 1  # how many different suggestions at most
    by_hand: bool = False  # the user asked explicitly: an unsure suggestion is shown as well
    automatic: bool = False  # sent for a key, not by the user: refused while completion.trigger is "manual"
    menu: bool = False  # for the completion menu, which an editor may fill beside the inline suggestion
    id: int | str = ""  # the editor's id of the request, for the trace
    position: tuple[int, int] = (0, 0)  # line and column in the document


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one request: suggestions, or the reason why there are none."""

    suggestions: tuple[Suggestion, ...] = ()
    reason: str = ""


class FirstLine(NamedTuple):
    """A suggestion that is on the screen, and the ended stream of its text, from which further lines can be read."""

    suggestion: Suggestion
    stream: Stream


@dataclass(eq=False, slots=True)
class CompletionJob:
    """One request under way. It is also the reader of its stream."""

    request: CompletionRequest
    completion: CompletionConfig  # the settings of this request
    trace: Trace = field(init=False)
    answer: asyncio.Future[Outcome] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    started_s: float = field(default_factory=time.perf_counter)
    task: asyncio.Task[None] | None = None
    deadline: asyncio.TimerHandle | None = None
    waiters: int = 0  # callers that wait for the answer: an editor may ask for its menu and inline
    plan: SuggestionPlan | None = None
    suggestions: list[Suggestion] = field(default_factory=list)  # alternatives so far
    stream: Stream | None = None  # the suggestion under way
    waiting_from_ms: float | None = None  # while it waits for the engine
    outdated: bool = False  # settings or model changed since: the answer is shown, but not cached
    read_stream: Stream | None = None  # the ended stream of its suggestion
    prepares_next: bool = False  # no caller waits: it completes into the cache (next_suggestion.py)
    first_line: FirstLine | None = None  # on the screen while the next one is prepared
    is_joined: bool = False  # further lines have joined `first_line`, in the cache

    def __post_init__(self) -> None:
        self.trace = Trace.of(self.snapshot, self.request.wanted, self.request.id, self.request.position)

    @property
    def input(self) -> CompletionInput:
        return self.request.input

    @property
    def snapshot(self) -> Snapshot:
        return self.request.input.snapshot

    def serves(self, newer: CompletionRequest) -> bool:
        """True if `newer` asks for the same as this job, one for the menu and the other inline: both get one answer."""
        own = self.request
        same = own.input.snapshot == newer.input.snapshot and own.wanted == newer.wanted
        unsure_shown = own.by_hand or not newer.by_hand  # by hand, unsure suggestions are shown as well
        answered_alike = self.completion.trigger == "automatic" or own.automatic == newer.automatic
        return own.menu != newer.menu and same and unsure_shown and answered_alike

    def is_cacheable(self, outcome: Outcome) -> bool:
        """True if the outcome also answers later requests for the same text."""
        preempted = self.prepares_next and self.trace.stop == PREEMPTED
        return outcome.reason not in NOT_CACHED and not self.outdated and not preempted and not self.answer.done()

    @property
    def may_grow(self) -> bool:
        """True if further lines may join its suggestion while that is shown."""
        return self.request.automatic and not (self.request.menu or self.prepares_next or self.request.wanted > 1)

    def first_line_of(self, outcome: Outcome) -> FirstLine | None:
        """The suggestion that further lines can join; None for several suggestions, other models or other settings."""
        stream = self.read_stream
        if stream is None or not stream.can_continue or self.request.wanted > 1 or self.outdated:
            return None
        return FirstLine(outcome.suggestions[0], stream)

    def elapsed_ms(self) -> float:
        """Milliseconds since the request arrived."""
        return (time.perf_counter() - self.started_s) * 1000

    async def wait_for(self, stream: Stream) -> None:
        """Wait until the stream has ended."""
        self.waiting_from_ms = self.elapsed_ms()
        await stream.ended.wait()
        self.stop_waiting()

    def stop_waiting(self) -> None:
        """Add the time since `wait_for` began to the trace, once."""
        if self.waiting_from_ms is not None:
            self.trace.engine_ms += self.elapsed_ms() - self.waiting_from_ms
            self.waiting_from_ms = None

    def piece_arrived(self, piece: StreamPiece) -> None:
        """A round of the stream has arrived, or its end."""
        self.trace.first_ms = self.trace.first_ms or self.elapsed_ms()
        self.trace.add(piece)
