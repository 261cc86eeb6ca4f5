"""The pieces of other files that are most like the code at the cursor: as it was done there, it may go on here.

Likeness is the share of the words around the cursor that a piece has too, rare words counting more than common ones and
near ones more than far ones. What follows upon the likest lines is shown with them: there the answer stands.
"""

from __future__ import annotations

import functools
import math
import re
from array import array
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from sys import intern
from time import perf_counter

from speclsp.lsp.context.chunk import Chunk, ChunkPlace
from speclsp.lsp.syntax import hidden_characters
from speclsp.lsp.syntax.text_windows import normal_newlines

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
STEPS = LINES // STEP
APART = STEPS + LINES_BELOW // STEP  # between the numbers of two pieces that show nothing twice
STEPS_A_LOOK = 32  # read between two looks at the clock: a tenth of a millisecond
MOST_ASKED = 400  # words of a file whose pieces are kept
MOST_CHARACTERS = 2_000_000  # of the files whose words are known: about 15 MiB
MOST_OWN_CHARACTERS = 400_000  # of what the window cut off of documents: it is another text with every line
MOST_LINES = 8192  # of documents, whose words are kept

UNLIKE = "too little like the code at the cursor"
TOO_MANY = f"beyond the {FILES} files looked at"
NO_TIME = "no time to look"
NOTHING_TO_COMPARE = "too little code above the cursor to compare with"


@dataclass(frozen=True, slots=True)
class File:
    """A file to look through."""

    path: str
    text: str


def candidates(place: ChunkPlace, files: Iterable[File], until_s: float) -> tuple[list[Chunk], dict[str, str]]:
    """Pieces of `files` (the likeliest first) like the code at the cursor; why the other files have none.

    Over its time it gives what is like it in the files whose words are known by then.
    """
    wanted = words_around(place)
    left_out: dict[str, str] = {}
    if not wanted:
        return [], {file.path: NOTHING_TO_COMPARE for file in islice(files, FILES)}
    looked_at: list[tuple[File, Words, dict[str, Sequence[int]]]] = []
    for number, file in enumerate(files):
        if number >= FILES:
            left_out[file.path] = TOO_MANY
            break
        found = (OWN if file.path == place.path else READ).words(file.text, until_s)
        if found is None:
            left_out[file.path] = NO_TIME
            continue
        looked_at.append((file, found, {word: found.pieces_with(word) for word in wanted if word in found.steps}))
    total = sum(found.filled for _, found, _ in looked_at)
    common = Counter[str]()
    for _, _, holders in looked_at:
        for word, numbers in holders.items():
            common[word] += len(numbers)
    rare = {word: weight * math.log(1 + total / (1 + common[word])) for word, weight in wanted.items()}
    whole = sum(rare.values()) or 1.0
    chunks: list[Chunk] = []
    for file, found, holders in looked_at:
        likeness = [0.0] * found.pieces
        for word, numbers in holders.items():
            weight = rare[word]
            for number in numbers:
                likeness[number] += weight
        scored = [(-score / whole, number) for number, score in enumerate(likeness) if score / whole >= LEAST]
        taken: list[int] = []
        for score, number in sorted(scored):
            if len(taken) >= A_FILE:
                break
            if all(abs(number - other) >= APART for other in taken):
                taken.append(number)
                chunks.append(Chunk(file.path, found.shown(number), round(-score, 4), "similar"))
        if not taken:
            left_out[file.path] = UNLIKE
    return chunks, left_out


def words_around(place: ChunkPlace) -> Mapping[str, float]:
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


