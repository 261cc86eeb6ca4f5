"""Lines as they stand while they are typed: cut where people pause.

The weights are those of Zed's edit_prediction_cli (split-commit).
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from benchmarks.quality.edits import Hunk

PAUSES = ((re.compile(r"[,;:(\[{]"), 10), (re.compile(r"[)\]}]"), 8), (re.compile(r"\s"), 6), (re.compile(r"\W"), 5))
AFTER_WORD, INSIDE_WORD = 8, 1


def cut_line(old: Sequence[str], hunk: Hunk, draw: random.Random) -> tuple[str, int] | None:
    """The first new line of a hunk while it is typed, and the column of the cursor in it."""
    if not hunk.lines or not hunk.lines[0].strip():
        return None
    new, line = hunk.lines[0], old[hunk.start] if hunk.end > hunk.start else ""
    head = common(line, new) if line else len(new) - len(new.lstrip())
    tail = common(line[head:][::-1], new[head:][::-1])
    places = range(head + 1, len(new) - tail + (len(hunk.lines) > 1))
    if not places:
        return None
    cut = draw.choices(places, [pause_weight(new, place) for place in places])[0]
    return new[:cut] + (line[len(line) - tail :] if tail else ""), cut


def common(one: str, other: str) -> int:
    """Number of characters that two texts begin with alike."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def pause_weight(line: str, cut: int) -> int:
    """The weight of a place: people pause after separators and words, and rarely inside a word."""
    last, following = line[cut - 1], line[cut : cut + 1]
    for pattern, weight in PAUSES:
        if pattern.match(last):
            return weight
    return INSIDE_WORD if re.match(r"\w", following) else AFTER_WORD
