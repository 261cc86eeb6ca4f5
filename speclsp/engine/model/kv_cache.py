"""KV cache bookkeeping: which tokens each slot of a model's cache holds, and which completion uses which slot.

Two files edited in turn would evict each other from a single cache, and so would completions at the top and further
down in one file. So the cache has several slots. A prompt continues in the slot that shares the longest prefix with
it. If that would discard a long text, the shared prefix is copied to the least recently used slot instead.

A text that loses its slot goes to the archive (kv_archive.py), if the decoder has one, and comes back from there.

Several completions may run at once, one round each in turn. Each owns a slot: others copy from that slot but do not
write to it while another slot is free. If more completions run than there are slots, the least recently used slot is
evicted. Its completion sees that before its next round (`CacheSlot.owned`), and its text is computed again.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np

from speclsp.engine.model.bfloat16 import Array, Floats
from speclsp.engine.model.kv_archive import KvArchive, common_prefix

if TYPE_CHECKING:
    from torch import Tensor

    from speclsp.engine.model.draws import Draw

    Logits = Floats | Tensor  # [T, vocab]: a float32 array from a decoder on a CPU; a GPU's tensor may have 16 bits

SLOTS = 3
MAX_SLOTS = 8  # for decoders that allocate a slot on first use: the number of concurrent completions
MAX_GAMMA = 64  # guesses in a round
EVEN_TOKENS = 32  # prefill steps are a multiple of it: kernels process rows by 16 or 32
WORTH_KEEPING_TOKENS = 96  # a slot that would lose at least this many tokens is kept, and another slot is used
WORTH_RESTORING_TOKENS = 32  # an archived text is used if it saves at least this many tokens of prefill
LOW_PRIORITY_TOKENS = 8  # the same limit for a low-priority completion, whose result may never be requested


def on_host(logits: Logits) -> Floats:
    """The logits as an array; those of a GPU are copied."""
    return logits if isinstance(logits, np.ndarray) else logits.float().cpu().numpy()


class Cancelled(Exception):
    """`cancel` was set during prefill. The cache keeps the steps that were completed."""


class CacheSlot:
    """One completion's claim on a cache slot, until it is released or garbage collected.

    Args:
        low_priority: discard as little as possible of other texts.
    """

    __slots__ = ("__weakref__", "low_priority", "model")

    def __init__(self, model: CachedModel, low_priority: bool = False) -> None:
        self.model, self.low_priority = model, low_priority

    @property
    def owned(self) -> bool:
        """True if the model's current slot belongs to this completion, with the tokens it left there."""
        return self.model.owners.get(self.model.slot) is self

    @property
    def evicted(self) -> bool:
        """True if this completion has no slot: it has not acquired one yet, or another completion evicted it."""
        return self.model.slot_of(self) is None

    def acquire(self, ids: Sequence[int]) -> int:
        """Make a slot current and this completion's own, holding only a prefix of `ids`; the prefix's length."""
        return self.model.acquire_slot(ids, self)

    def shared_prefix(self, ids: Sequence[int]) -> int:
        """The number of leading tokens of `ids` that are cached for this completion."""
        return self.model.shared_prefix(ids, self)

    def release(self) -> None:
        """Give up the slot. Its text stays cached for the next completion."""
        slot = self.model.slot_of(self)
        if slot is not None:
            del self.model.owners[slot]


