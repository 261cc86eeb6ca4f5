"""What becomes of a suggestion, read off the edits that follow it: editors tell a language server nothing of it.

    answered ─► stands ─┬─ its text comes, two characters or more in one edit: taken     ┐ shorter than all of it:
                        ├─ ... one character, or blanks as Enter and Tab make them: typed┘ the rest stands on
                        ├─ all of it is there: accepted, or typed where nothing was taken
                        └─ another edit, another suggestion, none, closed: partly where some was taken, else ignored

A suggestion counts as shown once it has stood for SEEN_MS, or when some of it was taken; one that went sooner counts
for nothing. An answer that goes on as the one before (typing along brings the rest of it with every key) is the same
suggestion. An edit that removes just what was taken takes it back: undone.

Editors say the same in many ways: a word replaced by itself and more, a line replaced, the place of the insertion
moved along where the text repeats. So texts are compared, not edits. What cannot be told apart: a paste that equals the
suggestion counts as taken; a single character accepted alone, or brackets as they come when the first one is typed, as
typed; and a suggestion that the editor chose not to show as shown.

It holds one suggestion for each document, until the next edit at the latest after its end, and tells numbers only. A
document without one is not watched.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from speclsp.errors import error_site
from speclsp.lsp.documents.document import Document

SEEN_MS = 100  # faster than that nobody has read it
REPEATS_CHARACTERS = 1000  # how far along repeating text an editor may move an edit
CLOSERS = {"(": ")", "[": "]", "{": "}", '"': '"', "'": "'", "`": "`"}  # what editors close by themselves
LINE_END = re.compile(r"[ \t]*(?:\r\n?|\n)[ \t]*")

SHOWN, ACCEPTED, PARTLY, TYPED, IGNORED, UNDONE = "shown", "accepted", "partly", "typed", "ignored", "undone"
SHOWN_CHARACTERS, ACCEPTED_CHARACTERS, TYPED_CHARACTERS = (f"{what}_characters" for what in (SHOWN, ACCEPTED, TYPED))

Sent = tuple[str, int, int]  # what an answer puts in place of the document's [start, end)
Counts = dict[str, int]
Tell = Callable[[str, str, Counts], None]  # language, pair, what to add to their counts

log = logging.getLogger("speclsp.feedback")


@dataclass(frozen=True, slots=True)
class OfferedSuggestion:
    """What accepting does: `text` stands where the suggestion begins, and `over` characters right of it are gone."""

    text: str
    over: int = 0


@dataclass(slots=True)
class ShownSuggestion:
    """The suggestion an editor shows."""

    language: str
    pair: str
    at: int  # where its text begins in the document
    offers: list[OfferedSuggestion]  # the first is shown; the others, asked for by hand, may be chosen
    since: float  # seconds
    done: int = 0  # characters of it that are in the document
    pieces: list[tuple[bool, int]] = field(default_factory=list)  # taken at once or typed, how many characters

    @property
    def whole(self) -> bool:
        """Whether nothing of it is left to come."""
        return self.done >= len(self.offers[0].text)

    @property
    def taking(self) -> bool:
        """Whether what came last was taken."""
        return bool(self.pieces) and self.pieces[-1][0]

    def add(self, taken: bool, characters: int) -> None:
        self.pieces.append((taken, characters))
        self.done += characters

    def goes_on(self, at: int, offers: Sequence[OfferedSuggestion], document: Document) -> bool:
        """Take a newer answer for this suggestion, if it says the same as far as both go."""
        text, over = self.offers[0].text, self.offers[0].over
        passed = at - self.at - self.done  # the user may type over what the suggestion would have replaced
        if not 0 <= passed <= over or document.piece(at - passed, at) != text[self.done : self.done + passed]:
            return False
        rest, newer = text[self.done + passed :], offers[0].text
        if not (rest and (rest.startswith(newer) or newer.startswith(rest))):
            return False
        if passed:
            self.add(False, passed)
        self.offers = [OfferedSuggestion(text[: self.done] + offer.text, offer.over) for offer in offers]
        return True

    def follow(self, start: int, removed: int, inserted: str, document: Document) -> bool:
        """Take an edit that brings more of the suggestion, or steps back in it; False when they part."""
        if not inserted:
            return self.steps_back(start, removed, document)
        here = self.at + self.done
        for offer in self.offers:
            if offer.over and self.replaces(offer, start, removed, inserted, document):
                self.add(True, len(offer.text) - self.done)
                self.offers = [offer]
                return True
        came = None if removed else came_at(here, start, len(inserted), document)
        if came is None:
            return False
        left = [offer for offer in self.offers if offer.text.startswith(came, self.done)]
        taken = len(came) > 1 and not came.isspace() and (self.taking or CLOSERS.get(came[0]) != came[1:])
        if left:
            self.add(taken, len(came))
            self.offers = left
            return True
        return self.closes(came) or (taken and self.indented(came))

    def replaces(self, offer: OfferedSuggestion, start: int, removed: int, inserted: str, document: Document) -> bool:
        """Whether all that is left of an offer has come in the place of what it replaces."""
        here, rest = self.at + self.done, offer.text[self.done :]
        return (
            len(inserted) - removed == len(rest) - offer.over
            and here <= start
            and start + len(inserted) <= here + len(rest)
            and document.piece(here, here + len(rest)) == rest
        )

    def closes(self, came: str) -> bool:
        """Whether an opening bracket or quote is being typed, or was just before, and the editor closed it.

        The closing one then stands right of the cursor, where accepting would replace it.
        """
        text, typed = self.offers[0].text, came[:-1]
        opener = text[self.done : self.done + 1] if typed else text[self.done - 1 : self.done]
        if len(came) > 2 or came[-1] != CLOSERS.get(opener) or (typed and typed != opener):
            return False
        if typed:
            self.add(False, 1)
        left = [offer for offer in self.offers if offer.text.startswith(text[: self.done])]
        self.offers = [
            OfferedSuggestion(offer.text[:-1], offer.over)
            if not offer.over and len(offer.text) > self.done and offer.text.endswith(came[-1])
            else OfferedSuggestion(offer.text, offer.over + 1)
            for offer in left
        ]
        return True

    def indented(self, came: str) -> bool:
        """Whether all of it has come, with its lines indented as the editor likes them."""
        for offer in self.offers:
            rest = offer.text[self.done :]
            if not offer.over and LINE_END.sub("\n", came) == LINE_END.sub("\n", rest):
                self.offers = [OfferedSuggestion(offer.text[: self.done] + came)]
                self.add(True, len(came))
                return True
        return False

    def steps_back(self, start: int, removed: int, document: Document) -> bool:
        """Whether the last characters of what has come were removed again."""
        begins = self.at + self.done - removed
        if removed > self.done or not begins <= start <= begins + removed:
            return False
        kept = self.done - removed
        if document.piece(begins, start) != self.offers[0].text[kept : kept + start - begins]:
            return False
        while self.done > kept:
            taken, characters = self.pieces.pop()
            self.done -= characters
            if self.done < kept:
                self.add(taken, kept - self.done)
        return True

    def verdict(self, now: float) -> Counts:
        """What it counts for; nothing when nobody can have seen it."""
        taken = sum(characters for at_once, characters in self.pieces if at_once)
        if not taken and (now - self.since) * 1000 < SEEN_MS:
            return {}
        if self.whole and self.taking:
            outcome = ACCEPTED
        elif taken:
            outcome = PARTLY
        else:
            outcome = TYPED if self.whole else IGNORED
        counts = {SHOWN: 1, outcome: 1, SHOWN_CHARACTERS: len(self.offers[0].text)}
        counts |= {ACCEPTED_CHARACTERS: taken, TYPED_CHARACTERS: self.done - taken}
        return {name: count for name, count in counts.items() if count}


class SuggestionWatcher:
    """What stands in one document, and what was accepted there last."""

    def __init__(self, document: Document, tell: Tell, clock: Callable[[], float]) -> None:
        self.document, self.tell, self.clock = document, tell, clock
        self.standing: ShownSuggestion | None = None
        self.accepted: ShownSuggestion | None = None  # until the next edit: that may undo it
        document.watch = self.edited

    def edited(self, start: int, removed: int, inserted: str) -> None:
        """The document was edited. Never raises: the text must stay in step, whatever goes wrong here."""
        try:
            self._edited(start, removed, inserted)
        except Exception as error:  # its message may quote the document
            log.error("feedback was lost: %s", error_site(error))
            self.standing = self.accepted = None
        if self.standing is None and self.accepted is None:
            self.document.watch = None

    def _edited(self, start: int, removed: int, inserted: str) -> None:
        if not removed and not inserted:
            return
        accepted, self.accepted = self.accepted, None
        if accepted is not None and not inserted and removed == accepted.pieces[-1][1]:
            length = accepted.pieces[-1][1]
            if accepted.steps_back(start, removed, self.document):
                self.end()
                taken = sum(characters for at_once, characters in accepted.pieces if at_once)
                counts = {ACCEPTED: -1, ACCEPTED_CHARACTERS: -length}
                self.tell(accepted.language, accepted.pair, {**counts, (PARTLY if taken else UNDONE): 1})
                return
        standing = self.standing
        if standing is None:
            return
        if not standing.follow(start, removed, inserted, self.document):
            self.end()
        elif standing.whole:
            self.end()
            self.accepted = standing if standing.taking else None

    def end(self) -> None:
        """Nothing stands any more."""
        standing, self.standing = self.standing, None
        if standing is not None and (counts := standing.verdict(self.clock())):
            self.tell(standing.language, standing.pair, counts)


class AcceptanceTracker:
    """What becomes of the suggestions in all documents; told as numbers to add, when it is known."""

    def __init__(self, tell: Tell, clock: Callable[[], float] = time.monotonic) -> None:
        self._tell, self._clock = tell, clock
        self._watchers: dict[str, SuggestionWatcher] = {}

    def answered(self, document: Document, cursor: int, sent: Sequence[Sent], pair: str) -> None:
        """These were sent to the editor, for the document as it is now; none of them clears what it shows."""
        offers = [(at, offer) for one in sent if (found := offered(one, cursor, document)) for at, offer in [found]]
        watcher = self._watchers.get(document.uri)
        if watcher is not None and watcher.document is not document:  # opened anew
            self.closed(document.uri)
            watcher = None
        if watcher is None:
            if not offers:
                return
            watcher = self._watchers[document.uri] = SuggestionWatcher(document, self._tell, self._clock)
        same = [offer for at, offer in offers if at == offers[0][0]]
        standing = watcher.standing
        if standing is not None and offers and standing.goes_on(offers[0][0], same, document):
            return
        watcher.end()
        if offers:
            watcher.standing = ShownSuggestion(document.language, pair, offers[0][0], same, self._clock())
            document.watch = watcher.edited

    def closed(self, uri: str) -> None:
        """The document was closed."""
        watcher = self._watchers.pop(uri, None)
        if watcher is not None:
            watcher.document.watch = None
            watcher.end()

    def close(self) -> None:
        """The editor has gone."""
        for uri in list(self._watchers):
            self.closed(uri)


def as_sent(items: Sequence[Mapping[str, Any]], document: Document, encoding: str) -> list[Sent]:
    """The items of an answer; their ranges are JSON, or the client's own as it was read."""
    sent = []
    for item in items:
        span = item["range"]
        ends = (span["start"], span["end"]) if isinstance(span, Mapping) else (span.start, span.end)
        places = (at if isinstance(at, Mapping) else {"line": at.line, "character": at.character} for at in ends)
        start, end = (document.offset(at, encoding) for at in places)
        sent.append((item["insertText"], start, end))
    return sent


def offered(sent: Sent, cursor: int, document: Document) -> tuple[int, OfferedSuggestion] | None:
    """Where a suggestion's own text begins, and that text without what is there already; None when nothing is left."""
    text, start, end = sent
    over, typed = end - start, document.piece(start, cursor)
    if text.startswith(typed):
        start, over, text = cursor, over - len(typed), text[len(typed) :]
    if over and text.endswith(document.piece(start, start + over)):
        text, over = text[:-over], 0
    return (start, OfferedSuggestion(text, over)) if text else None


def came_at(here: int, start: int, length: int, document: Document) -> str | None:
    """What stands at `here` if inserting it there gives what inserting `length` characters at `start` gave."""
    low, high = min(here, start), max(here, start)
    if high - low > REPEATS_CHARACTERS:
        return None
    around = document.piece(low, high + length)
    if around[: high - low] != around[length:]:
        return None
    return around[here - low : here - low + length]
