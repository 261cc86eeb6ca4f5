"""Names that were changed once: identifiers and callees.

    rename   an edit that does nothing else      def area(width) -> def area(breadth)     then its uses: renames.py
    callee   a callee that was replaced          print(a) -> show(a)                      then other calls

The file defines or imports the new callee, and does not define the old one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

from speclsp.lsp.next_edit.changes.places import MAX_PLACES, REACH_CHARACTERS, Place
from speclsp.lsp.next_edit.changes.substitutions import (
    DEFINITION,
    MAX_LINE_CHARACTERS,
    NAME,
    TOKEN,
    Evidence,
    Origin,
    RecentEdit,
    Substitution,
    differences,
    indentation,
)
from speclsp.lsp.syntax.text_windows import line_end, line_start, match_starts
from speclsp.lsp.syntax.tree import SyntaxTree

MAX_NAMES = 2  # of one edit: more new names mean that its lines were written anew
ALIASED = re.compile(r"(?<=[{,\s])(\w+) as (\w+)(?=\s*[,}])")
EXPANDED = re.compile(r"(?<=[{,\s])(\w+): (\w+)(?=\s*[,}])")
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_]+")
CALLEE = "callee"  # the kind of these edits
CALLED = re.compile(r"(?<![\w.$])([^\W\d]\w{2,}(?:\.\w+)*)\(")
DECLARES = re.compile(r"\b(?:def|class|function|func|fn|fun|sub|new|struct|enum|macro)\s+$")

Parse = Callable[[int], SyntaxTree | None]  # the tree around an offset


@dataclass(frozen=True, slots=True)
class Change:
    """A changed line, before and after, and how often the user made the edit that changed it."""

    old: str
    new: str
    edit: int  # index of the edit
    times: int


@dataclass
class Recent:
    """The recent edits, the text as it is now, and the cursor in it."""

    edits: Sequence[RecentEdit]  # oldest first
    text: str
    parse: Parse
    cursor: int
    is_late: Callable[[], bool]

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

    def defines(self, name: str) -> bool:
        """True if the text defines or imports a name, in any scope."""
        definition = re.compile(DEFINITION.format(name=re.escape(name)))
        word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
        lines = {line_start(self.text, at) for at in match_starts(word, name, self.text)}
        if any(definition.search(self.text[start : line_end(self.text, start)]) for start in lines):
            return True
        tree = self.parse(self.cursor)
        return tree is not None and any(word.search(self.text, *span) for span in tree.imports())

    def kind_at(self, offset: int) -> str:
        """The kind of the character at an offset: "code", "comment" or "string"; "" without a tree."""
        tree = self.parse(offset)
        return tree.kind_at(offset + 1) if tree is not None else ""


# ── identifiers ───────────────────────────────────────────────────────────────────────────────────────────────────────


def is_rename(edit: RecentEdit) -> bool:
    """True if an edit does nothing but rename one identifier, or MAX_NAMES of them.

    Two names in one line become names like theirs: else the line was written anew. Edits near each other are one edit,
    so a name is alone in its line without those that another line has alone.
    """
    if len(edit.before) != len(edit.after):
        return False
    names, lines = dict[str, str](), list[set[tuple[str, str]]]()
    for old_line, new_line in edit.changed_lines:
        old, new = TOKEN.findall(old_line), TOKEN.findall(without_keys(old_line, new_line))
        changed = [(before, after) for before, after in zip(old, new, strict=False) if before != after]
        if len(old) != len(new) or not all(NAME.match(name) for pair in changed for name in pair):
            return False
        if any(names.setdefault(before, after) != after for before, after in changed):
            return False
        lines.append({*changed})
    alone = {pair for line in lines if len(line) == 1 for pair in line}
    are_alike = all(words(old) & words(new) for old, new in names.items())
    return 0 < len(names) <= MAX_NAMES and (
        len(names) == 1 or are_alike or all(len(line - alone) < 2 for line in lines)
    )


def without_keys(old_line: str, new_line: str) -> str:
    """The new line with `{ new }` for `{ name: new }` and `{ new as name }`, where the old line has `{ name }`."""

    def short(match: re.Match[str]) -> str:
        is_new = re.search(rf"(?<!\w){match[1]}(?!\w|:)", old_line) and f"{match[1]}:" not in old_line
        return match[2] if is_new else match[0]

    def without_alias(match: re.Match[str]) -> str:
        has_name = re.search(rf"(?<!\w){match[2]}(?!\w)", old_line) and not re.search(rf"\bas {match[2]}\b", old_line)
        return match[1] if has_name else match[0]

    return ALIASED.sub(without_alias, EXPANDED.sub(short, new_line))


def words(name: str) -> set[str]:
    """The words of an identifier, in lower case: `box_width`, `boxWidth` -> box, width."""
    return {word.lower() for word in WORD.findall(name)}


def renamed_tokens(old_line: str, new_line: str) -> list[tuple[str, str, int]]:
    """(old name, new name, column in the new line) of each identifier that has another name in the new line."""
    old, new = TOKEN.findall(old_line), TOKEN.findall(new_line)
    return [
        (before, after, sum(map(len, new[:index])))
        for _, low, high, start, end in differences(old, new)
        if high - low == end - start
        for before, after, index in zip(old[low:high], new[start:end], range(start, end), strict=True)
        if before != after and NAME.match(before) and NAME.match(after)
    ]


@dataclass(slots=True)
class Rename:
    """One identifier that edits have renamed."""

    old: str
    new: str
    times: int = 0
    changes: int = 0  # of names, in the newest edit
    origins: list[Origin] = field(default_factory=list)
    spots: list[tuple[str, int]] = field(default_factory=list)  # (line, column) in the newest edit
    written: Counter[tuple[str, int]] = field(default_factory=Counter)  # (line, column) without indentation, of all


def renamed(edits: Sequence[RecentEdit]) -> list[Rename]:
    """The identifiers that the newest edit renamed, each with all recent edits that did the same."""
    listed: dict[tuple[str, str], Rename] = {}
    if not is_rename(edits[-1]):
        return []
    changes = sum(len(renamed_tokens(*pair)) for pair in edits[-1].changed_lines)
    for number, edit in enumerate(reversed(edits)):
        for old_line, new_line in edit.changed_lines:
            for old, new, before in renamed_tokens(old_line, without_keys(old_line, new_line)):
                column = max(before, new_line.find(new, before))
                if number == 0:
                    listed.setdefault((old, new), Rename(old, new, changes=changes)).spots.append((new_line, column))
                rename = listed.get((old, new))
                if rename is not None:
                    rename.written[new_line.strip(), column - len(indentation(new_line))] += edit.times
                    rename.times += edit.times
                    rename.origins.append(Origin(edit.uri, new_line))
    return list(listed.values())


# ── callees ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def replaced_callee(change: Change) -> tuple[str, str] | None:
    """(old, new) if one call of a line got another callee, and nothing else changed; else None."""
    for old, new in product(CALLED.finditer(change.old), CALLED.finditer(change.new)):
        same_head = change.old[: old.start()] == change.new[: new.start()]
        if old[1] != new[1] and same_head and change.old[old.end() :] == change.new[new.end() :]:
            return None if DECLARES.search(change.old[: old.start()]) else (old[1], new[1])
    return None


def callee_places(recent: Recent) -> Iterator[Place]:
    """Lines that call the old callee, if the file defines the new one and not the old one."""
    for old, new in filter(None, map(replaced_callee, recent.newest)):
        others = [(change, *callees) for change in recent.changes if (callees := replaced_callee(change)) is not None]
        contradicted = any(before == new or (before == old and after != new) for _, before, after in others)
        if contradicted or "." in old or not recent.defines(new.split(".")[0]) or recent.defines(old):
            continue
        same = [change for change, before, _ in others if before == old]
        origins = [Origin(recent.edits[change.edit].uri, change.new) for change in same]
        evidence = Evidence(sum(change.times for change in same), len(recent.edits) - 1, origins)
        pattern = re.compile(rf"(?<![\w.$]){old}\(")
        for start, line in recent.lines_with(pattern, f"{old}("):
            match = pattern.search(line)
            if recent.is_late() or match is None:
                return
            is_method = not line[: match.start()].strip() and line.rstrip().endswith("{")  # its definition
            if (
                not is_method
                and not DECLARES.search(line[: match.start()])
                and recent.kind_at(start + match.start()) == "code"
            ):
                place = Substitution(CALLEE, old, new)
                yield Place(start, start + len(line), pattern.sub(f"{new}(", line), place, evidence)
