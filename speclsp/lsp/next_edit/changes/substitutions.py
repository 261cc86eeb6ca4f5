"""Substitutions learned from recent edits: the tokens that went, the tokens that came, and how often.

    edit, before and after ─► changed lines in pairs ─► token diff ─► Substitution, with its Evidence

    rename     one identifier for another              old_name -> new_name
    phrase     tokens with an identifier among them    print( -> log.info(       x.items -> wrap(x.items)
    lines      whole lines for other lines

Nothing is learned from whitespace, from long lines, or from a change that a later edit has reversed.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

RENAME, PHRASE, LINES = "rename", "phrase", "lines"
MIN_NAME = 3  # characters of an identifier that a substitution is about
MAX_LINE_CHARACTERS = 300
MAX_TOKENS = 12  # of a phrase
MAX_BLOCK_LINES = 8  # of replaced lines
MIN_BLOCK_CHARACTERS = 12
MIN_ALIKE = 0.5  # share of equal characters in a line and its successor, where a block changes its number of lines

TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
NAME = re.compile(r"[^\W\d]\w*\Z")
OpCode = tuple[str, int, int, int, int]  # of difflib


@dataclass(frozen=True)
class Edit:
    """Lines that were changed, before and after. Each ends with \\n."""

    uri: str
    language: str
    before: str
    after: str
    committed_s: float = 0.0
    times: int = 1  # how often the user made this same edit, at different places
    above: str = ""  # the line above removed lines, where the edit leaves none

    @cached_property
    def old_lines(self) -> tuple[str, ...]:
        return tuple(whole_lines(self.before))

    @cached_property
    def new_lines(self) -> tuple[str, ...]:
        return tuple(whole_lines(self.after))

    @cached_property
    def changed_lines(self) -> tuple[tuple[str, str], ...]:
        """(line before, line after) of each changed line. Added and removed lines have no partner."""
        pairs = (
            pair
            for old, new in changed_blocks(self)
            for pair in (zip(old, new, strict=True) if len(old) == len(new) else _alike(old, new))
        )
        return tuple(
            (old, new)
            for old, new in pairs
            if max(len(old), len(new)) <= MAX_LINE_CHARACTERS and old.split() != new.split()
        )

    @cached_property
    def substitutions(self) -> tuple[tuple[Substitution, Origin], ...]:
        """The substitutions of its blocks and changed lines, each with the line that teaches it."""
        blocks = (
            (Substitution(LINES, unindented(old), unindented(new)), Origin(self.uri, new[0]))
            for old, new in changed_blocks(self)
            if is_block(old, new)
        )
        of_lines = (
            (substitution, _origin(self.uri, substitution, old, new))
            for old, new in self.changed_lines
            for substitution in dict.fromkeys(of_line(old, new))
        )
        return *blocks, *of_lines


@dataclass(frozen=True, slots=True)
class Substitution:
    """One change of text."""

    kind: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Origin:
    """One changed line that taught a substitution. `left` and `right`: the tokens around the changed ones."""

    uri: str
    line: str  # after the edit
    left: str = ""
    right: str = ""


@dataclass(slots=True)
class Evidence:
    """The changed lines that a substitution was learned from."""

    times: int = 0
    newest: int = 0  # index of the last edit with it
    origins: list[Origin] = field(default_factory=list)


@dataclass(slots=True)
class Learned:
    """Everything that the recent edits teach."""

    substitutions: dict[Substitution, Evidence]
    changes: set[tuple[str, str]]  # (line before, line after), without blanks around them


def learn(edits: Sequence[Edit], is_late: Callable[[], bool] = lambda: False) -> Learned:
    """The substitutions of some edits, oldest first. One that contradicts a later edit is left out.

    Nothing is learned if `is_late()` becomes true: without all edits, a reversed one would not be noticed.
    """
    learned = Learned({}, set())
    for number, edit in enumerate(edits):
        if is_late():
            return Learned({}, set())
        learned.changes.update((old.strip(), new.strip()) for old, new in edit.changed_lines)
        for substitution, origin in edit.substitutions:
            evidence = learned.substitutions.setdefault(substitution, Evidence())
            evidence.times += edit.times
            evidence.newest = number
            evidence.origins.append(origin)
    learned.substitutions = dict(_not_contradicted(learned.substitutions))
    return learned


def _origin(uri: str, substitution: Substitution, old_line: str, new_line: str) -> Origin:
    old, at = substitution.old, old_line.find(substitution.old)
    return Origin(uri, new_line, *(neighbours(old_line, at, len(old)) if at >= 0 else ("", "")))


def neighbours(line: str, start: int, length: int) -> tuple[str, str]:
    """The tokens before and after a piece of a line, blanks aside; "" at the line's ends."""
    before, after = line[:start].split(), line[start + length :].split()
    left = TOKEN.findall(before[-1])[-1] if before else ""
    right = TOKEN.findall(after[0])[0] if after else ""
    return left, right


def _not_contradicted(known: dict[Substitution, Evidence]) -> Iterator[tuple[Substitution, Evidence]]:
    """The substitutions that no edit contradicts which is not earlier.

    It contradicts one that does the reverse, or changes the same text into something else.
    """
    by_old = dict[tuple[str, str], list[Substitution]]()
    for key in known:
        by_old.setdefault((key.kind, key.old), []).append(key)
    for key, evidence in known.items():
        others = [other for other in by_old.get((key.kind, key.new), ()) if other.new == key.old]
        others += [other for other in by_old[key.kind, key.old] if other.new != key.new]
        if not any(other != key and known[other].newest >= evidence.newest for other in others):
            yield key, evidence


