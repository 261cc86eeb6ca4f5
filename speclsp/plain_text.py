"""Plain text, for the language server and the engine: stop texts, characters of words, digests.

A completion ends before the first stop text. While it grows, its last characters are withheld as long as they may
become one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def first_stop(text: str, stops: Sequence[str]) -> int | None:
    """The start of the first stop text in `text`; None when there is none. Empty stop texts are ignored."""
    starts = [at for stop in stops if stop and (at := text.find(stop)) >= 0]
    return min(starts, default=None)


def longest_stop_start(text: str, stops: Sequence[str]) -> int:
    """The number of last characters that could be the beginning of a stop text."""
    longest = len(text)  # a bound on the work, however long a stop text is
    sizes = (s for stop in stops for s in range(min(len(stop) - 1, longest), 0, -1) if text.endswith(stop[:s]))
    return max(sizes, default=0)


def is_word(character: str) -> bool:
    """True for a character of an identifier."""
    return character.isalnum() or character == "_"


def is_inside_word(text: str, at: int) -> bool:
    """True if the characters before and after offset `at` belong to one word."""
    return 0 < at < len(text) and is_word(text[at - 1]) and is_word(text[at])


def digest(text: str) -> str:
    """The first 8 hex digits of sha256; a lone surrogate counts as its three bytes."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
