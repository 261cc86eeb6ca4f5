"""The confidence gate in a session: a held back suggestion is drafted from, and shown on an explicit request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

import pytest
from support.lsp.scripted_session import ScriptedBackend, ScriptedSession, at

from speclsp.lsp.backend.types import CompletionCost, FimRequest, StreamPiece
from speclsp.lsp.completion.confidence import CURVES, UNJUDGED
from speclsp.lsp.completion.job import CompletionInput
from speclsp.lsp.completion.stream import AGREED_LINGER_S


class UnsureBackend(ScriptedBackend):
    """Reports the same log-probability for each character."""

    def __init__(self, *answers: str, logprob: float) -> None:
        super().__init__(*answers)
        self.logprob = logprob
        self.status = replace(self.status, model=PAIR)

    async def stream(self, request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
        async with aclosing(super().stream(request)) as pieces:
            async for piece in pieces:
                yield piece if piece.cost else replace(piece, logprobs=((len(piece.text), self.logprob),))


TEXT = "items = []\nitems."


PAIR = next(iter(CURVES))


async def test_an_unsure_suggestion_is_drafted_from_and_shown_only_on_an_explicit_request():
    scripted = ScriptedSession(
        UnsureBackend("append(1)", "is", "append(1)", logprob=-4.0), **{"completion.alternatives": 1}
    )
    assert (await scripted.complete(at(TEXT))).reason == "unsure"
    assert (await scripted.complete(at(TEXT + "ax", version=2))).reason == "unsure"
    assert scripted.backend.requests[1].previous == "ppend(1)", "the held back text is the draft hint"
    outcome = await scripted.complete(at(TEXT), by_hand=True)
    assert [suggestion.text for suggestion in outcome.suggestions] == ["append(1)"]
    first, _, by_hand = scripted.traces
    assert first.confidence is not None and first.confidence < first.least_confidence <= 1
    assert by_hand.least_confidence == 0 and first.language == "python"


class UnsureStartBackend(UnsureBackend):
    """Streams its answer by character, and is unsure of the first two only."""

    async def stream(self, request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
        async with aclosing(super().stream(request)) as pieces:
            characters = 0
            async for piece in pieces:
                characters += len(piece.text)
                yield (
                    replace(piece, logprobs=((len(piece.text), -5.0 if characters <= 2 else 0.0),))
                    if piece.text
                    else piece
                )


async def test_an_unsure_suggestion_is_shown_without_a_new_request_once_its_unsure_part_is_typed():
    scripted = ScriptedSession(UnsureStartBackend("append(1)", logprob=0.0), **{"completion.alternatives": 1})
    assert (await scripted.complete(at(TEXT))).reason == "unsure"
    first, second = TEXT + "a", TEXT + "ap"
    scripted.session.document_changed(at(TEXT).uri, lambda: CompletionInput(at(first, version=2)))
    assert (await scripted.complete(at(first, version=2))).reason == "unsure"
    scripted.session.document_changed(at(TEXT).uri, lambda: CompletionInput(at(second, version=3)))
    await asyncio.sleep(2 * AGREED_LINGER_S)  # Neovim's own client waits 200 ms before it asks
    outcome = await scripted.complete(at(second, version=3))
    assert [suggestion.text for suggestion in outcome.suggestions] == ["pend(1)"]
    assert len(scripted.backend.requests) == 1
    assert [trace.adopted for trace in scripted.traces] == [False, True, True]


class PiecewiseBackend(UnsureBackend):
    """Streams each answer in the given pieces, and is unsure of the very first."""

    def __init__(self, *answers: tuple[str, ...], logprob: float = -9.0) -> None:
        super().__init__(*("".join(pieces) for pieces in answers), logprob=logprob)
        self.pieces = answers

    async def stream(self, request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
        number = min(len(self.requests), len(self.pieces) - 1)
        self.requests.append(request)
        for at_, text in enumerate(self.pieces[number]):
            await asyncio.sleep(0)
            yield StreamPiece(text=text, tokens=1, logprobs=((len(text), -0.01 if at_ or number else self.logprob),))
        yield StreamPiece(cost=CompletionCost(stop_type="eos"))


@pytest.mark.parametrize("typed", [("items:", "\n    "), ("items:\n    ",), ("items:",)])
async def test_nothing_beyond_the_requested_extent_of_a_held_back_line_is_shown(typed: tuple[str, ...]):
    body = ("return x + 1", "\n") if typed[-1].endswith(" ") else ("\n    return x + 1", "\n")
    scripted = ScriptedSession(PiecewiseBackend(("items", ":", "\n    ret", "urn x", "\n"), body))
    text, shown = "for x in ", []
    for version, more in enumerate(("", *typed), 1):
        text += more
        now = at(text, version=version)
        scripted.session.document_changed(now.uri, lambda now=now: CompletionInput(now))  # type: ignore[misc]
        shown.append([suggestion.text.strip() for suggestion in (await scripted.complete(now)).suggestions])
    assert not shown[0] and shown[-1] in (["return x + 1"], []), "and not a piece of the line after it"
    if text.endswith(" "):
        assert shown[-1] == ["return x + 1"]


async def test_a_held_back_suggestion_outlives_a_request_cancelled_before_its_plan():
    scripted = ScriptedSession(UnsureStartBackend("append(1)", logprob=0.0))
    assert (await scripted.complete(at(TEXT))).reason == "unsure"
    first, second = at(TEXT + "a", version=2), at(TEXT + "ap", version=3)
    scripted.session.document_changed(first.uri, lambda: CompletionInput(first))
    request = asyncio.create_task(scripted.complete(first))
    await asyncio.sleep(0)
    request.cancel()
    await asyncio.wait([request])
    scripted.session.document_changed(second.uri, lambda: CompletionInput(second))
    assert [suggestion.text for suggestion in (await scripted.complete(second)).suggestions] == ["pend(1)"]
    assert len(scripted.backend.requests) == 1


async def test_an_explicit_request_does_not_join_an_automatic_menu_request():
    backend = UnsureBackend("append(1)", logprob=-4.0)
    backend.round_s = 0.01
    scripted = ScriptedSession(backend, **{"completion.alternatives": 1})
    menu = asyncio.create_task(scripted.complete(at(TEXT), menu=True))
    await asyncio.sleep(0.01)
    outcome = await scripted.complete(at(TEXT), by_hand=True)
    assert [suggestion.text for suggestion in outcome.suggestions] == ["append(1)"] and (
        await menu
    ).reason == "superseded"


async def test_an_explicit_request_shows_a_held_back_suggestion_and_an_edit_elsewhere_drops_it():
    scripted = ScriptedSession(UnsureBackend("append(1)", logprob=-4.0), **{"completion.alternatives": 1})
    assert (await scripted.complete(at(TEXT))).reason == "unsure"
    outcome = await scripted.complete(at(TEXT), by_hand=True)
    assert [suggestion.text for suggestion in outcome.suggestions] == ["append(1)"]
    assert len(scripted.backend.requests) == 1
    scripted.session.cache.clear()
    assert (await scripted.complete(at(TEXT))).reason == "unsure"
    scripted.session.document_changed(at(TEXT).uri, lambda: CompletionInput(at("x = 1\n" + TEXT, version=2)))
    assert (await scripted.complete(at("x = 1\n" + TEXT, version=2))).reason == "unsure"
    assert len(scripted.backend.requests) == 3
    scripted.session.document_closed(at(TEXT).uri)
    assert (await scripted.complete(at("x = 1\n" + TEXT, version=2))).reason == "unsure"
    assert len(scripted.backend.requests) == 4, "nor is it kept for a document that is closed"


async def test_the_gate_is_open_without_probabilities_and_for_pairs_of_tests():
    unjudged = UnsureBackend("append(1)", logprob=-9.0)
    unjudged.status = replace(unjudged.status, model=UNJUDGED[0])
    for backend in (ScriptedBackend("append(1)"), unjudged):
        backend.status = replace(backend.status, model=backend.status.model or PAIR)
        scripted = ScriptedSession(backend, **{"completion.eagerness": "low"})
        assert (await scripted.complete(at(TEXT))).suggestions
        assert scripted.traces[0].confidence is None


@pytest.mark.parametrize(("least", "reason"), [(0.99, "unsure"), (0.0001, "")])
async def test_the_least_confidence_replaces_the_value(least: float, reason: str):
    settings = {"completion.min_confidence": least, "completion.alternatives": 1}
    scripted = ScriptedSession(UnsureBackend("append(1)", "append(1)", logprob=-0.3), **settings)
    outcome = await scripted.complete(at(TEXT))
    assert outcome.reason == reason
    assert scripted.traces[0].least_confidence == least
    by_hand = await scripted.complete(at(TEXT), by_hand=True)
    assert by_hand.suggestions and scripted.traces[1].least_confidence == 0


async def test_the_suggestion_of_an_unread_stream_is_cached_only_if_it_is_sure_enough():
    scripted = ScriptedSession(UnsureBackend("append(1)", logprob=-4.0))
    request = asyncio.create_task(scripted.complete(at(TEXT)))
    while not scripted.backend.streamed or len(scripted.backend.streamed[0]) < 3:
        await asyncio.sleep(0)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    while scripted.backend.streamed[0] != "append(1)":
        await asyncio.sleep(0)
    await asyncio.sleep(2 * AGREED_LINGER_S)
    outcome = await scripted.complete(at(TEXT))
    assert outcome.reason == "unsure" and len(scripted.backend.requests) == 1, "held back as if it had a reader"
