"""Asked by hand, there are up to three suggestions that differ for a person; the first is the usual one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.lsp.scripted_session import TEXT, ScriptedBackend, ScriptedSession, at, run

from speclsp.lsp.backend.types import CompletionCost, FimRequest, StreamBranch, StreamPiece
from speclsp.lsp.completion.alternatives import TRIES, is_distinct
from speclsp.lsp.postprocess.plan import Suggestion


class Minds(ScriptedBackend):
    """A backend whose model knows some texts and how likely each is; a token is a character. It tells of branches."""

    def __init__(self, texts: Mapping[str, float], round_s: float = 0.0) -> None:
        super().__init__("", round_s=round_s)
        self.texts = texts

    def follows(self, said: str) -> dict[str, float]:
        """The probability of each character after `said`; "" is the end."""
        found: dict[str, float] = {}
        for text, p in self.texts.items():
            if text.startswith(said):
                found[text[len(said) :][:1]] = found.get(text[len(said) :][:1], 0.0) + p
        whole = sum(found.values())
        return {char: p / whole for char, p in found.items()}

    async def stream(self, request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
        self.requests.append(request)
        said, p = "".join(map(chr, request.begin)), 1.0
        if said:
            yield StreamPiece(text=said, tokens=len(said), ids=request.begin, branches=())
        while True:
            await asyncio.sleep(self.round_s)
            follows = self.follows(said)
            best = max(follows, key=lambda char: (follows[char], char))
            branches = tuple(
                StreamBranch(at=len(said), chars=len(said), token=ord(char), text=char, p=p * follows[char])
                for char in follows
                if char not in (best, "")
            )
            if best:
                yield StreamPiece(
                    text=best, tokens=1, ids=(ord(best),), branches=branches if request.branches else None
                )
            said, p = said + best, p * follows[best]
            if not best:
                break
        yield StreamPiece(cost=CompletionCost(stop_type="eos"))


def found(backend: ScriptedBackend, wanted: int = 3, text: str = TEXT, **options: object) -> list[str]:
    said: list[str] = []

    async def work(scripted: ScriptedSession) -> None:
        outcome = await scripted.complete(at(text), wanted, by_hand=True)
        said.extend(made.text for made in outcome.suggestions)

    run(ScriptedSession(backend, **options), work)
    return said


CALLS = st.sampled_from(
    ["append(1)", "append( 1 )", "append(1);", "pop()", "pop(0)", "extend(x)", "clear()", "copy()", "sort()"]
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(CALLS, st.floats(0.05, 1.0), min_size=1), st.integers(1, 4))
def test_alternatives_are_the_models_own_texts_and_all_distinct(texts: dict[str, float], wanted: int) -> None:
    backend = Minds(texts)
    said = found(backend, wanted)
    assert 1 <= len(said) <= wanted and set(said) <= set(texts)
    assert said[0] == found(Minds(texts), 1)[0], "the first is what comes without asking by hand"
    made = [Suggestion(text, len(TEXT), len(TEXT)) for text in said]
    assert all(is_distinct(one, made[:number], at(TEXT)) for number, one in enumerate(made))
    assert len(backend.requests) <= 1 + TRIES * max(0, wanted - 1)
    assert not any(asked.seed or asked.temperature for asked in backend.requests), "each is greedy from its branch"
    assert not any(asked.begin for asked in backend.requests[:1]) and all(asked.begin for asked in backend.requests[1:])


def test_the_likeliest_alternatives_come_first_and_improbable_ones_are_left_out() -> None:
    assert found(Minds({"append(1)": 0.5, "pop()": 0.2, "clear()": 0.294, "sort()": 0.006})) == [
        "append(1)",
        "clear()",
        "pop()",
    ]
    assert found(Minds({"append(1)": 0.994, "sort()": 0.006})) == ["append(1)"]


def test_alternatives_of_a_server_that_reports_no_branches_are_sampled() -> None:
    backend = ScriptedBackend("append(1)", "pop()", "pop()")
    assert found(backend) == ["append(1)", "pop()"]
    assert [(asked.seed, asked.temperature > 0, asked.begin) for asked in backend.requests] == [
        (0, False, ()),
        (1, True, ()),
        (2, True, ()),
    ]


def test_alternatives_complete_at_the_deadline_are_shown() -> None:
    backend = Minds({"append(1)": 0.5, "p" * 500: 0.5}, round_s=0.01)
    backend.follows = lambda said: {"a": 0.6, "p": 0.4} if not said else Minds.follows(backend, said)  # type: ignore[method-assign]
    assert found(backend, **{"completion.deadline_ms": 600})[:1] == ["append(1)"]


@pytest.mark.parametrize(
    ("line", "one", "other", "alike"),
    [
        ("items.", "append(1)", "append( 1 )", True),
        ("items.", "append(1)", "append(1);", True),
        ("x = ", "'a'", '"a"', True),
        ("", "for i in items:", "for n in items:", True),
        ("", "row = items[0]", "entry = items[0]", True),
        ("", "return items  # all of them", "return items  # every one", True),
        ("", "return items", "return items[0]", False),
        ("", "for i in items:", "for i in others:", False),
        ("", "with open(path) as f:", "with open(path) as file:", True),
        ("", "pass", "break", False),
        ("", "else:", "finally:", False),
        ("def ", "read(path):", "load(path):", False),
        ("call(", "key=1)", "name=1)", False),
    ],
)
def test_blanks_quotes_ends_comments_and_own_names_do_not_make_a_distinct_alternative(
    line: str, one: str, other: str, alike: bool
) -> None:
    here = at("items = []\n" + line)
    first, second = (Suggestion(text, here.cursor, here.cursor) for text in (one, other))
    assert is_distinct(second, [first], here) is not alike


def test_a_beginning_of_another_suggestion_is_not_distinct_and_a_longer_one_is() -> None:
    less, more = (Suggestion(text, len(TEXT), len(TEXT)) for text in ("pop", "pop(0).name"))
    assert not is_distinct(less, [more], at(TEXT)) and is_distinct(more, [less], at(TEXT))
