"""Alternatives for an explicit request: distinct suggestions, the usual one first, then by probability."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping

import pytest
from async_tests import run
from hypothesis import given, settings
from hypothesis import strategies as st
from support.lsp.scripted_session import TEXT, ScriptedBackend, ScriptedSession, at

from speclsp.lsp.backend.types import CompletionCost, FimRequest, StreamBranch, StreamPiece
from speclsp.lsp.completion.alternatives import TRIES, is_distinct
from speclsp.lsp.postprocess.plan import Suggestion


class BranchingBackend(ScriptedBackend):
    """A backend that reports branches. Its model knows some texts and their probabilities; a token is one character."""

    def __init__(self, texts: Mapping[str, float], round_s: float = 0.0) -> None:
        super().__init__("", round_s=round_s)
        self.texts = texts

    def follows(self, text_so_far: str) -> dict[str, float]:
        """The probability of each character after `text_so_far`; "" is the end."""
        following: dict[str, float] = {}
        for text, p in self.texts.items():
            if text.startswith(text_so_far):
                following[text[len(text_so_far) :][:1]] = following.get(text[len(text_so_far) :][:1], 0.0) + p
        whole = sum(following.values())
        return {char: p / whole for char, p in following.items()}

    async def stream(self, request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
        self.requests.append(request)
        text_so_far, p = "".join(map(chr, request.begin)), 1.0
        if text_so_far:
            yield StreamPiece(text=text_so_far, tokens=len(text_so_far), ids=request.begin, branches=())
        while True:
            await asyncio.sleep(self.round_s)
            follows = self.follows(text_so_far)
            best = max(follows, key=lambda char: (follows[char], char))
            branches = tuple(
                StreamBranch(
                    at=len(text_so_far), chars=len(text_so_far), token=ord(char), text=char, p=p * follows[char]
                )
                for char in follows
                if char not in (best, "")
            )
            if best:
                yield StreamPiece(
                    text=best, tokens=1, ids=(ord(best),), branches=branches if request.branches else None
                )
            text_so_far, p = text_so_far + best, p * follows[best]
            if not best:
                break
        yield StreamPiece(cost=CompletionCost(stop_type="eos"))


def alternatives_of(backend: ScriptedBackend, wanted: int = 3, text: str = TEXT, **options: object) -> list[str]:
    """The suggestions for an explicit request at the end of `text`."""
    texts: list[str] = []

    async def work() -> None:
        outcome = await ScriptedSession(backend, **options).complete(at(text), wanted, by_hand=True)
        texts.extend(suggestion.text for suggestion in outcome.suggestions)

    run(work())
    return texts


CALLS = st.sampled_from(
    ["append(1)", "append( 1 )", "append(1);", "pop()", "pop(0)", "extend(x)", "clear()", "copy()", "sort()"]
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(CALLS, st.floats(0.05, 1.0), min_size=1), st.integers(1, 4))
def test_alternatives_are_the_models_own_texts_and_all_distinct(texts: dict[str, float], wanted: int) -> None:
    backend = BranchingBackend(texts)
    shown = alternatives_of(backend, wanted)
    assert 1 <= len(shown) <= wanted and set(shown) <= set(texts)
    assert shown[0] == alternatives_of(BranchingBackend(texts), 1)[0], "the first is that of an automatic request"
    suggestions = [Suggestion(text, len(TEXT), len(TEXT)) for text in shown]
    assert all(is_distinct(suggestion, suggestions[:number], at(TEXT)) for number, suggestion in enumerate(suggestions))
    assert len(backend.requests) <= 1 + TRIES * max(0, wanted - 1)
    assert not any(request.seed or request.temperature for request in backend.requests), (
        "each is greedy from its branch"
    )
    assert not any(request.begin for request in backend.requests[:1]) and all(
        request.begin for request in backend.requests[1:]
    )


def test_the_likeliest_alternatives_come_first_and_improbable_ones_are_left_out() -> None:
    assert alternatives_of(BranchingBackend({"append(1)": 0.5, "pop()": 0.2, "clear()": 0.294, "sort()": 0.006})) == [
        "append(1)",
        "clear()",
        "pop()",
    ]
    assert alternatives_of(BranchingBackend({"append(1)": 0.994, "sort()": 0.006})) == ["append(1)"]


def test_alternatives_of_a_server_that_reports_no_branches_are_sampled() -> None:
    backend = ScriptedBackend("append(1)", "pop()", "pop()")
    assert alternatives_of(backend) == ["append(1)", "pop()"]
    assert [(request.seed, request.temperature > 0, request.begin) for request in backend.requests] == [
        (0, False, ()),
        (1, True, ()),
        (2, True, ()),
    ]


def test_alternatives_complete_at_the_deadline_are_shown() -> None:
    backend = BranchingBackend({"append(1)": 0.5, "p" * 500: 0.5}, round_s=0.01)
    backend.follows = lambda text_so_far: (
        {"a": 0.6, "p": 0.4} if not text_so_far else BranchingBackend.follows(backend, text_so_far)
    )  # type: ignore[method-assign]
    assert alternatives_of(backend, **{"completion.timeout_ms": 600})[:1] == ["append(1)"]


@pytest.mark.parametrize(
    ("line", "suggestion", "other", "alike"),
    [
        ("items.", "append(1)", "append( 1 )", True),
        ("items.", "append(1)", "append(1);", True),
        ("x = ", "'a'", '"a"', True),
        ("", "return items  # all of them", "return items  # every one", True),
        ("", "return items", "return items[0]", False),
        ("", "for i in items:", "for i in others:", False),
        ("", "pass", "break", False),
        ("", "else:", "finally:", False),
        ("def ", "read(path):", "load(path):", False),
        ("call(", "key=1)", "name=1)", False),
    ],
)
def test_blanks_quotes_ends_and_comments_do_not_make_a_distinct_alternative(
    line: str, suggestion: str, other: str, alike: bool
) -> None:
    here = at("items = []\n" + line)
    first, second = (Suggestion(text, here.cursor, here.cursor) for text in (suggestion, other))
    assert is_distinct(second, [first], here) is not alike


def test_a_beginning_of_another_suggestion_is_not_distinct_and_a_longer_one_is() -> None:
    less, more = (Suggestion(text, len(TEXT), len(TEXT)) for text in ("pop", "pop(0).name"))
    assert not is_distinct(less, [more], at(TEXT)) and is_distinct(more, [less], at(TEXT))
