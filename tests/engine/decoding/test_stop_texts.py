"""What is held back because it may turn out to be the start of a stop text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from speclsp.engine.decoding.completion import longest_stop_start


class Counted(str):
    """A text that notes how often a part of it is looked at."""

    looks = 0

    def __getitem__(self, place: object) -> str:
        self.looks += 1
        return super().__getitem__(place)  # type: ignore[index]


@given(text=st.text("ab", max_size=8), stops=st.lists(st.text("ab", max_size=12), max_size=3))
def test_the_longest_end_that_begins_a_stop_text_is_held_back(text: str, stops: list[str]):
    begun = [size for stop in stops for size in range(1, len(stop)) if text.endswith(stop[:size])]
    assert longest_stop_start(text, tuple(stops)) == max(begun, default=0)


def test_a_stop_text_of_any_length_costs_no_more_than_the_text_that_may_begin_it():
    stop = Counted("x" * 10_000)
    assert longest_stop_start("def f", (stop,)) == 0
    assert stop.looks <= len("def f")
