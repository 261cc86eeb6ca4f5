"""Replay of recent requests, without and with speculation: verifies that both give the tokens that were delivered.

    POST /verify ─► for each logged request: plain, speculative ─► equal to each other and to the delivered tokens?
                 ─► one line

An answer that was cut short, by its deadline or by its client, is compared as far as it went. Answers that may rightly
differ are skipped: those of another model, or from a prompt that would be truncated differently now. The lines hold
numbers, names and reasons, never text nor tokens.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from speclsp.engine.api import Completer, Request, Result
from speclsp.engine.http.json_fields import Json
from speclsp.engine.http.request_log import DeliveredCompletion, model_identity
from speclsp.engine.scheduling.scheduled_job import DoneEvent, ErrorEvent, Event, ScheduledJob
from speclsp.engine.scheduling.scheduler import Scheduler
from speclsp.errors import EngineError, InputError

# Reasons to skip a comparison.
REJECTION = "sampled by rejection: only the distribution is guaranteed"
DRAFT_ALONE = "computed by the draft model alone, while the target model was loading"
OTHER_MODEL = "computed by another model"
OTHER_PROMPT = "the prompt would be truncated differently now"

Run = Callable[[Request, int], Result]  # computes a completion of at least that many tokens, unless it ends sooner


class ShadowRunner:
    """Runs completions through the scheduler for a thread that waits for them; other requests run between rounds."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._stopped = threading.Event()
        self._job: ScheduledJob | None = None

    def run(self, request: Request, needed_tokens: int) -> Result:
        """See Run. Raises EngineError after `stop`, and whatever the completion raises."""
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        if self._stopped.is_set():
            raise EngineError("the client has disconnected")
        job = self._job = self._scheduler.submit_shadow(request, events.put, enough_tokens=needed_tokens)
        while True:
            if self._stopped.is_set():
                self._scheduler.cancel(job)
            event = events.get()
            if isinstance(event, ErrorEvent):
                raise event.error
            if isinstance(event, DoneEvent):
                if self._stopped.is_set() or not event.results[0].rounds:
                    raise EngineError("the engine is shutting down, or the client has disconnected")
                return event.results[0]

    def stop(self) -> None:
        """Cancel the completion under way, from any thread."""
        self._stopped.set()
        if self._job is not None:
            self._scheduler.cancel(self._job)


def verify(
    entries: Sequence[DeliveredCompletion], run: Run, current_completer: Callable[[], Completer | None]
) -> Iterator[Json]:
    """Yield one line for each entry. Raises what `run` raises, except InputError.

    `current_completer` returns None while the model is unloaded; it is known once it has answered.
    """
    for number, entry in enumerate(entries, 1):
        line: Json = {"number": number, "at_s": round(entry.at_s, 3), "file": entry.request.filename}
        line |= {"given": len(entry.tokens), "stop_type": entry.stop_type}
        why = skip_reason(entry, current_completer())
        if not why:
            try:
                needed_tokens = len(entry.tokens) + 1 if entry.complete else len(entry.tokens)
                # without a deadline, and without a session whose other requests it would end
                alone = replace(entry.request, deadline_ms=0, session="", gamma=None, sources=())
                plain = run(replace(alone, speculate=False), needed_tokens)
                speculative = run(replace(alone, speculate=True), needed_tokens)
            except InputError:
                why = OTHER_PROMPT  # it no longer fits the context
            else:
                why = skip_reason(entry, current_completer(), plain, speculative)
        yield line | ({"skipped": why} if why else compare(entry, plain, speculative))


def skip_reason(entry: DeliveredCompletion, completer: Completer | None, *results: Result) -> str:
    """The reason that the answer may rightly differ now; "" when it must be the same."""
    if entry.draft_only or any(result.draft_only for result in results):
        return DRAFT_ALONE
    if not entry.request.greedy and entry.request.sampling == "rejection":
        return REJECTION
    if completer is not None and model_identity(completer) != entry.made_by:
        return OTHER_MODEL
    return OTHER_PROMPT if any(result.prompt_tokens != entry.prompt_tokens for result in results) else ""


def compare(entry: DeliveredCompletion, plain: Result, speculative: Result) -> Json:
    """The comparison's fields. `differs_at`: the first wrong token, counted from 0.

    On a GPU, a prompt's passes round otherwise than a decoding step's, and the delivered answer may have had another
    part of its prompt cached (generate.py). There, a difference from the delivered tokens is only a remark.
    """
    stop_type, limit = (entry.stop_type, None) if entry.complete else ("", len(entry.tokens))
    from_delivered = first_difference(entry.tokens, stop_type, plain, limit)
    from_plain = first_difference(plain.tokens[:limit], plain.stop_type if entry.complete else "", speculative, limit)
    line: Json = {
        "tokens": len(plain.tokens[:limit]),
        "plain_ms": round(plain.prompt_ms + plain.decode_ms, 1),
        "speculative_ms": round(speculative.prompt_ms + speculative.decode_ms, 1),
        "plain_decode_ms": round(plain.decode_ms, 1),
        "speculative_decode_ms": round(speculative.decode_ms, 1),
        "rounds": speculative.rounds,
        "drafted": speculative.drafted,
        "accepted": speculative.accepted,
        "identical": True,
    }
    if from_plain is not None:
        return line | {"identical": False, "differs": "speculative from plain", "differs_at": from_plain}
    if from_delivered is not None and entry.made_by[2].startswith("cuda"):
        return line | {"rounded_otherwise_at": from_delivered}
    if from_delivered is not None:
        return line | {"identical": False, "differs": "plain from what was given", "differs_at": from_delivered}
    return line


def first_difference(expected: Sequence[int], stop_type: str, result: Result, limit: int | None) -> int | None:
    """Index of the first token of `result` that differs from `expected`; None when none does.

    `stop_type`: how the result must end, "" where it may continue. `limit`: number of tokens to compare.
    """
    tokens = result.tokens[:limit]
    for index, (a, b) in enumerate(zip(expected, tokens, strict=False)):
        if a != b:
            return index
    if len(expected) != len(tokens) or (stop_type and result.stop_type != stop_type):
        return min(len(expected), len(tokens))
    return None
