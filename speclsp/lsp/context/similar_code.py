"""Similar code: pieces of other files that share the most words with the code at the cursor.

Similarity is the share of the words around the cursor that a piece has too. Rare words count more than common ones, and
words near the cursor more than distant ones. The lines that follow a similar piece are shown with it: they are the most
likely continuation.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from sys import intern

from speclsp.lsp.context.chunk import Chunk, ChunkPlace
from speclsp.lsp.index.deadline import Deadline
from speclsp.lsp.index.file_cache import FILE_CHARACTERS
from speclsp.lsp.syntax import hidden_characters
from speclsp.lsp.syntax.text_windows import normal_newlines

FILES = 20  # searched
LINES = 12  # of a piece, compared
LINES_BELOW = 3  # shown below it
STEP = 3  # lines
LEAST = 0.12  # score of a piece that is shown
LINES_ABOVE_CURSOR = 8
LINES_BELOW_CURSOR = 3
FADES = 0.12  # a word counts 1 / (1 + FADES * n), n lines away from the cursor
BELOW = 0.5  # weight of a word below the cursor, relative to one above it
A_FILE = 2  # pieces of one file
STEPS = LINES // STEP
APART = STEPS + LINES_BELOW // STEP  # steps between two pieces that do not overlap
MAX_WORDS = 400  # of a file, whose pieces are cached
MAX_CHARACTERS = 2_000_000  # of the files whose words are cached, one text of each: about 15 MiB


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to search for similar code."""

    path: str
    text: str
    uri: str = ""  # of an open document, or of a part of one: two of them can have the same path

    @property
    def key(self) -> str:
        """The name its word index is cached under."""
        return self.uri or self.path


def candidates(place: ChunkPlace, files: Iterable[SourceFile], deadline: Deadline) -> tuple[list[Chunk], bool]:
    """Pieces of `files` (the likeliest first) similar to the code at the cursor, and False if a file was not compared.

    After the deadline it compares only the files whose words are cached by then.
    """
    cursor_words = words_around(place)
    if not cursor_words:
        return [], True
    is_complete = True
    searched: list[tuple[SourceFile, WordIndex, dict[str, Sequence[int]]]] = []  # pieces by word
    for file in islice(files, FILES):
        index = FILE_WORDS.get(file.text, deadline, file.key)
        if index is None:
            is_complete = False
            continue
        searched.append((file, index, {word: index.pieces_with(word) for word in cursor_words if word in index.steps}))
    total = sum(index.filled_pieces for _, index, _ in searched)
    common = Counter[str]()  # pieces with the word, in all files
    for _, _, pieces in searched:
        for word, numbers in pieces.items():
            common[word] += len(numbers)
    weights = {word: weight * math.log(1 + total / (1 + common[word])) for word, weight in cursor_words.items()}
    chunks: list[Chunk] = []
    for file, index, pieces in searched:
        best = _best_pieces(index, pieces, weights)
        chunks += [Chunk(file.path, index.text_of(number), round(score, 4)) for score, number in best]
    return chunks, is_complete


def _best_pieces(
    index: WordIndex, pieces: Mapping[str, Sequence[int]], weights: Mapping[str, float]
) -> list[tuple[float, int]]:
    """(score, number) of the best pieces of one file that do not overlap."""
    total = sum(weights.values()) or 1.0
    scores = [0.0] * index.pieces
    for word, numbers in pieces.items():
        weight = weights[word]
        for number in numbers:
            scores[number] += weight
    ranked = sorted((-score / total, number) for number, score in enumerate(scores) if score / total >= LEAST)
    best: list[tuple[float, int]] = []
    for negative_score, number in ranked:
        if len(best) >= A_FILE:
            break
        if all(abs(number - other) >= APART for _, other in best):
            best.append((-negative_score, number))
    return best


def words_around(place: ChunkPlace) -> Mapping[str, float]:
    """Words near the cursor, without the line being typed, and their weights."""
    above = place.above[-4000:].split("\n")
    above = [line for line in above if line.strip()][-LINES_ABOVE_CURSOR:]
    below = [line for line in place.below[:2000].split("\n") if line.strip()][:LINES_BELOW_CURSOR]
    weights: dict[str, float] = {}
    for distance, line in enumerate(reversed(above)):
        for word in words(line):
            weights.setdefault(word, 1.0 / (1 + FADES * distance))
    for distance, line in enumerate(below):
        for word in words(line):
            weights.setdefault(word, BELOW / (1 + FADES * distance))
    return weights


