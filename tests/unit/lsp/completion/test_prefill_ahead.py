"""Prefill ahead of a request: after a pause in typing, and only where a request would follow."""

from __future__ import annotations

import asyncio
import functools

import pytest
from support.lsp.scripted_session import TEXT, URI, ScriptedBackend, ScriptedSession, at, captured, until

from speclsp.errors import EngineError
from speclsp.lsp.backend.types import Status
from speclsp.lsp.completion import prefill_ahead
from speclsp.lsp.completion.job import CompletionInput
from speclsp.lsp.completion.prefill_ahead import FOCUS_PAUSE_S, MAX_UNREQUESTED


async def test_the_prefilled_prompt_is_the_prompt_of_the_request_that_follows():
    scripted = ScriptedSession(ScriptedBackend("pop()", ""))
    await scripted.texts(at(TEXT))
    scripted.session.document_changed(URI, captured(TEXT + "x", version=2))
    await until(lambda: len(scripted.backend.requests) == 2 and not scripted.session.busy)
    await scripted.texts(at(TEXT + "x"))
    _, prefill, request = scripted.backend.requests
    assert prefill.max_tokens == 0 and request.max_tokens > 0
    for name in ("prefix", "line_prefix", "suffix", "session", "extra", "path"):
        assert getattr(prefill, name) == getattr(request, name)
    assert scripted.metrics.total("prefill_ahead_total") == 1


async def test_nothing_is_prefilled_if_a_request_or_a_key_follows_at_once():
    scripted = ScriptedSession(ScriptedBackend("pop()", ""))
    await scripted.texts(at(TEXT))
    scripted.session.document_changed(URI, captured(TEXT + "x", version=2))
    scripted.session.document_changed(URI, captured(TEXT + "xy", version=2))
    await scripted.texts(at(TEXT + "xy"))
    await asyncio.sleep(0.03)
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
async def test_nothing_is_prefilled_where_a_request_would_not_reach_the_engine(
    settings: dict[str, object], text: str, uri: str
):
    scripted = ScriptedSession(ScriptedBackend("pop()"), **settings)
    await scripted.texts(at(TEXT))
    scripted.session.document_changed(uri, lambda: CompletionInput(at(text, uri=uri)))
    await asyncio.sleep(0.03)
    assert len(scripted.backend.requests) == 1


async def test_nothing_is_prefilled_without_prefix_caching_or_after_many_edits_without_a_request():
    scripted = ScriptedSession(ScriptedBackend("pop()", ""))
    await scripted.texts(at(TEXT))
    scripted.backend.reads_ahead = False
    scripted.session.document_changed(URI, captured(TEXT + "x", version=2))
    await asyncio.sleep(0.03)
    scripted.backend.reads_ahead = True
    for number in range(MAX_UNREQUESTED + 5):  # somebody who types on and never asks
        scripted.session.document_changed(URI, captured(TEXT + "x" * number, version=2))
        await asyncio.sleep(0.01)
    assert len(scripted.backend.requests) <= 1 + MAX_UNREQUESTED


async def test_an_unloaded_engine_is_woken_by_a_request_and_not_by_a_prefill():
    scripted = ScriptedSession(ScriptedBackend("pop()", "append(1)"))
    await scripted.texts(at(TEXT))
    scripted.backend.status = Status(state="asleep")
    scripted.session.document_changed(URI, captured(TEXT + "x", version=2))
    await asyncio.sleep(0.05)
    assert len(scripted.backend.requests) == 1, "nothing but a question wakes it"
    assert await scripted.texts(at(TEXT + "x", version=2)) == ["append(1)"]


async def test_a_failed_prefill_does_not_affect_the_next_request():
    scripted = ScriptedSession(ScriptedBackend("pop()", EngineError("gone"), "y()"))
    await scripted.texts(at(TEXT))
    scripted.session.document_changed(URI, captured(TEXT + "x", version=2))
    await until(lambda: len(scripted.backend.requests) == 2)
    assert await scripted.texts(at(TEXT + "x")) == ["y()"]


# ── the document that has the focus ──────────────────────────────────────────────────────────────────────────────────


async def test_the_document_with_the_focus_is_prefilled_before_its_first_request():
    scripted = ScriptedSession(ScriptedBackend("pop()"))
    scripted.session.document_focused(URI, lambda: CompletionInput(at(TEXT)))
    await until(lambda: scripted.backend.requests)
    await scripted.texts(at(TEXT))
    prefill, request = scripted.backend.requests
    assert prefill.max_tokens == 0 and request.max_tokens > 0
    assert (prefill.session, prefill.prefix, prefill.suffix) == (request.session, request.prefix, request.suffix)


async def test_of_documents_that_had_the_focus_briefly_only_the_last_is_prefilled():
    scripted = ScriptedSession(ScriptedBackend())
    for number in range(5):
        uri = f"file:///{number}.py"
        scripted.session.document_focused(uri, functools.partial(CompletionInput, at(TEXT, uri=uri)))
    await until(lambda: scripted.backend.requests)
    await asyncio.sleep(FOCUS_PAUSE_S + 0.05)
    assert [request.path for request in scripted.backend.requests] == ["4.py"]


async def test_a_user_who_only_reads_files_soon_costs_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prefill_ahead, "FOCUS_PAUSE_S", 0.0)
    scripted = ScriptedSession(ScriptedBackend())
    for number in range(MAX_UNREQUESTED + 5):
        uri = f"file:///{number}.py"
        scripted.session.document_focused(uri, functools.partial(CompletionInput, at(TEXT, uri=uri)))
        await asyncio.sleep(0.01)
    await until(lambda: len(scripted.backend.requests) >= MAX_UNREQUESTED)
    await asyncio.sleep(0.05)
    assert len(scripted.backend.requests) == MAX_UNREQUESTED


async def test_nothing_is_prefilled_for_the_focus_in_manual_mode():
    scripted = ScriptedSession(ScriptedBackend(), **{"completion.trigger": "manual"})
    scripted.session.document_focused(URI, lambda: CompletionInput(at(TEXT)))
    await asyncio.sleep(FOCUS_PAUSE_S + 0.05)
    assert scripted.backend.requests == []
