"""The pieces of other files that are most like the code at the cursor: as it was done there, it may go on here.

Likeness is the share of the words around the cursor that a piece has too, rare words counting more than common ones and
near ones more than far ones. What follows upon the likest lines is shown with them: there the answer stands.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from time import perf_counter

from speclsp.lsp import shape
from speclsp.lsp.chunk import Chunk, Place
from speclsp.lsp.excerpt import normal_newlines

FILES = 20  # looked at
LINES = 12  # of a piece, compared
LINES_BELOW = 3  # shown below it
STEP = 3
FILE_CHARACTERS = 60_000
LEAST = 0.12
LINES_ABOVE_CURSOR = 8
LINES_BELOW_CURSOR = 3
FADES = 0.12  # a word counts 1 / (1 + so much) for each line further away
BELOW = 0.5  # what a word below the cursor counts beside one above it
A_FILE = 2  # pieces of one file

UNLIKE = "too little like the code at the cursor"
TOO_MANY = f"beyond the {FILES} files looked at"
NO_TIME = "no time to look"
NOTHING_TO_COMPARE = "too little code above the cursor to compare with"


@dataclass(frozen=True, slots=True)
class File:
    """A file to look through."""

    path: str
    text: str
    source: str = "similar"


@dataclass(frozen=True, slots=True)
class Piece:
    """Some lines of a file, and the words in them."""

    words: frozenset[str]
    start: int
    end: int  # of what is shown of it


def candidates(place: Place, files: Iterable[File], until_s: float) -> tuple[list[Chunk], dict[str, str]]:
    """Pieces of `files` (the likeliest first) like the code at the cursor; why the other files have none.

    Over its time it gives what it has by then.
    """
    wanted = words_around(place)
    left_out: dict[str, str] = {}
    if not wanted:
        return [], {file.path: NOTHING_TO_COMPARE for file in islice(files, FILES)}
    looked_at: list[tuple[File, Sequence[Piece]]] = []
    for number, file in enumerate(files):
        if number >= FILES or (looked_at and perf_counter() > until_s):
            left_out[file.path] = TOO_MANY if number >= FILES else NO_TIME
            break
        looked_at.append((file, pieces(file.text[:FILE_CHARACTERS])))
    total = sum(len(found) for _, found in looked_at)
    common = Counter(word for _, found in looked_at for piece in found for word in piece.words & wanted.keys())
    rare = {word: weight * math.log(1 + total / (1 + common[word])) for word, weight in wanted.items()}
    whole = sum(rare.values()) or 1.0
    chunks: list[Chunk] = []
    for file, found in looked_at:
        scored = sorted(
            ((sum(rare[word] for word in piece.words & rare.keys()) / whole, piece) for piece in found),
            key=lambda one: (-one[0], one[1].start),
        )
        taken: list[Piece] = []
        for score, piece in scored:
            if score < LEAST or len(taken) >= A_FILE:
                break
            if all(piece.end <= other.start or other.end <= piece.start for other in taken):
                taken.append(piece)
                chunks.append(Chunk(file.path, shown(file.text, piece), round(score, 4), file.source))
        if not taken:
            left_out[file.path] = UNLIKE
    return chunks, left_out


def words_around(place: Place) -> Mapping[str, float]:
    """The words near the cursor, the line being typed left aside, and how much each counts."""
    above = place.above[-4000:].split("\n")
    above = [line for line in above if line.strip()][-LINES_ABOVE_CURSOR:]
    below = [line for line in place.below[:2000].split("\n") if line.strip()][:LINES_BELOW_CURSOR]
    found: dict[str, float] = {}
    for far, line in enumerate(reversed(above)):
        for word in words(line):
            found.setdefault(word, 1.0 / (1 + FADES * far))
    for far, line in enumerate(below):
        for word in words(line):
            found.setdefault(word, BELOW / (1 + FADES * far))
    return found


@functools.lru_cache(maxsize=64)
def pieces(text: str) -> Sequence[Piece]:
    """A file in overlapping pieces of some lines, each with its words."""
    lines = normal_newlines(text).split("\n")
    of_step = [words("\n".join(lines[start : start + STEP])) for start in range(0, len(lines), STEP)]
    steps = LINES // STEP
    found = []
    for number in range(max(1, len(of_step) - steps + 1)):
        seen = frozenset().union(*of_step[number : number + steps])
        if seen:
            start = number * STEP
            found.append(Piece(seen, start, min(len(lines), start + LINES + LINES_BELOW)))
    return found


def shown(text: str, piece: Piece) -> str:
    """A piece's lines, nothing invisible in them."""
    lines = normal_newlines(text[:FILE_CHARACTERS]).split("\n")[piece.start : piece.end]
    return shape.visible("\n".join(lines)).strip("\n") + "\n"


def words(text: str) -> frozenset[str]:
    """The words that say something."""
    return frozenset(_WORD.findall(text)) - _SAYS_LITTLE


_KEYWORDS = """
and async await break case class const continue def elif else end except export extends False false final finally for
from func function if impl import int interface let mut new nil None none not null override package private protected
public pub raise readonly return self static str string struct super switch this throw True true try type typeof
undefined use var void while with yield
"""
_SAYS_LITTLE = frozenset(_KEYWORDS.split())
_WORD = re.compile(r"[^\W\d]\w{2,}")
