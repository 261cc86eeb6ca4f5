"""Whole lines that recent edits have replaced by others: the text that went, the text that came, and how often.

    edit, before and after ─► replaced blocks of lines ─► Substitution, with its Evidence

Nothing is learned from whitespace, from long lines, or from a change that a later edit has reversed.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

RENAME, LINES = "rename", "lines"
MAX_LINE_CHARACTERS = 300
MAX_BLOCK_LINES = 8  # of replaced lines
MIN_BLOCK_CHARACTERS = 12

TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
NAME, LONG_NAME = re.compile(r"[^\W\d]\w*\Z"), re.compile(r"\b[^\W\d]\w{2,}")
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
        blocks = ((old, new) for old, new in changed_blocks(self) if len(old) == len(new))
        return tuple(
            (old, new)
            for pair in blocks
            for old, new in zip(*pair, strict=True)
            if max(len(old), len(new)) <= MAX_LINE_CHARACTERS and old.split() != new.split()
        )

    @cached_property
    def substitutions(self) -> tuple[tuple[Substitution, Origin], ...]:
        """The substitutions of its blocks, each with the line that teaches it."""
        return tuple(
            (Substitution(LINES, unindented(old), unindented(new)), Origin(self.uri, new[0]))
            for old, new in changed_blocks(self)
            if is_block(old, new)
        )


@dataclass(frozen=True, slots=True)
class Substitution:
    """One change of text."""

    kind: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Origin:
    """One changed line that taught a substitution."""

    uri: str
    line: str  # after the edit


@dataclass(slots=True)
class Evidence:
    """The changed lines that a substitution was learned from."""

    times: int = 0
    newest: int = 0  # index of the last edit with it
    origins: list[Origin] = field(default_factory=list)


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


def is_block(old: Sequence[str], new: Sequence[str]) -> bool:
    """True if a replaced block is short, and characteristic enough to be the same thing elsewhere."""
    characters = sum(len(line.strip()) for line in old)
    names = LONG_NAME.findall("\n".join(old))
    is_short = max(len(old), len(new)) <= MAX_BLOCK_LINES and bool(old[0].strip())
    return is_short and characters >= MIN_BLOCK_CHARACTERS and len(names) >= 2


def unindented(lines: Sequence[str]) -> str:
    """Lines joined by newlines, without the indentation of the first one."""
    indent = indentation(lines[0]) if lines else ""
    return "\n".join(line.removeprefix(indent) for line in lines)


def differences(old: Sequence[str], new: Sequence[str]) -> list[OpCode]:
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return [code for code in matcher.get_opcodes() if code[0] != "equal"]


def indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
