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
    ARGUMENT,
    DEFINES,
    LINES,
    MAX_LINE_CHARACTERS,
    MEMBER,
    RENAME,
    Evidence,
    Learned,
    Substitution,
    around,
    indentation,
)
from speclsp.lsp.syntax.text_windows import equal_line_starts, line_end, match_starts
from speclsp.plain_text import is_word

REACH_CHARACTERS = 60_000  # searched on either side of the cursor
MAX_PLACES = 12  # examined on either side of the cursor, for one substitution
MAX_SUBSTITUTIONS = 24
MAX_CALL_CHARACTERS = 200
GROUP_LINES = 12  # below a member's sibling, in which the member may stand already


@dataclass(frozen=True, slots=True)
class Place:
    """Whole lines of a text, from offset `start` to before the line end at `end`, and the text that replaces them."""

    start: int
    end: int
    new: str  # lines end with \\n
    substitution: Substitution
    evidence: Evidence

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
    if substitution.kind in (LINES, MEMBER):
        return equal_line_starts(substitution.old.partition("\n")[0], text, low, high)
    literal = f"{substitution.callee}(" if substitution.kind == ARGUMENT else substitution.old
    return match_starts(_pattern(substitution), literal, text, low, high)


@functools.lru_cache(maxsize=256)
def _pattern(substitution: Substitution) -> re.Pattern[str]:
    """A pattern that matches wherever a substitution of tokens may apply."""
    if substitution.kind == ARGUMENT:
        return re.compile(rf"(?<!\w){re.escape(substitution.callee)}\(")
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
    if substitution.kind == MEMBER and has_member(text, end, line, substitution.new.split("\n")[1]):
        return None
    if substitution.kind in (LINES, MEMBER):
        return _block(substitution, evidence, text, start)
    pattern = _pattern(substitution)
    if substitution.kind == ARGUMENT:
        new = with_argument(line, substitution, pattern)
    else:
        new = "".join(_replaced(line, substitution, evidence, pattern))
    return Place(start, end, new, substitution, evidence) if new.split() != line.split() else None


def has_member(text: str, end: int, sibling: str, first: str) -> bool:
    """True if a member's first line stands already in the group of lines below its sibling, which ends at `end`."""
    for line in text[end + 1 : end + GROUP_LINES * MAX_LINE_CHARACTERS].split("\n")[:GROUP_LINES]:
        if line.strip() and not line.startswith(indentation(sibling)):
            return False
        if line.strip() == first.strip():
            return True
    return False


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
    neighbours = {(origin.left, origin.right) for origin in evidence.origins}
    for match in pattern.finditer(line):
        at = match.start() - inside
        is_done = inside >= 0 and at >= 0 and line.startswith(new, at)
        if match.start() < done or is_done:
            continue
        if substitution.kind != RENAME and around(line, match.start(), len(old)) not in neighbours:
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


def with_argument(line: str, substitution: Substitution, pattern: re.Pattern[str]) -> str:
    """The line with an argument added to its first call of the function that has not got it."""
    for match in pattern.finditer(line):
        if DEFINES.search(line, 0, match.start()):
            continue
        closing = closing_parenthesis(line, match.end())
        if closing is None:
            continue
        arguments = line[match.end() : closing]
        name = substitution.new.partition("=")[0].strip()
        if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", arguments):
            continue
        if not arguments.strip():
            return line[: match.end()] + substitution.new + line[closing:]
        if not substitution.last:
            return line[: match.end()] + substitution.new + ", " + line[match.end() :]
        head = line[:closing].rstrip()
        joint = " " if head.endswith(",") else ", "
        return head + joint + substitution.new + line[closing:]
    return line


def closing_parenthesis(line: str, start: int) -> int | None:
    """The offset of the parenthesis that closes the one before `start`; None if it is not on the line."""
    depth, quote = 0, ""
    for index in range(start, min(len(line), start + MAX_CALL_CHARACTERS)):
        character = line[index]
        if quote:
            quote = "" if character == quote and line[index - 1] != "\\" else quote
        elif character in "\"'`":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            if depth == 0:
                return index if character == ")" else None
            depth -= 1
    return None
