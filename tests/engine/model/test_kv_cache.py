"""Several texts share the KV cache: after any sequence of prompts, each slot holds exactly the tokens it reports."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp.engine.model.bfloat16 import Array
from speclsp.engine.model.kv_archive import KvArchive, common_prefix
from speclsp.engine.model.kv_cache import (
    EVEN_TOKENS,
    SLOTS,
    WORTH_KEEPING_TOKENS,
    CachedModel,
    CacheSlot,
)


class TokenCache(CachedModel):
    """Stores the tokens themselves instead of keys and values."""

    def __init__(self, prefill_tokens: int = 64, tail_tokens: int = 0, most_slots: int = 0) -> None:
        super().__init__(10_000, prefill_tokens, SLOTS, most_slots)
        self.tail_tokens = tail_tokens
        self.entries: list[dict[int, int]] = [{} for _ in self.slot_ids]
        self.steps: list[int] = []

    def extend(self, new: Sequence[int], cancel: threading.Event | None = None) -> None:
        self.steps.append(len(new))
        for token in new:
            self.entries[self.slot][len(self.ids)] = token
            self.ids.append(token)

    def copy(self, source: int, target: int, tokens: int) -> None:
        for position in range(tokens):
            self.entries[target][position] = self.entries[source][position]

    def free_slot(self, slot: int) -> None:
        self.entries[slot].clear()

    def check(self) -> None:
        for slot, ids in enumerate(self.slot_ids):
            assert [self.entries[slot][position] for position in range(len(ids))] == ids


class ArchivingCache(TokenCache):
    """The same with an archive. An entry is 8 bytes."""

    def __init__(self, most_slots: int = 0, limit_mib: int = 1) -> None:
        super().__init__(most_slots=most_slots)
        self.archive = KvArchive(limit_mib)

    def save_slot(self, slot: int, tokens: int) -> tuple[Array, Array]:
        return np.array([self.entries[slot][position] for position in range(tokens)]), np.empty(0)

    def restore_slot(self, slot: int, kv: tuple[Array, Array], tokens: int) -> None:
        self.entries[slot].update(enumerate(kv[0].tolist()[:tokens]))


def prefill_all_but_tail(cache: TokenCache, ids: Sequence[int]) -> int:
    """Prefill as `generate` does: the last tokens, at most `tail_tokens`, are left for the first round's pass."""
    cached = cache.acquire_slot(ids)
    while len(cache.ids) + cache.tail_tokens < len(ids):
        cache.step(ids)
    return cached


texts = st.lists(st.integers(0, 2), max_size=3).flatmap(
    lambda head: st.integers(0, 260).map(lambda length: [*head, *([len(head)] * length)])
)


@given(prompts=st.lists(texts, min_size=1, max_size=12), tail_tokens=st.sampled_from([0, 4]))
def test_the_cache_holds_exactly_the_prompt_and_computes_no_cached_token_again(
    prompts: list[list[int]], tail_tokens: int
):
    cache = TokenCache(tail_tokens=tail_tokens)
    for ids in prompts:
        best = max(common_prefix(cached, ids) for cached in cache.slot_ids)
        cache.steps.clear()
        assert prefill_all_but_tail(cache, ids) == best
        assert ids[: len(cache.ids)] == cache.ids
        missing = len(ids) - len(cache.ids)
        assert missing <= tail_tokens and sum(cache.steps) + missing == len(ids) - best
        assert cache.catch_up(ids) == len(ids) - missing
        assert cache.ids == ids
        cache.check()


@given(kept=st.integers(1, 50), lost=st.integers(1, 300))
def test_a_diverging_text_gets_its_own_slot_if_a_long_text_would_be_lost(kept: int, lost: int):
    cache = TokenCache()
    cache.catch_up([1] * kept + [2] * lost)
    assert cache.catch_up([1] * kept + [3] * 4) == kept
    cache.check()
    cached = cache.catch_up([1] * kept + [2] * lost)
    assert cached == (kept + lost if lost >= WORTH_KEEPING_TOKENS else kept)


