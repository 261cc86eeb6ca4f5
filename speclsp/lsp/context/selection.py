"""Selection of context from other files: the best chunks for their tokens, without repetition, stable over many keys.

    candidates ─► drop text that is shown already ─► fill the budget ─► order

Each change of the selection costs the engine a prefill of the whole prompt. So a request uses the selection that its
document has (`Selection.chosen`). A clearly better one waits in `Selection.better` until its prompt is cached. In a new
selection the chunk with the lowest score stands first, and the best one nearest to the document: a prompt that is too
long is cut at its start. In a better one, the chunks that stay keep their order, and new ones follow them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from speclsp.lsp.context import token_count
from speclsp.lsp.context.chunk import Chunk

PATH_TOKENS = 10  # a file's marker and its path
STAYS = 0.5  # the last selection stays while its scores have this share of those of the best one now
ALIKE = 0.6  # a chunk with this share of its lines in the prompt already adds nothing


@dataclass(slots=True)
class Selection:
    """The chunks in the prompts of one document, and the place in the document that they were selected for."""

    basis: object = None  # the settings and the open documents; under another basis the chunks are selected anew
    line: int = 0  # of the last prompt
    place: object = None  # where a better selection was looked for; None: not yet, or without enough time
    chosen: tuple[Chunk, ...] = ()
    better: tuple[Chunk, ...] = ()  # replaces `chosen` once its prompt is cached; () for none

    def use_better(self, better: tuple[Chunk, ...]) -> None:
        """Use `better` from the next request on, unless the selection has changed since."""
        if better and better == self.better:
            self.chosen, self.better = better, ()


Selections = dict[str, Selection]  # by URI


@dataclass(slots=True)
class _ShownLines:
    """Lines that are in the prompt already."""

    lines: set[str] = field(default_factory=set)

    def contain(self, text: str) -> bool:
        """True if most of a text's significant lines are among them."""
        lines = significant_lines(text)
        return not lines or sum(line in self.lines for line in lines) >= ALIKE * len(lines)

    def add(self, text: str) -> None:
        self.lines.update(significant_lines(text))


def significant_lines(text: str) -> list[str]:
    """Lines with at least two words, stripped of blanks."""
    return [line for line in map(str.strip, text.split("\n")) if len(_WORD.findall(line)) > 1]


def size_tokens(chunk: Chunk) -> float:
    """Estimated number of tokens that a chunk adds to the prompt."""
    return token_count.tokens(chunk.text) + PATH_TOKENS


def select(candidates: Iterable[Chunk], room_tokens: int, window: str, kept: Sequence[Chunk] = ()) -> tuple[Chunk, ...]:
    """The chunks to show. `window` is the part of the document in the prompt; `kept` is the selection so far."""
    offered = list(dict.fromkeys(candidates))
    best = _best(offered, room_tokens, window)
    if not kept:
        return best
    scores = {(chunk.path, chunk.text): chunk.score for chunk in offered}
    shown = _ShownLines()
    shown.add(window)
    is_new = not any(shown.contain(chunk.text) for chunk in kept)
    kept_score = sum(scores.get((chunk.path, chunk.text), 0.0) for chunk in kept)
    if (
        is_new
        and sum(map(size_tokens, kept)) <= room_tokens
        and kept_score >= STAYS * sum(chunk.score for chunk in best)
    ):
        return tuple(kept)
    best_texts, kept_texts = ({(chunk.path, chunk.text) for chunk in chunks} for chunks in (best, kept))
    staying = [chunk for chunk in kept if (chunk.path, chunk.text) in best_texts]
    return (*staying, *(chunk for chunk in best if (chunk.path, chunk.text) not in kept_texts))


def _best(offered: Sequence[Chunk], room_tokens: int, window: str) -> tuple[Chunk, ...]:
    shown = _ShownLines()
    shown.add(window)
    chosen: list[Chunk] = []
    room = float(room_tokens)
    for chunk in sorted(offered, key=lambda chunk: (-chunk.score, chunk.path, chunk.text)):
        tokens = size_tokens(chunk)
        if tokens <= room and not shown.contain(chunk.text):
            chosen.append(chunk)
            room -= tokens
            shown.add(chunk.text)
    return tuple(reversed(chosen))


_WORD = re.compile(r"\w{2,}")
