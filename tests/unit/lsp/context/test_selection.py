"""Which pieces of other files are shown: the worthiest that there is room for, none twice, and the same for long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from speclsp.lsp.context import selection
from speclsp.lsp.context.chunk import Chunk
from speclsp.lsp.context.selection import choose, size_tokens, telling, worth

words = st.sampled_from(["alpha", "beta", "gamma", "delta", "load", "store", "path", "size"])
lines = st.lists(words, min_size=2, max_size=4).map(" ".join)
texts = st.lists(lines, min_size=1, max_size=6).map(lambda made: "\n".join(made) + "\n")
chunks = st.builds(
    Chunk,
    path=st.sampled_from(["a.py", "b.py", "c.py"]),
    text=texts,
    score=st.floats(0.01, 1.0),
    source=st.sampled_from(sorted(selection.WEIGHTS)),
)
offers = st.lists(chunks, max_size=12)


def total(chosen: tuple[Chunk, ...]) -> float:
    return sum(map(size_tokens, chosen))


@given(offers, st.integers(0, 400), texts, offers)
def test_the_budget_is_never_exceeded(offered: list[Chunk], room: int, window: str, kept: list[Chunk]):
    chosen, _ = choose(offered, room, window, kept)
    assert total(chosen) <= room


@given(offers, st.integers(0, 400), texts)
def test_nothing_is_shown_that_is_in_sight_already(offered: list[Chunk], room: int, window: str):
    chosen, _ = choose(offered, room, window)
    seen = set(telling(window))
    for chunk in reversed(chosen):
        assert not set(telling(chunk.text)) <= seen
        seen |= set(telling(chunk.text))


@given(offers, st.integers(0, 400), texts, st.randoms())
def test_the_choice_does_not_depend_on_the_order_of_the_sources(offered: list[Chunk], room: int, window: str, dice):
    shuffled = list(offered)
    dice.shuffle(shuffled)
    assert choose(offered, room, window)[0] == choose(shuffled, room, window)[0]


@given(offers, st.integers(0, 400))
def test_the_worthiest_stands_last_and_every_piece_left_out_has_a_reason(offered: list[Chunk], room: int):
    chosen, left_out = choose(offered, room, "")
    assert [worth(chunk) for chunk in chosen] == sorted(worth(chunk) for chunk in chosen)
    assert len(chosen) + len(left_out) == len(set(offered))


@given(offers, st.integers(0, 400), texts)
def test_what_was_chosen_stays_while_it_is_as_good_as_ever(offered: list[Chunk], room: int, window: str):
    chosen, _ = choose(offered, room, window)
    assert choose(list(reversed(offered)), room, window, kept=chosen)[0] == chosen


def piece(name: str, score: float) -> Chunk:
    return Chunk("a.py", f"def {name}(path): ...\n", score, "definition")


def test_a_slightly_better_piece_changes_nothing_and_a_much_better_one_does():
    kept = (piece("load", 0.5), piece("store", 0.6))
    slightly = [*kept, piece("other", 0.2)]
    much = [*kept, piece("needed", 0.9), piece("wanted", 0.9)]
    assert choose(slightly, 200, "", kept)[0] == kept
    assert piece("needed", 0.9) in choose(much, 200, "", kept)[0]


def test_what_has_come_into_sight_is_let_go():
    kept = (piece("load", 0.5), piece("store", 0.6))
    assert choose(kept, 200, "def load(path): ...\n", kept)[0] == (piece("store", 0.6),)
