"""Text that may turn out to be the start of a stop text is withheld."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from speclsp.engine.decoding.stop_texts import StopTexts
from speclsp.engine.decoding.vocabulary import TextStream
from speclsp.plain_text import longest_stop_start


@given(text=st.text("ab", max_size=8), stops=st.lists(st.text("ab", max_size=12), max_size=3))
def test_the_longest_end_that_begins_a_stop_text_is_withheld(text: str, stops: list[str]):
    starts = [size for stop in stops for size in range(1, len(stop)) if text.endswith(stop[:size])]
    assert longest_stop_start(text, tuple(stops)) == max(starts, default=0)


@dataclass
class Pieces:
    """A vocabulary whose tokens are any pieces of bytes."""

    bytes: list[bytes]
    special: frozenset[int] = field(default_factory=frozenset)


def streamed(pieces: Sequence[bytes], heal: bytes, stops: tuple[str, ...], rounds: Sequence[int]) -> str:
    """The text of a completion that ends at its limit. `pieces`: its tokens; `rounds`: numbers of tokens, repeated."""
    vocabulary = Pieces([*pieces, b"other"])
    text = StopTexts(TextStream(vocabulary, heal), stops)
    shown, at, number = "", 0, 0
    while at < len(pieces):
        tokens = list(range(at, min(at + rounds[number % len(rounds)], len(pieces))))
        at, number = at + len(tokens), number + 1
        added = text.add(tokens, "limit" if at == len(pieces) else "")
        shown += added.text
        if added.stop:
            break
    return shown


BYTES = st.lists(st.binary(max_size=3) | st.sampled_from([b"a", b"ab", "é".encode(), "𝒜".encode()]), max_size=8)
STOPS = st.lists(st.sampled_from(["a", "ab", "ba", "é", "b"]), max_size=2)
ROUNDS = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@given(pieces=BYTES, heal_bytes=st.integers(0, 4), stops=STOPS, rounds=ROUNDS)
def test_the_text_is_the_same_for_any_division_into_rounds(
    pieces: list[bytes], heal_bytes: int, stops: list[str], rounds: list[int]
):
    shown = streamed(pieces, b"x" * heal_bytes, tuple(stops), rounds)
    assert streamed(pieces, b"x" * heal_bytes, tuple(stops), [1]) == shown


@given(text=st.text(max_size=8), cut=st.integers(0, 3), size=st.integers(1, 5))
def test_a_text_that_is_cut_within_a_character_ends_before_it(text: str, cut: int, size: int):
    raw = text.encode()
    raw = raw[: len(raw) - cut]
    shown = streamed([raw[at : at + size] for at in range(0, len(raw), size)], b"", (), [2])
    assert shown == raw.decode(errors="ignore")
    assert text.startswith(shown)
