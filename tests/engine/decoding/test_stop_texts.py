"""Text that may turn out to be the start of a stop text is withheld."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from speclsp.engine.decoding.stop_texts import longest_stop_start


class Counted(str):
    """A text that counts how often a part of it is read."""

    reads = 0

    def __getitem__(self, index: object) -> str:
        self.reads += 1
        return super().__getitem__(index)  # type: ignore[index]


@given(text=st.text("ab", max_size=8), stops=st.lists(st.text("ab", max_size=12), max_size=3))
def test_the_longest_end_that_begins_a_stop_text_is_withheld(text: str, stops: list[str]):
    starts = [size for stop in stops for size in range(1, len(stop)) if text.endswith(stop[:size])]
    assert longest_stop_start(text, tuple(stops)) == max(starts, default=0)


def test_a_stop_text_of_any_length_costs_no_more_than_the_text_that_may_begin_it():
    stop = Counted("x" * 10_000)
    assert longest_stop_start("def f", (stop,)) == 0
    assert stop.reads <= len("def f")
