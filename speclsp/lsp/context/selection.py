"""Which pieces of code from elsewhere are shown: the worthiest for their tokens, none twice, and the same for long.

    candidates of all sources ─► worth = weight x score ─► no text that is in sight already ─► the room divided ─► order

Every change of what is chosen costs the engine a prefill of all that follows, so the choice stays while it is still
good: `Shelf` remembers it for one document, and another one must be clearly better to take its place. The least worthy
piece stands first and the worthiest nearest the document: whoever has to cut, cuts at the start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from speclsp.lsp.context.chunk import Chunk

CHARACTERS_PER_TOKEN = 3.2  # of code, with the tokenizers of 2024 and later
PATH_TOKENS = 10  # a file's marker and its path
STAYS = 0.5  # the pieces chosen last stay while they have this share of the worth of the best choice now
ALIKE = 0.6  # a piece with this share of its lines in sight already says nothing new

# Why a piece is not shown.
IN_SIGHT = "in sight already"
NO_ROOM = "no room"

# What a source's pieces are worth beside those of others, for the same score. That of likeness beside that of names was
# chosen by `python -m benchmarks quality`; the others are set beside these two by eye, and not measured.
WEIGHTS: Mapping[str, float] = MappingProxyType(
    {
        "definition": 1.0,
        "class": 1.0,
        "similar": 2.5,  # scores of likeness are small
        "edit": 0.8,
    }
)
# No source may take more of the room than this.
SHARES: Mapping[str, float] = MappingProxyType({"edit": 0.5})


@dataclass(slots=True)
class Selection:
    """What was chosen for one document last, and for what place in it."""

    place: object = None  # equal while nothing but the line being typed has changed
    scopes: tuple[str, ...] = ()
    step: object = None  # equal for a few lines that follow on one another
    again: bool = False  # it was chosen in a hurry, and is to be looked at again at the next line
    chosen: tuple[Chunk, ...] = ()
    left_out: tuple[str, ...] = ()


Selections = dict[str, Selection]  # by URI


@dataclass(slots=True)
class _Sight:
    """The lines that the model sees already."""

    lines: set[str] = field(default_factory=set)

    def shows(self, text: str) -> bool:
        """Whether most of a text is among them."""
        told = telling(text)
        return not told or sum(line in self.lines for line in told) >= ALIKE * len(told)

    def add(self, text: str) -> None:
        self.lines.update(telling(text))


def telling(text: str) -> list[str]:
    """A text's lines that say something, without the blanks around them."""
    return [line for line in map(str.strip, text.split("\n")) if len(_SAYING.findall(line)) > 1]


def worth(chunk: Chunk) -> float:
    """A piece's worth beside any other's."""
    return WEIGHTS.get(chunk.source, 0.5) * chunk.score


def size_tokens(chunk: Chunk) -> float:
    """About how many tokens of the prompt it takes."""
    return len(chunk.text) / CHARACTERS_PER_TOKEN + PATH_TOKENS


def choose(
    candidates: Iterable[Chunk], room_tokens: int, window: str, kept: Sequence[Chunk] = ()
) -> tuple[tuple[Chunk, ...], tuple[str, ...]]:
    """The pieces to show, the worthiest last, and for each of the others why not.

    `window`: what the model sees anyway; `kept`: what was chosen last for a place like this.
    """
    offered = list(dict.fromkeys(candidates))
    best, left_out = _best(offered, room_tokens, window)
    if kept:
        now = {(chunk.path, chunk.text): worth(chunk) for chunk in offered}
        sight = _Sight()
        sight.add(window)
        still = sum(now.get((chunk.path, chunk.text), 0.0) for chunk in kept if not sight.shows(chunk.text))
        fits = sum(map(size_tokens, kept)) <= room_tokens and not any(sight.shows(chunk.text) for chunk in kept)
        if fits and still > 0 and still >= STAYS * sum(map(worth, best)):
            return tuple(kept), left_out
    return best, left_out


def _best(offered: Sequence[Chunk], room_tokens: int, window: str) -> tuple[tuple[Chunk, ...], tuple[str, ...]]:
    sight = _Sight()
    sight.add(window)
    chosen: list[Chunk] = []
    left_out: list[str] = []
    room = float(room_tokens)
    spent: dict[str, float] = {}
    for chunk in sorted(offered, key=lambda chunk: (-worth(chunk), chunk.path, chunk.text, chunk.source)):
        tokens = size_tokens(chunk)
        if sight.shows(chunk.text):
            left_out.append(IN_SIGHT)
        elif tokens > room or spent.get(chunk.source, 0) + tokens > SHARES.get(chunk.source, 1.0) * room_tokens:
            left_out.append(NO_ROOM)
        else:
            chosen.append(chunk)
            room -= tokens
            spent[chunk.source] = spent.get(chunk.source, 0) + tokens
            sight.add(chunk.text)
    return tuple(reversed(chosen)), tuple(left_out)


_SAYING = re.compile(r"\w{2,}")
