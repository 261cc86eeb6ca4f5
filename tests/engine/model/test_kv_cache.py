"""Several texts share the cache: whatever is asked in whatever order, a slot holds exactly what it says it holds."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp.engine.model.kv_cache import (
    EVEN_TOKENS,
    SLOTS,
    WORTH_KEEPING_TOKENS,
    CachedModel,
    CacheSlot,
    Cancelled,
    common_prefix,
)


class Book(CachedModel):
    """Writes down the tokens themselves where a decoder would put keys and values."""

    def __init__(self, prefill_tokens: int = 64, tail_tokens: int = 0, most_slots: int = 0) -> None:
        super().__init__(10_000, prefill_tokens, SLOTS, most_slots)
        self.tail_tokens = tail_tokens
        self.cache: list[dict[int, int]] = [{} for _ in self.slot_ids]
        self.steps: list[int] = []
        self.released: list[int] = []

    def extend(self, new: Sequence[int], cancel: threading.Event | None = None) -> None:
        self.steps.append(len(new))
        for token in new:
            self.cache[self.slot][len(self.ids)] = token
            self.ids.append(token)

    def copy(self, source: int, target: int, tokens: int) -> None:
        for position in range(tokens):
            self.cache[target][position] = self.cache[source][position]

    def free_slot(self, slot: int) -> None:
        self.cache[slot].clear()
        self.released.append(slot)

    def check(self) -> None:
        for slot, held in enumerate(self.slot_ids):
            assert [self.cache[slot][position] for position in range(len(held))] == held


def prefill_all_but_tail(book: Book, ids: Sequence[int]) -> int:
    """Prefill as `generate` does: the last tokens, at most `tail_tokens`, are left for the first round's pass."""
    cached = book.acquire_slot(ids)
    while len(book.ids) + book.tail_tokens < len(ids):
        book.step(ids)
    return cached


texts = st.lists(st.integers(0, 2), max_size=3).flatmap(
    lambda head: st.integers(0, 260).map(lambda length: [*head, *([len(head)] * length)])
)


@given(asked=st.lists(texts, min_size=1, max_size=12), ride=st.sampled_from([0, 4]))
def test_a_prompt_is_held_exactly_and_nothing_that_was_cached_for_it_is_computed_again(
    asked: list[list[int]], ride: int
):
    book = Book(tail_tokens=ride)
    for ids in asked:
        best = max(common_prefix(held, ids) for held in book.slot_ids)
        book.steps.clear()
        assert prefill_all_but_tail(book, ids) == best
        assert ids[: len(book.ids)] == book.ids
        missing = len(ids) - len(book.ids)
        assert missing <= ride and sum(book.steps) + missing == len(ids) - best
        assert book.catch_up(ids) == len(ids) - missing
        assert book.ids == ids
        book.check()


def test_as_many_texts_as_there_are_slots_stay_cached_in_turn():
    book = Book()
    files = [[number] * 200 for number in range(SLOTS)]
    for ids in files:
        book.catch_up(ids)
    for _ in range(3):
        for ids in files:
            ids.append(9)
            assert book.catch_up(ids) == len(ids) - 1
    book.catch_up([7] * 200)
    assert book.catch_up(files[-1]) == len(files[-1]), "the slot unused for longest gave way"
    assert book.catch_up(files[0]) == 0


@given(kept=st.integers(1, 50), lost=st.integers(1, 300))
def test_a_branch_takes_a_slot_of_its_own_when_much_would_be_lost(kept: int, lost: int):
    book = Book()
    book.catch_up([1] * kept + [2] * lost)
    assert book.catch_up([1] * kept + [3] * 4) == kept
    book.check()
    still = book.catch_up([1] * kept + [2] * lost)
    assert still == (kept + lost if lost >= WORTH_KEEPING_TOKENS else kept)


