"""Prefill ahead of a request: after a pause in typing, and only where a request would follow."""

from __future__ import annotations

import asyncio
import functools

import pytest
from support.lsp.scripted_session import TEXT, URI, ScriptedBackend, ScriptedSession, at, captured, run

from speclsp.errors import EngineError
from speclsp.lsp.backend.types import Status
from speclsp.lsp.completion import prefill_ahead
from speclsp.lsp.completion.job import CompletionInput
from speclsp.lsp.completion.prefill_ahead import FOCUS_PAUSE_S, MAX_UNREQUESTED


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


# ── the document that has the focus ──────────────────────────────────────────────────────────────────────────────────


def test_the_document_with_the_focus_is_prefilled_before_its_first_request():
    async def work(scripted: ScriptedSession) -> None:
        scripted.session.document_focused(URI, lambda: CompletionInput(at(TEXT)))
        await asyncio.sleep(FOCUS_PAUSE_S + 0.05)
        await scripted.texts(at(TEXT))

    scripted = ScriptedSession(ScriptedBackend("pop()"))
    run(scripted, work)
    prefill, request = scripted.backend.requests
    assert prefill.max_tokens == 0 and request.max_tokens > 0
    assert (prefill.session, prefill.prefix, prefill.suffix) == (request.session, request.prefix, request.suffix)


def test_of_documents_that_had_the_focus_briefly_only_the_last_is_prefilled():
    async def work(scripted: ScriptedSession) -> None:
        for number in range(5):
            uri = f"file:///{number}.py"
            scripted.session.document_focused(uri, functools.partial(CompletionInput, at(TEXT, uri=uri)))
        await asyncio.sleep(FOCUS_PAUSE_S + 0.05)

    scripted = ScriptedSession(ScriptedBackend())
    run(scripted, work)
    assert [request.path for request in scripted.backend.requests] == ["4.py"]


def test_a_user_who_only_reads_files_soon_costs_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prefill_ahead, "FOCUS_PAUSE_S", 0.0)

    async def work(scripted: ScriptedSession) -> None:
        for number in range(MAX_UNREQUESTED + 5):
            uri = f"file:///{number}.py"
            scripted.session.document_focused(uri, functools.partial(CompletionInput, at(TEXT, uri=uri)))
            await asyncio.sleep(0.01)

    scripted = ScriptedSession(ScriptedBackend())
    run(scripted, work)
    assert len(scripted.backend.requests) == MAX_UNREQUESTED


def test_nothing_is_prefilled_for_the_focus_in_manual_mode():
    async def work(scripted: ScriptedSession) -> None:
        scripted.session.document_focused(URI, lambda: CompletionInput(at(TEXT)))
        await asyncio.sleep(FOCUS_PAUSE_S + 0.05)

    scripted = ScriptedSession(ScriptedBackend(), **{"completion.trigger": "manual"})
    run(scripted, work)
    assert scripted.backend.requests == []
