"""Comparison of two texts: equal ends, and the characters that one keeps of the other."""

from __future__ import annotations

from collections.abc import Sequence


def common_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """The number of equal items at the start, and of the others at the end; no item counts twice."""
    least = min(len(old), len(new))
    head = next((n for n in range(least) if old[n] != new[n]), least)
    return head, next((n for n in range(least - head) if old[-1 - n] != new[-1 - n]), least - head)


def is_subsequence(part: str, text: str) -> bool:
    """True if `text` holds the characters of `part` in their order."""
    characters = iter(text)
    return all(character in characters for character in part)
