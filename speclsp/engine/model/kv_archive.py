"""The KV of texts that lost their cache slot, kept in memory so that a return to a file needs no new prefill.

A text is found by its tokens. So a changed file shares only its unchanged beginning; an outdated entry is never used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from speclsp.engine.model.bfloat16 import Array

MAX_MIB = 128  # 17 texts of 600 tokens of the 0.5B, 7 of the 1.5B


@dataclass(frozen=True, slots=True)
class ArchivedText:
    """A text's tokens and its KV, in the decoder's own layout."""

    ids: tuple[int, ...]
    keys: Array
    values: Array

    @property
    def size_bytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes


class KvArchive:
    """Texts, least recently used first, within a limit of memory.

    Args:
        limit_mib: 0 keeps nothing.
    """

    def __init__(self, limit_mib: int = MAX_MIB) -> None:
        self.limit_bytes = limit_mib << 20
        self.texts: list[ArchivedText] = []

    def add(self, ids: Sequence[int], kv: tuple[Array, Array]) -> None:
        """Keep a text. It replaces texts that it continues; the least recently used ones go beyond the limit."""
        added = ArchivedText(tuple(ids), *kv)
        self.texts = [text for text in self.texts if added.ids[: len(text.ids)] != text.ids]
        self.texts.append(added)
        used = sum(text.size_bytes for text in self.texts)
        while used > self.limit_bytes:
            used -= self.texts.pop(0).size_bytes

    def find(self, ids: Sequence[int]) -> tuple[ArchivedText | None, int]:
        """The text that shares the longest prefix with `ids`, and the prefix's length."""
        best, longest = None, 0
        for text in self.texts:
            shared = common_prefix(text.ids, ids)
            if shared > longest:
                best, longest = text, shared
        return best, longest

    def touch(self, text: ArchivedText) -> None:
        """Mark a text as the most recently used one."""
        self.texts.remove(text)
        self.texts.append(text)

    def clear(self) -> None:
        self.texts.clear()


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """The length of the longest common prefix of two token sequences."""
    low, high = 0, min(len(a), len(b))
    if list(a[:high]) == list(b[:high]):  # the common case; otherwise by bisection, so that comparing runs at C speed
        return high
    while high - low > 1:  # equal before `low`, not before `high`
        middle = (low + high) // 2
        if list(a[low:middle]) == list(b[low:middle]):
            low = middle
        else:
            high = middle
    return low
