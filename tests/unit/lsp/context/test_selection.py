"""Selection of chunks: the best ones within the budget, without repetition, and stable."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from speclsp.lsp.context.chunk import Chunk
from speclsp.lsp.context.selection import select, significant_lines, size_tokens

words = st.sampled_from(["alpha", "beta", "gamma", "delta", "load", "store", "path", "size"])
lines = st.lists(words, min_size=2, max_size=4).map(" ".join)
texts = st.lists(lines, min_size=1, max_size=6).map(lambda chosen: "\n".join(chosen) + "\n")
chunks = st.builds(
    Chunk,
    path=st.sampled_from(["a.py", "b.py", "c.py"]),
    text=texts,
    score=st.floats(0.01, 1.0),
)
offers = st.lists(chunks, max_size=12)


def total(chosen: tuple[Chunk, ...]) -> float:
    return sum(map(size_tokens, chosen))


@given(offers, st.integers(0, 400), texts, offers)
def test_the_budget_is_never_exceeded(offered: list[Chunk], room: int, window: str, kept: list[Chunk]):
    chosen = select(offered, room, window, kept)
    assert total(chosen) <= room


@given(offers, st.integers(0, 400), texts)
def test_no_chunk_repeats_lines_that_are_shown_already(offered: list[Chunk], room: int, window: str):
    chosen = select(offered, room, window)
    shown = set(significant_lines(window))
    for chunk in reversed(chosen):
        assert not set(significant_lines(chunk.text)) <= shown
        shown |= set(significant_lines(chunk.text))


@given(offers, st.integers(0, 400), texts, st.randoms())
def test_the_selection_does_not_depend_on_the_order_of_the_sources(offered: list[Chunk], room: int, window: str, dice):
    shuffled = list(offered)
    dice.shuffle(shuffled)
    assert select(offered, room, window) == select(shuffled, room, window)


@given(offers, st.integers(0, 400))
def test_the_best_chunk_stands_last(offered: list[Chunk], room: int):
    chosen = select(offered, room, "")
    assert [chunk.score for chunk in chosen] == sorted(chunk.score for chunk in chosen)


@given(offers, st.integers(0, 400), texts)
def test_a_selection_stays_while_it_is_as_good_as_before(offered: list[Chunk], room: int, window: str):
    chosen = select(offered, room, window)
    assert select(list(reversed(offered)), room, window, kept=chosen) == chosen


def piece(name: str, score: float) -> Chunk:
    return Chunk("a.py", f"def {name}(path): ...\n", score)


def test_a_slightly_better_chunk_changes_nothing_and_a_much_better_one_does():
    kept = (piece("load", 0.5), piece("store", 0.6))
    slightly = [*kept, piece("other", 0.2)]
    much = [*kept, piece("needed", 0.9), piece("wanted", 0.9)]
    assert select(slightly, 200, "", kept) == kept
    assert piece("needed", 0.9) in select(much, 200, "", kept)


def test_a_chunk_that_the_window_now_shows_is_dropped():
    kept = (piece("load", 0.5), piece("store", 0.6))
    assert select(kept, 200, "def load(path): ...\n", kept) == (piece("store", 0.6),)
