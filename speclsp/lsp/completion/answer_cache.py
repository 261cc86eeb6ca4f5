"""Cache of earlier answers: the suggestion that the user types through, or a draft hint from a wrong one.

    shown "append(item)", typed "app"   lookup:      "end(item)" is still the answer; the engine is not asked
    shown "append(item)", typed "ax"    draft_hint:  "pend(item)" is likely near: drafted from, never shown

A document is identified by its length and by hashes of the text on either side of the cursor, not by its text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.postprocess.plan import Suggestion
from speclsp.lsp.syntax.text_windows import common_ends, normal_newlines

MAX_ANSWERS = 8  # per document: enough for going back and forth, undoing and retyping
MAX_HINT_DISTANCE = 80  # characters typed after which an old suggestion does not predict the text
TAIL_CHARACTERS = 24  # before the cursor, compared before anything is hashed


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """The answer given at one place."""

    suggestions: tuple[Suggestion, ...]
    reason: str  # why there is none
    wanted: int  # how many were requested
    whole: bool  # False: streamed by a request until a newer one superseded it; never shown
    cursor: int
    length: int  # of the document, in characters
    tail: str
    before: int  # hash of the text before the cursor
    after: int


class AnswerCache:
    """The last answers of each open document."""

    def __init__(self) -> None:
        self._by_uri: dict[str, deque[CachedAnswer]] = {}

    def store(
        self, snapshot: Snapshot, suggestions: Sequence[Suggestion], wanted: int, reason: str = "", whole: bool = True
    ) -> None:
        cursor, text, before = snapshot.cursor, snapshot.text, snapshot.text[: snapshot.cursor]
        tail, hashes = before[-TAIL_CHARACTERS:], (hash(before), hash(text[cursor:]))
        answer = CachedAnswer(tuple(suggestions), reason, wanted, whole, cursor, len(text), tail, *hashes)
        self._by_uri.setdefault(snapshot.uri, deque(maxlen=MAX_ANSWERS)).append(answer)

    def lookup(self, snapshot: Snapshot, wanted: int) -> tuple[tuple[Suggestion, ...], str] | None:
        """Up to `wanted` suggestions that still hold, and the reason for none; None when the engine must be asked."""
        for answer in reversed(self._by_uri.get(snapshot.uri, ())):
            if answer.whole and answer.wanted >= wanted and grown_at_cursor(answer, snapshot):
                if snapshot.cursor == answer.cursor:
                    return answer.suggestions[:wanted], answer.reason
                left = [rest for shown in answer.suggestions if (rest := rest_after_typing(shown, answer, snapshot))]
                if left:
                    return tuple(left[:wanted]), ""
        return None

    def draft_hint(self, snapshot: Snapshot) -> str:
        """The text that likely follows the cursor, with \\n for newlines; "" when nothing is known."""
        for answer in reversed(self._by_uri.get(snapshot.uri, ())):
            if 0 <= snapshot.cursor - answer.cursor <= MAX_HINT_DISTANCE and same_tail(answer, snapshot):
                typed = snapshot.text[answer.cursor : snapshot.cursor]
                for shown in answer.suggestions:
                    insert = shown.text[max(0, answer.cursor - shown.start) :]
                    same = common_ends(typed, insert)[0]
                    if insert[same:]:
                        return normal_newlines(insert[same:])
        return ""

    def forget(self, uri: str) -> None:
        """Drop the answers of a document."""
        self._by_uri.pop(uri, None)

    def clear(self) -> None:
        """Drop all answers: another model, or other settings, would answer differently."""
        self._by_uri.clear()


def same_tail(answer: CachedAnswer, snapshot: Snapshot) -> bool:
    """True if the text just before the cursor of `answer` is unchanged."""
    return snapshot.text[max(0, answer.cursor - TAIL_CHARACTERS) : answer.cursor] == answer.tail


def grown_at_cursor(answer: CachedAnswer, snapshot: Snapshot) -> bool:
    """True if `snapshot` is the document of `answer`, with nothing but more text before the same cursor."""
    grown = snapshot.cursor - answer.cursor
    return (
        grown >= 0
        and len(snapshot.text) - answer.length == grown
        and same_tail(answer, snapshot)
        and hash(snapshot.text[snapshot.cursor :]) == answer.after
        and hash(snapshot.text[: answer.cursor]) == answer.before
    )


def rest_after_typing(shown: Suggestion, answer: CachedAnswer, snapshot: Snapshot) -> Suggestion | None:
    """The rest of `shown` after its next characters were typed; None when others were typed, or all of them."""
    text, cursor = snapshot.text, snapshot.cursor
    grown = cursor - answer.cursor
    end = shown.end + grown
    if not shown.text.startswith(text[shown.start : cursor]):
        return None
    rest = shown.text[cursor - shown.start :]
    if rest in ("", text[cursor:end]):
        return None
    if "\n" in text[answer.cursor : cursor] or "\r" in text[answer.cursor : cursor]:
        return Suggestion(rest, cursor, end)  # its range stays on the cursor's line
    return replace(shown, end=end)
