"""Typing through a running stream adopts it: no second request is sent while the text agrees."""

from __future__ import annotations

import asyncio

from async_tests import run
from hypothesis import given
from hypothesis import strategies as st
from support.lsp.scripted_session import (
    TEXT,
    URI,
    ScriptedBackend,
    ScriptedSession,
    at,
    captured,
    start_request,
    streamed,
)

from speclsp.lsp.backend.types import Status
from speclsp.lsp.completion.job import Outcome


async def test_a_key_that_agrees_with_the_stream_adopts_it():
    scripted = ScriptedSession(ScriptedBackend("append(1)", round_s=0.005))
    older = start_request(scripted, TEXT)
    await streamed(scripted, 5)
    newer = asyncio.create_task(scripted.texts(at(TEXT + "app", version=2)))
    assert await older == Outcome(reason="superseded")
    assert not newer.done(), "the older one is answered at once"
    assert await newer == ["end(1)"]
    assert len(scripted.backend.requests) == 1 and scripted.backend.streamed == ["append(1)"]
    assert [(trace.outcome, trace.adopted) for trace in scripted.traces] == [("superseded", False), ("shown", True)]
    assert sum(trace.tokens for trace in scripted.traces) == 9, "each round is counted once"


async def test_a_key_ahead_of_the_stream_is_confirmed_without_a_second_request():
    scripted = ScriptedSession(ScriptedBackend("append(1)", round_s=0.02))
    start_request(scripted, TEXT)
    await streamed(scripted, 2)
    assert await scripted.texts(at(TEXT + "appe", version=2)) == ["nd(1)"]
    assert len(scripted.backend.requests) == 1


async def test_a_key_ahead_of_the_stream_that_diverges_ends_it_within_a_round():
    scripted = ScriptedSession(ScriptedBackend("append(1)", "y()", round_s=0.02))
    start_request(scripted, TEXT)
    await streamed(scripted, 2)
    assert await scripted.texts(at(TEXT + "apx", version=2)) == ["y()"]
    assert len(scripted.backend.streamed[0]) <= 4, "the round that diverges, and perhaps one already begun"
    assert scripted.backend.requests[1].previous.startswith("pend"[:1])
    assert scripted.backend.requests[1].line_prefix == "items.apx"


@given(
    answer=st.text("ab(\n ", min_size=1, max_size=12),
    keys=st.lists(st.tuples(st.text("ab(\n ", min_size=1, max_size=3), st.integers(0, 3)), max_size=4),
)
def test_a_shown_text_is_always_the_backends_answer_to_the_text_or_to_a_beginning_of_it(
    answer: str, keys: list[tuple[str, int]]
):
    """Every request has one outcome, the last one is not superseded, and every shown text comes from the backend."""

    backend = ScriptedBackend(answer)
    backend.status = Status(state="ready", model="echo")  # whose words are not touched

    async def work() -> None:
        scripted = ScriptedSession(backend)
        text, requests = TEXT, [(TEXT, start_request(scripted, TEXT))]
        for typed, pause in keys:
            for _ in range(pause):
                await asyncio.sleep(0)
            text += typed
            requests.append((text, start_request(scripted, text)))
        outcomes = [(text, await task) for text, task in requests]
        assert outcomes[-1][1].reason != "superseded"
        request_texts = [request.prefix + request.line_prefix for request in scripted.backend.requests]
        for text, outcome in outcomes:
            for suggestion in outcome.suggestions:
                whole = text[: suggestion.start] + suggestion.text
                assert any(text.startswith(start) and start + answer == whole for start in request_texts)
        for start, sent in zip(request_texts, scripted.backend.streamed, strict=True):
            assert answer.startswith(sent) and start.startswith(TEXT)

    run(work())


async def test_an_adopted_stream_follows_the_newer_requests_plan():
    """The older request was for the rest of a line; after the colon, the newer one is for a block."""
    scripted = ScriptedSession(ScriptedBackend(":\n    print(item)\n    use(item)\n\nx = 1\n", round_s=0.01))
    older = start_request(scripted, "for item in items")
    await streamed(scripted, 1)
    assert await scripted.texts(at("for item in items:", version=2)) == ["\n    print(item)\n    use(item)"]
    assert (await older).reason == "superseded"
    assert len(scripted.backend.requests) == 1


async def test_an_adopted_stream_follows_the_newer_requests_deadline():
    scripted = ScriptedSession(ScriptedBackend("append(1234567890)", round_s=0.12), **{"completion.timeout_ms": 2000})
    older = start_request(scripted, TEXT)
    await streamed(scripted, 8)  # a second before the deadline
    newer = asyncio.create_task(scripted.texts(at(TEXT + "a", version=2)))
    assert (await older).reason == "superseded"
    (shown,) = await newer
    assert len(shown) > 8, "the older request's deadline had passed"
    assert "ppend(1234567890)".startswith(shown)


async def test_a_cancelled_completion_keeps_its_stream_for_the_next_keystroke():
    scripted = ScriptedSession(ScriptedBackend("append(1)", round_s=0.005))
    older = start_request(scripted, TEXT)
    await streamed(scripted, 4)
    older.cancel()
    await asyncio.sleep(0.01)
    assert await scripted.texts(at(TEXT + "ap", version=2)) == ["pend(1)"]
    assert older.cancelled()
    assert len(scripted.backend.requests) == 1
    assert [trace.outcome for trace in scripted.traces] == ["cancelled", "shown"]


async def test_an_unread_stream_ends_with_a_disagreeing_edit_and_outlives_an_agreeing_one():
    scripted = ScriptedSession(ScriptedBackend("append(12345678)", round_s=0.01))
    for edit, rounds in (("x", 1), ("a", 5)):
        number = len(scripted.backend.streamed)
        older = start_request(scripted, TEXT)
        await streamed(scripted, 3, number)
        older.cancel()
        await asyncio.sleep(0)
        characters = len(scripted.backend.streamed[number])
        scripted.session.document_changed(URI, captured(TEXT + edit, version=2))
        if edit == "x":
            await asyncio.sleep(0.07)
            assert len(scripted.backend.streamed[number]) <= characters + rounds
        else:
            await streamed(scripted, characters + rounds, number)
    assert await scripted.texts(at(TEXT + "ap", version=3)) == ["pend(12345678)"]
    assert [request.max_tokens > 0 for request in scripted.backend.requests].count(True) == 2


async def test_the_suggestion_of_an_unread_stream_is_cached():
    scripted = ScriptedSession(ScriptedBackend("pop()", round_s=0.001))
    older = start_request(scripted, TEXT)
    await streamed(scripted, 3)
    older.cancel()
    await streamed(scripted, len("pop()"))
    await asyncio.sleep(0.025)  # the stream's end
    assert scripted.backend.streamed == ["pop()"]
    assert await scripted.texts(at(TEXT)) == ["pop()"]
    assert len(scripted.backend.requests) == 1 and scripted.traces[-1].reused


async def test_a_stream_is_not_adopted_under_new_settings_or_for_a_text_changed_elsewhere():
    scripted = ScriptedSession(ScriptedBackend("append(1)", round_s=0.005))
    start_request(scripted, TEXT)
    await streamed(scripted, 3)
    scripted.session.apply_config(scripted.session.config)
    start_request(scripted, TEXT + "a", version=2)
    await streamed(scripted, 3, number=1)
    assert await scripted.texts(at("# \n" + TEXT + "ap", version=3))
    assert len(scripted.backend.requests) == 3