class Words:
    """Which words stand where in a file: in steps of some lines; a piece is a few steps that follow on one another."""

    __slots__ = (
        "_empty",
        "_found",
        "_lines",
        "_pieces",
        "_starts",
        "_text",
        "_words_of",
        "done",
        "filled",
        "pieces",
        "steps",
    )

    def __init__(self, text: str, words_of: Callable[[Sequence[str]], Set[str]]) -> None:
        self._text, self._words_of = normal_newlines(text), words_of
        self._lines: list[str] = []  # while it is being read
        self._starts = array("I", [0])  # where in the text each step begins, and where the one behind the last would
        self._found: dict[str, list[int]] = {}
        self._empty: list[int] = []
        self._pieces: dict[str, Sequence[int]] = {}
        self.steps: Mapping[str, Sequence[int]] = {}
        self.pieces = self.filled = 0  # how many there are, and in how many there is a word
        self.done = False

    def read(self, until_s: float) -> bool:
        """Go on reading until all is read, which is told, or time is up."""
        if self.done:
            return True
        if not self._lines:
            self._lines = self._text.split("\n")
        lines, steps, starts = self._lines, self._found, self._starts
        while len(starts) <= -(-len(lines) // STEP):
            number = len(starts) - 1
            if number % STEPS_A_LOOK == 0 and perf_counter() > until_s:
                return False
            part = lines[number * STEP : (number + 1) * STEP]
            starts.append(starts[-1] + sum(map(len, part)) + len(part))
            found = self._words_of(part)
            if not found:
                self._empty.append(number)
            for word in found:
                if word in steps:
                    steps[word].append(number)
                else:
                    steps[intern(word)] = [number]
        self._finish()
        return True

    def _finish(self) -> None:
        self._lines = []
        self.steps = {word: tuple(steps) for word, steps in self._found.items()}  # no work for the collector
        self._found = {}
        number_of_steps, empty = len(self._starts) - 1, frozenset(self._empty)
        self.pieces = max(1, number_of_steps - STEPS + 1)
        self.filled = sum(
            any(step not in empty for step in range(number, min(number + STEPS, number_of_steps)))
            for number in range(self.pieces)
        )
        self.done = True

    def pieces_with(self, word: str) -> Sequence[int]:
        """The pieces that a word stands in, by number."""
        known = self._pieces.get(word)
        if known is not None:
            return known
        found: list[int] = []
        behind, last = 0, self.pieces - 1
        for step in self.steps.get(word, ()):
            found += range(max(behind, step - STEPS + 1), min(step, last) + 1)
            behind = step + 1
        if len(self._pieces) >= MOST_ASKED:
            self._pieces.clear()
        self._pieces[word] = made = tuple(found)
        return made

    def shown(self, number: int) -> str:
        """A piece's lines and some below it, nothing invisible in them."""
        end = min(number + STEPS + LINES_BELOW // STEP, len(self._starts) - 1)
        return hidden_characters.visible(self._text[self._starts[number] : self._starts[end] - 1]).strip("\n") + "\n"


class Read:
    """The files whose words are known, those of the last look among them."""

    def __init__(self, words_of: Callable[[Sequence[str]], Set[str]], most_characters: int) -> None:
        """`words_of` gives the words in some lines; so many characters are kept, whatever is known of them."""
        self._words_of, self._most_characters = words_of, most_characters
        self._known: OrderedDict[str, Words] = OrderedDict()
        self._characters = 0

    def words(self, text: str, until_s: float) -> Words | None:
        """Those of a file, as far as it is looked at; None if there is no time to read it."""
        text = text[:FILE_CHARACTERS]
        known = self._known.get(text)
        if known is None:
            if perf_counter() > until_s:
                return None
            known = self._known[text] = Words(text, self._words_of)
            self._characters += len(text)
            while self._characters > self._most_characters and len(self._known) > 1:
                oldest, _ = self._known.popitem(last=False)
                self._characters -= len(oldest)
        else:
            self._known.move_to_end(text)
        return known if known.read(until_s) else None

    def clear(self) -> None:
        """Know nothing."""
        self._known.clear()
        self._characters = 0


def words(text: str) -> frozenset[str]:
    """The words that say something."""
    return frozenset(_WORD.findall(text)) - _SAYS_LITTLE


@functools.lru_cache(maxsize=MOST_LINES)
def words_of_line(line: str) -> frozenset[str]:
    """The same, of a line that is soon asked about again."""
    return words(line)


READ = Read(lambda lines: words("\n".join(lines)), MOST_CHARACTERS)  # documents have their neighbours in common
OWN = Read(lambda lines: frozenset().union(*map(words_of_line, lines)), MOST_OWN_CHARACTERS)

_KEYWORDS = """
and async await break case class const continue def elif else end except export extends False false final finally for
from func function if impl import int interface let mut new nil None none not null override package private protected
public pub raise readonly return self static str string struct super switch this throw True true try type typeof
undefined use var void while with yield
"""
_SAYS_LITTLE = frozenset(_KEYWORDS.split())
_WORD = re.compile(r"[^\W\d]\w{2,}")
