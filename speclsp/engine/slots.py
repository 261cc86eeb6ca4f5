"""Which tokens the KV cache holds, in a few slots: one for each text that is being worked on.

Two files edited in turn, or a completion at the top of a file and one further down, would evict each other from a
single cache. So there are slots, and a prompt goes on in the one that shares the longest start with it. Where that
would throw away a text of some length, the shared start is copied to the slot unused for longest and goes on there.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

SLOTS = 3
EVEN_TOKENS = 32  # steps of prefill are a multiple: kernels take rows by 16 or 32
WORTH_KEEPING_TOKENS = 96  # a slot that would lose so many is left alone, and another one is used


class Cancelled(Exception):
    """`cancel` was set during prefill. What was prefilled so far is kept."""


class CachedModel:
    """A causal LM and the tokens its KV cache holds, slot by slot; `ids` is the current slot's.

    What generate.py and draft.py use: `catch_up`, `forward`, `rewind`, and `forget` for experiments.

    Args:
        context_tokens: the most tokens a slot can hold.
        prefill_tokens: in one step of prefill.
        slots: how many.
    """

    ride_tokens = 0  # so many missing tokens may go through in one pass with the first round (`ride`)
    number_format = ""  # of the linears
    path = ""  # which kernels, where there is more than one way: for people

    def __init__(self, context_tokens: int, prefill_tokens: int, slots: int = SLOTS) -> None:
        self.context_tokens, self.prefill_tokens = context_tokens, prefill_tokens
        self.held: list[list[int]] = [[] for _ in range(slots)]
        self.slot = 0
        self.cached_tokens = 0  # that the last `catch_up` or `prepare` found
        self._order = list(range(slots))  # the current one last

    @property
    def ids(self) -> list[int]:
        """The tokens the current slot holds."""
        return self.held[self.slot]

    def catch_up(self, ids: Sequence[int], cancel: threading.Event | None = None) -> int:
        """Hold exactly `ids`, keeping the longest prefix that is cached; how many tokens that spared.

        Raises:
            Cancelled: `cancel` was set between two steps, or within one; the cache holds the steps that were done.
        """
        self.cached_tokens = self.settle(ids)
        self._fill(ids, cancel)
        return self.cached_tokens

    def prepare(self, ids: Sequence[int], cancel: threading.Event | None = None) -> int:
        """As `catch_up`, but the last step, of at most `ride_tokens`, is left for the first round's pass."""
        self.cached_tokens = self.settle(ids)
        self._fill(ids, cancel, self.ride_tokens)
        return self.cached_tokens

    def _fill(self, ids: Sequence[int], cancel: threading.Event | None, leave_tokens: int = 0) -> None:
        """Append what is missing of `ids`, in steps of one size, until at most `leave_tokens` are left."""
        missing = len(ids) - len(self.ids)
        steps = max(1, -(-missing // self.prefill_tokens))
        step = -(-missing // steps // EVEN_TOKENS) * EVEN_TOKENS  # three of 180, not two of 256 and one of 28
        while len(ids) - len(self.ids) > leave_tokens:
            if cancel is not None and cancel.is_set():
                raise Cancelled
            start = len(self.ids)
            self.extend(ids[start : start + min(step, self.prefill_tokens)], cancel)

    def settle(self, ids: Sequence[int]) -> int:
        """Make the best slot the current one, holding nothing but a prefix of `ids`; how long that is."""
        shared = [common_prefix(held, ids) for held in self.held]
        best = max(self._order, key=lambda slot: shared[slot])  # among equals the one unused for longest
        cached, lost = shared[best], len(self.held[best]) - shared[best]
        if lost >= WORTH_KEEPING_TOKENS and (oldest := self._order[0]) != best:
            if cached:
                self.copy(best, oldest, cached)
            self.held[oldest] = list(ids[:cached])
            best = oldest
        self.slot = best
        self._order.remove(best)
        self._order.append(best)
        self.rewind(cached)
        return cached

    def rewind(self, length: int) -> None:
        """Forget the current slot's tokens from position `length` on. O(1): what lies beyond is never looked at."""
        del self.ids[length:]

    def forget(self) -> None:
        """Forget every slot's tokens: the next prompt is computed anew."""
        for held in self.held:
            held.clear()

    def forward(self, new: Sequence[int]) -> Tensor:
        """Append `new` to the current slot; their logits, [T, vocab], float32."""
        raise NotImplementedError

    def ride(self, new: Sequence[int], wanted: int, cancel: threading.Event | None = None) -> Tensor:
        """Append `new`, at most `ride_tokens` and a round; the logits of the last `wanted` of them, [wanted, vocab].

        Raises:
            Cancelled: within the pass, where the decoder can stop there; the cache holds nothing of it.
        """
        return self.forward(new)[-wanted:]

    def extend(self, new: Sequence[int], cancel: threading.Event | None = None) -> None:
        """Append `new` to the current slot, without logits.

        Raises:
            Cancelled: within the step, where the decoder can stop there; the cache holds nothing of it.
        """
        raise NotImplementedError

    def copy(self, source: int, target: int, tokens: int) -> None:
        """Copy the first `tokens` entries of one slot's cache to another's."""
        raise NotImplementedError


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two sequences share from the start."""
    length = min(len(a), len(b))
    if list(a[:length]) == list(b[:length]):  # the common case, at C speed
        return length
    return next(i for i in range(length) if a[i] != b[i])
