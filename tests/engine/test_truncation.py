"""Truncation of requests in characters: what is kept, that it stays in place while the user types, and its memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from speclsp.engine.api import Extra, Request
from speclsp.engine.truncation import (
    CHARACTERS_PER_TOKEN,
    STEPS,
    TextLimits,
    last_part,
    truncate,
)

TEMPLATE = ("<P>", "<S>", "<M>")
LIMITS = TextLimits(context_tokens=4, template=TEMPLATE)
MOST = 4 * CHARACTERS_PER_TOKEN
TEXTS = st.text("ab\n", max_size=4 * MOST)
EXTRAS = st.lists(st.builds(Extra, filename=st.just("a.py"), text=st.text("xy\n", max_size=MOST)), max_size=8)
REQUESTS = st.builds(
    Request,
    prefix=TEXTS,
    line_prefix=TEXTS,
    suffix=TEXTS,
    raw_prompt=st.none() | TEXTS | st.builds("{}<P>{}<S>{}<M>{}".format, TEXTS, TEXTS, TEXTS, TEXTS),
    previous=TEXTS,
    extra=EXTRAS.map(tuple),
    stop=st.lists(TEXTS, max_size=3).map(tuple),
    max_tokens=st.integers(0, 4),
)


def prompt_of(request: Request) -> tuple[object, ...]:
    return request.prefix, request.line_prefix, request.suffix, request.raw_prompt, request.extra


@given(REQUESTS)
def test_a_request_is_bounded_and_a_second_truncation_changes_nothing(request: Request):
    short = truncate(request, LIMITS)
    assert truncate(short, LIMITS) is short
    assert max(map(len, (short.prefix, short.line_prefix, short.suffix, short.previous))) <= MOST
    assert len(short.raw_prompt or "") <= 4 * MOST + len("".join(TEMPLATE))
    assert sum(len(item.text) for item in short.extra) <= MOST
    assert len(short.extra) <= 4


@given(REQUESTS)
def test_the_text_nearest_to_the_cursor_and_the_most_relevant_snippets_are_kept(request: Request):
    short = truncate(request, LIMITS)
    assert request.prefix.endswith(short.prefix)
    assert request.line_prefix.endswith(short.line_prefix)
    assert request.suffix.startswith(short.suffix)
    assert request.extra[len(request.extra) - len(short.extra) :] == short.extra
    assert request.previous.startswith(short.previous)


@given(REQUESTS)
def test_only_a_missing_part_of_the_prompt_marks_the_request(request: Request):
    short = truncate(request, LIMITS)
    assert short.is_truncated == (prompt_of(short) != prompt_of(request))


@given(REQUESTS)
def test_a_request_within_the_limits_is_the_same_object(request: Request):
    wide = TextLimits(context_tokens=MOST, template=TEMPLATE)
    assert truncate(request, wide) is request or not request.max_tokens


@given(head=TEXTS, before=TEXTS, after=TEXTS, current=TEXTS)
def test_a_filled_in_template_keeps_its_markers_and_the_text_around_each(
    head: str, before: str, after: str, current: str
):
    raw = truncate(Request(raw_prompt=f"{head}<P>{before}<S>{after}<M>{current}"), LIMITS).raw_prompt
    assert raw is not None
    kept_head, _, rest = raw.partition("<P>")
    kept_before, _, rest = rest.partition("<S>")
    kept_after, _, kept_current = rest.partition("<M>")
    assert (head.endswith(kept_head), before.endswith(kept_before)) == (True, True)
    assert (after.startswith(kept_after), current.endswith(kept_current)) == (True, True)


def test_markers_in_another_order_or_twice_are_no_template():
    for text in ("<P>a<M>b<S>c", "<P>a<S>b<M>c<M>", "<P>a<M>"):
        raw = truncate(Request(raw_prompt="x" * MOST + text), LIMITS).raw_prompt
        assert raw is not None
        assert raw.endswith(text)
        assert len(raw) <= MOST


@given(lines=st.lists(st.text("ab", max_size=9), min_size=40, max_size=60), typed=st.integers(1, 3 * MOST))
def test_typing_moves_the_cut_once_in_a_quarter_of_the_limit(lines: list[str], typed: int):
    text = "\n".join(lines)
    starts = {len(text) + n - len(last_part(text + "y" * n, MOST)) for n in range(typed)}
    assert len(starts) <= 2 + typed // (MOST // STEPS)


@given(TEXTS)
def test_at_least_half_of_the_limit_is_kept(text: str):
    assert len(last_part(text, MOST)) >= min(len(text), MOST // 2)
