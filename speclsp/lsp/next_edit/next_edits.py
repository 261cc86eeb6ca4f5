"""Next edits of one editor: the recent edits, the request's turn, the offer, and the outcome for speclsp/explain.

    request ─► deterministic producer ─► nothing? ─► uses in other open documents, if next_edit.across_files is on
                                      └─► nothing? ─► model producer, if the model declares an edit format ─► offer

A request waits while the engine works on ghost text, and ends without an edit when the document changes or a newer
request comes: ghost text goes first. The deterministic producer runs in one step of at most BUDGET_MS. After it, a
thread parses the text for the next request. The model's producer is cancelled by the next key.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from speclsp.errors import error_site
from speclsp.lsp.documents.document import Document
from speclsp.lsp.index.open_importers import RenamedName
from speclsp.lsp.next_edit.changes.changed_names import renamed
from speclsp.lsp.next_edit.changes.places import REACH_CHARACTERS
from speclsp.lsp.next_edit.changes.substitutions import RENAME
from speclsp.lsp.next_edit.offers import Offer, Offers
from speclsp.lsp.next_edit.producer import (
    BUDGET_MS,
    PRODUCER,
    Producer,
    Proposal,
    error_problem,
    minimal,
    text_problem,
)
from speclsp.lsp.next_edit.recent_activity import ends_in_new_name
from speclsp.lsp.next_edit.renames import places_elsewhere, spots_of
from speclsp.lsp.reasons import Reason, meaning
from speclsp.lsp.syntax.incremental_parse import parse_clock_s
from speclsp.lsp.visibility import eligibility

if TYPE_CHECKING:
    from speclsp.lsp.index.open_importers import DocumentUses, OpenImporters
    from speclsp.lsp.next_edit.model_producer import ModelEdit, ModelProducer
    from speclsp.lsp.next_edit.recent_activity import Edit, RecentActivity

TURN_S = 0.01  # between two looks at whether ghost text is under way
MAX_WAIT_S = 1.0
MAX_REST = 400  # characters right of the cursor that are looked at
MAX_NAME = 100  # characters left of the cursor that are looked at
# Renames by scope that were right in the module's own file, on blind packages (benchmarks/results/next-edit-gate.json).
# Across files it is not measured.
ELSEWHERE_PROBABILITY = 0.83
PRECEDES_MS = 3.0  # of the processor, before ghost text is requested in mid-line
# Outcomes without a search: the next request has one of them too, and needs no tree.
WITHOUT_PARSE = frozenset({Reason.GENERATED, Reason.CONFLICT, Reason.NO_RECENT_EDIT})
MODEL = "model"  # name of the model's producer, and the kind of its edits

Left = tuple[RenamedName, "list[DocumentUses]"]  # a renamed name, and its uses under the old one

log = logging.getLogger("speclsp.next_edit")


@dataclass(frozen=True, slots=True)
class NextEditOutcome:
    """The last request's outcome: numbers, names and reasons, no text of a document."""

    uri: str
    line: int  # of the edit, or of the cursor where there is none; from 0
    outcome: str  # "shown", or a reason
    kind: str = ""  # of the substitution
    times: int = 0  # the user made the change before
    ms: float = 0.0  # of the processor; of a model's edit the time until its answer
    producer: str = PRODUCER  # or "model"
    probability: float | None = None  # of a model's edit
    at_ms: float = field(default_factory=lambda: time.monotonic() * 1000)  # on the monotonic clock

    def as_json(self, document: str) -> dict[str, object]:
        """The member `next_edit` of speclsp/explain. `document`: its path."""
        return {
            "document": document,
            "line": self.line + 1,
            "outcome": self.outcome,
            "meaning": meaning(self.outcome),
            "producer": self.producer,
            "kind": self.kind,
            "times": self.times,
            "ms": round(self.ms, 1),
            "probability": None if self.probability is None else round(self.probability, 3),
            "at_s": round(time.time() - (time.monotonic() - self.at_ms / 1000), 3),
        }


