"""Lines that the recent edits have changed, with the text as it is now: the input of the edits of one kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from speclsp.lsp.next_edit.changes.substitutions import MAX_LINE_CHARACTERS, Edit, Evidence, Origin, Place, Substitution
from speclsp.lsp.syntax.languages.keywords import definition
from speclsp.lsp.syntax.languages.record import Language
from speclsp.lsp.syntax.text_windows import line_end, line_start, match_starts
from speclsp.lsp.syntax.tree import SyntaxTree

REACH_CHARACTERS = 60_000  # searched on either side of the cursor, so that the time does not grow with the document
MAX_PLACES = 12  # examined on either side of the cursor, for one substitution

Rewritten = Callable[[int, str], str]  # (start, line) -> the new line
Parse = Callable[[int], SyntaxTree | None]  # the tree around an offset


@dataclass(frozen=True, slots=True)
class Change:
    """A changed line, before and after, and how often the user made the edit that changed it."""

    old: str
    new: str
    edit: int  # index of the edit
    times: int


class NotOffered(NamedTuple):
    """A kind of edit that was looked for, and the reason why it is not offered. No text of the document."""

    kind: str
    at: int  # offset
    reason: str
    detail: str = ""  # more than the reason's meaning: "3 uses, 2 of them in a class of another file"


@dataclass
class Recent:
    """The recent edits, the text as it is now, and the cursor in it. Kinds report what they do not offer."""

    edits: Sequence[Edit]  # oldest first
    text: str
    parse: Parse
    cursor: int
    language: Language
    is_late: Callable[[], bool]
    not_offered: list[NotOffered] = field(default_factory=list)
    is_answered: Callable[[Substitution, Evidence], bool] = lambda _change, _evidence: False  # an offer of its chain

    def report(self, kind: str, reason: str, at: int | None = None, detail: str = "") -> None:
        """Explain why a kind has no edit, or none at an offset. Without one, the cursor's."""
        self.not_offered.append(NotOffered(kind, self.cursor if at is None else at, reason, detail))

    @cached_property
    def newest(self) -> list[Change]:
        """The lines that the newest edit has changed."""
        return list(self._changes(len(self.edits) - 1))

    @cached_property
    def changes(self) -> list[Change]:
        """The lines that all edits have changed, oldest first."""
        return [change for number in range(len(self.edits)) for change in self._changes(number)]

    def _changes(self, number: int) -> Iterator[Change]:
        edit = self.edits[number]
        for old, new in edit.changed_lines:
            yield Change(old, new, number, edit.times)

    @property
    def low(self) -> int:
        return max(0, self.cursor - REACH_CHARACTERS)

    @property
    def high(self) -> int:
        return min(len(self.text), self.cursor + REACH_CHARACTERS)

    def lines_with(self, pattern: re.Pattern[str], literal: str) -> list[tuple[int, str]]:
        """(start, line) of the nearest lines where a pattern matches: below the cursor first, then above.

        `literal`: every match begins with it.
        """
        return self.lines_at(list(match_starts(pattern, literal, self.text, self.low, self.high)))

    def lines_at(self, offsets: Sequence[int]) -> list[tuple[int, str]]:
        """(start, line) of the nearest lines with these offsets, which ascend: below the cursor first, then above."""
        starts = dict.fromkeys(line_start(self.text, offset) for offset in offsets)
        below = [start for start in starts if start >= self.cursor][:MAX_PLACES]
        above = [start for start in starts if start < self.cursor][: -MAX_PLACES - 1 : -1]
        lines = ((start, self.text[start : line_end(self.text, start)]) for start in [*below, *above])
        return [(start, line) for start, line in lines if len(line) <= MAX_LINE_CHARACTERS]

    def passed(self, pattern: re.Pattern[str], literal: str, origins: Sequence[Origin]) -> list[int]:
        """The offsets between the first and the last changed line where a pattern still matches."""
        starts = [at for origin in origins if (at := self.text.find(origin.line)) >= 0]
        return list(match_starts(pattern, literal, self.text, min(starts), max(starts))) if starts else []

    def evidence(self, changes: Sequence[Change]) -> Evidence:
        """The evidence that some changes are, the newest edit's among them."""
        origins = [Origin(self.edits[change.edit].uri, change.new) for change in changes]
        return Evidence(sum(change.times for change in changes), len(self.edits) - 1, origins)

    def rewritten_lines(
        self, pattern: re.Pattern[str], change: Substitution, evidence: Evidence, rewritten: Rewritten, is_proven: bool
    ) -> Iterator[Place]:
        """The nearest lines that `rewritten(start, line)` changes; none if the user passed one and answered no offer.

        Every match of the pattern, one in each such line, begins with the substitution's old text.
        """
        passed = [] if self.is_answered(change, evidence) else self.passed(pattern, change.old, evidence.origins)
        is_left = any(rewritten(start, line) != line for start, line in self.lines_at(passed))
        for start, line in self.lines_with(pattern, change.old) if not is_left else ():
            new = rewritten(start, line) if not self.is_late() else line
            if new != line:
                yield Place(start, start + len(line), new, change, evidence, is_proven=is_proven)

    def defines(self, name: str) -> bool:
        """True if the text defines or imports a name, in any scope."""
        defines = definition(self.language.keywords, name)
        word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
        lines = {line_start(self.text, at) for at in match_starts(word, name, self.text)}
        return any(defines.search(self.text[start : line_end(self.text, start)]) for start in lines) or self.imports(
            name
        )

    def imports(self, name: str) -> bool:
        """True if an import at the top level has a name."""
        tree, word = self.parse(self.cursor), re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
        return tree is not None and any(word.search(self.text, *span) for span in tree.imports())

    def kind_at(self, offset: int) -> str:
        """The kind of the character at an offset: "code", "comment" or "string"; "" without a tree."""
        tree = self.parse(offset)
        return tree.kind_at(offset + 1) if tree is not None else ""
