"""Simulated persons: they type a body, and take of each suggestion the right part that saves keys.

    all of it       if every character is right                        one key (Tab)
    its lines       the first ones that are right to their end         one key each
    its words       the next ones that are right, after such lines     one key each; the word taker only

A person takes the part that saves most, if that is at least MIN_SAVED keys, and nothing otherwise. So no character
is taken that does not stay, and an acceptance never costs keys. The reader takes at pauses only, the others at any key.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from benchmarks.keystrokes.economy.bodies import KEY

MIN_SAVED = 3
WORD = re.compile(r"\s*(?:\w+|[^\w\s]+)")


class Person(NamedTuple):
    """A habit of taking suggestions."""

    name: str
    at_pauses: bool  # takes nothing between fast keys
    words: bool  # takes single words
    takes: bool = True  # anything at all


READER = Person("reader", at_pauses=True, words=False)
TYPIST = Person("typist", at_pauses=False, words=False)
WORD_TAKER = Person("word taker", at_pauses=False, words=True)
PERSONS = (READER, TYPIST, WORD_TAKER)
ONLOOKER = Person("onlooker", at_pauses=True, words=False, takes=False)  # the same pauses under every policy


class Acceptance(NamedTuple):
    """The part of a suggestion that is taken."""

    characters: int
    keys: int  # that take it
    saved: int  # keys: those that would type it, less those that take it


NOTHING = Acceptance(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Keyboard:
    """The keys that type a text, and the offset that each of them reaches."""

    ends: tuple[int, ...]

    @classmethod
    def of(cls, text: str) -> Keyboard:
        return cls(tuple(accumulate((len(key) for key in KEY.findall(text)), initial=0)))

    @property
    def keys(self) -> int:
        return len(self.ends) - 1

    def position(self, offset: int) -> int:
        """The number of keys that type the text up to `offset`; a key typed in part does not count."""
        return bisect_right(self.ends, offset) - 1

    def reaches(self, offset: int) -> bool:
        """True if `offset` is the end of a key."""
        return self.ends[self.position(offset)] == offset


def right_lines(suggestion: str, meant: str) -> list[int]:
    """The ends of the first lines of a suggestion that equal those of `meant`. A blank line belongs to the next one."""
    ends: list[int] = []
    start = 0
    while start < len(suggestion):
        newline = suggestion.find("\n", start)
        end = newline if newline >= 0 else len(suggestion)
        ends_line = end == len(meant) or meant[end : end + 1] == "\n"
        if suggestion[start:end] != meant[start:end] or not ends_line:
            break
        if suggestion[start:end].strip():
            ends.append(end)
        if newline >= 0 and meant[end : end + 1] != "\n":
            break
        start = end + 1
    return ends


def right_length(suggestion: str, meant: str) -> int:
    """The number of characters at the start of a suggestion that are right."""
    length = min(len(suggestion), len(meant))
    return next((at for at in range(length) if suggestion[at] != meant[at]), length)


def accept(suggestion: str, meant: str, keyboard: Keyboard, offset: int, person: Person) -> Acceptance:
    """The acceptance of a suggestion at `offset` of the keyboard's text, of which `meant` is the rest."""

    def part(characters: int, keys: int) -> Acceptance:
        if not keyboard.reaches(offset + characters):
            return NOTHING
        typed = keyboard.position(offset + characters) - keyboard.position(offset)
        return Acceptance(characters, keys, typed - keys)

    right = right_length(suggestion, meant)
    parts = [part(right, 1)] if right == len(suggestion) else []
    for lines, start in enumerate([0, *right_lines(suggestion, meant)]):
        parts.append(part(start, lines))
        for words, word in enumerate(WORD.finditer(suggestion, start) if person.words else (), 1):
            if word.end() > right:
                break
            parts.append(part(word.end(), lines + words))
    best = max(parts, key=lambda acceptance: (acceptance.saved, acceptance.characters))
    return best if person.takes and best.saved >= MIN_SAVED else NOTHING
