"""What was asked lately and what was given, kept in memory; and all of it made again, plainly and speculatively.

    a completion ends ─► Given ─► Recent (the last 32, bounded; gone with the process)
                             └──► engine.record: a file as well (recording.py)
    POST /verify ─► for each Given: plain, speculative ─► the same tokens as then, and as each other? ─► one line

What was cut short, by its deadline or because its reader had enough, is compared as far as it went. Nothing is compared
that could rightly differ: what another model made, or the same one from a prompt that was cut otherwise. The lines hold
numbers, names and reasons, never text nor tokens.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from speclsp.engine.api import Completer, Request, Result
from speclsp.engine.http.json_fields import Json
from speclsp.engine.scheduling.job import DoneEvent, ErrorEvent, Event, ScheduledJob
from speclsp.engine.scheduling.scheduler import Scheduler
from speclsp.errors import EngineError, InputError

KEPT = 32  # requests
KEPT_BYTES = 8 * 2**20  # of their text
CUT_SHORT = ("deadline", "cancelled")  # such an answer would have gone on

# Why one is not compared.
REJECTION = "drawn by rejection sampling: of that only the distribution is promised"
DRAFT_ALONE = "made by the draft model alone, while the target was loading"
OTHER_MODEL = "made by another model"
OTHER_PROMPT = "its prompt would be cut otherwise now"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveredCompletion:
    """A request, and the tokens that answered it."""

    request: Request
    tokens: tuple[int, ...]
    stop_type: str
    prompt_tokens: int
    draft_only: bool
    made_by: tuple[str, str, str]  # pair, target with its number format, device
    at_s: float = field(default_factory=time.time)

    @property
    def size_bytes(self) -> int:
        """What keeping it takes."""
        asked = self.request
        texts = [asked.prefix, asked.line_prefix, asked.suffix, asked.raw_prompt or "", asked.previous, *asked.stop]
        texts += [text for extra in asked.extra for text in (extra.filename, extra.text)]
        return sum(map(sys.getsizeof, texts)) + 36 * len(self.tokens)

    @property
    def whole(self) -> bool:
        """Whether it came to its own end."""
        return self.stop_type not in CUT_SHORT


def made_by(completer: Completer) -> tuple[str, str, str]:
    """Which model answers, as far as that decides about the tokens."""
    return completer.pair, completer.target, completer.device


def given(request: Request, result: Result, completer: Completer) -> DeliveredCompletion:
    """What was asked, and what was given by `completer`."""
    return DeliveredCompletion(
        request=request,
        tokens=tuple(result.tokens),
        stop_type=result.stop_type,
        prompt_tokens=result.prompt_tokens,
        draft_only=result.draft_only,
        made_by=made_by(completer),
    )


class RecentRequests:
    """The last requests, in the memory of this process alone. Filled by the engine's thread, read by any."""

    def __init__(self, most: int = KEPT, most_bytes: int = KEPT_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._kept: deque[DeliveredCompletion] = deque()
        self._lock = threading.Lock()
        self.bytes = 0

    def keep(self, one: DeliveredCompletion) -> None:
        """The newest; the oldest go where it needs the room. One that is too large by itself is not kept."""
        size = one.size_bytes
        if size > self._most_bytes:
            return
        with self._lock:
            self._kept.append(one)
            self.bytes += size
            while len(self._kept) > self._most or self.bytes > self._most_bytes:
                self.bytes -= self._kept.popleft().size_bytes

    def last(self, count: int) -> list[DeliveredCompletion]:
        """The last `count`, the oldest of them first."""
        with self._lock:
            return list(self._kept)[-count:] if count > 0 else []


def keeping(recent: RecentRequests, record: bool) -> Callable[[Request, Result, Completer], None]:
    """What the engine's thread calls with each answer. `record`: have it written to disk as well (recording.py)."""
    more = []
    if record:
        from speclsp.engine.http.recorder import Recorder

        more.append(Recorder().keep)

    def keep(request: Request, result: Result, completer: Completer) -> None:
        if not result.tokens:
            return
        one = given(request, result, completer)
        for each in (recent.keep, *more):
            each(one)

    return keep


# ── again ────────────────────────────────────────────────────────────────────────────────────────────────────

Run = Callable[[Request, int], Result]  # makes a completion of so many tokens at least, if it does not end before


class InTurn:
    """Makes completions in the engine's thread, each round in its turn, for a thread that waits for them."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._stopped = threading.Event()
        self._job: ScheduledJob | None = None

    def run(self, request: Request, needed: int) -> Result:
        """See Run. Raises EngineError when it was stopped, and what the completion raises."""
        told: queue.SimpleQueue[Event] = queue.SimpleQueue()
        if self._stopped.is_set():
            raise EngineError("nobody waits for it any more")
        job = self._job = self._scheduler.submit_shadow(request, told.put, enough_tokens=needed)
        while True:
            if self._stopped.is_set():
                self._scheduler.cancel(job)
            event = told.get()
            if isinstance(event, ErrorEvent):
                raise event.error
            if isinstance(event, DoneEvent):
                if self._stopped.is_set() or not event.results[0].rounds:
                    raise EngineError("the engine is ending, or nobody waits for it any more")
                return event.results[0]

    def stop(self) -> None:
        """End what is under way, from any thread."""
        self._stopped.set()
        if self._job is not None:
            self._scheduler.cancel(self._job)


def plainly(request: Request) -> Request:
    """The same, token by token: no deadline, no session whose other requests it would end."""
    return replace(request, deadline_ms=0, session="", speculate=False, gamma=None, sources=())


def speculatively(request: Request) -> Request:
    """The same as the engine does it by itself."""
    return replace(plainly(request), speculate=True)


def verify(kept: Sequence[DeliveredCompletion], run: Run, who: Callable[[], Completer | None]) -> Iterator[Json]:
    """One line for each of `kept`. `who` completes now; None: it is asleep, and will be known when it has answered.

    Raises what `run` raises, but for an InputError.
    """
    for number, one in enumerate(kept, 1):
        head: Json = {"number": number, "at_s": round(one.at_s, 3), "file": one.request.filename}
        head |= {"given": len(one.tokens), "stop_type": one.stop_type}
        why = skipped(one, who())
        if not why:
            try:
                needed = len(one.tokens) + 1 if one.whole else len(one.tokens)
                plain = run(plainly(one.request), needed)
                fast = run(speculatively(one.request), needed)
            except InputError:
                why = OTHER_PROMPT  # it does not even fit any more
            else:
                why = skipped(one, who(), plain, fast)
        yield head | ({"skipped": why} if why else compared(one, plain, fast))


def skipped(one: DeliveredCompletion, completer: Completer | None, *results: Result) -> str:
    """Why the answer need not be the same now; "" when it must be."""
    if one.draft_only or any(result.draft_only for result in results):
        return DRAFT_ALONE
    if one.request.temperature > 0 and one.request.sampling == "rejection":
        return REJECTION
    if completer is not None and made_by(completer) != one.made_by:
        return OTHER_MODEL
    return OTHER_PROMPT if any(result.prompt_tokens != one.prompt_tokens for result in results) else ""


def compared(one: DeliveredCompletion, plain: Result, fast: Result) -> Json:
    """What the two came to. `differs_at`: the first token, counted from 0, that is not as it should be.

    On a GPU a prompt's passes round otherwise than a round's do, and the answer of then may have found another part of
    its prompt cached (generate.py): there it is held against the plain one as a remark only.
    """
    stop_type, most = (one.stop_type, None) if one.whole else ("", len(one.tokens))
    then = difference(one.tokens, stop_type, plain, most)
    now = difference(plain.tokens[:most], plain.stop_type if one.whole else "", fast, most)
    line: Json = {
        "tokens": len(plain.tokens[:most]),
        "plain_ms": round(plain.prompt_ms + plain.decode_ms, 1),
        "speculative_ms": round(fast.prompt_ms + fast.decode_ms, 1),
        "plain_decode_ms": round(plain.decode_ms, 1),
        "speculative_decode_ms": round(fast.decode_ms, 1),
        "rounds": fast.rounds,
        "drafted": fast.drafted,
        "accepted": fast.accepted,
        "identical": True,
    }
    if now is not None:
        return line | {"identical": False, "differs": "speculative from plain", "differs_at": now}
    if then is not None and one.made_by[2].startswith("cuda"):
        return line | {"rounded_otherwise_at": then}
    if then is not None:
        return line | {"identical": False, "differs": "plain from what was given", "differs_at": then}
    return line


def difference(wanted: Sequence[int], stop_type: str, found: Result, most: int | None) -> int | None:
    """Where the tokens of `found` part from those `wanted`; None when they do not.

    `stop_type`: how it must end, "" where it may go on; `most`: so many are compared.
    """
    tokens = found.tokens[:most]
    for place, (a, b) in enumerate(zip(wanted, tokens, strict=False)):
        if a != b:
            return place
    if len(wanted) != len(tokens) or (stop_type and found.stop_type != stop_type):
        return min(len(wanted), len(tokens))
    return None
