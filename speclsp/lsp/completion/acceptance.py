"""Acceptance of suggestions: infers the fate of a suggestion from later edits, because editors do not report it.

    answered ─► shown ─┬─ its text arrives, two characters or more in one edit: accepted ┐ less than all of it:
                       ├─ ... one character, or blanks as Enter and Tab insert: typed    ┘ the rest stays shown
                       ├─ all of it has arrived: accepted, or typed if the last of it was typed
                       └─ another edit, another suggestion, none, or closed: partly if some was accepted, else ignored

A suggestion counts as shown once it has stayed for MIN_SHOWN_MS, or when some of it was accepted; a shorter-lived one
is not counted. An answer that continues the one before is the same suggestion: while the user types through it, each
key brings the rest. An edit that removes exactly the accepted text takes it back: undone.

Editors describe one edit in many ways: a word replaced by itself and more, a line replaced, the place of an insertion
moved along repeating text. Neovim removes the text that a suggestion replaces before it inserts. So texts are
compared, not edits. Some cases look the same. A paste that equals the suggestion counts as accepted. A single
character accepted alone, or a pair of brackets as editors insert it when the first is typed, counts as typed. A
suggestion that the editor chose not to show counts as shown.

One suggestion is kept for each document, until the next edit after its end at the latest, and only numbers are
reported. A document without one is not watched.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from speclsp.errors import error_site
from speclsp.lsp.documents.document import Document

MIN_SHOWN_MS = 100  # a suggestion that was shown for less was not read
MAX_REPEAT_CHARACTERS = 1000  # how far along repeating text an editor may move an edit
CLOSERS = {"(": ")", "[": "]", "{": "}", '"': '"', "'": "'", "`": "`"}  # inserted by editors without a key
LINE_END = re.compile(r"[ \t]*(?:\r\n?|\n)[ \t]*")

SHOWN, ACCEPTED, PARTLY, TYPED, IGNORED, UNDONE = "shown", "accepted", "partly", "typed", "ignored", "undone"
WORDS = "words"  # single words of it were accepted
SHOWN_CHARACTERS, ACCEPTED_CHARACTERS, TYPED_CHARACTERS = (f"{name}_characters" for name in (SHOWN, ACCEPTED, TYPED))

SentItem = tuple[str, int, int]  # the text of an answer, which replaces the document's [start, end)
Counts = dict[str, int]
Report = Callable[[str, str, Counts], None]  # language, model, and what to add to their counts

log = logging.getLogger("speclsp.feedback")


@dataclass(frozen=True, slots=True)
class OfferedSuggestion:
    """The effect of accepting: `text` is inserted, and `over` characters right of it are removed.

    `kept` follows them in the document, and may be replaced by itself.
    """

    text: str
    over: int = 0
    kept: str = ""


@dataclass(slots=True)
class ShownSuggestion:
    """The suggestion that an editor shows, and how much of it has arrived in the document."""

    language: str
    model: str
    start: int  # of its text in the document
    offers: list[OfferedSuggestion]  # the first is shown; the others, on an explicit request, may be chosen
    since_s: float
    arrived: int = 0  # characters of it that are in the document
    pieces: list[tuple[bool, int]] = field(default_factory=list)  # whether accepted (else typed), how many characters

    @property
    def complete(self) -> bool:
        """True if all of it has arrived."""
        return self.arrived >= len(self.offers[0].text)

    @property
    def accepting(self) -> bool:
        """True if its last piece was accepted, not typed."""
        return bool(self.pieces) and self.pieces[-1][0]

    @property
    def accepted_characters(self) -> int:
        return sum(characters for accepted, characters in self.pieces if accepted)

    @property
    def by_words(self) -> bool:
        """True if a piece was accepted that ends inside a line."""
        text, end = self.offers[0].text, 0
        for accepted, characters in self.pieces:
            end += characters
            if accepted and end < len(text) and text[end] not in "\r\n" and text[end - 1] not in "\r\n":
                return True
        return False

    def add(self, accepted: bool, characters: int) -> None:
        """A further piece of it has arrived."""
        self.pieces.append((accepted, characters))
        self.arrived += characters

    def continue_with(self, start: int, offers: Sequence[OfferedSuggestion], document: Document) -> bool:
        """Merge a newer answer at `start`, if both agree as far as they go; else return False."""
        text, over = self.offers[0].text, self.offers[0].over
        typed_over = start - self.start - self.arrived  # the user may type over the text that it would have replaced
        if not 0 <= typed_over <= over:
            return False
        if document.piece(start - typed_over, start) != text[self.arrived : self.arrived + typed_over]:
            return False
        rest, newer = text[self.arrived + typed_over :], offers[0].text
        if not (rest and (rest.startswith(newer) or newer.startswith(rest))):
            return False
        if typed_over:
            self.add(False, typed_over)
        self.offers = [replace(offer, text=text[: self.arrived] + offer.text) for offer in offers]
        return True

    def apply_edit(self, start: int, removed: int, inserted: str, document: Document) -> bool:
        """Follow an edit that brings more of the suggestion, or steps back in it; False for any other edit."""
        if not inserted:
            return self._replaced_is_removed(start, removed) or self.step_back(start, removed, document)
        here = self.start + self.arrived
        for offer in self.offers:
            if offer.over and self._arrives_whole(offer, start, removed, inserted, document):
                self.add(True, len(offer.text) - self.arrived)
                self.offers = [offer]
                return True
        text = None if removed else inserted_text_at(here, start, len(inserted), document)
        if text is None:
            return False
        matching = [offer for offer in self.offers if offer.text.startswith(text, self.arrived)]
        accepted = len(text) > 1 and not text.isspace() and (self.accepting or CLOSERS.get(text[0]) != text[1:])
        if matching:
            self.add(accepted, len(text))
            self.offers = matching
            return True
        return self._bracket_closed(text) or (accepted and self._arrives_reindented(text))

    def final_counts(self, now_s: float) -> Counts:
        """Its outcome as counts; empty when the user cannot have read it."""
        accepted = self.accepted_characters
        if not accepted and (now_s - self.since_s) * 1000 < MIN_SHOWN_MS:
            return {}
        if self.complete and self.accepting:
            outcome = ACCEPTED
        elif accepted:
            outcome = PARTLY
        else:
            outcome = TYPED if self.complete else IGNORED
        counts = {SHOWN: 1, outcome: 1, SHOWN_CHARACTERS: len(self.offers[0].text)}
        counts |= {WORDS: int(self.by_words), ACCEPTED_CHARACTERS: accepted, TYPED_CHARACTERS: self.arrived - accepted}
        return {name: count for name, count in counts.items() if count}

    def _arrives_whole(
        self, offer: OfferedSuggestion, start: int, removed: int, inserted: str, document: Document
    ) -> bool:
        """True if an edit put the rest of an offer in the place of the text that it replaces."""
        here, rest = self.start + self.arrived, offer.text[self.arrived :]
        return (
            len(inserted) - removed == len(rest) - offer.over
            and here <= start
            and start + len(inserted) <= here + len(rest)
            and document.piece(here, here + len(rest)) == rest
        )

    def _replaced_is_removed(self, start: int, removed: int) -> bool:
        """True if an edit removed text right of the cursor that accepting would replace."""
        end = start + removed - self.start - self.arrived  # right of the cursor
        wide = [offer for offer in self.offers if removed <= end <= offer.over + len(offer.kept)]
        if not wide:
            return False
        self.offers = []
        for offer in wide:
            from_kept = max(0, removed - offer.over)
            text, over = offer.text + offer.kept[:from_kept], max(0, offer.over - removed)
            self.offers.append(OfferedSuggestion(text, over, offer.kept[from_kept:]))
        return True

    def _bracket_closed(self, text: str) -> bool:
        """True if `text` is an opening bracket or quote with the closer that the editor adds, or that closer alone.

        The closer then stands right of the cursor, where accepting would replace it.
        """
        shown, opening = self.offers[0].text, text[:-1]
        opener = shown[self.arrived : self.arrived + 1] if opening else shown[self.arrived - 1 : self.arrived]
        if len(text) > 2 or text[-1] != CLOSERS.get(opener) or (opening and opening != opener):
            return False
        if opening:
            self.add(False, 1)
        matching = [offer for offer in self.offers if offer.text.startswith(shown[: self.arrived])]
        self.offers = [
            replace(offer, text=offer.text[:-1], kept=text[-1] + offer.kept)
            if not offer.over and len(offer.text) > self.arrived and offer.text.endswith(text[-1])
            else replace(offer, over=offer.over + 1)
            for offer in matching
        ]
        return True

    def _arrives_reindented(self, text: str) -> bool:
        """True if all of it has arrived, with its lines indented in the editor's own way."""
        for offer in self.offers:
            rest = offer.text[self.arrived :]
            if not offer.over and LINE_END.sub("\n", text) == LINE_END.sub("\n", rest):
                self.offers = [OfferedSuggestion(offer.text[: self.arrived] + text)]
                self.add(True, len(text))
                return True
        return False

    def step_back(self, start: int, removed: int, document: Document) -> bool:
        """True if an edit removed the last characters that had arrived; if so, they count as not arrived."""
        begin = self.start + self.arrived - removed
        if removed > self.arrived or not begin <= start <= begin + removed:
            return False
        kept = self.arrived - removed
        if document.piece(begin, start) != self.offers[0].text[kept : kept + start - begin]:
            return False
        while self.arrived > kept:
            accepted, characters = self.pieces.pop()
            self.arrived -= characters
            if self.arrived < kept:
                self.add(accepted, kept - self.arrived)
        return True


