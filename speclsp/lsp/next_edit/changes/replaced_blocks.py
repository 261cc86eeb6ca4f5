"""Whole lines that were replaced, where they stand again at any indentation. After one time the cursor must have left.

A change that a later edit has reversed, or made in another way, is no rule. Neither is one with a place that the user
passed and left as it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from speclsp.lsp.next_edit.changes.recent_changes import Recent
from speclsp.lsp.next_edit.changes.substitutions import Evidence, Place, Substitution
from speclsp.lsp.syntax.text_windows import line_at, line_end

BRACKETS = {"(": ")", "[": "]", "{": "}"}


def block_places(recent: Recent, is_decided: Callable[[Substitution], bool]) -> Iterator[Place]:
    """The places of the newest edit's blocks, the nearest first, without those that another kind has decided."""
    known, newest, text = dict[Substitution, Evidence](), len(recent.edits) - 1, recent.text
    for number, edit in enumerate(recent.edits):
        for substitution, origin in edit.substitutions:
            evidence = known.setdefault(substitution, Evidence())
            evidence.times, evidence.newest = evidence.times + edit.times, number
            evidence.origins.append(origin)
    of_newest, listed = [key for key in known if known[key].newest == newest], list[Place]()
    for key in of_newest:
        is_undone = any(
            (other.old, other.new) == (key.new, key.old) or (other.old == key.old and other != key)
            for other in of_newest
        )
        if is_undone or is_decided(key) or not is_balanced(key.old) or not is_balanced(key.new) or recent.is_late():
            continue
        first, evidence = key.old.partition("\n")[0], known[key]
        lines = {*key.new.split("\n"), *(origin.line for origin in evidence.origins)}
        pattern = re.compile(rf"{re.escape(first)}\s*$", re.MULTILINE)
        passed = [] if recent.is_answered(key, evidence) else recent.passed(pattern, first, evidence.origins)
        is_passed = any(block_at(key, evidence, text, start) for start, _ in recent.lines_at(passed))
        if not is_passed and (evidence.times > 1 or line_at(text, recent.cursor) not in map(str.strip, lines)):
            starts = recent.lines_with(pattern, first)
            listed += filter(None, (block_at(key, evidence, text, start) for start, _ in starts))
    changes = {(change.old.strip(), change.new.strip()) for change in recent.changes}
    edited = {new for _, new in changes}
    for place in sorted(listed, key=lambda place: (place.end < recent.cursor, abs(place.start - recent.cursor))):
        old, new = text[place.start : place.end].strip(), place.new.strip()
        if old not in edited and (new, old) not in changes and line_at(text, max(0, place.start - 1)) != new:
            yield place


def is_balanced(piece: str) -> bool:
    """True if a piece of code closes as many brackets and quotes as it opens."""
    brackets = all(piece.count(opened) == piece.count(closed) for opened, closed in BRACKETS.items())
    return brackets and all(piece.count(quote) % 2 == 0 for quote in "\"'`")


def block_at(substitution: Substitution, evidence: Evidence, text: str, start: int) -> Place | None:
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
