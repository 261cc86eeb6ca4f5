"""Cache of a function of one text, bounded in bytes: the results of long texts are computed each time.

A line of a minified file can have megabytes, and each key in it makes another line.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Generic, TypeVar

MAX_CHARACTERS = 200  # of a cached text: the words of 8,192 lines take 50 MiB at most

Result = TypeVar("Result")


class ShortTextCache(Generic[Result]):
    """The results of `function` for the last `most` texts, where they are short."""

    def __init__(self, function: Callable[[str], Result], most: int) -> None:
        self._function = function
        self._cached = functools.lru_cache(maxsize=most)(function)
        self.cache_clear = self._cached.cache_clear
        self.cache_info = self._cached.cache_info

    def __call__(self, text: str) -> Result:
        return self._cached(text) if len(text) <= MAX_CHARACTERS else self._function(text)


def cache_short(most: int) -> Callable[[Callable[[str], Result]], ShortTextCache[Result]]:
    """Decorator: see ShortTextCache."""
    return lambda function: ShortTextCache(function, most)
