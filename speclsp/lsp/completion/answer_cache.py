"""What earlier answers still say about the text at hand: the suggestion being typed along, or what a wrong one left.

    shown "append(item)", typed "app"   recall:    "end(item)" is still the answer; the engine is not asked
    shown "append(item)", typed "ax"    expected:  "pend(item)" may still be near: drafted from, never shown

A document is remembered by its length and by hashes of the text on either side of the cursor, not by its text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.postprocess.plan import Suggestion

REMEMBERED = 8  # answers per document: going back and forth, undoing, retyping
TYPED_AWAY = 80  # characters after which an old suggestion says nothing about what comes
TAIL = 24  # characters before the cursor, compared before anything is hashed


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """What was answered at one place."""

    suggestions: tuple[Suggestion, ...]
    reason: str  # why there is none
    wanted: int  # how many were asked for
    whole: bool  # False: what a request had streamed when a newer one superseded it; never shown
    cursor: int
    length: int  # of the document
    tail: str
    before: int  # hash of the text before the cursor
    after: int
    prepared: bool = False  # before anybody asked (next.py)


class AnswerCache:
    """The last few answers of each open document."""

    def __init__(self) -> None:
        self._by_uri: dict[str, deque[CachedAnswer]] = {}

    def keep(
        self,
        snapshot: Snapshot,
        suggestions: Sequence[Suggestion],
        wanted: int,
        reason: str = "",
        whole: bool = True,
        prepared: bool = False,
    ) -> None:
        """Remember an answer given for `snapshot`."""
        cursor, text = snapshot.cursor, snapshot.text
        answer = CachedAnswer(
            tuple(suggestions),
            reason,
            wanted,
            whole,
            cursor,
            len(text),
            text[max(0, cursor - TAIL) : cursor],
            hash(text[:cursor]),
            hash(text[cursor:]),
            prepared,
        )
        self._by_uri.setdefault(snapshot.uri, deque(maxlen=REMEMBERED)).append(answer)

    def recall(self, snapshot: Snapshot, wanted: int) -> tuple[tuple[Suggestion, ...], str] | None:
        """Up to `wanted` suggestions that still hold, and why there are none; None when the engine must be asked."""
        for answer in reversed(self._by_uri.get(snapshot.uri, ())):
            if answer.whole and answer.wanted >= wanted and grown_at_cursor(answer, snapshot):
                if snapshot.cursor == answer.cursor:
                    return answer.suggestions[:wanted], answer.reason
                left = [rest for shown in answer.suggestions if (rest := typed_into(shown, answer, snapshot))]
                if left:
                    return tuple(left[:wanted]), ""
        return None

    def was_prepared(self, snapshot: Snapshot) -> bool:
        """Whether the answer for this very text was made before anybody asked. Says so once."""
        answers = self._by_uri.get(snapshot.uri, deque())
        for index, answer in enumerate(answers):
            if answer.prepared and answer.cursor == snapshot.cursor and grown_at_cursor(answer, snapshot):
                answers[index] = replace(answer, prepared=False)
                return True
        return False

    def expected(self, snapshot: Snapshot) -> str:
        """What is likely to follow the cursor, with \\n for newlines; "" when nothing is known."""
        for answer in reversed(self._by_uri.get(snapshot.uri, ())):
            if 0 <= snapshot.cursor - answer.cursor <= TYPED_AWAY and same_tail(answer, snapshot):
                typed = snapshot.text[answer.cursor : snapshot.cursor]
                for shown in answer.suggestions:
                    insert = shown.text[max(0, answer.cursor - shown.start) :]
                    same = next((i for i, (a, b) in enumerate(zip(typed, insert, strict=False)) if a != b), len(typed))
                    if insert[same:]:
                        return insert[same:].replace("\r\n", "\n").replace("\r", "\n")
        return ""

    def forget(self, uri: str) -> None:
        """The document was closed."""
        self._by_uri.pop(uri, None)

    def clear(self) -> None:
        """Another model, or other settings, would answer otherwise."""
        self._by_uri.clear()


def same_tail(answer: CachedAnswer, snapshot: Snapshot) -> bool:
    """Whether the text just before where `answer` was given is what it was."""
    return snapshot.text[max(0, answer.cursor - TAIL) : answer.cursor] == answer.tail


def grown_at_cursor(answer: CachedAnswer, snapshot: Snapshot) -> bool:
    """Whether `snapshot` is the document `answer` was given for, with nothing but more text before the same cursor."""
    grown = snapshot.cursor - answer.cursor
    return (
        grown >= 0
        and len(snapshot.text) - answer.length == grown
        and same_tail(answer, snapshot)
        and hash(snapshot.text[snapshot.cursor :]) == answer.after
        and hash(snapshot.text[: answer.cursor]) == answer.before
    )


def typed_into(shown: Suggestion, answer: CachedAnswer, snapshot: Snapshot) -> Suggestion | None:
    """What of `shown` is left when its next characters have been typed; None when other ones were, or all of them."""
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