@given(missing=st.integers(1, 700))
def test_prefill_goes_in_even_steps_none_longer_than_allowed(missing: int):
    book = Book(prefill_tokens=256)
    book.catch_up([1] * missing)
    assert sum(book.steps) == missing
    assert len(book.steps) == -(-missing // 256), "no more weight reads than there must be"
    assert max(book.steps) <= 256
    assert all(step % EVEN_TOKENS == 0 for step in book.steps[:-1])


def test_steps_are_shorter_while_another_completion_waits_for_them():
    book = Book(prefill_tokens=256)
    book.contended_step_tokens = 128
    first = seated(book, [1] * 512)
    assert book.steps == [256, 256]
    second = seated(book, [2] * 256)
    assert book.steps[2:] == [128, 128]
    first.release(), second.release()
    book.catch_up([3] * 256)
    assert book.steps[4:] == [256]


def test_a_cancelled_prefill_keeps_the_steps_it_did():
    book, cancel = Book(), threading.Event()
    book.extend = lambda new, flag=None: (Book.extend(book, new, flag), cancel.set())  # type: ignore[assignment]
    with pytest.raises(Cancelled):
        book.catch_up([1] * 200, cancel)
    assert book.ids == [1] * 64
    book.check()


def test_forgetting_forgets_every_slot():
    book = Book()
    book.catch_up([1] * 200)
    book.catch_up([2] * 200)
    book.forget()
    assert book.catch_up([1] * 200) == book.catch_up([2] * 200) == 0


def seated(book: Book, ids: Sequence[int]) -> CacheSlot:
    """A completion that holds `ids`."""
    cache_slot = book.reserve()
    cache_slot.acquire(ids)
    while len(book.ids) < len(ids):
        book.step(ids)
    return cache_slot


@given(
    texts=st.lists(texts, min_size=1, max_size=6),
    order=st.lists(st.integers(0, 5), max_size=20),
    most=st.integers(1, 6),
)
def test_a_completion_finds_its_text_as_it_left_it_or_knows_that_it_is_lost(
    texts: list[list[int]], order: list[int], most: int
):
    book = Book(most_slots=most)
    claims = [book.reserve() for _ in texts]
    left: list[list[int]] = [[] for _ in texts]
    for number in (number for number in order if number < len(texts)):
        cache_slot, ids = claims[number], texts[number]
        lost = cache_slot.evicted
        found = cache_slot.acquire(ids)
        assert lost or book.ids == left[number], "others have not written here"
        assert found == len(book.ids) == common_prefix(book.ids, ids)
        book.step(ids) if found < len(ids) else None
        left[number] = list(book.ids)
        assert cache_slot.owned and not cache_slot.evicted
        book.check()
    at_work = sum(not cache_slot.evicted for cache_slot in claims)
    assert at_work == min(len(set(order) & set(range(len(texts)))), max(most, SLOTS)), "nobody lost it without need"


def test_a_slot_somebody_works_in_is_copied_from_and_not_written_to():
    book = Book()
    first = seated(book, [1] * 200)
    assert book.catch_up([1] * 150 + [2] * 4) == 150
    assert not first.evicted
    assert first.acquire([1] * 200) == 200
    first.release()
    assert book.catch_up([1] * 200 + [3]) == 200, "the text stays when nobody works on it"


def test_of_more_completions_than_slots_the_one_that_waited_longest_gives_way():
    book = Book(most_slots=4)
    claims = [seated(book, [number] * 200) for number in range(4)]
    assert not any(cache_slot.evicted for cache_slot in claims)
    claims[0].acquire([0] * 200)
    claims.append(seated(book, [4] * 200))
    assert [cache_slot.evicted for cache_slot in claims] == [False, True, False, False, False]


def test_a_completion_that_is_gone_leaves_its_seat_whether_it_says_so_or_not():
    book = Book()
    for number in range(2 * SLOTS):
        seated(book, [number] * 200)
    assert not book.owners
    assert sum(bool(held) for held in book.slot_ids) == SLOTS


@given(slots=st.integers(1, SLOTS))
def test_of_fewer_slots_the_ones_used_last_stay_and_the_others_memory_is_given_back(slots: int):
    book = Book(most_slots=8)
    claims = [seated(book, [number] * 200) for number in range(5)]
    book.set_slot_count(slots)
    assert [cache_slot.evicted for cache_slot in claims] == [number < 5 - slots for number in range(5)]
    assert len(book.released) == 5 - slots
    assert not any(book.slot_ids[slot] for slot in book.released)
    book.check()
    again = claims[0].acquire([0] * 200)
    assert again == 0
    claims[0].release()
    book.set_slot_count(SLOTS)
    others = [seated(book, [10 + number] * 200) for number in range(8)]
    assert not any(cache_slot.evicted for cache_slot in others), "and as many as run at once may be used again"


@given(a=st.lists(st.integers(0, 1), max_size=40), b=st.lists(st.integers(0, 1), max_size=40))
def test_a_common_prefix_ends_where_the_two_part(a: list[int], b: list[int]):
    length = common_prefix(a, b)
    assert a[:length] == b[:length]
    assert a[length : length + 1] != b[length : length + 1] or length == min(len(a), len(b))
