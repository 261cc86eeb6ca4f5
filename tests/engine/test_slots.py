"""Several texts share the cache: whatever is asked in whatever order, a slot holds exactly what it says it holds."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp.engine.slots import EVEN_TOKENS, SLOTS, WORTH_KEEPING_TOKENS, CachedModel, Cancelled, common_prefix


class Book(CachedModel):
    """Writes down the tokens themselves where a decoder would put keys and values."""

    def __init__(self, prefill_tokens: int = 64, ride_tokens: int = 0) -> None:
        super().__init__(10_000, prefill_tokens)
        self.ride_tokens = ride_tokens
        self.cache: list[dict[int, int]] = [{} for _ in range(SLOTS)]
        self.steps: list[int] = []

    def extend(self, new: Sequence[int], cancel: threading.Event | None = None) -> None:
        self.steps.append(len(new))
        for token in new:
            self.cache[self.slot][len(self.ids)] = token
            self.ids.append(token)

    def copy(self, source: int, target: int, tokens: int) -> None:
        for position in range(tokens):
            self.cache[target][position] = self.cache[source][position]

    def check(self) -> None:
        for slot, held in enumerate(self.held):
            assert [self.cache[slot][position] for position in range(len(held))] == held


texts = st.lists(st.integers(0, 2), max_size=3).flatmap(
    lambda head: st.integers(0, 260).map(lambda length: [*head, *([len(head)] * length)])
)


@given(asked=st.lists(texts, min_size=1, max_size=12), ride=st.sampled_from([0, 4]))
def test_a_prompt_is_held_exactly_and_nothing_that_was_cached_for_it_is_computed_again(
    asked: list[list[int]], ride: int
):
    book = Book(ride_tokens=ride)
    for ids in asked:
        best = max(common_prefix(held, ids) for held in book.held)
        book.steps.clear()
        assert book.prepare(ids) == best
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
