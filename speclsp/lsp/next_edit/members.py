"""Members beside their siblings: the same lines inserted below the same line in several places, and the next such line.

    name: str             name: str             name: str
    size: int   (1)       size: int   (2)  ─►   size: int   (offered)

A recent edit holds the inserted lines alone. Their sibling, the line above, is read from the text as it is now.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from speclsp.lsp.next_edit.substitutions import (
    MAX_BLOCK_LINES,
    MAX_LINE_CHARACTERS,
    MEMBER,
    MIN_BLOCK_CHARACTERS,
    TOKEN,
    Evidence,
    Origin,
    RecentEdit,
    Substitution,
    is_name,
    unindented,
)

MIN_SIBLING_CHARACTERS = 8
MAX_PLACES = 32  # of inserted lines that are examined
GROUP_LINES = 12  # below a sibling, in which the member may stand already
STATEMENT = re.compile(
    r"\W*(?:return|if|elif|else|for|while|try|except|finally|with|break|continue|pass|raise|throw)\b"
)


def members(edits: Sequence[RecentEdit], text: str) -> Iterator[tuple[Substitution, Evidence]]:
    """(sibling ─► sibling and member, evidence) of the newest edit, if the user has inserted its lines repeatedly."""
    times: Counter[str] = Counter()
    for edit in edits:
        for block in inserted(edit):
            times[unindented(block)] += edit.times
    for member in dict.fromkeys(unindented(block) for block in inserted(edits[-1])):
        if times[member] >= 2 and is_member(member.split("\n")):
            for sibling, origins in siblings_of(member, edits[-1].uri, text).items():
                if len(origins) >= 2:
                    evidence = Evidence(min(times[member], len(origins)), len(edits) - 1, origins)
                    yield Substitution(MEMBER, sibling, f"{sibling}\n{member}"), evidence


def inserted(edit: RecentEdit) -> list[tuple[str, ...]]:
    """The blocks of lines that an edit has inserted. Edits near each other are one edit, with lines between them."""
    if not edit.before:
        return [edit.after]
    codes = difflib.SequenceMatcher(None, edit.before, edit.after, autojunk=False).get_opcodes()
    return [edit.after[start:end] for kind, _, _, start, end in codes if kind == "insert"]


def siblings_of(member: str, uri: str, text: str) -> dict[str, list[Origin]]:
    """The lines above a member wherever it stands, without their indentation, each with these places."""
    first, *rest = member.split("\n")
    siblings: dict[str, list[Origin]] = {}
    for start in starts_of(first.strip(), text):
        lines = text[start : start + MAX_LINE_CHARACTERS * (len(rest) + 2)].split("\n")[: len(rest) + 1]
        above = line_above(text, start)
        if unindented(lines) == member and is_sibling(above, lines[0]):
            siblings.setdefault(above.strip(), []).append(Origin(uri, lines[0]))
    return siblings


def is_member(lines: Sequence[str]) -> bool:
    """True for a short block that is characteristic enough, and no statement that changes the flow of control."""
    characters = sum(len(line.strip()) for line in lines)
    names = sum(is_name(token) for line in lines for token in TOKEN.findall(line))
    short = 0 < len(lines) <= MAX_BLOCK_LINES and max(map(len, lines)) <= MAX_LINE_CHARACTERS
    return short and characters >= MIN_BLOCK_CHARACTERS and names > 0 and not STATEMENT.match(lines[0])


def is_sibling(line: str, member: str) -> bool:
    """True for a line of the member's own indentation with a name in it, and no statement."""
    alike = indentation(line) == indentation(member) and len(line) <= MAX_LINE_CHARACTERS
    named = any(map(is_name, TOKEN.findall(line)))
    return alike and named and len(line.strip()) >= MIN_SIBLING_CHARACTERS and not STATEMENT.match(line)


def has_member(text: str, end: int, sibling: str, first: str) -> bool:
    """True if a member's first line stands already in the group of lines below its sibling, which ends at `end`."""
    for line in text[end + 1 : end + GROUP_LINES * MAX_LINE_CHARACTERS].split("\n")[:GROUP_LINES]:
        if line.strip() and not line.startswith(indentation(sibling)):
            return False
        if line.strip() == first.strip():
            return True
    return False


def starts_of(line: str, text: str) -> list[int]:
    """The starts of the first lines that are `line` at any indentation."""
    pattern = re.compile(rf"(?m)^[ \t]*{re.escape(line)}[ \t]*\r?$")
    return [match.start() for match, _ in zip(pattern.finditer(text), range(MAX_PLACES), strict=False)]


def line_above(text: str, start: int) -> str:
    """The line above the one that begins at `start`; "" at the top."""
    return text[text.rfind("\n", 0, start - 1) + 1 : start - 1].rstrip("\r") if start else ""


def indentation(line: str) -> str:
    """The blanks at the start of a line."""
    return line[: len(line) - len(line.lstrip())]