@given(missing=st.integers(1, 700))
def test_prefill_steps_are_even_and_never_longer_than_allowed(missing: int):
    cache = TokenCache(prefill_tokens=256)
    cache.catch_up([1] * missing)
    assert sum(cache.steps) == missing
    assert len(cache.steps) == -(-missing // 256), "no more weight reads than necessary"
    assert max(cache.steps) <= 256
    assert all(step % EVEN_TOKENS == 0 for step in cache.steps[:-1])


def test_prefill_steps_are_shorter_while_another_completion_waits():
    cache = TokenCache(prefill_tokens=256)
    cache.contended_step_tokens = 128
    first = acquired(cache, [1] * 512)
    assert cache.steps == [256, 256]
    second = acquired(cache, [2] * 256)
    assert cache.steps[2:] == [128, 128]
    first.release(), second.release()
    cache.catch_up([3] * 256)
    assert cache.steps[4:] == [256]


def acquired(cache: TokenCache, ids: Sequence[int]) -> CacheSlot:
    """The slot of a completion that contains `ids`."""
    cache_slot = cache.reserve()
    cache_slot.acquire(ids)
    while len(cache.ids) < len(ids):
        cache.step(ids)
    return cache_slot


@given(
    texts=st.lists(texts, min_size=1, max_size=6),
    order=st.lists(st.integers(0, 5), max_size=20),
    most=st.integers(1, 6),
)
def test_a_completion_finds_its_text_unchanged_or_knows_that_it_was_evicted(
    texts: list[list[int]], order: list[int], most: int
):
    cache = TokenCache(most_slots=most)
    claims = [cache.reserve() for _ in texts]
    left: list[list[int]] = [[] for _ in texts]
    for number in (number for number in order if number < len(texts)):
        cache_slot, ids = claims[number], texts[number]
        evicted = cache_slot.evicted
        cached = cache_slot.acquire(ids)
        assert evicted or cache.ids == left[number], "no other completion has written here"
        assert cached == len(cache.ids) == common_prefix(cache.ids, ids)
        cache.step(ids) if cached < len(ids) else None
        left[number] = list(cache.ids)
        assert cache_slot.owned and not cache_slot.evicted
        cache.check()
    served = sum(not cache_slot.evicted for cache_slot in claims)
    wanted = len(set(order) & set(range(len(texts))))
    assert served == min(wanted, max(most, SLOTS)), "no completion was evicted without need"


def test_an_owned_slot_is_copied_from_and_not_written_to():
    cache = TokenCache()
    first = acquired(cache, [1] * 200)
    assert cache.catch_up([1] * 150 + [2] * 4) == 150
    assert not first.evicted
    assert first.acquire([1] * 200) == 200
    first.release()
    assert cache.catch_up([1] * 200 + [3]) == 200, "the text stays cached after its slot is released"


def test_with_more_completions_than_slots_the_least_recently_used_one_is_evicted():
    cache = TokenCache(most_slots=4)
    claims = [acquired(cache, [number] * 200) for number in range(4)]
    assert not any(cache_slot.evicted for cache_slot in claims)
    claims[0].acquire([0] * 200)
    claims.append(acquired(cache, [4] * 200))
    assert [cache_slot.evicted for cache_slot in claims] == [False, True, False, False, False]


def test_a_garbage_collected_completion_releases_its_slot():
    cache = TokenCache()
    for number in range(2 * SLOTS):
        acquired(cache, [number] * 200)
    assert not cache.owners
    assert sum(bool(ids) for ids in cache.slot_ids) == SLOTS


# ── the archive ──────────────────────────────────────────────────────────────────────────────────────────────


@given(prompts=st.lists(texts, min_size=1, max_size=30))
def test_with_an_archive_the_cache_holds_exactly_the_prompt(prompts: list[list[int]]):
    cache = ArchivingCache()
    for ids in prompts:
        before = max(common_prefix(cached, ids) for cached in cache.slot_ids)
        expected = cache.shared_prefix(ids)
        assert cache.catch_up(ids) == expected >= before
        assert cache.ids == ids
        cache.check()


def test_a_completion_that_owns_a_slot_keeps_it_when_another_text_comes_back():
    cache = ArchivingCache(most_slots=SLOTS + 1)
    archived = [7] * 200
    for ids in (archived, *([number] * 200 for number in range(SLOTS))):
        cache.catch_up(ids)
    owners = [acquired(cache, [number] * 200) for number in range(SLOTS)]
    assert cache.catch_up(archived) == 200
    cache.check()
    assert not any(owner.evicted for owner in owners)


def test_slots_for_concurrent_completions_are_freed_after_them_and_their_texts_come_back():
    cache = ArchivingCache(most_slots=SLOTS + 3)
    files = [[number] * 200 for number in range(SLOTS + 3)]
    owners = [acquired(cache, ids) for ids in files]
    assert sum(map(bool, cache.entries)) == SLOTS + 3
    owners.clear()
    for ids in files:
        assert cache.catch_up(ids) == 200
        assert sum(map(bool, cache.entries)) == len(cache.slots_in_use) == SLOTS
        cache.check()


def test_the_archive_stays_within_its_limit_and_forgets_the_oldest():
    archive = KvArchive(1)
    for number in range(40):
        archive.add([number] * 5, (np.zeros((16, 1024), np.float32), np.zeros(0)))  # 64 KiB
        assert sum(text.size_bytes for text in archive.texts) <= 1 << 20
    assert [text.ids[0] for text in archive.texts] == list(range(24, 40))
    archive.add([39] * 9, (np.zeros(1), np.zeros(0)))
    assert len(archive.texts) == 16, "a text replaces the one that it continues"
    archive.add([0], (np.zeros((1024, 1024), np.float32), np.zeros(0)))
    assert archive.texts == [], "a text above the limit is not kept"


@pytest.mark.parametrize("release", ["forget", "empty"])
def test_released_memory_includes_the_archive(release: str):
    cache = ArchivingCache()
    for number in range(2 * SLOTS):
        cache.catch_up([number] * 200)
    assert cache.archive.texts
    getattr(cache, release)()
    assert not cache.archive.texts