class SuggestionWatcher:
    """Watches the edits of one document for its shown suggestion, and for an undo of the last accepted one."""

    def __init__(self, document: Document, report: Report, clock: Callable[[], float]) -> None:
        self.document, self.report, self.clock = document, report, clock
        self.shown: ShownSuggestion | None = None
        self.accepted: ShownSuggestion | None = None  # until the next edit, which may undo it
        document.watch = self.edited

    def edited(self, start: int, removed: int, inserted: str) -> None:
        """The document was edited. Never raises: an error here must not stop the text from following the editor's."""
        try:
            self._edited(start, removed, inserted)
        except Exception as error:  # its message may quote the document
            log.error("feedback is lost: %s", error_site(error))
            self.shown = self.accepted = None
        if self.shown is None and self.accepted is None:
            self.document.watch = None

    def _edited(self, start: int, removed: int, inserted: str) -> None:
        if not removed and not inserted:
            return
        accepted, self.accepted = self.accepted, None
        if accepted is not None and not inserted:
            last_characters = accepted.pieces[-1][1]
            if removed == last_characters and accepted.step_back(start, removed, self.document):
                self.end()
                outcome = PARTLY if accepted.accepted_characters else UNDONE
                counts = {ACCEPTED: -1, ACCEPTED_CHARACTERS: -last_characters, outcome: 1}
                self.report(accepted.language, accepted.model, counts)
                return
        shown = self.shown
        if shown is None:
            return
        if not shown.apply_edit(start, removed, inserted, self.document):
            self.end()
        elif shown.complete:
            self.end()
            self.accepted = shown if shown.accepting else None

    def end(self) -> None:
        """The suggestion is not shown any more: report its counts."""
        shown, self.shown = self.shown, None
        if shown is not None and (counts := shown.final_counts(self.clock())):
            self.report(shown.language, shown.model, counts)