class WordIndex:
    """Inverted index of one file: word -> steps of `STEP` lines. A piece is `STEPS` consecutive steps."""

    def __init__(self, text: str) -> None:
        """Index the words of a text: 60,000 characters of code take 3 ms."""
        self._text = normal_newlines(text)
        self._starts = array("I", [0])  # offset of each step, and of the one after the last
        self._pieces_of: dict[str, Sequence[int]] = {}  # cache of `pieces_with`
        lines, steps, wordless = self._text.split("\n"), dict[str, list[int]](), set[int]()
        for number, first in enumerate(range(0, len(lines), STEP)):
            part = "\n".join(lines[first : first + STEP])
            self._starts.append(self._starts[-1] + len(part) + 1)
            step_words = words(part)
            if not step_words:
                wordless.add(number)
            for word in step_words:
                if word in steps:
                    steps[word].append(number)
                else:
                    steps[intern(word)] = [number]
        self.steps = {word: tuple(numbers) for word, numbers in steps.items()}  # untracked by the collector
        step_count = len(self._starts) - 1
        self.pieces = max(1, step_count - STEPS + 1)  # number of all pieces, and of those with at least one word
        self.filled_pieces = sum(
            any(step not in wordless for step in range(number, min(number + STEPS, step_count)))
            for number in range(self.pieces)
        )

    def pieces_with(self, word: str) -> Sequence[int]:
        """Numbers of the pieces that contain a word."""
        cached = self._pieces_of.get(word)
        if cached is not None:
            return cached
        numbers: list[int] = []
        end, last = 0, self.pieces - 1
        for step in self.steps.get(word, ()):
            numbers += range(max(end, step - STEPS + 1), min(step, last) + 1)
            end = step + 1
        if len(self._pieces_of) >= MAX_WORDS:
            self._pieces_of.clear()
        self._pieces_of[word] = pieces = tuple(numbers)
        return pieces

    def text_of(self, number: int) -> str:
        """Lines of a piece and some below it, without invisible characters."""
        end = min(number + STEPS + LINES_BELOW // STEP, len(self._starts) - 1)
        return hidden_characters.visible(self._text[self._starts[number] : self._starts[end] - 1]).strip("\n") + "\n"


class WordIndexCache:
    """Word indexes by file, the least recently used dropped first."""

    def __init__(self, most_characters: int) -> None:
        """The texts have `most_characters` at most, in sum."""
        self._most_characters = most_characters
        self._indexes: OrderedDict[str, tuple[str, WordIndex]] = OrderedDict()  # by the file's key: text and index
        self._characters = 0

    def get(self, text: str, deadline: Deadline, key: str) -> WordIndex | None:
        """The index of the searched part of a file's text; None if there is no time to make it.

        It replaces the index of the file's earlier text: a file that is typed into has one index.
        """
        text = text[:FILE_CHARACTERS]
        cached_text, index = self._indexes.get(key, ("", None))
        if index is None or cached_text != text:
            if deadline.passed():
                return None
            self._characters += len(text) - len(cached_text)
            index = WordIndex(text)
            self._indexes[key] = text, index
        self._indexes.move_to_end(key)
        while self._characters > self._most_characters and len(self._indexes) > 1:
            _, (oldest, _) = self._indexes.popitem(last=False)
            self._characters -= len(oldest)
        return index


def words(text: str) -> frozenset[str]:
    """Words of a text, without keywords."""
    return frozenset(_WORD.findall(text)) - _STOP_WORDS


FILE_WORDS = WordIndexCache(MAX_CHARACTERS)  # documents share neighbours

_KEYWORDS = """
and async await break case class const continue def elif else end except export extends False false final finally for
from func function if impl import int interface let mut new nil None none not null override package private protected
public pub raise readonly return self static str string struct super switch this throw True true try type typeof
undefined use var void while with yield
"""
_STOP_WORDS = frozenset(_KEYWORDS.split())
_WORD = re.compile(r"[^\W\d]\w{2,}")
