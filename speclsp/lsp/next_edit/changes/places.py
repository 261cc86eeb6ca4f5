"""Places of a document where replaced lines stand again, nearest to the cursor first.

Only the text near the cursor is searched, and only some occurrences of each substitution are examined. So the time does
not depend on the size of the document.
"""

from __future__ import annotations

from dataclasses import dataclass

from speclsp.lsp.next_edit.changes.substitutions import Evidence, Substitution

REACH_CHARACTERS = 60_000  # searched on either side of the cursor
MAX_PLACES = 12  # examined on either side of the cursor, for one substitution


@dataclass(frozen=True, slots=True)
class Place:
    """Whole lines of a text, from offset `start` to before the line end at `end`, and the text that replaces them."""

    start: int
    end: int
    new: str  # lines end with \\n
    substitution: Substitution  # the same for all places of one change: their offers are a chain
    evidence: Evidence
    placeholder: tuple[int, int] | None = None  # range of `new` that the user is expected to replace
    is_proven: bool = False  # by the syntax tree: offered whatever its probability


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