def whole_lines(text: str) -> list[str]:
    """Lines without their line ends; text after the last newline is a line unless it is empty."""
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


# ── pairs of lines ────────────────────────────────────────────────────────────────────────────────────────────────────


def changed_blocks(edit: Edit) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """(lines before, lines after) of each block that an edit replaced."""
    matcher = difflib.SequenceMatcher(None, edit.old_lines, edit.new_lines, autojunk=False)
    for kind, low, high, start, end in matcher.get_opcodes():
        if kind == "replace":
            yield edit.old_lines[low:high], edit.new_lines[start:end]


def _alike(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Lines of two blocks that are alike, in order."""
    start = 0
    if max(len(old), len(new)) > MAX_BLOCK_LINES:
        return
    for line in old:
        best, at = 0.0, -1
        for index, other in enumerate(new[start:], start):
            if max(len(line), len(other)) <= MAX_LINE_CHARACTERS:
                matcher = difflib.SequenceMatcher(None, line.strip(), other.strip(), autojunk=False)
                least = max(best, MIN_ALIKE)
                if (
                    min(matcher.real_quick_ratio(), matcher.quick_ratio()) >= least
                    and (ratio := matcher.ratio()) > best
                ):
                    best, at = ratio, index
        if best >= MIN_ALIKE:
            start = at + 1
            yield line, new[at]


def is_block(old: Sequence[str], new: Sequence[str]) -> bool:
    """True if a replaced block is short, and characteristic enough to be the same thing elsewhere."""
    characters = sum(len(line.strip()) for line in old)
    names = [token for line in old for token in TOKEN.findall(line) if is_name(token)]
    lines = max(len(old), len(new))
    return lines <= MAX_BLOCK_LINES and characters >= MIN_BLOCK_CHARACTERS and len(names) >= 2


def unindented(lines: Sequence[str]) -> str:
    """Lines joined by newlines, without the indentation of the first one."""
    indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())] if lines else ""
    return "\n".join(line.removeprefix(indent) for line in lines)


# ── the tokens of one line ────────────────────────────────────────────────────────────────────────────────────────────


def of_line(old_line: str, new_line: str) -> Iterator[Substitution]:
    """The substitutions that turn one line into the other."""
    old, new = TOKEN.findall(old_line.strip()), TOKEN.findall(new_line.strip())
    changes = _changes(old, new)
    for _, low, high, start, end in changes:
        yield from _renames(old[low:high], new[start:end])
    spans = [code[1:] for code in changes]
    if len(spans) > 1:
        spans.append((spans[0][0], spans[-1][1], spans[0][2], spans[-1][3]))
    for low, high, start, end in spans:
        phrase = _phrase(old, new, low, high, start, end)
        if phrase is not None:
            yield phrase


def _changes(old: list[str], new: list[str]) -> list[OpCode]:
    """The differences of two lines, without those that only move blanks: `Node *next` -> `Node* next`."""
    changes = differences(old, new)
    removed = {token for _, low, high, _, _ in changes for token in old[low:high]}
    added = {token for _, _, _, start, end in changes for token in new[start:end]}
    if not removed & added:
        return changes
    solid_old, solid_new = ([at for at, token in enumerate(line) if not token.isspace()] for line in (old, new))
    solid = differences([old[at] for at in solid_old], [new[at] for at in solid_new])
    differs_old = {at for _, low, high, _, _ in solid for at in solid_old[low:high]}
    differs_new = {at for _, _, _, start, end in solid for at in solid_new[start:end]}
    return [
        code for code in changes if differs_old & {*range(code[1], code[2])} or differs_new & {*range(code[3], code[4])}
    ]


def differences(old: Sequence[str], new: Sequence[str]) -> list[OpCode]:
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return [code for code in matcher.get_opcodes() if code[0] != "equal"]


def _renames(old: Sequence[str], new: Sequence[str]) -> Iterator[Substitution]:
    """Renamed identifiers, where two pieces differ in nothing else."""
    if len(old) != len(new):
        return
    differing = [(before, after) for before, after in zip(old, new, strict=True) if before != after]
    if all(is_name(before) and NAME.match(after) for before, after in differing):
        yield from (Substitution(RENAME, before, after) for before, after in differing)


def _phrase(old: list[str], new: list[str], low: int, high: int, start: int, end: int) -> Substitution | None:
    """The change of `old[low:high]` to `new[start:end]`, widened until an identifier is among the old tokens."""
    while not any(map(is_name, old[low:high])) or old[high - 1].isspace() or old[low].isspace():
        if low > 0 and start > 0 and old[low - 1] == new[start - 1]:
            low, start = low - 1, start - 1
        elif high < len(old) and end < len(new) and old[high] == new[end]:
            high, end = high + 1, end + 1
        else:
            return None
        if high - low > MAX_TOKENS:
            return None
    if high - low > MAX_TOKENS or end - start > 2 * MAX_TOKENS or (high - low == 1 == end - start):
        return None
    return Substitution(PHRASE, "".join(old[low:high]), "".join(new[start:end]))


def is_name(token: str) -> bool:
    """True for an identifier long enough to be characteristic."""
    return len(token) >= MIN_NAME and NAME.match(token) is not None


def indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