class CachedModel:
    """A causal LM and the tokens its KV cache holds, slot by slot; `ids` are those of the current slot.

    Interface for generate.py and drafters.py: `catch_up`, `forward`, `rewind` and `reserve`; `forget` for experiments.

    Args:
        context_tokens: the most tokens a slot can hold.
        prefill_tokens: the most tokens in one step of prefill.
        slots: the number of texts kept.
        most_slots: the limit of slots while that many completions run at once; 0: no more than `slots`.
    """

    steps_done = 0  # of prefill; the watchdog reads it as a sign of life
    tail_tokens = 0  # maximum number of missing tokens in one pass with the first round (`forward_with_tail`)
    prefill_is_exact = False  # True: a token gets the same bits from prefill as from a round's pass
    first_pass_tokens = 1  # of a prompt, the last ones, that the first round computes: prefill never does
    contended_step_tokens = 0  # limit of a prefill step while other completions wait; 0: the usual limit
    number_format = ""  # of the linears
    path = ""  # the instruction set of the kernels, where there is a choice; shown to users

    def __init__(self, context_tokens: int, prefill_tokens: int, slots: int = SLOTS, most_slots: int = 0) -> None:
        self.context_tokens, self.prefill_tokens = context_tokens, prefill_tokens
        self.slots, self.most_slots = slots, max(slots, most_slots)
        self.slot_ids: list[list[int]] = [[] for _ in range(self.most_slots)]  # the tokens that each slot holds
        self.slot = 0  # the current one
        self.archive = KvArchive(0)  # a decoder that can save a slot has a larger one
        self.owners: WeakValueDictionary[int, CacheSlot] = WeakValueDictionary()  # by slot
        self.slots_in_use = list(range(slots))  # least recently used first, the current one last

    @property
    def ids(self) -> list[int]:
        """The tokens the current slot holds."""
        return self.slot_ids[self.slot]

    def reserve(self, low_priority: bool = False) -> CacheSlot:
        """A claim on a slot for one completion, which acquires the slot itself when it needs one."""
        return CacheSlot(self, low_priority)

    def catch_up(self, ids: Sequence[int], cancel: threading.Event | None = None) -> int:
        """Hold exactly `ids`, keeping the longest cached prefix; the length of that prefix.

        Raises:
            Cancelled: `cancel` was set between two steps, or within one; the cache holds the completed steps.
        """
        cached_tokens = self.acquire_slot(ids)
        while len(self.ids) < len(ids):
            self.step(ids, cancel)
        return cached_tokens

    def step(self, ids: Sequence[int], cancel: threading.Event | None = None) -> None:
        """One step of prefill, towards holding `ids`.

        Raises:
            Cancelled: before the step or within it; the cache holds nothing of it.
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
        """The most tokens in a step of prefill at the moment."""
        contended = self.contended_step_tokens and len(self.owners) > 1
        return self.contended_step_tokens if contended else self.prefill_tokens

    def shared_prefix(self, ids: Sequence[int], owner: CacheSlot | None = None) -> int:
        """The number of leading tokens of `ids` that `acquire_slot` would find cached."""
        own = self.slot_of(owner)
        if own is not None:
            return common_prefix(self.slot_ids[own], ids)
        in_slots = max(common_prefix(self.slot_ids[slot], ids) for slot in self.slots_in_use)
        _, archived = self.archive.find(ids)
        return archived if archived >= in_slots + WORTH_RESTORING_TOKENS else in_slots

    def acquire_slot(self, ids: Sequence[int], owner: CacheSlot | None = None) -> int:
        """Make the best slot the current one, holding only a prefix of `ids`; the prefix's length.

        The slot belongs to `owner` from then on, until another completion evicts it.
        """
        best = self.slot_of(owner)
        if best is not None:
            cached = common_prefix(self.slot_ids[best], ids)
        else:
            if not self.owners:
                self._free_surplus_slots()
            shared = {slot: common_prefix(self.slot_ids[slot], ids) for slot in self.slots_in_use}
            best = max(self.slots_in_use, key=lambda slot: shared[slot])  # among equals the least recently used one
            cached, lost = shared[best], len(self.slot_ids[best]) - shared[best]
            low_priority = owner is not None and owner.low_priority
            text, archived = self.archive.find(ids)
            if text is not None and archived >= cached + WORTH_RESTORING_TOKENS:
                best, cached = self._slot_to_evict(), archived
                self.archive.touch(text)
                self._archive_slot(best)
                self.restore_slot(best, (text.keys, text.values), archived)
                self.slot_ids[best] = list(ids[:archived])
            elif best in self.owners or lost >= (LOW_PRIORITY_TOKENS if low_priority else WORTH_KEEPING_TOKENS):
                victim = self._slot_to_evict()
                self._archive_slot(victim)
                if cached and victim != best:
                    self.copy(best, victim, cached)
                    self.slot_ids[victim] = list(ids[:cached])
                best = victim
            if owner is None:
                self.owners.pop(best, None)
            else:
                self.owners[best] = owner
        self.slot = best
        if best in self.slots_in_use:
            self.slots_in_use.remove(best)
        self.slots_in_use.append(best)
        self.rewind(cached)
        return cached

    def _archive_slot(self, slot: int) -> None:
        """Keep the text of a slot that is about to lose it."""
        ids = self.slot_ids[slot]
        if self.archive.limit_bytes and len(ids) >= WORTH_KEEPING_TOKENS:
            self.archive.add(ids, self.save_slot(slot, len(ids)))

    def _free_surplus_slots(self) -> None:
        """Free the slots that concurrent completions needed beyond `slots`. Their texts go to the archive."""
        surplus = len(self.slots_in_use) - self.slots if self.archive.limit_bytes else 0
        for slot in self.slots_in_use[: max(0, surplus)]:
            self._archive_slot(slot)
            self.slot_ids[slot].clear()
            self.free_slot(slot)
        del self.slots_in_use[: max(0, surplus)]

    def _slot_to_evict(self) -> int:
        """The least recently used slot without an owner; else a slot not in use yet; else the least recently used."""
        unowned = [slot for slot in self.slots_in_use if slot not in self.owners]
        if not unowned and len(self.slots_in_use) < self.most_slots:
            return next(slot for slot in range(len(self.slot_ids)) if slot not in self.slots_in_use)
        return (unowned or self.slots_in_use)[0]

    def slot_of(self, owner: CacheSlot | None) -> int | None:
        """The slot that belongs to `owner`; None if it has none."""
        return None if owner is None else next((slot for slot, by in self.owners.items() if by is owner), None)

    def rewind(self, length: int) -> None:
        """Forget the current slot's tokens from position `length` on. O(1): entries beyond it are never read."""
        del self.ids[length:]

    def forget(self, include_owned: bool = True) -> None:
        """Forget the archive and the tokens of every slot, or only of slots without an owner.

        The next prompt is computed anew.
        """
        if include_owned:
            self.owners.clear()
        self.archive.clear()
        for slot, ids in enumerate(self.slot_ids):
            if slot not in self.owners:
                ids.clear()

    def empty(self) -> None:
        """Forget every slot's tokens, and free slot memory where each slot has its own.

        Between rounds. Running completions have their text computed again before their next round.
        """
        self.forget()
        for slot in range(len(self.slot_ids)):
            self.free_slot(slot)

    def forward(self, new: Sequence[int]) -> Logits:
        """Append `new` to the current slot; their logits, [T, vocab], float32."""
        raise NotImplementedError

    def forward_with_tail(self, new: Sequence[int], wanted: int, cancel: threading.Event | None = None) -> Logits:
        """Append `new`, up to `tail_tokens` and a round; the logits of the last `wanted` of them, [wanted, vocab].

        Raises:
            Cancelled: within the pass, where the decoder can stop there; the cache holds nothing of it.
        """
        return self.forward(new)[-wanted:]

    def choose(
        self, new: Sequence[int], wanted: int, draw: Draw | None, banned: Sequence[int]
    ) -> list[tuple[int, float]] | None:
        """Append `new`; the token after each of the last `wanted` of them, with its log probability (cuda/ops.choose).

        None if the decoder cannot choose tokens: nothing is appended, and `forward` gives the logits.
        """
        return None

    def extend(self, new: Sequence[int], cancel: threading.Event | None = None) -> None:
        """Append `new` to the current slot, without logits.

        Raises:
            Cancelled: within the step, where the decoder can stop there; the cache holds nothing of it.
        """
        raise NotImplementedError

    def copy(self, source: int, target: int, tokens: int) -> None:
        """Copy the first `tokens` entries of one slot's cache to another's."""
        raise NotImplementedError

    def save_slot(self, slot: int, tokens: int) -> tuple[Array, Array]:
        """A copy of the keys and values of a slot's first `tokens` tokens."""
        raise NotImplementedError

    def restore_slot(self, slot: int, kv: tuple[Array, Array], tokens: int) -> None:
        """Write the first `tokens` tokens of what `save_slot` returned into a slot."""
        raise NotImplementedError

    def free_slot(self, slot: int) -> None:
        """Free a slot's memory, where each slot has its own."""
