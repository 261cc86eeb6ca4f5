"""The answer cache returns suggestions for the text they were made for, and for its continuations."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.lsp.scripted_session import at

from speclsp.lsp.completion.answer_cache import AnswerCache
from speclsp.lsp.postprocess.plan import Suggestion


def applied(text: str, suggestion: Suggestion) -> str:
    return text[: suggestion.start] + suggestion.text + text[suggestion.end :]


@given(
    before=st.text("ab\n", max_size=6),
    after=st.text("ab)\n", max_size=4),
    suggested=st.text("ab)\n", min_size=1, max_size=6),
    back=st.integers(0, 2),
    over=st.integers(0, 2),
    typed=st.text("ab)\n", max_size=4),
)
def test_a_cached_suggestion_leads_to_the_text_that_was_suggested(
    before: str, after: str, suggested: str, back: int, over: int, typed: str
):
    line = before.rpartition("\n")[2]
    start, end = len(before) - min(back, len(line)), len(before) + min(over, len(after.partition("\n")[0]))
    shown = Suggestion(before[start:] + suggested, start, end)
    cache = AnswerCache()
    cache.store(at(before + after, len(before)), [shown], wanted=1)
    later = at(before + typed + after, len(before + typed))
    recalled = cache.lookup(later, 1)
    assert (recalled is not None) >= (typed == "")
    if recalled is not None:
        (left,), _ = recalled
        assert applied(later.text, left) == applied(before + after, shown)
        assert suggested.startswith(typed)
        assert left.start <= later.cursor <= left.end
        assert "\n" not in later.text[left.start : left.end]
        assert left.text.startswith(later.text[left.start : later.cursor])


@given(before=st.text("ab", max_size=3), typed=st.text("ab\n", max_size=5), other=st.text("ab\n", max_size=5))
def test_the_cache_has_no_answer_for_another_text(before: str, typed: str, other: str):
    cache = AnswerCache()
    shown = at(before + "|" + "tail", len(before) + 1)
    cache.store(shown, [Suggestion("aaaa", shown.cursor, shown.cursor)], wanted=1)
    for text in (other + before + "|" + typed + "tail", before + "|" + typed + "tail" + other):
        later = at(text, text.index("tail"))
        if cache.lookup(later, 1) is not None:
            assert other == "" or text == before + "|" + typed + "tail"


def test_the_cache_keeps_only_the_last_answers():
    cache = AnswerCache()
    for number in range(20):
        cache.store(at("x" * number), [Suggestion("y", number, number)], wanted=1)
    assert cache.lookup(at("x" * 19), 1) is not None
    assert cache.lookup(at("x" * 3), 1) is None


def test_a_draft_hint_has_plain_newlines():
    cache = AnswerCache()
    cache.store(at("a"), [Suggestion("b\r\nc\rd", 1, 1)], wanted=1)
    assert cache.draft_hint(at("aX")) == "b\nc\nd"
