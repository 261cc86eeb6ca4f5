"""One change that is surely meant again: the same change elsewhere in the file.

    key     a string key that was renamed once      data["user_name"] -> data["username"]    then {"user_name": 1}
    type    a type that was replaced twice          f(a: List[int], b: List[str])            then other annotations

A key stands in a subscript, before a colon, before `in`, or in `.get(...)`. The new key is new in the file and looks
like the old one: two keys that exist side by side are no rename. The tree says where a type stands. A line is offered
with all types replaced that the user has replaced.

Precision comes first: benchmarks/editor/next_edit.py measures each kind.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from speclsp.lsp.next_edit.places import MAX_PLACES, REACH_CHARACTERS, Place
from speclsp.lsp.next_edit.substitutions import (
    MAX_LINE_CHARACTERS,
    NAME,
    TOKEN,
    Evidence,
    Origin,
    RecentEdit,
    Substitution,
    changed_lines,
    differences,
    likeness,
)
from speclsp.lsp.syntax.text_windows import line_end, line_start
from speclsp.lsp.syntax.tree import SyntaxTree

KEY = "key"  # the kind of these edits
MIN_KEY = 3  # characters
MIN_ALIKE_KEY = 0.5  # share of equal characters, of the old and the new key
LITERAL = re.compile(r"""(?<![\w"'`])(?:"([^"\\\n]+)"|'([^'\\\n]+)')(?!["'])""")
CHARACTERISTIC = re.compile(rf"(?=.*[^\W\d])\S{{{MIN_KEY},}}\Z")
SUBSCRIPT = re.compile(r"[\w)\]](?:\?\.)?\[\s*$")
CALL = re.compile(r"\.(?:get|pop|setdefault|has|delete|has_key|getItem|setItem)\(\s*$")
ENTRY = re.compile(r"(?:^|[{,(])\s*$")
COLON, IN = re.compile(r"\s*(?::(?!:)|=>)"), re.compile(r"\s*(?:not )?in\b")

TYPE = "type"  # the kind of these edits
MIN_TIMES = 2  # replaced types, on one line or several
MAX_NESTED = 8  # optional types in one line

Replacement = tuple[str, str]  # the text before and after; its structure has its own function below
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
    language: str
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
        for old, new in changed_lines(edit):
            yield Change(old, new, number, edit.times)

    @property
    def low(self) -> int:
        return max(0, self.cursor - REACH_CHARACTERS)

    @property
    def high(self) -> int:
        return min(len(self.text), self.cursor + REACH_CHARACTERS)

    def cursor_line(self) -> str:
        """The line of the cursor, without the blanks around it."""
        return self.text[line_start(self.text, self.cursor) : line_end(self.text, self.cursor)].strip()

    def lines_with(self, pattern: re.Pattern[str]) -> list[tuple[int, str]]:
        """(start, line) of the nearest lines where a pattern matches: below the cursor first, then above."""
        starts = dict.fromkeys(
            line_start(self.text, match.start()) for match in pattern.finditer(self.text, self.low, self.high)
        )
        below = [start for start in starts if start >= self.cursor][:MAX_PLACES]
        above = [start for start in starts if start < self.cursor][: -MAX_PLACES - 1 : -1]
        lines = ((start, self.text[start : line_end(self.text, start)]) for start in [*below, *above])
        return [(start, line) for start, line in lines if len(line) <= MAX_LINE_CHARACTERS]

    def passed(self, pattern: re.Pattern[str], origins: Sequence[Origin]) -> list[int]:
        """The offsets between the first and the last changed line where a pattern still matches."""
        starts = [at for origin in origins if (at := self.text.find(origin.line)) >= 0]
        return [match.start() for match in pattern.finditer(self.text, min(starts), max(starts))] if starts else []

    def is_typed(self, line: str, start: int, end: int) -> bool:
        """True if the cursor stands in the columns `[start, end)` of a changed line: the change may go on."""
        column = self.cursor - line_start(self.text, self.cursor)
        return start <= column < end and self.cursor_line() == line.strip()

    def kind_at(self, offset: int) -> str:
        """The kind of the character at an offset: "code", "comment" or "string"; "" without a tree."""
        tree = self.parse(offset)
        return tree.kind_at(offset + 1) if tree is not None else ""


def places(
    recent: Sequence[RecentEdit],
    text: str,
    parse: Parse,
    cursor: int,
    language: str,
    is_late: Callable[[], bool],
) -> Iterator[Place]:
    """The places of all kinds. Of each kind, below the cursor first, then above, the nearest first."""
    state = Recent(recent, text, parse, cursor, language, is_late)
    yield from key_places(state)
    yield from type_places(state)


# ── string keys ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Key:
    """A string literal that is a key of its line: its offsets with the quotes, and the text between them."""

    start: int
    end: int
    text: str


def keys(line: str) -> list[Key]:
    """The keys of a line."""
    literals = (Key(match.start(), match.end(), match[1] or match[2]) for match in LITERAL.finditer(line))
    return [literal for literal in literals if is_key(line[: literal.start], line[literal.end :])]


def is_key(before: str, after: str) -> bool:
    """True if a literal between these texts of its line is a key."""
    if SUBSCRIPT.search(before):
        return after.lstrip().startswith("]")
    is_entry = ENTRY.search(before) is not None and COLON.match(after) is not None
    return is_entry or CALL.search(before) is not None or IN.match(after) is not None


def renamed_key(change: Change) -> tuple[Key, str] | None:
    """(the new key, the old text) if one key of a line was renamed, and nothing else changed; else None."""
    old, new = keys(change.old), keys(change.new)
    if len(old) != len(new):
        return None
    pairs = [(before, after) for before, after in zip(old, new, strict=True) if before.text != after.text]
    if len(pairs) != 1:
        return None
    before, after = pairs[0]
    same_head = change.old[: before.start + 1] == change.new[: after.start + 1]
    same_tail = change.old[before.end - 1 :] == change.new[after.end - 1 :]
    return (after, before.text) if same_head and same_tail else None


def key_places(recent: Recent) -> Iterator[Place]:
    """Lines with the old key, the nearest first."""
    for change in recent.newest:
        renamed = renamed_key(change)
        if renamed is None or recent.is_typed(change.new, renamed[0].start + 1, renamed[0].end):
            continue
        key, old = renamed
        evidence = _key_evidence(recent, key.text, old)
        if evidence is None:
            continue
        for start, line in recent.lines_with(_key_pattern(old)):
            if recent.is_late():
                return
            same = [other for other in keys(line) if other.text == old]
            if same and recent.kind_at(start + same[0].start + 1) == "string":
                new = line
                for other in reversed(same):
                    new = new[: other.start + 1] + key.text + new[other.end - 1 :]
                yield Place(start, start + len(line), new, Substitution(KEY, old, key.text), evidence)


def _key_evidence(recent: Recent, new: str, old: str) -> Evidence | None:
    """The evidence of a renamed key; None if it is reversed, contradicted, or not new in the file."""
    if not (CHARACTERISTIC.match(old) and CHARACTERISTIC.match(new) and likeness(old, new) >= MIN_ALIKE_KEY):
        return None
    renames = [(change, *renamed) for change in recent.changes if (renamed := renamed_key(change)) is not None]
    if any(before == new or (before == old and key.text != new) for _, key, before in renames):
        return None
    same = [change for change, _, before in renames if before == old]
    times = sum(change.times for change in same)
    if sum(key.text == new for _, line in recent.lines_with(_key_pattern(new)) for key in keys(line)) > times:
        return None
    origins = [Origin(recent.edits[change.edit].uri, change.new) for change in same]
    return Evidence(times, len(recent.edits) - 1, origins)


def _key_pattern(key: str) -> re.Pattern[str]:
    return re.compile(rf"""(?<=["']){re.escape(key)}(?=["'])""")


# ── types in annotations ──────────────────────────────────────────────────────────────────────────────────────────────


def without_optional(line: str) -> str:
    """The line with `X | None` for each `Optional[X]`."""
    return _unwrapped(line, r"(?<![\w.])(?:typing\.|t\.)?Optional\[", lambda inner: f"{inner} | None")


def without_union(line: str) -> str:
    """The line with `X | Y` for each `Union[X, Y]`."""
    return _unwrapped(line, r"(?<![\w.])(?:typing\.|t\.)?Union\[", lambda inner: " | ".join(_items(inner)))


STRUCTURES: dict[Replacement, Callable[[str], str]] = {
    ("Optional[", "| None"): without_optional,
    ("Union[", " | "): without_union,
}

FAMILIES = (  # replacements that one release of Python allows together
    frozenset(STRUCTURES),
    frozenset((name, name.lower()) for name in ("List", "Dict", "Set", "FrozenSet", "Tuple", "Type")),
)


def _unwrapped(line: str, opening: str, written: Callable[[str], str]) -> str:
    """The line with `written(inner)` for each `opening inner ]`. One with a quote, or without its end, stays."""
    at = 0
    for _ in range(MAX_NESTED):
        match = re.compile(opening).search(line, at)
        if match is None:
            break
        end = _closing(line, match.end())
        inner = line[match.end() : end]
        if end < 0 or "'" in inner or '"' in inner or not inner.strip():
            at = match.end()
        else:
            line = line[: match.start()] + written(inner) + line[end + 1 :]
    return line


def _closing(line: str, start: int) -> int:
    """The offset of the bracket that closes the one before `start`; -1 if it is not on the line."""
    depth = 0
    for at in range(start, len(line)):
        if line[at] in "([{":
            depth += 1
        elif line[at] in ")]}":
            if depth == 0:
                return at
            depth -= 1
    return -1


def _items(inner: str) -> list[str]:
    """The items of a list of types."""
    items, depth = [""], 0
    for character in inner:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            items.append("")
        else:
            items[-1] += character
    return [item.strip() for item in items if item.strip()]


def replacements(change: Change) -> Counter[Replacement]:
    """The types that a line's change has replaced, if it did nothing else, and how often."""
    line, counts = change.old, Counter[Replacement]()
    for key, structure in STRUCTURES.items():
        less = line.count(key[0]) - change.new.count(key[0])
        if less > 0 and structure(line) != line:
            line = structure(line)
            counts[key] += less
    old, new = TOKEN.findall(line.strip()), TOKEN.findall(change.new.strip())
    for _, low, high, start, end in differences(old, new):
        if high - low != end - start:
            return Counter()
        for before, after in zip(old[low:high], new[start:end], strict=True):
            if before != after:
                if not NAME.match(before) or not NAME.match(after) or before[0].islower():
                    return Counter()
                counts[before, after] += 1
    return counts


def type_places(recent: Recent) -> Iterator[Place]:
    """Annotations with a type that was replaced twice, the nearest first."""
    newest = Counter[Replacement]()
    for change in recent.newest:
        newest += replacements(change)
    if not newest:
        return
    counts, origins = Counter[Replacement](), list[Origin]()
    for change in recent.changes:
        replaced = replacements(change)
        for key, number in replaced.items():
            counts[key] += number * change.times
        if replaced.keys() & newest.keys():
            origins.append(Origin(recent.edits[change.edit].uri, change.new))
    meant = [key for key in newest if counts[key] >= MIN_TIMES and (key[1], key[0]) not in counts]
    meant = [key for key in meant if all(other == key or other[0] != key[0] for other in counts)]
    if not meant or not _were_types(recent, meant, origins):
        return
    written = [*meant, *(other for family in FAMILIES if family & {*meant} for other in family - {*meant})]
    for key in meant:
        evidence = Evidence(counts[key], len(recent.edits) - 1, origins)
        pattern = _type_pattern(key)
        if any(_is_type(recent, at) for at in recent.passed(pattern, origins)):
            continue
        for start, line in recent.lines_with(pattern):
            if recent.is_late():
                return
            new, match = _rewritten(line, written), pattern.search(line)
            if new != line and match is not None and _is_type(recent, start + match.start()):
                yield Place(start, start + len(line), new, Substitution(TYPE, *key), evidence)


def _type_pattern(key: Replacement) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(key[0])}" + ("" if key in STRUCTURES else r"(?!\w)"))


def _rewritten(line: str, meant: list[Replacement]) -> str:
    for key in meant:
        line = STRUCTURES[key](line) if key in STRUCTURES else _type_pattern(key).sub(key[1], line)
    return line


def _were_types(recent: Recent, meant: list[Replacement], origins: list[Origin]) -> bool:
    """True if the user has replaced types, as far as the changed lines stand in this document."""
    for origin in origins:
        at = recent.text.find(origin.line)
        if at >= 0:
            for _, new in meant:
                inside = origin.line.find(new.strip())
                if inside >= 0 and not _is_type(recent, at + inside):
                    return False
    return True


def _is_type(recent: Recent, offset: int) -> bool:
    tree = recent.parse(offset)
    return tree is not None and tree.is_type(offset)
