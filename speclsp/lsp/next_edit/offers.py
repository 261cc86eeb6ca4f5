"""Edits that were offered to the client, and the user's answers: shown, accepted, rejected, undone.

A rejected change is not offered again in its document until the user makes it once more by hand. An accepted change
that was undone counts as rejected.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from speclsp.lsp.documents.document import Document
from speclsp.lsp.next_edit.changed_names import CALLEE, KEY
from speclsp.lsp.next_edit.places import Place
from speclsp.lsp.next_edit.producer import Proposal
from speclsp.lsp.next_edit.single_changes import TYPE
from speclsp.lsp.next_edit.substitutions import ARGUMENT, LINES, MEMBER, PHRASE, RENAME
from speclsp.lsp.reasons import Reason

MAX_OFFERS = 64
MAX_ANSWERS = 256  # rejected or applied changes that are kept
# Right edits of those shown, plus one, over all Python states of benchmarks/editor/next_edit.py without its cap.
# KEY, TYPE: over the tuning packages and those of models/training.
CONFIDENCE: Mapping[str, float] = {
    RENAME: 0.74, PHRASE: 0.62, LINES: 0.94, ARGUMENT: 0.91, MEMBER: 0.62, KEY: 0.67, TYPE: 0.83, CALLEE: 0.83,
}  # fmt: skip

Counts = Mapping[str, int]
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
    probability: float = 0.0  # of the change, if a model made it
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    shown: bool = False
    answered: bool = False  # accepted or rejected

    @property
    def kind(self) -> str:
        return self.place.substitution.kind

    @property
    def confidence(self) -> float:
        """The share of such edits that were right, as measured; of a model's edit the probability that it states."""
        return CONFIDENCE.get(self.kind, self.probability)


class Offers:
    """The last offers by their ids. `count(language, counts)` adds to the usage statistics."""

    def __init__(self, count: Callable[[str, Counts], None]) -> None:
        self._count = count
        self._by_id: OrderedDict[str, Offer] = OrderedDict()
        self._rejected: OrderedDict[tuple[object, ...], int] = OrderedDict()  # -> evidence at that time
        self._applied: OrderedDict[Change, None] = OrderedDict()

    def add(self, document: Document, proposal: Proposal, base: int, probability: float = 0.0) -> Offer:
        """Keep an edit as offered. `base`: the offset in the document of the text that the proposal is about."""
        start, end, change = base + proposal.start, base + proposal.end, _change(document, base, proposal.place)
        uri, language, version = document.uri, document.language, document.version
        offer = Offer(uri, language, version, start, end, proposal.text, change[1], proposal.place, change, probability)
        self._by_id[offer.id] = offer
        while len(self._by_id) > MAX_OFFERS:
            self._by_id.popitem(last=False)
        return offer

    def last_of(self, uri: str) -> Offer | None:
        return next((offer for offer in reversed(self._by_id.values()) if offer.uri == uri), None)

    def shown(self, offer_id: str) -> None:
        offer = self._by_id.get(offer_id)
        if offer is not None and not offer.shown:
            offer.shown = True
            self._count(offer.language, {"next_edit.shown": 1})

    def accepted(self, offer_id: str) -> None:
        """The user accepted an edit, or the document shows that."""
        offer = self._answer(offer_id, "next_edit.accepted")
        if offer is not None:
            self._applied[offer.change] = None
            while len(self._applied) > MAX_ANSWERS:
                self._applied.popitem(last=False)

    def rejected(self, offer_id: str) -> None:
        offer = self._answer(offer_id, "next_edit.rejected")
        if offer is not None:
            self._reject(offer.uri, offer.place)

    def _answer(self, offer_id: str, counter: str) -> Offer | None:
        """The offer, now answered and counted as shown; None if it is unknown or was answered before."""
        offer = self._by_id.get(offer_id)
        if offer is None or offer.answered:
            return None
        self.shown(offer_id)
        offer.answered = True
        self._count(offer.language, {counter: 1})
        return offer

    def declined(self, document: Document, base: int, place: Place) -> str:
        """The reason not to offer a place again; "" for none. `base`: the document's offset of the place's text."""
        if self._rejected.get((document.uri, place.substitution), -1) >= place.evidence.times:
            return Reason.DECLINED
        if _change(document, base, place) not in self._applied:
            return ""
        self._reject(document.uri, place)
        return Reason.UNDOES

    def _reject(self, uri: str, place: Place) -> None:
        self._rejected[uri, place.substitution] = place.evidence.times
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
