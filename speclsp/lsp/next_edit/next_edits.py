"""Next edits of one editor: the recent edits, the request's turn, the offer, and the outcome for `speclsp explain`.

A request waits while the engine works on ghost text, and ends without an edit when the document changes or a newer
request comes: ghost text goes first. The producer itself runs in one step of at most BUDGET_MS.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from speclsp.lsp.documents.document import Document
from speclsp.lsp.next_edit.offers import Offer, Offers
from speclsp.lsp.next_edit.places import REACH_CHARACTERS, Place
from speclsp.lsp.next_edit.producer import PRODUCER, Producer
from speclsp.lsp.reasons import NO_RECENT_EDIT, meaning
from speclsp.lsp.syntax.incremental_parse import parse_clock_s

if TYPE_CHECKING:
    from speclsp.lsp.context.recent_activity import RecentActivity

TURN_S = 0.01  # between two looks at whether ghost text is under way
MOST_WAIT_S = 1.0


@dataclass(frozen=True, slots=True)
class NextEditOutcome:
    """The last request's outcome: numbers, names and reasons, no text of a document."""

    uri: str
    line: int  # of the edit, or of the cursor where there is none; from 0
    outcome: str  # "shown", or a reason
    kind: str = ""  # of the substitution
    times: int = 0  # the user made the change before
    ms: float = 0.0  # of the processor
    at_ms: float = 0.0  # on the monotonic clock

    def as_json(self, document: str) -> dict[str, object]:
        """The member `next_edit` of speclsp/explain. `document`: its path."""
        return {
            "document": document,
            "line": self.line + 1,
            "outcome": self.outcome,
            "meaning": meaning(self.outcome),
            "producer": PRODUCER,
            "kind": self.kind,
            "times": self.times,
            "ms": round(self.ms, 1),
            "at_s": round(time.time() - (time.monotonic() - self.at_ms / 1000), 3),
        }


class NextEdits:
    """The next edits of one editor.

    `eligible(document)` returns the reason why a document gets none, "" where it may; `busy()` is True while the
    engine works on ghost text; `ended(outcome)` hears of every request that was not superseded; `activity()` returns
    the recent edits, None while nextEdit.enabled is off.
    """

    def __init__(
        self,
        offers: Offers,
        eligible: Callable[[Document], Awaitable[str]],
        busy: Callable[[], bool],
        ended: Callable[[NextEditOutcome], None],
        activity: Callable[[], RecentActivity | None],
    ) -> None:
        self.offers = offers
        self._activity = activity
        self._eligible = eligible
        self._busy = busy
        self._ended = ended
        self._producer = Producer()
        self._warm: set[str] = set()  # languages whose grammar is loaded
        self._newest: dict[str, int] = {}  # by URI: the number of the last request
        self._requests = 0

    async def answer(self, document: Document, line: int, cursor: int) -> Offer | None:
        """The edit to offer in a document as it is now, or None. `cursor`: its offset, on `line`."""
        version = document.version
        self._requests += 1
        number = self._newest[document.uri] = self._requests

        def is_current() -> bool:
            return document.version == version and self._newest.get(document.uri) == number

        reason = await self._eligible(document)
        if not reason and document.language not in self._warm:
            await asyncio.to_thread(self._producer.warm_up, document.language)
            self._warm.add(document.language)
        await self._turn(is_current)
        if not is_current():
            return None
        if reason:
            self._report(document.uri, line, reason)
            return None
        return self._propose(document, line, cursor)

    def closed(self, uri: str) -> None:
        """A document was closed."""
        self._newest.pop(uri, None)
        self.offers.closed(uri)

    def refuse(self, uri: str, line: int, reason: str) -> None:
        """Report a request that did not reach the producer."""
        self._report(uri, line, reason)

    async def _turn(self, is_current: Callable[[], bool]) -> None:
        """Wait for messages that have arrived, and for ghost text that is under way."""
        await asyncio.sleep(0)
        end_s = time.monotonic() + MOST_WAIT_S
        while self._busy() and is_current() and time.monotonic() < end_s:
            await asyncio.sleep(TURN_S)

    def _propose(self, document: Document, line: int, cursor: int) -> Offer | None:
        activity = self._activity()
        if activity is None:
            self._report(document.uri, line, NO_RECENT_EDIT)
            return None
        started_s = parse_clock_s()
        base = max(0, cursor - REACH_CHARACTERS)
        text = document.piece(base, min(document.characters, cursor + REACH_CHARACTERS))
        if base:  # begin at a whole line
            skipped = text.find("\n") + 1
            base, text = base + skipped, text[skipped:]
        self._observe(document)

        def declined(place: Place) -> str:
            return self.offers.declined(
                document.uri, line_of(document, base + place.start), text[place.start : place.end], place
            )

        proposal = self._producer.propose(
            text, document.language, document.uri, max(0, cursor - base), activity.recent(), declined
        )
        ms = (parse_clock_s() - started_s) * 1000
        if isinstance(proposal, str):
            self._report(document.uri, line, proposal, ms=ms)
            return None
        place = proposal.place
        old, at = text[place.start : place.end], line_of(document, base + place.start)
        offer = self.offers.add(document.uri, document.language, document.version, proposal, base, at, old)
        self._report(document.uri, at, "shown", place.substitution.kind, place.evidence.times, ms)
        return offer

    def _observe(self, document: Document) -> None:
        """Notice that the last offer was applied: some clients never report it."""
        offer = self.offers.last_of(document.uri)
        if offer is not None and not offer.answered and document.version != offer.version:
            lines = document.lines(offer.line, offer.line + offer.place.new.count("\n") + 1)
            if "".join(lines).replace("\r\n", "\n").rstrip("\n") == offer.place.new:
                self.offers.accepted(offer.id)

    def _report(self, uri: str, line: int, outcome: str, kind: str = "", times: int = 0, ms: float = 0.0) -> None:
        self._ended(NextEditOutcome(uri, line, outcome, kind, times, ms, time.monotonic() * 1000))


def line_of(document: Document, offset: int) -> int:
    """The line of an offset."""
    return document.position(offset, "utf-32")["line"]
