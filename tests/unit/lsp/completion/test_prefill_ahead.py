"""Prefill ahead of a request: after a pause in typing, and only where a request would follow."""

from __future__ import annotations

import asyncio

import pytest
from support.lsp.scripted_session import TEXT, URI, ScriptedBackend, ScriptedSession, at, captured, run

from speclsp.errors import EngineError
from speclsp.lsp.backend.types import Status
from speclsp.lsp.completion.job import CompletionInput
from speclsp.lsp.completion.prefill_ahead import MAX_UNREQUESTED


def test_the_prefilled_prompt_is_the_prompt_of_the_request_that_follows():
    async def work(scripted: ScriptedSession) -> None:
        await scripted.texts(at(TEXT))
        scripted.session.document_changed(URI, captured(TEXT + "x", version=2))
        await asyncio.sleep(0.05)
        assert not scripted.session.busy
        await scripted.texts(at(TEXT + "x"))

    scripted = ScriptedSession(ScriptedBackend("pop()", ""))
    run(scripted, work)
    _, prefill, request = scripted.backend.requests
    assert prefill.max_tokens == 0 and request.max_tokens > 0
    assert (prefill.prefix, prefill.line_prefix, prefill.suffix) == (
        request.prefix,
        request.line_prefix,
        request.suffix,
    )
    assert prefill.session == request.session and prefill.extra == request.extra and prefill.path == request.path
    assert scripted.metrics.total("prefill_ahead_total") == 1


def test_nothing_is_prefilled_if_a_request_or_a_key_follows_at_once():
    async def work(scripted: ScriptedSession) -> None:
        await scripted.texts(at(TEXT))
        scripted.session.document_changed(URI, captured(TEXT + "x", version=2))
        scripted.session.document_changed(URI, captured(TEXT + "xy", version=2))
        await scripted.texts(at(TEXT + "xy"))
        await asyncio.sleep(0.03)

    scripted = ScriptedSession(ScriptedBackend("pop()", ""))
    run(scripted, work)
    assert [request.max_tokens > 0 for request in scripted.backend.requests] == [True, True]


@pytest.mark.parametrize(
    ("settings", "text", "uri"),
    [
        ({}, TEXT + "po", URI),  # typed along: answered from memory
        ({}, TEXT, URI),
        ({}, TEXT + "x", "file:///never-asked-in.py"),
        ({"context.max_file_bytes": len(TEXT)}, TEXT + "x", URI),
    ],
)
def test_nothing_is_prefilled_where_a_request_would_not_reach_the_engine(
    settings: dict[str, object], text: str, uri: str
):
    async def work(scripted: ScriptedSession) -> None:
        await scripted.texts(at(TEXT))
        scripted.session.document_changed(uri, lambda: CompletionInput(at(text, uri=uri)))
        await asyncio.sleep(0.03)

    scripted = ScriptedSession(ScriptedBackend("pop()"), **settings)
    run(scripted, work)
    assert len(scripted.backend.requests) == 1


def test_nothing_is_prefilled_without_prefix_caching_or_after_many_edits_without_a_request():
    async def work(scripted: ScriptedSession) -> None:
        await scripted.texts(at(TEXT))
        scripted.backend.reads_ahead = False
        scripted.session.document_changed(URI, captured(TEXT + "x", version=2))
        await asyncio.sleep(0.03)
        scripted.backend.reads_ahead = True
        for number in range(MAX_UNREQUESTED + 5):  # somebody who types on and never asks
            scripted.session.document_changed(URI, captured(TEXT + "x" * number, version=2))
            await asyncio.sleep(0.01)

    scripted = ScriptedSession(ScriptedBackend("pop()", ""))
    run(scripted, work)
    assert len(scripted.backend.requests) <= 1 + MAX_UNREQUESTED


def test_an_unloaded_engine_is_woken_by_a_request_and_not_by_a_prefill():
    async def work(scripted: ScriptedSession) -> None:
        scripted.backend.status = Status(state="asleep")
        scripted.session._prefill_ahead.request_arrived(URI)
        scripted.session.document_changed(URI, lambda: CompletionInput(at(TEXT)))
        await asyncio.sleep(0.05)
        assert scripted.backend.requests == [], "nothing but a question wakes it"
        assert await scripted.texts(at(TEXT)) == ["append(1)"]

    run(ScriptedSession(ScriptedBackend("append(1)")), work)


def test_a_failed_prefill_does_not_affect_the_next_request():
    async def work(scripted: ScriptedSession) -> None:
        await scripted.texts(at(TEXT))
        scripted.session.document_changed(URI, captured(TEXT + "x", version=2))
        while len(scripted.backend.requests) < 2:
            await asyncio.sleep(0.005)
        assert await scripted.texts(at(TEXT + "x")) == ["y()"]

    run(ScriptedSession(ScriptedBackend("pop()", EngineError("gone"), "y()")), work)