class AcceptanceTracker:
    """Tracks the suggestions of all documents, and reports each outcome as counts as soon as it is certain."""

    def __init__(self, report: Report, clock: Callable[[], float] = time.monotonic) -> None:
        self._report, self._clock = report, clock
        self._watchers: dict[str, SuggestionWatcher] = {}

    def answered(self, document: Document, cursor: int, sent: Sequence[SentItem], model: str) -> None:
        """`sent` went to the editor, for the document as it is now. An empty answer clears the shown suggestion."""
        offers = [offer for item in sent if (offer := offer_of(item, cursor, document)) is not None]
        watcher = self._watchers.get(document.uri)
        if watcher is not None and watcher.document is not document:  # closed and opened again
            self.closed(document.uri)
            watcher = None
        if watcher is None:
            if not offers:
                return
            watcher = self._watchers[document.uri] = SuggestionWatcher(document, self._report, self._clock)
        if not offers:
            watcher.end()
            return
        start = offers[0][0]
        alternatives = [offer for offer_start, offer in offers if offer_start == start]
        if watcher.shown is not None and watcher.shown.continue_with(start, alternatives, document):
            return
        watcher.end()
        watcher.shown = ShownSuggestion(document.language, model, start, alternatives, self._clock())
        document.watch = watcher.edited

    def closed(self, uri: str) -> None:
        watcher = self._watchers.pop(uri, None)
        if watcher is not None:
            watcher.document.watch = None
            watcher.end()

    def close(self) -> None:
        """The editor has disconnected: report all suggestions that are shown."""
        for uri in list(self._watchers):
            self.closed(uri)


def to_sent_items(items: Sequence[Mapping[str, Any]], document: Document, encoding: str) -> list[SentItem]:
    """The items of an answer with character offsets. Their ranges are JSON, or the client's own range as parsed."""
    sent = []
    for item in items:
        span = item["range"]
        ends = (span["start"], span["end"]) if isinstance(span, Mapping) else (span.start, span.end)
        positions = (at if isinstance(at, Mapping) else {"line": at.line, "character": at.character} for at in ends)
        start, end = (document.offset(position, encoding) for position in positions)
        sent.append((item["insertText"], start, end))
    return sent


def offer_of(sent: SentItem, cursor: int, document: Document) -> tuple[int, OfferedSuggestion] | None:
    """The start of a suggestion's own text, and that text without what the document has; None if nothing is left."""
    text, start, end = sent
    over, typed = end - start, document.piece(start, cursor)
    if text.startswith(typed):
        start, over, text = cursor, over - len(typed), text[len(typed) :]
    kept = document.piece(start, start + over)
    if kept and text.endswith(kept):
        return (start, OfferedSuggestion(text[:-over], kept=kept)) if len(text) > over else None
    return (start, OfferedSuggestion(text, over)) if text else None


def inserted_text_at(here: int, start: int, length: int, document: Document) -> str | None:
    """The text which, inserted at `here`, gives the same document as the insertion of `length` characters at `start`.

    None if there is no such text.
    """
    low, high = min(here, start), max(here, start)
    if high - low > MAX_REPEAT_CHARACTERS:
        return None
    around = document.piece(low, high + length)
    if around[: high - low] != around[length:]:
        return None
    return around[here - low : here - low + length]
