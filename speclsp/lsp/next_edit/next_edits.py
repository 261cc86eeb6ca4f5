"""Next edits of one editor: the request's turn, its producers, the offer, and the outcome for speclsp/explain.

    request ─► ghost text goes first ─► rules ─► uses in other open documents ─► model ─► offer
                                        the next one is asked where the one before has no edit; where none has one
                                        after a rename: the number of its uses in files that are not open

Each document has one task at most. An edit of the document and a newer request cancel it. A thread parses the text.
Then the rules run in one step of at most BUDGET_MS.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from speclsp.errors import error_site
from speclsp.lsp.documents.document import Document
from speclsp.lsp.next_edit.changes.recent_changes import REACH_CHARACTERS
from speclsp.lsp.next_edit.changes.substitutions import RENAME
from speclsp.lsp.next_edit.offers import Offer, Offers
from speclsp.lsp.next_edit.producer import BUDGET_MS, PRODUCER, Found, Producer, first_edit
from speclsp.lsp.next_edit.recent_activity import RecentActivity, ends_in_new_name
from speclsp.lsp.reasons import Reason, meaning
from speclsp.lsp.visibility import eligibility

if TYPE_CHECKING:
    from speclsp.lsp.index.open_importers import DocumentUses, RenamedName
    from speclsp.lsp.next_edit.elsewhere import OtherDocuments
    from speclsp.lsp.next_edit.model_producer import ModelProducer

    Answer = Offer | dict[str, int] | None  # the edit, or what OtherDocuments.unopened counts

TURN_S = 0.01  # between two looks at whether ghost text is under way
MAX_WAIT_S = 1.0
MAX_REST = 400  # characters right of the cursor that are looked at
MAX_NAME = 100  # characters left of the cursor that are looked at
PRECEDES_MS = 3.0  # of the processor, before ghost text is requested in mid-line
MAX_NOT_OFFERED = 3  # candidates that an explanation lists
MODEL = "model"  # name of the model's producer, and the kind of its edits

log = logging.getLogger("speclsp.next_edit")


@dataclass(frozen=True, slots=True)
class NextEditOutcome:
    """The last request's outcome: numbers, names and reasons, no text of a document."""

    uri: str
    line: int  # of the edit, or of the cursor where there is none; from 0
    outcome: str  # "shown", or a reason
    kind: str = ""  # of the substitution
    times: int = 0  # the user made the change before
    ms: float = 0.0  # of its producer
    producer: str = PRODUCER  # or "model"
    probability: float | None = None  # of a model's edit
    not_offered: tuple[Mapping[str, object], ...] = ()  # {"kind", "line" from 1, "reason", "meaning"}
    at_ms: float = field(default_factory=lambda: time.monotonic() * 1000)  # on the monotonic clock

    def as_json(self, document: str) -> dict[str, object]:
        """The member `next_edit` of speclsp/explain. `document`: its path."""
        named = [row for row in self.not_offered if row["reason"] == self.outcome or self.outcome == Reason.NO_REPEAT]
        is_named = bool(named) and self.producer == PRODUCER
        return {
            "document": document,
            "line": self.line + 1,
            "outcome": self.outcome,
            "meaning": f"{named[0]['kind']}: {named[0]['meaning']}" if is_named else meaning(self.outcome),
            "producer": self.producer,
            "kind": self.kind,
            "times": self.times,
            "ms": round(self.ms, 1),
            "probability": None if self.probability is None else round(self.probability, 3),
            "not_offered": [*self.not_offered],
            "at_s": round(time.time() - (time.monotonic() - self.at_ms / 1000), 3),
        }


@dataclass(frozen=True, slots=True)
class EditContext:
    """The document as it is now, the cursor's offset and the recent edits that a next edit follows from."""

    document: Document
    line: int
    cursor: int
    activity: RecentActivity
    elsewhere: bool  # the edit may be one of another document
    not_offered: list[Mapping[str, object]] = field(default_factory=list)  # of NextEditOutcome


