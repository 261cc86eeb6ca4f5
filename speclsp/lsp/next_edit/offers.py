"""Edits that were offered to the client, and the user's answers: shown, accepted, rejected, undone.

A rejected change is not offered again in its document until the user makes it once more by hand. An accepted change
that was undone counts as rejected.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from speclsp.lsp.documents.document import Document
from speclsp.lsp.next_edit.changes.places import Place
from speclsp.lsp.next_edit.producer import Found
from speclsp.lsp.reasons import Reason

MAX_OFFERS = 64
MAX_ANSWERS = 256  # rejected or applied changes that are kept
MAX_RECENT_ANSWERS = 5

Change = tuple[str, int, str, str]  # URI, line from 0, the text that an edit replaces, the text in its place


@dataclass(slots=True)
class Offer:
    """One edit of a document at a version. Offsets are the document's."""

    uri: str
    language: str
    version: int
    start: int
    end: int
    text: str
    line: int  # from 0
    place: Place
    change: Change
    confidence: float = 0.0  # the probability that its producer states
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    shown: bool = False
    answered: bool = False  # accepted or rejected

    @property
    def kind(self) -> str:
        return self.place.substitution.kind


class Offers:
    """The last offers by their ids. `count` adds to the usage statistics: "shown", "accepted".

    `placeholders`: the client selects the placeholder of an accepted edit. Else no edit with one is offered.
    """

    def __init__(self, count: Callable[[str], None], placeholders: bool = False) -> None:
        self._count, self._placeholders = count, placeholders
        self._by_id: OrderedDict[str, Offer] = OrderedDict()
        self._rejected: OrderedDict[tuple[object, ...], int] = OrderedDict()  # -> evidence at that time
        self._applied: OrderedDict[Change, None] = OrderedDict()
        self._answers: deque[bool] = deque(maxlen=MAX_RECENT_ANSWERS)  # True: accepted

    @property
    def rejections(self) -> int:
        """Edits that the user rejected, among the last MAX_RECENT_ANSWERS that were accepted or rejected."""
        return self._answers.count(False)

    def add(self, edit: Found) -> Offer:
        """Keep an edit as offered."""
        document, proposal, base = edit
        start, end, change = base + proposal.start, base + proposal.end, _change(document, base, proposal.place)
        uri, language, version = document.uri, document.language, document.version
        place, probability = proposal.place, proposal.probability
        offer = Offer(uri, language, version, start, end, proposal.text, change[1], place, change, probability)
        self._by_id[offer.id] = offer
        while len(self._by_id) > MAX_OFFERS:
            self._by_id.popitem(last=False)
        return offer

    def shown(self, offer_id: str) -> None:
        offer = self._by_id.get(offer_id)
        if offer is not None and not offer.shown:
            offer.shown = True
            self._count("shown")

    def accepted(self, offer_id: str) -> None:
        """The user accepted an edit."""
        offer = self._answer(offer_id)
        if offer is not None:
            self._count("accepted")
            self._answers.append(True)
            self._applied[offer.change] = None
            while len(self._applied) > MAX_ANSWERS:
                self._applied.popitem(last=False)

    def rejected(self, offer_id: str) -> None:
        offer = self._answer(offer_id)
        if offer is not None:
            self._answers.append(False)
            self._reject(offer.change, offer.place)

    def _answer(self, offer_id: str) -> Offer | None:
        """The offer, now answered and counted as shown; None if it is unknown or was answered before."""
        offer = self._by_id.get(offer_id)
        if offer is None or offer.answered:
            return None
        self.shown(offer_id)
        offer.answered = True
        return offer

    def declined(self, document: Document, base: int, place: Place) -> str:
        """The reason not to offer a place again; "" for none. `base`: the document's offset of the place's text."""
        if place.placeholder is not None and not self._placeholders:
            return Reason.UNKNOWN_ARGUMENT
        change, times = _change(document, base, place), place.evidence.times
        if any(self._rejected.get(key, -1) >= times for key in _keys(change, place)):
            return Reason.DECLINED
        if change not in self._applied:
            return ""
        self._reject(change, place)
        return Reason.UNDOES

    def _reject(self, change: Change, place: Place) -> None:
        self._rejected.update(dict.fromkeys(_keys(change, place), place.evidence.times))
        while len(self._rejected) > MAX_ANSWERS:
            self._rejected.popitem(last=False)

    def closed(self, uri: str) -> None:
        """Forget a closed document. Its applied edits cannot be undone any more."""
        for offer_id in [offer.id for offer in self._by_id.values() if offer.uri == uri]:
            del self._by_id[offer_id]
        for change in [change for change in self._applied if change[0] == uri]:
            del self._applied[change]


def _change(document: Document, base: int, place: Place) -> Change:
    start, end = base + place.start, base + place.end
    return document.uri, document.position(start, "utf-32")["line"], document.piece(start, end), place.new


def _keys(change: Change, place: Place) -> tuple[tuple[object, ...], ...]:
    """The same change of a document: by its substitution, and by its lines, which another kind may write too."""
    uri, _, old, new = change
    return (uri, place.substitution), (uri, old.strip(), new.strip())
