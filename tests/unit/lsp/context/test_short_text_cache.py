"""Caches of lines and words are bounded in bytes: long texts are never kept, and their results are the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from speclsp.lsp.context.short_text_cache import MAX_CHARACTERS, cache_short
from speclsp.lsp.context.similar_code import words_of_line


@given(st.lists(st.text("ab", max_size=2 * MAX_CHARACTERS), max_size=20))
def test_short_texts_are_computed_once_and_long_ones_each_time(texts: list[str]):
    computed = []

    @cache_short(len(texts) + 1)
    def measure(text: str) -> int:
        computed.append(text)
        return len(text)

    assert [measure(text) for text in texts] == list(map(len, texts))
    short = [text for text in texts if len(text) <= MAX_CHARACTERS]
    assert len(computed) == len(set(short)) + len(texts) - len(short)
    assert measure.cache_info().currsize == len(set(short))


def test_typing_in_a_line_of_many_characters_fills_no_cache():
    words_of_line.cache_clear()
    for number in range(20):
        words_of_line("value.member " * 1000 + str(number))
    assert words_of_line.cache_info().currsize == 0