@dataclass(eq=False, repr=False)
class NextEdits:
    """The next edits of one editor."""

    offers: Offers
    _eligible: Callable[[Document], Awaitable[str]]  # the reason why a document gets none; "" where it may
    _busy: Callable[[], bool]  # True while the engine works on ghost text
    _ended: Callable[[NextEditOutcome], None]  # hears of every request that was not superseded
    _activity: Callable[[], RecentActivity | None]  # the recent edits; None while next_edit.enabled is off
    _model: ModelProducer | None = None
    _others: OtherDocuments | None = None
    producer: Producer = field(default_factory=Producer)
    _tasks: dict[str, asyncio.Task[Answer]] = field(default_factory=dict)  # by URI: the request under way
    _warm: set[str] = field(default_factory=set)  # languages whose grammar is loaded

    async def answer(self, document: Document, line: int, cursor: int, elsewhere: bool = False) -> Answer:
        """The edit to offer in a document as it is now; None also if it is superseded. `cursor`: its offset, on `line`.

        `elsewhere`: it may be an edit of another open document; without one, the uses are counted in unopened files.
        """
        uri, activity = document.uri, self._activity()
        self.cancel(uri)
        if activity is None:
            return None
        context = EditContext(document, line, cursor, activity, elsewhere)
        task = self._tasks[uri] = asyncio.create_task(self._answer(context))
        try:
            await asyncio.wait([task])
        finally:  # a client that cancels its request ends the engine's work too
            task.cancel()
            if self._tasks.get(uri) is task:
                del self._tasks[uri]
        return None if task.cancelled() else task.result()

    async def _answer(self, context: EditContext) -> Answer:
        """Ask one producer after the other, when it is the request's turn."""
        reason = await self._eligible(context.document)
        if reason:
            self.refuse(context.document.uri, context.line, reason)
            return None
        await self._prepare(context)
        await self._wait_for_ghost_text()
        outcome = NextEditOutcome(context.document.uri, context.line, Reason.NO_RECENT_EDIT)
        offer, done = None, None
        for name, propose in ((PRODUCER, self._by_rules), (PRODUCER, self._elsewhere), (MODEL, self._by_model)):
            started_s = time.monotonic()
            result = await propose(context, outcome.outcome)
            ms = (time.monotonic() - started_s) * 1000
            if isinstance(result, Found):
                offer = self.offers.add(result)
                times, probability = (0, offer.confidence) if name == MODEL else (offer.place.evidence.times, None)
                outcome = NextEditOutcome(offer.uri, offer.line, "shown", offer.kind, times, ms, name, probability)
                break
            if not isinstance(result, str):
                done = result
            elif result:
                outcome = NextEditOutcome(context.document.uri, context.line, result, ms=ms, producer=name)
        unopened = await self._others.unopened(done) if done and not offer and self._others else None
        if unopened is not None:
            outcome = replace(outcome, outcome=Reason.UNOPENED)
        self._ended(replace(outcome, not_offered=tuple(context.not_offered)))
        return offer or unopened

    async def left_uses(self) -> list[DocumentUses]:
        """The uses of the last renamed name in other files, open or not."""
        return await self._others.left() if self._others is not None else []

    async def _prepare(self, context: EditContext) -> None:
        """Load the grammar and parse the document, in a thread."""
        document = context.document
        await context.activity.forget_reload(document)
        if document.language not in self._warm:
            await asyncio.to_thread(self.producer.warm_up, document.language)
            self._warm.add(document.language)
        if context.activity.recent():
            await asyncio.to_thread(self.producer.prepare, text_near(document, context.cursor)[1], document.language)

    async def _wait_for_ghost_text(self) -> None:
        """Wait while the engine works on ghost text, MAX_WAIT_S at most."""
        await asyncio.sleep(0)  # for messages that have arrived
        end_s = time.monotonic() + MAX_WAIT_S
        while self._busy() and time.monotonic() < end_s:
            await asyncio.sleep(TURN_S)

    # ── producers: an edit, the reason for none, or "" where it was not asked ─────────────────────────────────────────

    async def _by_rules(self, context: EditContext, reason: str) -> Found | str:
        document = context.document
        if self._others is not None and self._others.decides(document, context.activity.recent()):
            return Reason.NO_REPEAT
        result = self._proposal(document, context.cursor, context.activity)
        base = text_near(document, context.cursor)[0]
        for kind, at, reason, detail in dict.fromkeys(self.producer.not_offered):
            line = document.position(base + at, "utf-32")["line"] + 1
            text = "; ".join(filter(None, (meaning(reason), detail)))
            context.not_offered.append({"kind": kind, "line": line, "reason": reason, "meaning": text})
        del context.not_offered[MAX_NOT_OFFERED:]
        return result

    async def _elsewhere(self, context: EditContext, reason: str) -> Found | RenamedName | str:
        """Also the name of a rename whose uses in all open documents are done."""
        is_refused = reason in (Reason.UNDOES, Reason.DECLINED, Reason.NAME_IN_USE)
        if not context.elsewhere or self._others is None or is_refused:
            return ""
        base, text = text_near(context.document, context.cursor)
        recent = context.activity.recent()
        return await self._others.propose(context.document, text, context.cursor - base, recent, self.offers) or ""

    async def _by_model(self, context: EditContext, reason: str) -> Found | str:
        if self._model is None or not await self._model.is_available():
            return ""
        declined = partial(self.offers.declined, context.document, 0)
        try:
            return await self._model.propose(context.document, context.cursor, context.activity.recent(), declined)
        except Exception as error:  # its message may quote the document
            log.error("a model's next edit failed: %s", error_site(error))
            return Reason.FAILED

    def _proposal(
        self, document: Document, cursor: int, activity: RecentActivity, budget_ms: float = BUDGET_MS
    ) -> Found | str:
        """The deterministic producer's edit, or its reason for none."""
        if eligibility.is_generated(document.piece(0, min(document.characters, eligibility.HEAD_CHARACTERS))):
            return Reason.GENERATED
        base, text = text_near(document, cursor)
        at, recent = max(0, cursor - base), activity.recent()
        declined, chain_of = partial(self.offers.declined, document, base), partial(self.offers.chain, document, base)
        proposal = first_edit(
            self.producer.outcomes(text, document.language, document.uri, at, recent, declined, budget_ms, chain_of)
        )
        return proposal if isinstance(proposal, str) else Found(document, proposal, base)

    # ── events ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def precedes(self, document: Document, position: Mapping[str, int], encoding: str) -> bool:
        """True if a next edit goes before ghost text at a position.

        It does on the cursor's line, where text stands right of the cursor. It does behind a new name, where the rename
        goes on elsewhere. Ghost text in mid-line would stand in the edit, and one key would accept two things.
        """
        activity = self._activity()
        recent = activity.recent() if activity is not None else []
        if activity is None or not recent or document.language not in self._warm:
            return False
        line, cursor = document.locate(position, encoding)
        rest = document.piece(cursor, min(document.characters, cursor + MAX_REST)).partition("\n")[0]
        is_mid_line = any(map(str.isalnum, rest))
        is_renaming = ends_in_new_name(document.piece(max(0, cursor - MAX_NAME), cursor), recent[-1])
        if not is_mid_line and not is_renaming:
            return False
        result = self._proposal(document, cursor, activity, PRECEDES_MS)
        if isinstance(result, str):
            return False
        if is_renaming and result.proposal.kind == RENAME:
            return True
        return is_mid_line and document.position(result.base + result.proposal.start, "utf-32")["line"] == line

    def cancel(self, uri: str) -> None:
        """Cancel the request under way: its document was edited or closed, or a newer request has come."""
        task = self._tasks.pop(uri, None)
        if task is not None:
            task.cancel()

    def closed(self, uri: str) -> None:
        self.cancel(uri)
        self.offers.closed(uri)

    def refuse(self, uri: str, line: int, reason: str) -> None:
        """Report a request that gets no edit, whatever the producers would say."""
        self._ended(NextEditOutcome(uri, line, reason))


def text_near(document: Document, cursor: int) -> tuple[int, str]:
    """(offset, whole lines) of the text that is searched around the cursor."""
    base = max(0, cursor - REACH_CHARACTERS)
    text = document.piece(base, min(document.characters, cursor + REACH_CHARACTERS))
    skipped = text.find("\n") + 1 if base else 0
    return base + skipped, text[skipped:]