@dataclass(eq=False, repr=False)
class NextEdits:
    """The next edits of one editor."""

    offers: Offers
    _eligible: Callable[[Document], Awaitable[str]]  # the reason why a document gets none; "" where it may
    _busy: Callable[[], bool]  # True while the engine works on ghost text
    _ended: Callable[[NextEditOutcome], None]  # hears of every request that was not superseded
    _activity: Callable[[], RecentActivity | None]  # the recent edits; None while next_edit.enabled is off
    _model: ModelProducer | None = None  # produces edits where the first producer has none
    _importers: OpenImporters | None = None  # documents that import a renamed name
    _asking: dict[str, asyncio.Task[ModelEdit | str]] = field(
        default_factory=dict
    )  # by URI: the model's edit under way
    producer: Producer = field(default_factory=Producer)
    _warm: set[str] = field(default_factory=set)  # languages whose grammar is loaded
    _parsed: str = ""  # URI of the document that the producer has parsed last
    _newest: dict[str, int] = field(default_factory=dict)  # by URI: the number of the last request
    _requests: int = 0
    _rename: RenamedName | None = None  # the last one of a name that other documents can import
    _ahead: asyncio.Task[object] | None = None  # parses documents that import it
    _parsing: asyncio.Task[None] | None = None  # parses the text of the last answered request

    async def answer(self, document: Document, line: int, cursor: int, elsewhere: bool = False) -> Offer | None:
        """The edit to offer in a document as it is now, or None. `cursor`: its offset, on `line`.

        `elsewhere`: it may be an edit of another open document.
        """
        version = document.version
        self._requests += 1
        number = self._newest[document.uri] = self._requests
        self.cancel(document.uri)

        def is_current() -> bool:
            return document.version == version and self._newest.get(document.uri) == number

        reason = await self._eligible(document)
        if (activity := self._activity()) is not None:
            await activity.forget_reload(document)
        if not reason and document.language not in self._warm:
            await asyncio.to_thread(self.producer.warm_up, document.language)
            self._warm.add(document.language)
        if not reason and self._parsed != document.uri:
            await asyncio.to_thread(self.producer.prepare, text_near(document, cursor)[1], document.language)
            self._parsed = document.uri
        if self._parsing is not None and not self._parsing.done():
            await asyncio.wait([self._parsing])  # the parser serves one caller at a time
        await asyncio.sleep(0)  # for messages that have arrived
        end_s = time.monotonic() + MAX_WAIT_S
        while self._busy() and is_current() and time.monotonic() < end_s:  # ghost text is under way
            await asyncio.sleep(TURN_S)
        if not is_current():
            return None
        if reason:
            self.refuse(document.uri, line, reason)
            return None
        outcome = self._propose(document, line, cursor)
        if not isinstance(outcome, NextEditOutcome) or outcome.outcome not in WITHOUT_PARSE:
            self._parsing = asyncio.create_task(self._parse_ahead(text_near(document, cursor)[1], document.language))
        if not isinstance(outcome, NextEditOutcome):
            if elsewhere and outcome.kind == RENAME:
                self._ahead = asyncio.create_task(self._left_elsewhere(document, cursor))
            return outcome
        if elsewhere and outcome.outcome not in (Reason.UNDOES, Reason.DECLINED):
            offer = self._offer_elsewhere(await self._left_elsewhere(document, cursor)) if is_current() else None
            if offer is not None or not is_current():
                return offer
        is_available = self._model is not None and activity is not None and await self._model.is_available()
        if not is_current():
            return None
        if self._model is None or activity is None or not is_available:
            self._ended(outcome)
            return None
        return await self._ask_model(self._model, document, line, cursor, activity)

    async def _parse_ahead(self, text: str, language: str) -> None:
        """Parse the text of an answered request in a thread, so that the next request parses only what changes."""
        try:
            await asyncio.to_thread(self.producer.prepare, text, language, BUDGET_MS)
        except Exception as error:  # its message may quote a document
            log.error("a document was not parsed for the next edit: %s", error_site(error))

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
        base, proposal = self._proposal(document, cursor, activity, PRECEDES_MS)
        if not isinstance(proposal, Proposal):
            return False
        if is_renaming and proposal.kind == RENAME:
            return True
        return is_mid_line and document.position(base + proposal.start, "utf-32")["line"] == line

    def cancel(self, uri: str) -> None:
        """Cancel the model's edit under way: its document was edited or closed, or a newer request has come."""
        task = self._asking.pop(uri, None)
        if task is not None:
            task.cancel()

    def closed(self, uri: str) -> None:
        self.cancel(uri)
        self._newest.pop(uri, None)
        self.offers.closed(uri)
        if self._importers is not None:
            self._importers.closed(uri)

    def refuse(self, uri: str, line: int, reason: str) -> None:
        """Report a request that gets no edit, whatever the producers would say."""
        self._ended(NextEditOutcome(uri, line, reason))

    def _propose(self, document: Document, line: int, cursor: int) -> Offer | NextEditOutcome:
        """The offer of the deterministic producer, or the outcome without one."""
        activity = self._activity()
        if activity is None:
            return NextEditOutcome(document.uri, line, Reason.NO_RECENT_EDIT)
        started_s = parse_clock_s()
        self._observe(document)
        base, proposal = self._proposal(document, cursor, activity)
        ms = (parse_clock_s() - started_s) * 1000
        if isinstance(proposal, str):
            return NextEditOutcome(document.uri, line, proposal, ms=ms)
        offer = self.offers.add(document, proposal, base)
        times = proposal.place.evidence.times
        self._ended(NextEditOutcome(document.uri, offer.line, "shown", offer.kind, times, ms))
        return offer

    def _proposal(
        self, document: Document, cursor: int, activity: RecentActivity, budget_ms: float = BUDGET_MS
    ) -> tuple[int, Proposal | str]:
        """(offset of the text near the cursor, the deterministic producer's edit of that text or its reason)."""
        if eligibility.is_generated(document.piece(0, min(document.characters, eligibility.HEAD_CHARACTERS))):
            return 0, Reason.GENERATED
        base, text = text_near(document, cursor)
        at, recent, declined = max(0, cursor - base), activity.recent(), partial(self.offers.declined, document, base)
        proposal = self.producer.propose(
            text, document.language, document.uri, at, recent, declined, budget_ms, self.offers.rejections
        )
        return base, proposal

    # ── other documents ───────────────────────────────────────────────────────────────────────────────────────────────

    async def uses_left(self) -> Left | None:
        """The last renamed name that other documents can import, and all its uses under the old name."""
        activity, importers = self._activity(), self._importers
        edits = activity.recent() if activity is not None else []
        if importers is None:
            return None
        for number in range(len(edits), 0, -1):
            rename = await self._renamed_name(importers, edits[:number])
            if rename is not None:
                own = await importers.own_uses(rename)
                return rename, [*([own] if own is not None and own.uses else []), *await importers.uses(rename)]
        return None

    async def _left_elsewhere(self, document: Document, cursor: int) -> Left | None:
        """The name that the newest edit has renamed, and its uses in other documents."""
        activity, importers = self._activity(), self._importers
        edits = activity.recent() if activity is not None else []
        if importers is None or not edits or edits[-1].uri != document.uri:
            return None
        try:
            rename = await self._renamed_name(importers, edits, document, cursor)
            return None if rename is None else (rename, await importers.uses(rename, document.uri))
        except Exception as error:  # its message may quote a document
            log.error("the uses in other documents are unknown: %s", error_site(error))
            return None

    async def _renamed_name(
        self, importers: OpenImporters, edits: Sequence[Edit], document: Document | None = None, cursor: int = 0
    ) -> RenamedName | None:
        """The name that the last of some edits is about. None while it is typed at the cursor of its document."""
        listed = renamed(self.producer.compared(edits))
        base, text = text_near(document, cursor) if document is not None else (0, "")
        for rename in listed:
            name = RenamedName(edits[-1].uri, rename.old, rename.new)
            is_complete = document is None or list(spots_of(rename, text, cursor - base))
            if is_complete and await importers.is_defined(name, {line for line, _ in rename.written}):
                self._rename = name
                return name
        last = self._rename
        is_same = last is not None and any((last.old, last.new) == (rename.old, rename.new) for rename in listed)
        return last if last is not None and is_same and await importers.is_defined(last) else None

    def _offer_elsewhere(self, left: Left | None) -> Offer | None:
        """The first of these uses that passes the filters of the deterministic producer."""
        if left is None:
            return None
        name, documents = left
        for uses in documents:
            document, text = uses.document, uses.tree.text
            if document.version != uses.version:
                continue
            for place in places_elsewhere(uses.uses, name.old, name.new, text):
                problem = self.offers.declined(document, 0, place)
                problem = problem or text_problem(text[place.start : place.end], place.new)
                if not problem and not error_problem(uses.tree, place, lambda: BUDGET_MS):
                    proposal = replace(minimal(place, text), probability=ELSEWHERE_PROBABILITY)
                    offer = self.offers.add(document, proposal, 0)
                    self._ended(NextEditOutcome(offer.uri, offer.line, "shown", offer.kind, 1))
                    return offer
        return None

    async def _ask_model(
        self, model: ModelProducer, document: Document, line: int, cursor: int, activity: RecentActivity
    ) -> Offer | None:
        """The offer of the model's producer; None also if the document changes or a newer request comes."""
        uri, version, started_s = document.uri, document.version, time.monotonic()
        declined = partial(self.offers.declined, document, 0)
        task = self._asking[uri] = asyncio.create_task(model.propose(document, cursor, activity.recent(), declined))
        try:
            await asyncio.wait([task])
        finally:  # a client that cancels its request ends the engine's work too
            task.cancel()
            if self._asking.get(uri) is task:
                del self._asking[uri]
        if task.cancelled() or document.version != version:
            return None
        if error := task.exception():  # its message may quote the document
            log.error("a model's next edit failed: %s", error_site(error))
        edit = Reason.FAILED if error else task.result()
        ms = (time.monotonic() - started_s) * 1000
        if isinstance(edit, str):
            self._ended(NextEditOutcome(uri, line, edit, ms=ms, producer=MODEL))
            return None
        offer = self.offers.add(document, edit.proposal, edit.base)
        self._ended(NextEditOutcome(uri, offer.line, "shown", MODEL, 0, ms, MODEL, edit.probability))
        return offer

    def _observe(self, document: Document) -> None:
        """Notice that the last offer was applied: some clients never report it."""
        offer = self.offers.last_of(document.uri)
        if offer is not None and not offer.answered and document.version != offer.version:
            new = offer.place.new.removesuffix("\n")
            lines = document.lines(offer.line, offer.line + new.count("\n") + 1)
            if new and "".join(lines).replace("\r\n", "\n").rstrip("\n") == new:
                self.offers.accepted(offer.id)


def text_near(document: Document, cursor: int) -> tuple[int, str]:
    """(offset, whole lines) of the text that is searched around the cursor."""
    base = max(0, cursor - REACH_CHARACTERS)
    text = document.piece(base, min(document.characters, cursor + REACH_CHARACTERS))
    skipped = text.find("\n") + 1 if base else 0
    return base + skipped, text[skipped:]
