"""Regions of a source file: the runs of lines that are taken out, and that a typist writes back."""

from __future__ import annotations

import random
from collections.abc import Sequence

Region = tuple[int, int]  # offsets into the source: from the end of a line to the end of a later one


def regions_of(source: str, dice: random.Random) -> list[Region]:
    """Runs of 3 to 9 lines that begin and end with text, in any order; the whole of a source that has none."""
    lines = source.split("\n")
    ends = [0]
    for line in lines:
        ends.append(ends[-1] + len(line) + 1)
    regions, at = [], next((n for n, line in enumerate(lines) if not line.strip()), 0) + 1  # not the licence on top
    while at < len(lines):
        last = min(at + dice.randint(2, 8), len(lines) - 1)
        while last > at and not lines[last].strip():
            last -= 1
        if lines[at].strip() and lines[last].strip():
            regions.append((ends[at] - 1, ends[last + 1] - 1))
            at = last
        at += dice.randint(1, 4)
    dice.shuffle(regions)
    return regions or [(0, len(source))]


def without(source: str, regions: Sequence[Region]) -> str:
    """`source` less its regions, which are in order."""
    pieces, at = [], 0
    for start, end in regions:
        pieces.append(source[at:start])
        at = end
    return "".join([*pieces, source[at:]])
