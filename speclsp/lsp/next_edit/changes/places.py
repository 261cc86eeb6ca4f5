"""Places of a document where a learned substitution applies, nearest to the cursor first.

Only the text near the cursor is searched, and only some occurrences of each substitution are examined. So the time does
not depend on the size of the document.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from speclsp.lsp.next_edit.changes.substitutions import (
    LINES,
    MAX_LINE_CHARACTERS,
    RENAME,
    Evidence,
    Learned,
    Substitution,
    neighbours,
)
from speclsp.lsp.syntax.text_windows import equal_line_starts, line_end, match_starts
from speclsp.plain_text import is_word

REACH_CHARACTERS = 60_000  # searched on either side of the cursor
MAX_PLACES = 12  # examined on either side of the cursor, for one substitution
MAX_SUBSTITUTIONS = 24


@dataclass(frozen=True, slots=True)
class Place:
    """Whole lines of a text, from offset `start` to before the line end at `end`, and the text that replaces them."""

    start: int
    end: int
    new: str  # lines end with \\n
    substitution: Substitution
    evidence: Evidence
    placeholder: tuple[int, int] | None = None  # range of `new` that the user is expected to replace
    is_proven: bool = False  # by the syntax tree: offered whatever its probability, without a check of its role

    def changed_at(self, text: str) -> int:
        """The offset of the first occurrence of the old tokens."""
        return next(_starts(self.substitution, text, self.start, self.end), self.start)


def places(
    learned: Learned, text: str, cursor: int, wanted: Callable[[Place], bool], is_late: Callable[[], bool]
) -> Iterator[Place]:
    """The wanted places where a substitution applies: below the cursor first, then above, the nearest first."""
    low, high = max(0, cursor - REACH_CHARACTERS), min(len(text), cursor + REACH_CHARACTERS)
    edited = {new for _, new in learned.changes}
    listed: list[Place] = []
    # by the edit that taught them last, the most frequent first among equals
    newest = sorted(learned.substitutions.items(), key=lambda item: (-item[1].newest, -item[1].times))
    for substitution, evidence in newest[:MAX_SUBSTITUTIONS]:
        if wanted(Place(0, 0, "", substitution, evidence)):
            starts = occurrences(substitution, text, low, high)
            above, below = [start for start in starts if start < cursor], [start for start in starts if start >= cursor]
            for start in [*above[-MAX_PLACES:], *below[:MAX_PLACES]]:
                if is_late():
                    return
                place = place_at(substitution, evidence, text, start)
                if place is not None:
                    listed.append(place)
    for place in sorted(listed, key=lambda place: (place.end < cursor, abs(place.start - cursor))):
        old, new = text[place.start : place.end].strip(), place.new.strip()
        if old not in edited and (new, old) not in learned.changes:
            yield place


def occurrences(substitution: Substitution, text: str, low: int, high: int) -> list[int]:
    """The starts of the lines in `[low, high)` where a substitution may apply, from top to bottom."""
    starts = _starts(substitution, text, low, high)
    return list(dict.fromkeys(text.rfind("\n", 0, start) + 1 for start in starts))


def _starts(substitution: Substitution, text: str, low: int, high: int) -> Iterator[int]:
    """The offsets in `[low, high)` where a substitution may apply."""
    if substitution.kind == LINES:
        return equal_line_starts(substitution.old.partition("\n")[0], text, low, high)
    return match_starts(_pattern(substitution), substitution.old, text, low, high)


@functools.lru_cache(maxsize=256)
def _pattern(substitution: Substitution) -> re.Pattern[str]:
    """A pattern that matches wherever a substitution of tokens may apply."""
    old = substitution.old
    left = r"(?<!\w)" if is_word(old[0]) else ""
    right = r"(?!\w)" if is_word(old[-1]) else ""
    return re.compile(left + re.escape(old) + right)


def place_at(substitution: Substitution, evidence: Evidence, text: str, start: int) -> Place | None:
    """The place at the line that begins at `start`; None if the substitution does not apply there."""
    end = line_end(text, start)
    line = text[start:end]
    if len(line) > MAX_LINE_CHARACTERS:
        return None
    if substitution.kind == LINES:
        return _block(substitution, evidence, text, start)
    new = "".join(_replaced(line, substitution, evidence, _pattern(substitution)))
    return Place(start, end, new, substitution, evidence) if new.split() != line.split() else None


def nearest_line(text: str, line: str, offset: int) -> int | None:
    """The start of the line with this text that is nearest to an offset."""
    starts, start = list[int](), text.find(line)
    while start >= 0:
        end = start + len(line)
        is_end = text.startswith(("\n", "\r\n"), end) or end == len(text)
        if is_end and (start == 0 or text[start - 1] == "\n"):
            starts.append(start)
        start = text.find(line, end + 1)
    return min(starts, key=lambda start: max(start - offset, offset - start - len(line)), default=None)


def _replaced(line: str, substitution: Substitution, evidence: Evidence, pattern: re.Pattern[str]) -> Iterator[str]:
    """The pieces of a line with each occurrence replaced. A phrase needs the neighbours it had where it was changed.

    An occurrence inside of the new text has been replaced already.
    """
    old, new, done = substitution.old, substitution.new, 0
    inside = new.find(old)
    places = {(origin.left, origin.right) for origin in evidence.origins}
    for match in pattern.finditer(line):
        at = match.start() - inside
        is_done = inside >= 0 and at >= 0 and line.startswith(new, at)
        if match.start() < done or is_done:
            continue
        if substitution.kind != RENAME and neighbours(line, match.start(), len(old)) not in places:
            continue
        yield line[done : match.start()] + new
        done = match.end()
    yield line[done:]


def _block(substitution: Substitution, evidence: Evidence, text: str, start: int) -> Place | None:
    """The lines from `start`, if they are the old lines at any indentation."""
    old = substitution.old.split("\n")
    line = text[start : line_end(text, start)]
    indent = line[: len(line) - len(line.lstrip())]
    at = end = start
    for number, expected in enumerate(old):
        end = line_end(text, at)
        wanted = indent + expected if expected.strip() else expected
        if text[at:end].rstrip() != wanted.rstrip():
            return None
        at = text.find("\n", end) + 1
        if at == 0 and number + 1 < len(old):
            return None
    new = "\n".join(indent + line if line.strip() else line for line in substitution.new.split("\n"))
    return Place(start, end, new, substitution, evidence)
