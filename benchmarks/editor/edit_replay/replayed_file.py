"""One file and the edits that a user makes in it, through the text store, as the product sees them.

A producer is anything with EditProducer's `propose`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

from benchmarks.quality import edits
from speclsp.lsp.documents.document import Document, Documents
from speclsp.lsp.next_edit.changes.substitutions import Place
from speclsp.lsp.next_edit.edit_likelihood import NO_CHAIN, Chain
from speclsp.lsp.next_edit.offers import Offers
from speclsp.lsp.next_edit.producer import BUDGET_MS, Declined, Found, Producer, Proposal, first_edit
from speclsp.lsp.next_edit.recent_activity import RecentActivity
from speclsp.lsp.syntax.incremental_parse import parse_clock_s

URI = "file:///release/"
ChainOf = Callable[[Place], Chain]


def no_chain(place: Place) -> Chain:
    """The chain where the user answers no offer."""
    return NO_CHAIN


class EditProducer(Protocol):
    """A producer of edits. The proposal's offsets are the document's."""

    def propose(
        self, document: Document, activity: RecentActivity, cursor: int, declined: Declined, chain: ChainOf = no_chain
    ) -> Proposal | None: ...


class Rules:
    """The deterministic producer."""

    def __init__(self, producer: Producer | None = None, budget_ms: float = BUDGET_MS) -> None:
        self._producer, self._budget_ms = producer or Producer(), budget_ms
        self._warm: set[str] = set()  # languages whose grammar is loaded

    def prepare(self, document: Document) -> None:
        """Load the grammar and parse a document before a request, as the product does outside of the budget."""
        if document.language not in self._warm:
            self._producer.warm_up(document.language)
            self._warm.add(document.language)
        self._producer.prepare(document.text, document.language)

    def propose(
        self, document: Document, activity: RecentActivity, cursor: int, declined: Declined, chain: ChainOf = no_chain
    ) -> Proposal | None:
        """The edit that would be shown, or None."""
        of_document = document.text, document.language, document.uri, cursor, activity.recent()
        outcomes = self._producer.outcomes(*of_document, declined, self._budget_ms, chain)
        proposal = first_edit(outcomes)
        return None if isinstance(proposal, str) else proposal


def rules() -> EditProducer:
    """A new deterministic producer."""
    return Rules()


class ReplayedFile:
    """One file of a release, and the edits that lead to the next release."""

    def __init__(self, path: str, before: str, language: str, producer: EditProducer) -> None:
        self.uri, self.producer = URI + path, producer
        self.activity = RecentActivity(kept_back=lambda uri: False, clock=lambda: 0.0)
        self.documents = Documents()
        self.documents.follow_edits(self.activity.edited)
        self.document: Document = self.documents.open(self.uri, language, 1, before)
        self.done: list[edits.Hunk] = []
        self.accepted_at = -1  # the offset behind the edit that was accepted last, until the state after it is made
        self.offers = Offers(lambda outcome: None)

    def make(self, hunk: edits.Hunk) -> int:
        """Make one difference. Returns the offset after it."""
        first = hunk.start + shift(self.done, hunk)
        replace(self.document, first, first + hunk.end - hunk.start, hunk.lines)
        self.done.append(hunk)
        return self.offset(first + len(hunk.lines), 0)

    def offset(self, line: int, character: int) -> int:
        """The offset of a position."""
        return self.document.offset({"line": line, "character": character}, "utf-32")

    def lines(self) -> list[str]:
        """The present lines."""
        return self.document.text.split("\n")

    def with_edit(self, proposal: Proposal) -> list[str]:
        """The lines after an edit."""
        text = self.document.text
        return (text[: proposal.start] + proposal.text + text[proposal.end :]).split("\n")

    def propose(self, cursor: int, ms: list[float]) -> Proposal | None:
        """The edit that would be shown now; appends its processor time to `ms`."""
        if isinstance(self.producer, Rules):
            self.producer.prepare(self.document)
        started_s = parse_clock_s()
        declined, chain = self.offers.declined, self.offers.chain
        answers = partial(declined, self.document, 0), partial(chain, self.document, 0)
        proposal = self.producer.propose(self.document, self.activity, cursor, *answers)
        ms.append((parse_clock_s() - started_s) * 1000)
        return proposal

    def answer(self, proposal: Proposal, accepted: bool) -> None:
        """Accept an edit, or reject it, as the user would. An accepted one changes the text."""
        offer = self.offers.add(Found(self.document, proposal))
        if not accepted:
            self.offers.rejected(offer.id)
            return
        first, end = (self.document.position(at, "utf-32")["line"] for at in (proposal.place.start, proposal.place.end))
        self.offers.accepted(offer.id)
        replace(self.document, first, end + 1, proposal.place.new.split("\n"))
        self.accepted_at = self.offset(first + proposal.place.new.count("\n") + 1, 0)


def replace(document: Document, first: int, end: int, lines: Sequence[str]) -> None:
    """Replace the lines [first, end) as one edit."""
    span = {"start": {"line": first, "character": 0}, "end": {"line": end, "character": 0}}
    document.apply([{"range": span, "text": "".join(line + "\n" for line in lines)}], "utf-32")


def shift(done: Sequence[edits.Hunk], hunk: edits.Hunk) -> int:
    """Lines by which the made differences have moved another one."""
    return sum(len(other.lines) - (other.end - other.start) for other in done if other.start < hunk.start)


def covering(
    left: Sequence[edits.Hunk], done: Sequence[edits.Hunk], first: int, end: int
) -> Iterator[tuple[edits.Hunk, int, int]]:
    """The differences still to come whose lines hold the present lines [first, end), with their present lines."""
    for hunk in left:
        moved = shift(done, hunk)
        if hunk.start + moved <= first and end <= hunk.end + moved:
            yield hunk, hunk.start + moved, hunk.end + moved


def writes(hunk: edits.Hunk, lines: tuple[str, ...]) -> bool:
    """True if a difference brings these lines, one after another."""
    size = len(lines)
    return any(hunk.lines[at : at + size] == lines for at in range(len(hunk.lines) - size + 1))
