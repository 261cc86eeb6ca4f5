"""Which tokens the KV cache holds, in a few slots: one for each text that is being worked on.

Two files edited in turn, or a completion at the top of a file and one further down, would evict each other from a
single cache. So there are slots, and a prompt goes on in the one that shares the longest start with it. Where that
would throw away a text of some length, the shared start is copied to the slot unused for longest and goes on there.

Completions of several editors run at once, a round of each in turn. Each has a seat in a slot, and others copy from
that slot but do not write to it, as long as there is another. Where more run than there are slots, the seat unused for
longest is taken; its completion finds out before its next round (`Seat.taken`) and has its text computed again.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from torch import Tensor

SLOTS = 3
MOST_SLOTS = 8  # where memory is taken as it is used: as many as completions run at once
EVEN_TOKENS = 32  # steps of prefill are a multiple: kernels take rows by 16 or 32
WORTH_KEEPING_TOKENS = 96  # a slot that would lose so many is left alone, and another one is used
CAREFUL_TOKENS = 8  # the same for a completion that nobody may ever ask for


class Cancelled(Exception):
    """`cancel` was set during prefill. What was prefilled so far is kept."""


class CacheSlot:
    """One completion's place in a model's cache, until it leaves or is garbage."""

    __slots__ = ("__weakref__", "careful", "model")

    def __init__(self, model: CachedModel, careful: bool = False) -> None:
        self.model, self.careful = model, careful

    @property
    def taken(self) -> bool:
        """Whether the model's current slot is this completion's own, with what it left there."""
        return self.model.seats.get(self.model.slot) is self

    @property
    def lost(self) -> bool:
        """Whether it has no slot: it has taken none, or another one needed the room."""
        return self.model.slot_of(self) is None

    def take(self, ids: Sequence[int]) -> int:
        """Make a slot the current one and this completion's, holding nothing but a prefix of `ids`; how long."""
        return self.model.settle(ids, self)

    def shared(self, ids: Sequence[int]) -> int:
        """How many of `ids` it would find cached."""
        return self.model.shared(ids, self)

    def leave(self) -> None:
        """The text stays for the next one; nobody works on it now."""
        slot = self.model.slot_of(self)
        if slot is not None:
            del self.model.seats[slot]


