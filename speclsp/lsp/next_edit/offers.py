"""Edits that were offered to the client, and the user's answers: shown, accepted, rejected, undone.

A chain is the offers of one substitution in a document, of any kind. A rejection ends it until the user makes the
change once more by hand. The rejected place is not offered again while the line above or below it stays. An accepted
change that was undone counts as rejected.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from speclsp.lsp.documents.document import Document
from speclsp.lsp.next_edit.changes.calls.arguments import ARGUMENT
from speclsp.lsp.next_edit.changes.substitutions import Place
from speclsp.lsp.next_edit.edit_likelihood import Chain
from speclsp.lsp.next_edit.producer import Found
from speclsp.lsp.reasons import Reason
from speclsp.lsp.syntax.text_windows import normal_newlines

MAX_OFFERS = 64
MIN_TIMES = 2  # of a chain: the change by hand, and an accepted one
MAX_ANSWERS = 256  # rejected or applied changes, and chains, that are kept

Change = tuple[str, int, str, str]  # URI, line from 0, the text that an edit replaces, the text in its place
Sides = tuple[tuple[str, str, str, int, str], ...]  # URI, old and new text, and the line above (-1) or below (1)


ChainKey = tuple[str, str, str]  # URI, and the substitution's old and new text, of any kind


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
    sides: Sides
    confidence: float = 0.0  # the probability that its producer states
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    shown: bool = False
    answered: bool = False  # accepted or rejected

    @property
    def kind(self) -> str:
        return self.place.substitution.kind


@dataclass(slots=True)
class Answers:
    """The user's answers to one chain."""

    accepted: int = 0
    rejected: int = 0  # since the last accepted one
    last: Change | None = None  # the last accepted one
    ended: tuple[object, ...] = ()  # the evidence at the last rejection


class Offers:
    """The last offers by their ids. `count` adds to the usage statistics: "shown", "accepted".

    `placeholders`: the client selects the placeholder of an accepted edit. Else no edit with one is offered.
    """

    def __init__(self, count: Callable[[str], None], placeholders: bool = False) -> None:
        self._count, self._placeholders = count, placeholders
        self._by_id: OrderedDict[str, Offer] = OrderedDict()
        self._rejected: OrderedDict[tuple[object, ...], None] = OrderedDict()  # the Sides of rejected places
        self._applied: OrderedDict[Change, None] = OrderedDict()
        self._chains: OrderedDict[ChainKey, Answers] = OrderedDict()
        self._last_kind = ""  # of the accepted edits

    def add(self, edit: Found) -> Offer:
        """Keep an edit as offered."""
        document, proposal, base = edit
        start, end, place = base + proposal.start, base + proposal.end, proposal.place
        uri, language, version = document.uri, document.language, document.version
        change, sides = _change(document, base, place), _sides(document, base, place)
        span, line = (start, end), change[1]
        offer = Offer(uri, language, version, *span, proposal.text, line, place, change, sides, proposal.probability)
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
            answers = self._chain(offer.uri, offer.place)
            answers.accepted, answers.rejected, answers.last = answers.accepted + 1, 0, offer.change
            self._last_kind, self._applied[offer.change] = offer.kind, None
            _limit(self._applied)

    def rejected(self, offer_id: str) -> None:
        offer = self._answer(offer_id)
        if offer is not None:
            self._reject(offer.uri, offer.sides, offer.place)

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
        answers, sides = self._chains.get(_chain_key(document.uri, place)), _sides(document, base, place)
        if (answers is not None and answers.ended == _evidence(place)) or any(side in self._rejected for side in sides):
            return Reason.DECLINED
        is_undone = _change(document, base, place) in self._applied
        if is_undone or (answers is not None and answers.last and _was_undone(document, answers.last)):
            self._reject(document.uri, sides if is_undone else (), place)
            return Reason.UNDOES
        return ""

    def chain(self, document: Document, base: int, place: Place) -> Chain:
        """The chain that a place would continue. One that was forgotten with its edits begins anew."""
        answers = self._chains.get(_chain_key(document.uri, place))
        is_same_kind = place.substitution.kind == self._last_kind
        if answers is None or place.evidence.times < MIN_TIMES:
            return Chain(is_same_kind=is_same_kind)
        line = document.position(base + place.start, "utf-32")["line"]
        away = abs(line - answers.last[1]) if answers.last else 0
        return Chain(answers.accepted, answers.rejected, away, is_same_kind)

    def _chain(self, uri: str, place: Place) -> Answers:
        answers = self._chains.setdefault(_chain_key(uri, place), Answers())
        _limit(self._chains)
        return answers

    def _reject(self, uri: str, sides: Sides, place: Place) -> None:
        answers = self._chain(uri, place)
        answers.rejected, answers.last, answers.ended = answers.rejected + 1, None, _evidence(place)
        self._rejected.update(dict.fromkeys(sides))
        _limit(self._rejected)

    def closed(self, uri: str) -> None:
        """Forget a closed document. Its applied edits cannot be undone any more."""
        for offer_id in [offer.id for offer in self._by_id.values() if offer.uri == uri]:
            del self._by_id[offer_id]
        for change in [change for change in self._applied if change[0] == uri]:
            del self._applied[change]
        for answers in self._chains.values():
            answers.last = None if answers.last and answers.last[0] == uri else answers.last


def _change(document: Document, base: int, place: Place) -> Change:
    start, end = base + place.start, base + place.end
    return document.uri, document.position(start, "utf-32")["line"], document.piece(start, end), place.new


def _was_undone(document: Document, change: Change) -> bool:
    """True if the lines of an applied change have their old text again."""
    _, line, old, new = change
    lines = normal_newlines("".join(document.lines(line, line + max(old.count("\n"), new.count("\n")) + 1)))
    return lines.startswith(normal_newlines(old)) and not lines.startswith(new)


def _sides(document: Document, base: int, place: Place) -> Sides:
    """The same place, whatever kind of edit writes it, by each of the lines beside it."""
    uri, line, old, new = _change(document, base, place)
    end = line + old.count("\n") + 1
    beside = (-1, document.lines(max(0, line - 1), line)), (1, document.lines(end, end + 1))
    return tuple((uri, old.strip(), new.strip(), side, "".join(lines).strip()) for side, lines in beside)


def _chain_key(uri: str, place: Place) -> ChainKey:
    return uri, place.substitution.old, place.substitution.new


def _evidence(place: Place) -> tuple[object, ...]:
    """The user's changes that taught a substitution: another value once there is one more. Lists are edited further."""
    lines = () if place.substitution.kind == ARGUMENT else (origin.line.strip() for origin in place.evidence.origins)
    return place.evidence.times, *lines


def _limit(kept: OrderedDict[Any, Any]) -> None:
    while len(kept) > MAX_ANSWERS:
        kept.popitem(last=False)