class CachedModel:
    """A causal LM and the tokens its KV cache holds, slot by slot; `ids` is the current slot's.

    What generate.py and draft.py use: `catch_up`, `forward`, `rewind`, `seat`, and `forget` for experiments.

    Args:
        context_tokens: the most tokens a slot can hold.
        prefill_tokens: in one step of prefill.
        slots: for how many texts.
        most_slots: for how many while so many completions run at once; 0: no more than `slots`.
    """

    steps_done = 0  # of prefill: a sign of life
    ride_tokens = 0  # so many missing tokens may go through in one pass with the first round (`ride`)
    polite_tokens = 0  # in a step of prefill while other completions wait for it; 0: as many as ever
    number_format = ""  # of the linears
    path = ""  # which kernels, where there is more than one way: for people

    def __init__(self, context_tokens: int, prefill_tokens: int, slots: int = SLOTS, most_slots: int = 0) -> None:
        self.context_tokens, self.prefill_tokens = context_tokens, prefill_tokens
        self.slots, self.most_slots = slots, max(slots, most_slots)
        self._as_made = self.slots, self.most_slots
        self.held: list[list[int]] = [[] for _ in range(self.most_slots)]
        self.slot = 0
        self.seats: WeakValueDictionary[int, CacheSlot] = WeakValueDictionary()  # by slot
        self.cached_tokens = 0  # that the last `catch_up` or `prepare` found
        self._order = list(range(slots))  # the slots in use, the current one last

    @property
    def ids(self) -> list[int]:
        """The tokens the current slot holds."""
        return self.held[self.slot]

    def seat(self, careful: bool = False) -> CacheSlot:
        """A place for a completion; it takes a slot when it needs one. `careful`: one that others hardly miss."""
        return CacheSlot(self, careful)

    def catch_up(self, ids: Sequence[int], cancel: threading.Event | None = None) -> int:
        """Hold exactly `ids`, keeping the longest prefix that is cached; how many tokens that spared.

        Raises:
            Cancelled: `cancel` was set between two steps, or within one; the cache holds the steps that were done.
        """
        self.cached_tokens = self.settle(ids)
        while len(self.ids) < len(ids):
            self.step(ids, cancel)
        return self.cached_tokens

    def prepare(self, ids: Sequence[int], cancel: threading.Event | None = None) -> int:
        """As `catch_up`, but the last step, of at most `ride_tokens`, is left for the first round's pass."""
        self.cached_tokens = self.settle(ids)
        while len(self.ids) + self.ride_tokens < len(ids):
            self.step(ids, cancel)
        return self.cached_tokens

    def step(self, ids: Sequence[int], cancel: threading.Event | None = None) -> None:
        """One step of prefill, towards holding `ids`.

        Raises:
            Cancelled: before it or within it; the cache holds nothing of it.
        """
        if cancel is not None and cancel.is_set():
            raise Cancelled
        self.steps_done += 1
        start = len(self.ids)
        missing = len(ids) - start
        most = self.step_tokens
        steps = max(1, -(-missing // most))
        even = -(-missing // steps // EVEN_TOKENS) * EVEN_TOKENS  # three of 180, not two of 256 and one of 28
        self.extend(ids[start : start + min(even, most)], cancel)

    @property
    def step_tokens(self) -> int:
        """The most tokens in a step of prefill as things are."""
        return self.polite_tokens if self.polite_tokens and len(self.seats) > 1 else self.prefill_tokens

    def shared(self, ids: Sequence[int], seat: CacheSlot | None = None) -> int:
        """How many of `ids` a completion would find cached."""
        own = self.slot_of(seat)
        slots = self._order if own is None else [own]
        return max(common_prefix(self.held[slot], ids) for slot in slots)

    def settle(self, ids: Sequence[int], seat: CacheSlot | None = None) -> int:
        """Make the best slot the current one, holding nothing but a prefix of `ids`; how long that is.

        With a `seat`, the slot is its own from then on, until another one needs the room.
        """
        best = self.slot_of(seat)
        if best is not None:
            cached = common_prefix(self.held[best], ids)
        else:
            shared = {slot: common_prefix(self.held[slot], ids) for slot in self._order}
            best = max(self._order, key=lambda slot: shared[slot])  # among equals the one unused for longest
            cached, lost = shared[best], len(self.held[best]) - shared[best]
            worth_keeping = CAREFUL_TOKENS if seat is not None and seat.careful else WORTH_KEEPING_TOKENS
            if best in self.seats or lost >= worth_keeping:
                room = self._room()
                if cached and room != best:
                    self.copy(best, room, cached)
                    self.held[room] = list(ids[:cached])
                best = room
            if seat is None:
                self.seats.pop(best, None)
            else:
                self.seats[best] = seat
        self.slot = best
        if best in self._order:
            self._order.remove(best)
        self._order.append(best)
        self.rewind(cached)
        return cached

    def _room(self) -> int:
        """The slot to give up: the least recent one that nobody works in, a further one, the least recent one."""
        quiet = [slot for slot in self._order if slot not in self.seats]
        if not quiet and len(self._order) < self.most_slots:
            return next(slot for slot in range(len(self.held)) if slot not in self._order)
        return (quiet or self._order)[0]

    def slot_of(self, seat: CacheSlot | None) -> int | None:
        """Where a completion sits; None when it does not."""
        return None if seat is None else next((slot for slot, by in self.seats.items() if by is seat), None)

    def keep_slots(self, slots: int) -> None:
        """Have `slots` slots from now on: of fewer the ones used last stay as they are, further ones are empty.

        Between rounds. Completions that sat in the others have their text computed again before their next round.
        """
        kept = self._order[-slots:]
        for slot in set(self._order) - set(kept):
            self.held[slot].clear()
            self.seats.pop(slot, None)
            self.release(slot)
        self.held += [[] for _ in range(slots - len(self.held))]
        further = [slot for slot in range(len(self.held)) if slot not in kept]
        self._order = [*further[: slots - len(kept)], *kept]
        made, most = self._as_made
        self.slots, self.most_slots = slots, slots if slots < made else max(slots, most)

    def rewind(self, length: int) -> None:
        """Forget the current slot's tokens from position `length` on. O(1): what lies beyond is never looked at."""
        del self.ids[length:]

    def forget(self, all_of_it: bool = True) -> None:
        """Forget every slot's tokens, or only those nobody works on: the next prompt is computed anew."""
        if all_of_it:
            self.seats.clear()
        for slot, held in enumerate(self.held):
            if slot not in self.seats:
                held.clear()

    def empty(self) -> None:
        """Forget every slot's tokens, and give back the memory they take where slots have memory of their own.

        Between rounds. Completions under way have their text computed again before their next round.
        """
        self.forget()
        for slot in range(len(self.held)):
            self.release(slot)

    def keep_context(self, tokens: int) -> None:
        """Hold texts of at most so many tokens from now on. Between completions; every slot is empty then."""
        self.empty()
        self.context_tokens = tokens

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

    def release(self, slot: int) -> None:
        """Give back a slot's memory, where slots have memory of their own."""


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two sequences share from the start."""
    low, high = 0, min(len(a), len(b))
    if list(a[:high]) == list(b[:high]):  # the common case; and halves, so that all comparing is at C speed
        return high
    while high - low > 1:  # equal before `low`, not before `high`
        middle = (low + high) // 2
        if list(a[low:middle]) == list(b[low:middle]):
            low = middle
        else:
            high = middle
    return low
